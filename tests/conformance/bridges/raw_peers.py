"""Raw peers that write and parse their own frames, one class per protocol, all with the same interface.

They share no code with the hub: they implement the specs, not the hub's interpretation of them.
"""

import asyncio
import json
from abc import abstractmethod
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import cbor2

from tests.conformance.bridges.raw_encoding import compact_json, escaped, read_marked, spelled, value_of
from tests.conformance.bridges.raw_peer_base import (
    NO_META,
    RECEIVE_TIMEOUT,
    TABLE,
    FailureDetails,
    Meta,
    RawPeer,
    ReceivedMessage,
)
from tests.support.raw_peers import Place, WirePeer

PROTOCOLS: Final = ("umq", "umq36", "lrpm-json", "lrpm-cbor")

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class WebSocketRawPeer(RawPeer):
    """A raw peer on its own WebSocket."""

    def __init__(self, place: Place, protocol: str, wire: WirePeer) -> None:
        super().__init__(protocol)
        self.place = place
        self.wire = wire

    async def _frame(self) -> str | bytes:
        frame = await asyncio.wait_for(self.wire.frames.get(), RECEIVE_TIMEOUT)
        assert frame is not None, "the connection is gone"
        return frame

    def disconnect(self) -> None:
        self.wire.leave()

    def write_bytes(self, data: bytes) -> object:
        return {"$base64": b64encode(data).decode()}

    def read_bytes(self, value: Any) -> tuple[bytes, str]:  # noqa: ANN401  as the encoding has it
        return read_marked(value, "$base64")


class UmqFamily(WebSocketRawPeer):
    """The common part of both UMQ dialects."""

    between: str
    call_letter: str
    close_letter: str
    column: int

    def __init__(self, place: Place, protocol: str, wire: WirePeer) -> None:
        super().__init__(place, protocol, wire)
        self._early: deque[str] = deque()
        """Texts that came before the attachments of another, as they may."""

    def _send(self, letter: str, number: str, payload: str, attachments: Sequence[bytes] = ()) -> None:
        prefix = f"A{self._count(len(attachments))}{self.between}" if attachments else ""
        self.wire.text(f"{prefix}{letter}{number}{self.between}{payload}")
        for item in attachments:
            self.wire.binary(item)

    @abstractmethod
    def _count(self, number: int) -> str: ...

    @abstractmethod
    def _read_count(self, text: str) -> int: ...

    def answer(
        self, call: ReceivedMessage, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META
    ) -> None:
        assert not meta, "UMQ has no meta"
        self._send("R", call.id, spelled(body), attachments)

    def fail(self, call: ReceivedMessage, text: str) -> None:
        self._send("E", call.id, text)

    async def receive(self) -> ReceivedMessage:
        text = self._early.popleft() if self._early else await self._frame()
        assert isinstance(text, str), text
        count = 0
        if text[0] == "A":
            head, _, text = text.partition(self.between)
            count = self._read_count(head[1:])
        attachments: list[bytes | str] = []
        while len(attachments) < count:
            frame = await self._frame()
            if isinstance(frame, bytes):
                attachments.append(frame)
            elif frame[0] == "-":
                attachments.append(frame[1:].removeprefix(self.between))
            else:
                self._early.append(frame)
        return self._read(text, tuple(attachments))

    def _read(self, text: str, attachments: tuple[bytes | str, ...]) -> ReceivedMessage:
        letter = text[0]
        number, _, payload = text[1:].partition(self.between)
        if letter == self.call_letter:
            name, body = self._read_call(payload)
            if name == "hub.discover":
                return ReceivedMessage("discover", number, (body or {}).get("name", ""), raw=text)
            return ReceivedMessage("call", number, name, body, attachments, raw=text)
        if letter == "R":
            return ReceivedMessage("result", number, "", value_of(payload), attachments, raw=text)
        if letter == "F" or (letter == "E" and not number):
            return ReceivedMessage("goodbye", body=payload, raw=text)
        if letter in "E!":
            code, blank, rest = payload.partition(" ")
            stored = {f"{row[self.column]} ": row[0] for row in TABLE}
            reason = stored.get(letter + code + blank)
            return ReceivedMessage("failure", number, reason or "raised", rest if reason else payload, raw=text)
        if letter == "T":
            return ReceivedMessage("event", "", number, value_of(payload), attachments, raw=text)
        if letter == self.close_letter:
            return ReceivedMessage("closed", "", number, raw=text)
        return self._read_other(letter, number, payload, attachments)

    @abstractmethod
    def _read_call(self, payload: str) -> tuple[str, Any]: ...

    @abstractmethod
    def _read_other(
        self, letter: str, number: str, payload: str, attachments: tuple[bytes | str, ...]
    ) -> ReceivedMessage: ...

    def spell(self, namespace: str, message: str) -> str:
        return f"{namespace.capitalize()}{':' if self.protocol == 'umq' else '.'}{message}"

    def spell_topic(self, *segments: str) -> str:
        return ".".join(item.replace("%", "%25").replace(".", "%2E").replace("*", "%2A") for item in segments)

    def reject(self, call: ReceivedMessage, text: str, reason: str = "refused") -> None:
        # UMQ36-a09: a hub never sends `!` in UMQ36, but accepts it from callees, as in UMQ.
        self.refuse(call, f"{next(row[self.column][1:] for row in TABLE if row[0] == reason)} {text}")

    def fail_with_details(self, call: ReceivedMessage, details: FailureDetails) -> FailureDetails:
        self.fail(call, details.text)
        return FailureDetails(details.text)

    def read_failure(self, failure: ReceivedMessage) -> FailureDetails:
        return FailureDetails(str(failure.body))

    def announce(self, name: str, count: int) -> None:
        """Send a call whose attachments are not sent yet."""
        call = f'["{name}"]' if self.call_letter == "C" else f"{name}{self.between}"
        number = self._next()
        self.wire.text(f"A{self._count(count)}{self.between}{self.call_letter}{number}{self.between}{call}")

    def refuse(self, call: ReceivedMessage, text: str) -> None:
        """Send a failure that means that the call did not run."""
        self._send("!", call.id, text)

    def fail_attachment(self, text: str) -> None:
        """Send the error that replaces the next attachment."""
        self.wire.text(f"-{self.between}{text}")

    async def subscribe(self, topic: str, *, envelope: bool = False) -> str:
        self._last += 1
        name = f"T{self._last}"
        received = await self.call_and_wait(
            self.builtin("subscribe"), {"topic": topic, "id": name, "envelope": envelope}
        )
        assert received.kind == "result", received
        return name

    def publish(self, topic: str, data: object, attachments: Sequence[bytes] = (), *, retain: bool = False) -> str:
        return self.call(self.builtin("publish"), {"topic": topic, "data": data, "retain": retain}, attachments)


class Umq(UmqFamily):
    """UMQ 1.0.0."""

    between, call_letter, close_letter, column = "\n", "M", "Z", 3

    def _count(self, number: int) -> str:
        return str(number)

    def _read_count(self, text: str) -> int:
        return int(text)

    def call(self, name: str, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META) -> str:
        assert not meta, "UMQ has no meta"
        number = self._next()
        self._send("M", number, f"{name}\n{spelled(body)}", attachments)
        return number

    def call_back(self, token: str, body: object) -> str:
        number = self._next()
        self._send("C", number, f"{token}\n{spelled(body)}")
        return number

    def _read_call(self, payload: str) -> tuple[str, Any]:
        name, _, text = payload.partition("\n")
        return name, value_of(text)

    def _read_other(
        self, letter: str, number: str, payload: str, attachments: tuple[bytes | str, ...]
    ) -> ReceivedMessage:
        if letter == "?":
            return ReceivedMessage("discover", number, payload)
        assert letter == "C", (letter, number, payload)
        return ReceivedMessage("callback", number, *self._read_call(payload), attachments)

    async def set(self, name: str, value: object) -> None:
        self._send("S", name, spelled(value))

    def describe(self, request: ReceivedMessage, methods: list[str]) -> None:
        self._send("R", request.id, "".join(f"M{item}\n" for item in methods))

    def document(self, request: ReceivedMessage, doc: str) -> None:
        self._send("R", request.id, f"D{doc}")

    async def discover(self, name: str = "") -> dict[str, Any]:
        number = self._next()
        self._send("?", number, name)
        received = await self.wait_for_answer(number)
        assert received.kind == "result", received
        text = str(received.raw).partition("\n")[2]
        if text.startswith("D"):
            return {"doc": text[1:]}
        lines = text.splitlines()
        return {
            "methods": [line[1:] for line in lines if line[0] == "M"],
            "routes": [line[1:] for line in lines if line[0] == "R"],
        }


class Umq36(UmqFamily):
    """UMQ36."""

    between, call_letter, close_letter, column = ":", "C", "D", 2

    def _next(self) -> str:
        self._last += 1
        return self._count(self._last)

    def _count(self, number: int) -> str:
        return (self._count(number // 36) if number >= 36 else "") + _DIGITS[number % 36]

    def _read_count(self, text: str) -> int:
        return int(text, 36)

    def call(self, name: str, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META) -> str:
        assert not meta, "UMQ36 has no meta"
        number = self._next()
        arguments = [] if body is None else body if isinstance(body, list) and len(body) > 1 else [body]
        self._send("C", number, compact_json([name, *arguments]), attachments)
        return number

    def call_back(self, token: str, body: object) -> str:
        number = self._next()
        self._send("B", number, f"{token}:{spelled(body)}")
        return number

    def _read_call(self, payload: str) -> tuple[str, Any]:
        name, *arguments = json.loads(payload)
        return name, (arguments if len(arguments) > 1 else arguments[0] if arguments else None)

    def _read_other(
        self, letter: str, number: str, payload: str, attachments: tuple[bytes | str, ...]
    ) -> ReceivedMessage:
        assert letter == "B", (letter, number, payload)
        name, _, text = payload.partition(":")
        return ReceivedMessage("callback", number, name, value_of(text), attachments)

    async def set(self, name: str, value: object) -> None:
        self._send("S", "", f"{name}={spelled(value)}")


class Lrpm(WebSocketRawPeer):
    """LRPM in JSON."""

    STREAM_META: ClassVar[Meta] = {"stream": True}

    def _write(self, message: list[object]) -> None:
        self.wire.text(compact_json(message))

    def _read_frame(self, frame: str | bytes) -> Any:  # noqa: ANN401  as the encoding has it
        assert isinstance(frame, str), frame
        return json.loads(frame)

    def _attach(self, data: bytes) -> object:
        return b64encode(data).decode()

    def _detach(self, item: Any) -> bytes:  # noqa: ANN401  as the encoding has it
        return b64decode(item, validate=True)

    def _meta(self, attachments: Sequence[bytes], meta: Meta) -> dict[str, object]:
        attached = {"attachments": [self._attach(item) for item in attachments]} if attachments else {}
        return {**meta, **attached}

    def call(self, name: str, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META) -> str:
        number = self._next()
        self._write([40, int(number), name, body, self._meta(attachments, meta)])
        return number

    def call_back(self, token: str, body: object) -> str:
        return self.call(f"callback.{token}", body)

    def answer(
        self, call: ReceivedMessage, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META
    ) -> None:
        self._write([41, int(call.id), body, self._meta(attachments, meta)])

    def fail(self, call: ReceivedMessage, text: str) -> None:
        self._write([20, 40, int(call.id), "app.err.failed", text, {}])

    def spell(self, namespace: str, message: str) -> str:
        return f"{namespace}.{message}"

    def spell_topic(self, *segments: str) -> str:
        return ".".join(escaped(item, "abcdefghijklmnopqrstuvwxyz0123456789") for item in segments)

    def reject(self, call: ReceivedMessage, text: str, reason: str = "refused") -> None:
        # LRPM-a14: the hub's uris have no meaning from a callee, which has equivalent ones.
        uri = next(row[4] for row in TABLE if row[0] == reason)
        self.error(call, uri.replace("hub.", "callee."), text)

    def fail_with_details(self, call: ReceivedMessage, details: FailureDetails) -> FailureDetails:
        self.error(
            call, details.name, details.data, {"text": details.text, "retry_after": int(details.retry_after * 1000)}
        )
        return FailureDetails(details.text, details.name, details.data, retry_after=details.retry_after)

    def read_failure(self, failure: ReceivedMessage) -> FailureDetails:
        meta, is_text = failure.meta, "text" not in failure.meta
        text = meta.get("text", "") if not is_text else failure.body
        data = None if is_text else failure.body
        return FailureDetails(text, meta["uri"], data, retry_after=meta.get("retry_after", 0) / 1000)

    def stream_answer(self, call: ReceivedMessage, elements: Sequence[object]) -> None:
        for number, item in enumerate(elements, 1):
            self.answer(call, item, meta={"part": number, "last": number == len(elements)})

    def cancel(self, call_id: str) -> None:
        self._write([21, int(call_id), {}])

    def error(self, call: ReceivedMessage, uri: str, body: object, meta: Meta = NO_META) -> None:
        """Send a failure with an error of the callee's own."""
        self._write([20, 40, int(call.id), uri, body, meta])

    async def receive(self) -> ReceivedMessage:
        raw = await self._frame()
        kind, *fields, meta = self._read_frame(raw)
        if kind == 1:
            return ReceivedMessage("goodbye", body=fields[0], meta=meta, raw=raw)
        errors = meta.get("attachment_errors", {})
        attachments = tuple(
            errors[str(index)] if item is None else self._detach(item)
            for index, item in enumerate(meta.get("attachments", ()))
        )
        if kind == 40:
            number, name, body = fields
            if name == "hub.discover":
                return ReceivedMessage("discover", str(number), (body or {}).get("name", ""))
            is_callback = name.startswith("callback.")
            name = name.removeprefix("callback.")
            return ReceivedMessage(
                "callback" if is_callback else "call", str(number), name, body, attachments, meta, raw
            )
        if kind == 20:
            _, number, uri, body = fields
            reason = {row[4]: row[0] for row in TABLE}.get(uri, "raised")
            return ReceivedMessage("failure", str(number), reason, body, (), {**meta, "uri": uri}, raw)
        if kind == 60:
            _, number, body = fields
            return ReceivedMessage(
                "closed" if meta.get("closed") else "event", "", str(number), body, attachments, meta, raw
            )
        if kind == 21:
            return ReceivedMessage("cancel", str(fields[0]), meta=meta, raw=raw)
        # RESULT has a body, PUBLISHED and SUBSCRIBED have a number, UNSUBSCRIBED has neither.
        assert kind in {41, 62, 64, 66}, fields
        return ReceivedMessage(
            "result", str(fields[0]), "", fields[1] if len(fields) > 1 else None, attachments, meta, raw
        )

    async def set(self, name: str, value: object) -> None:
        await self.value("hub.set", {"name": name, "value": value})

    async def subscribe(self, topic: str, *, envelope: bool = False) -> str:
        number = self._next()
        self._write([63, int(number), topic, {"envelope": envelope}])
        received = await self.wait_for_answer(number)
        assert received.kind == "result", received
        return str(received.body)

    def publish(self, topic: str, data: object, attachments: Sequence[bytes] = (), *, retain: bool = False) -> str:
        number = self._next()
        self._write([61, int(number), topic, data, self._meta(attachments, {"retain": retain})])
        return number


class LrpmCbor(Lrpm):
    """LRPM in CBOR."""

    def _write(self, message: list[object]) -> None:
        self.wire.binary(cbor2.dumps(message))

    def _read_frame(self, frame: str | bytes) -> Any:  # noqa: ANN401  as the encoding has it
        assert isinstance(frame, bytes), frame
        return cbor2.loads(frame)

    def _attach(self, data: bytes) -> object:
        return data

    def write_bytes(self, data: bytes) -> object:
        return data

    def read_bytes(self, value: Any) -> tuple[bytes, str]:  # noqa: ANN401  as the encoding has it
        return (value, "own") if isinstance(value, bytes) else read_marked(value, "")

    def _detach(self, item: Any) -> bytes:  # noqa: ANN401  as the encoding has it
        assert isinstance(item, bytes), item
        return item


async def connect_raw_peer(place: Place, protocol: str) -> WebSocketRawPeer:
    """Connect a raw peer of a protocol and complete its handshake."""
    match protocol:
        case "umq":
            return Umq(place, protocol, await place.umq())
        case "umq36":
            return Umq36(place, protocol, await place.umq36())
        case "lrpm-json":
            return Lrpm(place, protocol, await place.lrpm())
        case _:
            wire = await place.peer("/lrpm")
            wire.binary(cbor2.dumps([2, None, {}]))
            assert cbor2.loads(await wire.data())[0] == 2
            return LrpmCbor(place, protocol, wire)
