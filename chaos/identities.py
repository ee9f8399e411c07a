"""Identities: only some of them may call one method, also after restarts, reloads and rotations of tokens.

Calls of owners must succeed. Guests, anonymous peers and revoked tokens must always be refused with `denied`.
"""

import asyncio
from itertools import count
from random import Random
from typing import Any, Final

from chaos.hubs import HubAddress
from chaos.methods import is_answer_to
from chaos.participants import Participant, Report
from chaos.raw_nq import HttpError, RawConnection
from chaos.raw_peers import KINDS, Refused
from chaos.raw_websocket import ConnectionGone

VAULT_METHOD: Final = "vault.open"
_PAUSE: Final = 0.05


class OwnerTokens:
    """Valid and revoked tokens of the owners."""

    def __init__(self, first: str) -> None:
        self.valid = [first]
        """Tokens that the hub must admit: one, or two during a rotation."""
        self.revoked: list[str] = []
        """Tokens that the hub has refused once, and must refuse from then on."""


class AuthorizedCaller(Participant):
    """Calls the method with a valid token."""

    def __init__(self, hub: HubAddress, random: Random, number: int, tokens: OwnerTokens) -> None:
        super().__init__(hub, random)
        self._kind = KINDS[number % len(KINDS)]
        self._tokens = tokens
        self._numbers = count(1)
        self._successes = 0
        self._report = Report("identities")

    def report(self) -> Report:
        """Return the number of successful calls."""
        self._report.figures["allowed"] = self._successes
        return self._report

    async def run(self) -> None:
        """Call until the run ends, then until one call has succeeded after the last start."""
        is_done = False
        while not is_done:
            token, before, is_last = self.random.choice(self._tokens.valid), self._successes, self.is_finishing
            try:
                async with await self._kind.connect(self.hub.host, self.hub.port, token) as peer:
                    for _ in range(self.random.randrange(1, 20)):
                        number = next(self._numbers)
                        answer = await peer.call(VAULT_METHOD, [number])
                        if not is_answer_to(number, answer):
                            self._report.wrong.append(f"{VAULT_METHOD} of {number}: {answer}")
                        self._successes += 1
                        await asyncio.sleep(self.random.uniform(0.0, 0.03))
            except Refused as exc:
                if not exc.is_absence and token in self._tokens.valid:
                    self._report.failures.append(f"a valid token was refused: {exc}")
                await asyncio.sleep(_PAUSE)
            except ConnectionGone:
                await asyncio.sleep(_PAUSE)
            is_done = is_last and self._successes > before


class UnauthorizedPeer(Participant):
    """Tries to call and to register the method without permission."""

    def __init__(self, hub: HubAddress, random: Random, guest: str, keeper: str, tokens: OwnerTokens) -> None:
        super().__init__(hub, random)
        self._guest = guest
        self._keeper = keeper
        self._tokens = tokens
        self._numbers = count(1)
        self._report = Report("identities")

    def report(self) -> Report:
        """Return the number of refusals."""
        return self._report

    async def run(self) -> None:
        """Try until the run ends."""
        while not self.is_finishing:
            for attempt in (self._call, self._use_revoked_token, self._request_by_nq, self._steal_session):
                try:
                    await attempt()
                except (ConnectionGone, ConnectionError):
                    await asyncio.sleep(_PAUSE)
            await asyncio.sleep(self.random.uniform(0.0, 2 * _PAUSE))

    async def _call(self) -> None:
        kind, token = self.random.choice(KINDS), self.random.choice(["", self._guest])
        peer_kind = "a guest" if token else "an anonymous peer"
        async with await kind.connect(self.hub.host, self.hub.port, token) as peer:
            for name, body in ((VAULT_METHOD, [1]), ("hub.register", {"name": VAULT_METHOD})):
                try:
                    self._report.wrong.append(f"{peer_kind} could call {name}: {await peer.call(name, body)}")
                except Refused as exc:
                    self._expect_refusal(exc.is_denied, f"{peer_kind} called {name}: {exc}")

    async def _use_revoked_token(self) -> None:
        if not self._tokens.revoked:
            return
        kind, token = self.random.choice(KINDS), self.random.choice(self._tokens.revoked)
        try:
            async with await kind.connect(self.hub.host, self.hub.port, token):
                self._report.wrong.append("a revoked token was admitted")
        except Refused as exc:
            self._expect_refusal(exc.is_denied, f"a revoked token: {exc}")

    async def _request_by_nq(self) -> None:
        """Send an NQ request, which the hub must not accept."""
        connection = RawConnection(self.hub, self.random.choice(["", self._guest]))
        try:
            answers = await self._request_until_answer(connection)
        finally:
            connection.close()
        for answer in answers:
            error: dict[str, Any] = answer.get("e") or {}
            self._expect_refusal(error.get("err") == "denied", f"vault-open in NQ: {answer}")

    async def _steal_session(self) -> None:
        """Show the session id of another identity."""
        owner, thief = RawConnection(self.hub, self._keeper), RawConnection(self.hub, self._guest)
        try:
            request = f"mine-{next(self._numbers)}"
            await owner.post([{"t": "hub-echo", "r": request, "d": "secret"}], 1.0)
            thief.peer = owner.peer
            answers = await thief.post([], 0.0)
            if any(answer.get("i") == request for answer in answers):
                self._report.wrong.append(f"an answer went to another identity: {answers}")
            self._report.figures["kept apart"] += 1
        except HttpError as exc:
            self._expect_refusal(exc.status in (401, 403), f"the id of another's session: {exc}")
        finally:
            owner.close()
            thief.close()

    async def _request_until_answer(self, connection: RawConnection) -> list[dict[str, Any]]:
        request = f"outside-{next(self._numbers)}"
        messages: list[dict[str, Any]] = [{"t": "vault-open", "r": request, "d": [1]}]
        for _ in range(3):
            answers = [answer for answer in await connection.post(messages, 2.0) if answer.get("i") == request]
            if answers:
                await connection.post([{"i": answer["a"]} for answer in answers])
                return answers
            messages = []
        return []

    def _expect_refusal(self, is_refused: bool, text: str) -> None:
        if is_refused:
            self._report.figures["refused"] += 1
        else:
            self._report.wrong.append(text)
