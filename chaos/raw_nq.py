"""NQ over HTTP polling, written from the specification with plain sockets and JSON: no code of the hub's is used.

A requester repeats a request until it is accepted, polls for it until it is answered, and acknowledges each answer. The
first answer counts; a later one for the same request must be the same.
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
_LONGEST_WAIT: Final = 3.0
_BATCH: Final = 200
_PATIENCE: Final = 8.0


@dataclass
class OpenRequest:
    """A request without an answer."""

    target: str
    number: int
    sent_at: float
    """When it was sent first."""
    due_at: float
    wait: float
    is_accepted: bool = False


@dataclass(frozen=True)
class Acknowledgement:
    """A request that the hub acknowledged, and when its requester heard so first: by acceptance or by answer."""

    request: str
    sent_at: float
    heard_at: float


class HttpError(ConnectionError):
    """The hub refused a POST."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status


class RawConnection:
    """One HTTP connection for POSTs of one NQ peer."""

    def __init__(self, hub: HubAddress, token: str = "") -> None:
        self._hub = hub
        self._login = f"Authorization: Bearer {token}\r\n" if token else ""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.peer = ""

    def close(self) -> None:
        """Close it; the next POST opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def post(self, messages: list[dict[str, Any]], wait: float = 0.0) -> list[dict[str, Any]]:
        """Send messages and return those of the hub; ConnectionError if it is not there, HttpError if it refuses."""
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
    """Keeps some requests open over one connection after the other."""

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
        self._first_heard: set[str] = set()
        self._report = Report("raw requesters")

    def report(self) -> Report:
        """Return the result; what is open is lost."""
        self._report.figures["requests"] = len(self._open) + len(self._answers)
        self._report.figures["answered"] = len(self._answers)
        self._report.lost = len(self._open)
        return self._report

    async def run(self) -> None:
        """POST until all is answered."""
        while not (self.is_finishing and not self._open):
            try:
                await self._exchange(0.1)
            except ConnectionError:
                await asyncio.sleep(_PAUSE)
        with suppress(ConnectionError):
            await self._exchange(0.0)  # the last acknowledgements
        self._connection.close()

    async def _exchange(self, wait: float) -> None:
        messages = [*self._asked(), *self._due()]
        acks, self._acks = self._acks, []
        before = self._connection.peer
        packets = [messages[at : at + _BATCH] for at in range(0, len(messages), _BATCH)] or [[]]
        packets[0] = acks + packets[0]
        for packet in packets:
            for message in await self._connection.post(packet, wait if packet is packets[-1] else 0.0):
                self._heard(message)
        if before and before != self._connection.peer and any(each.is_accepted for each in self._open.values()):
            self._report.failures.append(f"{self.name}: the hub forgot a peer with accepted requests")

    def _asked(self) -> list[dict[str, Any]]:
        """Open as many requests as there should be."""
        now = monotonic()
        made: list[dict[str, Any]] = []
        while not self.is_finishing and len(self._open) < self.hub.load(self._in_flight):
            number = next(self._numbers)
            target = self._targets[number % len(self._targets)]
            request = f"{self.name}-{number}"
            self._open[request] = OpenRequest(target, number, now, now + _FIRST_WAIT, _FIRST_WAIT)
            made.append({"t": target, "r": request, "d": [number]})
        return made

    def _due(self) -> list[dict[str, Any]]:
        """Return the repeats and polls whose time has come."""
        now = monotonic()
        made: list[dict[str, Any]] = []
        for request, each in self._open.items():
            if each.due_at <= now and each.sent_at != now:
                each.wait = min(2 * each.wait, _LONGEST_WAIT)
                each.due_at = now + each.wait
                if each.is_accepted:
                    made.append({"t": each.target, "p": request})
                else:
                    made.append({"t": each.target, "r": request, "d": [each.number]})
        return made

    def _heard(self, message: dict[str, Any]) -> None:
        request, error = message.get("i"), message.get("e")
        if "a" not in message or not isinstance(request, str):
            if error is None and "i" not in message:
                self._report.wrong.append(f"{self.name}: unexpected {message}")
            elif error is not None and error.get("note") in ("denied", "goodbye"):
                raise ConnectionError(str(error))
            return
        each = self._open.get(request)
        if "d" in message or (error is not None and error.get("fatal")):
            self._acks.append({"i": message["a"]})
            self._answered(request, each, message)
        elif each is not None and error is not None and error.get("note") == "unknown":
            each.is_accepted, each.due_at = False, 0.0
        elif each is not None and error is None:
            self._acknowledged(request, each)
            if not each.is_accepted:
                each.is_accepted, each.wait = True, _FIRST_POLL
                each.due_at = monotonic() + _FIRST_POLL

    def _answered(self, request: str, each: OpenRequest | None, message: dict[str, Any]) -> None:
        said = json.dumps([message.get("d"), message.get("e")], sort_keys=True)
        if each is None:
            before = self._answers.get(request)
            if before is None:
                self._report.wrong.append(f"{self.name}: an answer to nothing: {message}")
            elif before != said:
                self._report.doubled += 1
                self._report.wrong.append(f"{self.name}: {request} was answered by {before}, then by {said}")
            return
        del self._open[request]
        self._answers[request] = said
        self._acknowledged(request, each)
        if "e" in message:
            self._report.failures.append(f"{self.name}: {request}: {message['e']}")
        elif not is_answer_to(each.number, message["d"]):
            self._report.wrong.append(f"{self.name}: {request}: {message['d']}")

    def _acknowledged(self, request: str, each: OpenRequest) -> None:
        if request not in self._first_heard:
            self._first_heard.add(request)
            self.acknowledged.append(Acknowledgement(request, each.sent_at, monotonic()))
