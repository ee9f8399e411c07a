"""An NQ peer that says and reads its frames itself, with the verbs of the others."""

import json
from base64 import b64encode
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from tests.bridges.speakers import NO_META, Heard, Meta, Speaker, written
from tests.runtime.wire import Place, WirePeer

REASONS: Final = {
    "notarget": "no such method",
    "nocallback": "no such callback",
    "unavailable": "nobody serves it now",
    "denied": "refused",
    "badargs": "bad arguments",
    "busy": "overloaded",
    "toolarge": "too large",
    "expired": "timeout",
    "cancelled": "cancelled",
}
"""The table of failures; all others are of the callee's own."""
_ALPHABET: Final = [chr(code) for code in range(33, 126) if chr(code) not in '"\\']


class Nq(Speaker):
    """NQ 1. It acknowledges every answer, and answers every event, as soon as it hears it."""

    def __init__(self, place: Place, protocol: str, wire: WirePeer) -> None:
        super().__init__(place, protocol, wire)
        self._early: deque[dict[str, Any]] = deque()
        """The rest of a batch."""
        self._followed: set[str] = set()
        self._channels: dict[str, str] = {}
        """Which request of the hub is answered on each backchannel of ours."""

    def _say(self, message: dict[str, object]) -> None:
        self.wire.text(written(message))

    def _channel(self, request: str) -> str:
        name = f"b{self._next()}"
        self._channels[name] = request
        return name

    def call(self, name: str, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META) -> str:
        number = self._next()
        self._say({"t": name, "r": number, "d": body, **_attached(attachments), **meta})
        return number

    def call_back(self, token: str, body: object) -> str:
        return self.call(f"callback-{token}", body)

    def answer(self, call: Heard, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META) -> None:
        self._say({"a": self._channel(call.id), "i": call.id, "d": body, **_attached(attachments), **meta})

    def fail(self, call: Heard, text: str) -> None:
        # A brace cannot be escaped, so that the text goes as an argument.
        error = {"type": "app", "fatal": True, "err": "failed", "text": "{1}", "args": [text]}
        self._say({"a": self._channel(call.id), "i": call.id, "e": error})

    def refuse(self, call: Heard, code: str, text: str) -> None:
        """Say that a call was not run."""
        error = {"type": "local", "fatal": True, "err": code, "text": text}
        self._say({"a": self._channel(call.id), "i": call.id, "e": error})

    async def hear(self) -> Heard:
        while True:
            while not self._early:
                frame = await self._frame()
                assert isinstance(frame, str), frame
                heard = json.loads(frame)
                self._early.extend(heard if isinstance(heard, list) else [heard])
            read = self._read(self._early.popleft())
            if read is not None:
                return read

    def _read(self, message: dict[str, Any]) -> Heard | None:
        """Return what a message says; None if only NQ itself has a use for it."""
        if "r" in message:
            return self._read_request(message)
        if "a" in message:
            return self._read_answer(message)
        error = message.get("e")
        if error is None or not error["fatal"]:
            return None
        if "i" in message:
            return Heard("cancel", self._channels.get(message["i"], message["i"]))
        assert error["type"] == "sys", message
        return Heard("goodbye", body=error)

    def _read_request(self, message: dict[str, Any]) -> Heard:
        target, number = message["t"], message["r"]
        body: Any = message.get("d")
        meta: dict[str, object] = {}
        attachments = tuple(map(_detached, message.get("attachments", ())))
        if target in self._followed or target == "hub-closed":
            self._say({"a": self._channel(number), "i": number, "d": None})
            if target == "hub-closed":
                return Heard("closed", "", body["id"])
            meta |= {key: message[key] for key in ("topic", "missed") if key in message}
            return Heard("event", "", target, body, attachments, meta)
        if target == "hub-discover":
            return Heard("discover", number, (body or {}).get("name", ""))
        is_callback = target.startswith("callback-")
        meta |= {"redelivered": True} if message.get("redelivered") else {}
        name = target.removeprefix("callback-")
        return Heard("callback" if is_callback else "call", number, name, body, attachments, meta)

    def _read_answer(self, message: dict[str, Any]) -> Heard | None:
        error = message.get("e")
        if "d" not in message and (error is None or not error["fatal"]):
            return None
        self._say({"i": message["a"]})
        if error is None:
            attachments = tuple(map(_detached, message.get("attachments", ())))
            return Heard("result", message["i"], "", message["d"], attachments)
        text = error.get("text", "")
        if text == "{1}":
            text = error["args"][0]
        reason = REASONS.get(error.get("err", ""), "raised") if error["type"] in {"local", "remote"} else "raised"
        return Heard("failure", message["i"], reason, text, (), {"err": error.get("err", "")})

    async def set(self, name: str, value: object) -> None:
        await self.value("hub-set", {"name": name, "value": value})

    async def subscribe(self, topic: str, *, envelope: bool = False) -> str:
        name = f"T{self._next()}"
        self._followed.add(name)
        await self.value("hub-subscribe", {"topic": topic, "id": name, "envelope": envelope})
        return name

    def publish(self, topic: str, data: object, attachments: Sequence[bytes] = (), *, retain: bool = False) -> str:
        return self.call("hub-publish", {"topic": topic, "data": data, "retain": retain}, attachments)

    def builtin(self, name: str) -> str:
        return f"hub-{name}"


async def nq_speaker(place: Place) -> Nq:
    """A peer over WebSocket that has heard its id."""
    wire = await place.peer("/nq")
    assert json.loads(await wire.heard())["e"]["note"] == "peer"
    return Nq(place, "nq", wire)


def _attached(attachments: Sequence[bytes]) -> dict[str, object]:
    return {"attachments": [{"$base64": b64encode(each).decode()} for each in attachments]} if attachments else {}


def _detached(item: dict[str, str]) -> bytes | str:
    """Return an attachment, or the reason why it did not come."""
    return item["$error"] if "$error" in item else base91(item["$base91"])


def base91(text: str) -> bytes:
    """Read base91 as RULES NQ-a12 has it."""
    data = bytearray()
    bits = count = 0
    for first, second in zip(text[::2], text[1::2], strict=False):
        value = _ALPHABET.index(first) + 91 * _ALPHABET.index(second)
        width = 13 if value & 8191 > 88 else 14
        bits |= value << count
        count += width
        while count > 7:
            data.append(bits & 255)
            bits, count = bits >> 8, count - 8
    if len(text) % 2:
        data.append((bits | _ALPHABET.index(text[-1]) << count) & 255)
    return bytes(data)
