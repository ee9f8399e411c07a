"""UMQ and LRPM-JSON over a raw WebSocket, written from the specifications.

Nothing here imports the protocols of the hub, so a bug that hub and client share is detected.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Final, Self

from chaos.raw_websocket import ConnectionGone, RawWebSocket

Value = object
Reply = Callable[[bool, Value], None]
"""Answers a call with: whether it succeeded, and the result or the error text."""
Serve = Callable[[Value, Reply], None]

_PATIENCE: Final = 8.0


class Refused(Exception):
    """A call failed with an error code of the protocol."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code

    @property
    def is_denied(self) -> bool:
        """Whether the permission is missing."""
        return self.code in ("12", "hub.err.denied", ".err.auth")

    @property
    def is_absence(self) -> bool:
        """Whether there was no callee, or it disconnected."""
        return self.code in ("7", "9", "10", "11") or self.code in {
            f"hub.err.{reason}" for reason in ("no_such_procedure", "timeout", "lost", "unavailable")
        }


class RawPeer(ABC):
    """One session that sends calls and receives calls and events."""

    path: str

    def __init__(self, socket: RawWebSocket) -> None:
        self.socket = socket
        self.call_handlers: dict[str, Serve] = {}
        """Handlers of calls by method, and of callbacks by `callback.NAME`."""
        self.event_handlers: dict[str, Callable[[Value], None]] = {}
        """Handlers of events, by subscription id."""
        self.is_gone = False
        self._numbers = count(256)
        self._open: dict[str, asyncio.Future[Value]] = {}
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, host: str, port: int, token: str = "") -> Self:
        """Connect and perform the handshake.

        Raises ConnectionGone if there is no connection, Refused if the hub refuses the token.
        """
        peer = cls(await RawWebSocket.open(host, port, cls.path))
        try:
            async with asyncio.timeout(_PATIENCE):
                await peer._say_hello(token)
        except TimeoutError as exc:
            peer.socket.abort()
            raise ConnectionGone("no welcome") from exc
        except BaseException:
            peer.socket.abort()
            raise
        peer._reading = asyncio.create_task(peer._read())
        return peer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.socket.abort()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def call(self, name: str, body: Value = None) -> Value:
        """Call a method by its name with dots; Refused if it fails, ConnectionGone without a response."""
        number = str(next(self._numbers))
        self._write_call(number, name, body)
        return await self._answer(number)

    async def gone(self) -> None:
        """Wait until the connection is closed."""
        if self._reading is not None:
            await asyncio.wait([self._reading])

    async def _answer(self, number: str) -> Value:
        if self.is_gone:
            raise ConnectionGone("the connection is closed")
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_PATIENCE):
                return await answer
        except TimeoutError as exc:
            self.socket.abort()
            raise ConnectionGone("no answer") from exc
        finally:
            self._open.pop(number, None)

    async def _read(self) -> None:
        try:
            while True:
                self._received(await self.socket.receive())
        except ConnectionGone as exc:
            self.is_gone = True
            for response in self._open.values():
                if not response.done():
                    response.set_exception(ConnectionGone(str(exc)))

    def _resolve(self, number: str, result: Value = None, refused: Refused | None = None) -> None:
        answer = self._open.get(number)
        if answer is None or answer.done():
            return
        if refused is None:
            answer.set_result(result)
        else:
            answer.set_exception(refused)

    def _serve(self, number: str, name: str, body: Value) -> None:
        serve = self.call_handlers.get(name)
        if serve is None:
            self._write_answer(number, False, f"unexpected {name}")
        else:
            serve(body, lambda is_good, value: self._write_answer(number, is_good, value))

    @abstractmethod
    async def _say_hello(self, token: str) -> None:
        """Perform the handshake."""

    @abstractmethod
    async def subscribe(self, topic: str, on_event: Callable[[Value], None]) -> None:
        """Subscribe to a topic, written with dots."""

    @abstractmethod
    async def retain(self, topic: str, value: Value) -> None:
        """Publish a retained value; return after the hub acknowledged it."""

    @abstractmethod
    def _write_call(self, number: str, name: str, body: Value) -> None: ...

    @abstractmethod
    def _write_answer(self, number: str, is_good: bool, value: Value) -> None: ...

    @abstractmethod
    def _received(self, text: str) -> None: ...


class RawUmq(RawPeer):
    """UMQ 1.0.0: a letter, an identifier, a line feed, the payload."""

    path = "/umq"

    async def _say_hello(self, token: str) -> None:
        self.socket.send(f"H1.0.0\n{token}")
        answer = await self.socket.receive()
        if answer[:1] == "E":
            raise _parse_error(answer.partition("\n")[2])
        if answer.partition("\n")[0] != "W1.0.0":
            raise AssertionError(f"no welcome: {answer!r}")

    async def subscribe(self, topic: str, on_event: Callable[[Value], None]) -> None:
        """Subscribe to a topic, written with dots."""
        name = f"s{next(self._numbers)}"
        self.event_handlers[name] = on_event
        await self.call("hub.subscribe", {"topic": topic, "id": name})

    async def retain(self, topic: str, value: Value) -> None:
        """Publish a retained value; return after the hub acknowledged it."""
        await self.call("hub.publish", {"topic": topic, "data": value, "retain": True})

    def _write_call(self, number: str, name: str, body: Value) -> None:
        self.socket.send(f"M{number}\n{name.replace('.', ':')}\n{json.dumps(body)}")

    def _write_answer(self, number: str, is_good: bool, value: Value) -> None:
        self.socket.send(f"{'R' if is_good else 'E'}{number}\n{json.dumps(value) if is_good else value}")

    def _received(self, text: str) -> None:
        head, _, rest = text.partition("\n")
        kind, name = head[:1], head[1:]
        if kind == "R":
            self._resolve(name, _parse_body(rest))
        elif kind in ("E", "!"):
            self._resolve(name, refused=_parse_error(rest))
        elif kind == "M":
            method, _, body = rest.partition("\n")
            self._serve(name, method.replace(":", "."), _parse_body(body))
        elif kind == "C":
            callback, _, body = rest.partition("\n")
            self._serve(name, f"callback.{callback}", _parse_body(body))
        elif kind == "T" and name in self.event_handlers:
            self.event_handlers[name](_parse_body(rest))


class RawLrpm(RawPeer):
    """LRPM-JSON: an array of the message kind and its fields."""

    path = "/lrpm"

    def __init__(self, socket: RawWebSocket) -> None:
        super().__init__(socket)
        self._early: list[tuple[str, Value]] = []

    async def _say_hello(self, token: str) -> None:
        self.socket.send(json.dumps([2, {"token": token} if token else None]))
        answer = json.loads(await self.socket.receive())
        if answer[0] == 1:
            raise Refused(answer[1], str(answer))
        if answer[0] != 2:
            raise AssertionError(f"no hello: {answer!r}")

    async def subscribe(self, topic: str, on_event: Callable[[Value], None]) -> None:
        """Subscribe to a topic, written with dots."""
        number = next(self._numbers)
        self.socket.send(json.dumps([63, number, topic, {}]))
        name = str(await self._answer(str(number)))
        self.event_handlers[name] = on_event
        early, self._early = self._early, []
        for subscription, body in early:
            if subscription == name:
                on_event(body)

    async def retain(self, topic: str, value: Value) -> None:
        """Publish a retained value; return after the hub acknowledged it."""
        number = next(self._numbers)
        self.socket.send(json.dumps([61, number, topic, value, {"retain": True}]))
        await self._answer(str(number))

    def _write_call(self, number: str, name: str, body: Value) -> None:
        self.socket.send(json.dumps([40, int(number), name, body, {}]))

    def _write_answer(self, number: str, is_good: bool, value: Value) -> None:
        answer = [41, int(number), value, {}] if is_good else [20, 40, int(number), "app.err.failed", value, {}]
        self.socket.send(json.dumps(answer))

    def _received(self, text: str) -> None:
        kind, *fields = json.loads(text)
        if kind == 41 or kind in (62, 64):
            self._resolve(str(fields[0]), fields[1])
        elif kind == 20:
            self._resolve(str(fields[1]), refused=Refused(fields[2], str(fields[3])))
        elif kind == 40:
            self._serve(str(fields[0]), fields[1], fields[2])
        elif kind == 60 and str(fields[1]) in self.event_handlers:
            self.event_handlers[str(fields[1])](fields[2])
        elif kind == 60:  # received in one read with the response to SUBSCRIBE
            self._early.append((str(fields[1]), fields[2]))


KINDS: Final[tuple[type[RawPeer], ...]] = (RawLrpm, RawUmq)


def _parse_body(text: str) -> Value:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parse_error(text: str) -> Refused:
    code, _, rest = text.partition(" ")
    return Refused(code, rest)
