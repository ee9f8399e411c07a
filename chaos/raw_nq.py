"""NQ over HTTP polling, written from the specification with plain sockets and JSON, without code of the hub.

A requester retransmits a request until it is accepted, polls until it is answered, and acknowledges each response. The
first response counts; later ones for the same request must be equal.
"""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from random import Random
from time import monotonic
from typing import Any, Final

from chaos.hubs import HubAddress
from chaos.methods import is_answer_to
from chaos.participants import Participant, Report

_PAUSE: Final = 0.05
_FIRST_WAIT: Final = 0.3
_FIRST_POLL: Final = 0.6
_MAX_WAIT: Final = 3.0
_BATCH: Final = 200
_PATIENCE: Final = 8.0


@dataclass
class OpenRequest:
    """A request without a response."""

    target: str
    number: int
    sent_at: float
    """Time of the first transmission."""
    due_at: float
    wait: float
    is_accepted: bool = False


@dataclass(frozen=True)
class Acknowledgement:
    """A request that the hub acknowledged, and the time when its acceptance or response was first received."""

    request: str
    sent_at: float
    received_at: float


class HttpError(ConnectionError):
    """The hub answered a POST with an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status


class RawConnection:
    """One HTTP connection of an NQ peer."""

    def __init__(self, hub: HubAddress, token: str = "") -> None:
        self._hub = hub
        self._login = f"Authorization: Bearer {token}\r\n" if token else ""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.peer = ""

    def close(self) -> None:
        """Close the connection; the next POST opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def post(self, messages: list[dict[str, Any]], wait: float = 0.0) -> list[dict[str, Any]]:
        """Send messages and return those of the hub.

        Raises ConnectionError if the hub is unreachable, HttpError for an error status.
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._post(json.dumps(messages).encode(), wait)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as exc:
            self.close()
            if isinstance(exc, HttpError):
                raise
            raise ConnectionError(str(exc)) from exc
        except BaseException:
            self.close()
            raise

    async def _post(self, body: bytes, wait: float) -> list[dict[str, Any]]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._hub.host, self._hub.port)
        reader, writer = self._streams
        peer = f"NQ-Peer: {self.peer}\r\n" if self.peer else ""
        writer.write(
            f"POST /nq?wait={wait} HTTP/1.1\r\nHost: {self._hub.host}:{self._hub.port}\r\n{self._login}{peer}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        answer = await reader.readexactly(int(headers.get("content-length", 0)))
        code = int(status.split(" ")[1])
        if code != 200:
            raise HttpError(code, answer.decode())
        self.peer = headers["nq-peer"]
        messages = json.loads(answer)
        return messages if isinstance(messages, list) else [messages]


class RawRequester(Participant):
    """Keeps a number of requests pending, over one connection after the other."""

    def __init__(
        self, hub: HubAddress, random: Random, name: str, in_flight: int, targets: tuple[str, ...], token: str = ""
    ) -> None:
        super().__init__(hub, random)
        self.name = name
        self.acknowledged: list[Acknowledgement] = []
        self._connection = RawConnection(hub, token)
        self._targets = targets
        self._in_flight = in_flight
        self._numbers = count(1)
        self._open: dict[str, OpenRequest] = {}
        self._answers: dict[str, str] = {}
        self._acks: list[dict[str, Any]] = []
        self._acknowledged_requests: set[str] = set()
        self._report = Report("raw requesters")

    def report(self) -> Report:
        """Return the result; pending requests count as lost."""
        self._report.figures["requests"] = len(self._open) + len(self._answers)
        self._report.figures["answered"] = len(self._answers)
        self._report.lost = len(self._open)
        return self._report

    async def run(self) -> None:
        """POST until all requests are answered."""
        while not (self.is_finishing and not self._open):
            try:
                await self._exchange(0.1)
            except ConnectionError:
                await asyncio.sleep(_PAUSE)
        with suppress(ConnectionError):
            await self._exchange(0.0)  # the last acknowledgements
        self._connection.close()

    async def _exchange(self, wait: float) -> None:
        messages = [*self._new_requests(), *self._retransmissions()]
        acks, self._acks = self._acks, []
        before = self._connection.peer
        packets = [messages[at : at + _BATCH] for at in range(0, len(messages), _BATCH)] or [[]]
        packets[0] = acks + packets[0]
        for packet in packets:
            for message in await self._connection.post(packet, wait if packet is packets[-1] else 0.0):
                self._handle_message(message)
        if before and before != self._connection.peer and any(each.is_accepted for each in self._open.values()):
            self._report.failures.append(f"{self.name}: the hub forgot a peer with accepted requests")

    def _new_requests(self) -> list[dict[str, Any]]:
        """Open requests up to the configured number."""
        now = monotonic()
        messages: list[dict[str, Any]] = []
        while not self.is_finishing and len(self._open) < self.hub.load(self._in_flight):
            number = next(self._numbers)
            target = self._targets[number % len(self._targets)]
            request = f"{self.name}-{number}"
            self._open[request] = OpenRequest(target, number, now, now + _FIRST_WAIT, _FIRST_WAIT)
            messages.append({"t": target, "r": request, "d": [number]})
        return messages

    def _retransmissions(self) -> list[dict[str, Any]]:
        """Return the retransmissions and polls that are due."""
        now = monotonic()
        messages: list[dict[str, Any]] = []
        for request, pending in self._open.items():
            if pending.due_at <= now and pending.sent_at != now:
                pending.wait = min(2 * pending.wait, _MAX_WAIT)
                pending.due_at = now + pending.wait
                if pending.is_accepted:
                    messages.append({"t": pending.target, "p": request})
                else:
                    messages.append({"t": pending.target, "r": request, "d": [pending.number]})
        return messages

    def _handle_message(self, message: dict[str, Any]) -> None:
        request, error = message.get("i"), message.get("e")
        if "a" not in message or not isinstance(request, str):
            if error is None and "i" not in message:
                self._report.wrong.append(f"{self.name}: unexpected {message}")
            elif error is not None and error.get("note") in ("denied", "goodbye"):
                raise ConnectionError(str(error))
            return
        pending = self._open.get(request)
        if "d" in message or (error is not None and error.get("fatal")):
            self._acks.append({"i": message["a"]})
            self._handle_response(request, pending, message)
        elif pending is not None and error is not None and error.get("note") == "unknown":
            pending.is_accepted, pending.due_at = False, 0.0
        elif pending is not None and error is None:
            self._record_acknowledgement(request, pending)
            if not pending.is_accepted:
                pending.is_accepted, pending.wait = True, _FIRST_POLL
                pending.due_at = monotonic() + _FIRST_POLL

    def _handle_response(self, request: str, pending: OpenRequest | None, message: dict[str, Any]) -> None:
        response = json.dumps([message.get("d"), message.get("e")], sort_keys=True)
        if pending is None:
            earlier = self._answers.get(request)
            if earlier is None:
                self._report.wrong.append(f"{self.name}: an answer to nothing: {message}")
            elif earlier != response:
                self._report.doubled += 1
                self._report.wrong.append(f"{self.name}: {request} was answered by {earlier}, then by {response}")
            return
        del self._open[request]
        self._answers[request] = response
        self._record_acknowledgement(request, pending)
        if "e" in message:
            self._report.failures.append(f"{self.name}: {request}: {message['e']}")
        elif not is_answer_to(pending.number, message["d"]):
            self._report.wrong.append(f"{self.name}: {request}: {message['d']}")

    def _record_acknowledgement(self, request: str, pending: OpenRequest) -> None:
        if request not in self._acknowledged_requests:
            self._acknowledged_requests.add(request)
            self.acknowledged.append(Acknowledgement(request, pending.sent_at, monotonic()))
