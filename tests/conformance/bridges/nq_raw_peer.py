"""A raw NQ peer that writes and parses its own frames."""

import json
import string
from base64 import b64encode
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from tests.conformance.bridges.raw_encoding import base91, compact_json, escaped, in_base91, read_marked
from tests.conformance.bridges.raw_peer_base import NO_META, FailureDetails, Meta, ReceivedMessage
from tests.conformance.bridges.raw_peers import WebSocketRawPeer
from tests.support.raw_peers import Place, WirePeer

REASONS: Final = {
    "notarget": "no such method",
    "nocallback": "no such callback",
    "unavailable": "no callee is available",
    "denied": "refused",
    "badargs": "bad arguments",
    "busy": "overloaded",
    "toolarge": "too large",
    "expired": "timeout",
    "cancelled": "cancelled",
}
"""The hub's failures; others belong to the callee."""


class Nq(WebSocketRawPeer):
    """A raw peer of NQ 1. It acknowledges each answer and answers each event at once."""

    def __init__(self, place: Place, protocol: str, wire: WirePeer) -> None:
        super().__init__(place, protocol, wire)
        self._early: deque[dict[str, Any]] = deque()
        """The rest of a batch."""
        self._followed: set[str] = set()
        self._channels: dict[str, str] = {}
        """Which request of the hub is answered on each backchannel of ours."""
        self._answers: dict[str, str] = {}
        """The same the other way round."""
        self._asked: dict[str, str] = {}
        self._accepted: dict[str, str] = {}
        """The targets of our requests that are open, and the backchannels on which they are answered."""
        self.peer = ""
        """The id by which it may come back."""

    def continue_from(self, earlier: "Nq") -> None:
        """Continue the conversation of an earlier connection."""
        self._last, self._followed = earlier._last, earlier._followed
        self._channels, self._answers = earlier._channels, earlier._answers
        self._asked, self._accepted = earlier._asked, earlier._accepted

    def push_back(self, messages: list[dict[str, Any]]) -> None:
        """Hear these first."""
        self._early.extend(messages)

    def _send(self, message: dict[str, object]) -> None:
        self.wire.text(compact_json(message))

    def _channel(self, request: str) -> str:
        """Return the backchannel of a request."""
        channel = self._answers.get(request)
        if channel is None:
            channel = self._answers[request] = f"b{self._next()}"
            self._channels[channel] = request
        return channel

    def call(self, name: str, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META) -> str:
        number = self._next()
        self._asked[number] = name
        self._send({"t": name, "r": number, "d": body, **_attached(attachments), **meta})
        return number

    def call_back(self, token: str, body: object) -> str:
        return self.call(f"callback-{token}", body)

    def answer(
        self, call: ReceivedMessage, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META
    ) -> None:
        self._send({"a": self._channel(call.id), "i": call.id, "d": body, **_attached(attachments), **meta})

    def fail(self, call: ReceivedMessage, text: str) -> None:
        # A brace cannot be escaped, so the text is an argument.
        error = {"type": "app", "fatal": True, "err": "failed", "text": "{1}", "args": [text]}
        self._send({"a": self._channel(call.id), "i": call.id, "e": error})

    def refuse(self, call: ReceivedMessage, code: str, text: str) -> None:
        """Send an error that means that the call did not run."""
        error = {"type": "local", "fatal": True, "err": code, "text": text}
        self._send({"a": self._channel(call.id), "i": call.id, "e": error})

    def spell(self, namespace: str, message: str) -> str:
        return f"{namespace}-{message}"

    def spell_topic(self, *segments: str) -> str:
        return "-".join(escaped(item, string.ascii_letters + string.digits) for item in segments)

    def reject(self, call: ReceivedMessage, text: str, reason: str = "refused") -> None:
        self.refuse(call, next(code for code, known_name in REASONS.items() if known_name == reason), text)

    def fail_with_details(self, call: ReceivedMessage, details: FailureDetails) -> FailureDetails:
        error = {"type": "app", "fatal": True, "err": details.name, "text": details.text}
        self._send({"a": self._channel(call.id), "i": call.id, "e": error, "d": details.data})
        return FailureDetails(details.text, details.name, details.data)

    def read_failure(self, failure: ReceivedMessage) -> FailureDetails:
        return FailureDetails(str(failure.body), failure.meta["err"], failure.meta.get("data"))

    def write_bytes(self, data: bytes) -> object:
        return {"$base91": in_base91(data)}

    def read_bytes(self, value: Any) -> tuple[bytes, str]:  # noqa: ANN401  any JSON
        return read_marked(value, "$base91")

    def cancel_all(self) -> None:
        """Cancel all unanswered requests, which would wait for the next callee of the method."""
        for call_id in list(self._asked):
            self.cancel(call_id)

    def cancel(self, call_id: str) -> None:
        # A request is identified by its target before the acceptance, and by its backchannel after it.
        error = {"type": "local", "fatal": True, "err": "cancelled"}
        if call_id in self._accepted:
            self._send({"i": self._accepted[call_id], "e": error})
        else:
            self._send({"t": self._asked[call_id], "i": call_id, "e": error})

    def stream_call(self, name: str, elements: Sequence[object]) -> str:
        number, last = self._next(), len(elements)
        self._asked[number] = name
        for number_in_stream, element in enumerate(elements, 1):
            self._send(
                {"t": name, "r": number, "d": element, "n": number_in_stream}
                | ({"f": 0} if number_in_stream == last else {})
            )
        return number

    def stream_answer(self, call: ReceivedMessage, elements: Sequence[object]) -> None:
        channel, last = self._channel(call.id), len(elements)
        for number_in_stream, element in enumerate(elements, 1):
            self._send(
                {"a": channel, "i": call.id, "d": element, "n": number_in_stream}
                | ({"f": 0} if number_in_stream == last else {})
            )

    async def receive(self) -> ReceivedMessage:
        while True:
            while not self._early:
                frame = await self._frame()
                assert isinstance(frame, str), frame
                received = json.loads(frame)
                self._early.extend(received if isinstance(received, list) else [received])
            decoded = self._read(self._early.popleft())
            if decoded is not None:
                return decoded

    def _read(self, message: dict[str, Any]) -> ReceivedMessage | None:
        """Parse a message; None for messages that only concern NQ itself."""
        if "r" in message:
            return self._read_request(message)
        if "a" in message:
            return self._read_answer(message)
        error = message.get("e")
        if error is None or not error["fatal"]:
            return None
        if "i" in message:
            return ReceivedMessage("cancel", self._channels.get(message["i"], message["i"]))
        assert error["type"] == "sys", message
        return ReceivedMessage("goodbye", body=error)

    def _read_request(self, message: dict[str, Any]) -> ReceivedMessage | None:
        target, number = message["t"], message["r"]
        is_repeated = number in self._answers and "n" not in message
        self._send({"a": self._channel(number), "i": number})
        if is_repeated:
            return None
        body: Any = message.get("d")
        meta: dict[str, object] = {}
        attachments = tuple(map(_detached, message.get("attachments", ())))
        if target in self._followed or target == "hub-closed":
            self._send({"a": self._channel(number), "i": number, "d": None})
            if target == "hub-closed":
                return ReceivedMessage("closed", "", body["id"])
            meta |= {key: message[key] for key in ("topic", "missed") if key in message}
            return ReceivedMessage("event", "", target, body, attachments, meta)
        if target == "hub-discover":
            return ReceivedMessage("discover", number, (body or {}).get("name", ""))
        is_callback = target.startswith("callback-")
        meta |= {"redelivered": True} if message.get("redelivered") else {}
        if "n" in message:
            self._send({"a": self._channel(number), "i": number, "o": message["n"] + 1})
            meta |= {"part": message["n"], "last": message.get("f") == 0, "empty": "d" not in message}
        name = target.removeprefix("callback-")
        return ReceivedMessage("callback" if is_callback else "call", number, name, body, attachments, meta)

    def _read_answer(self, message: dict[str, Any]) -> ReceivedMessage | None:
        error, place = message.get("e"), message.get("n")
        self._accepted[message["i"]] = message["a"]
        if place is None and "d" not in message and (error is None or not error["fatal"]):
            return None
        self._send({"i": message["a"]} | ({} if place is None else {"o": place + 1}))
        if place is not None and error is None:
            meta = {"part": place, "last": message.get("f") == 0, "empty": "d" not in message}
            return ReceivedMessage("result", message["i"], "", message.get("d"), (), meta)
        self._asked.pop(message["i"], None)
        if error is None:
            attachments = tuple(map(_detached, message.get("attachments", ())))
            return ReceivedMessage("result", message["i"], "", message["d"], attachments)
        text = error.get("text", "")
        if text == "{1}":
            text = error["args"][0]
        reason = REASONS.get(error.get("err", ""), "raised") if error["type"] in {"local", "remote"} else "raised"
        return ReceivedMessage(
            "failure", message["i"], reason, text, (), {"err": error.get("err", ""), "data": message.get("d")}
        )

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


async def connect_nq(place: Place, disconnected: Nq | None = None) -> Nq:
    """Connect a peer over WebSocket that receives its id, or reconnect one with its state."""
    wire = await place.peer(f"/nq?peer={disconnected.peer}" if disconnected is not None else "/nq")
    first = json.loads(await wire.heard())
    note, *more = first if isinstance(first, list) else [first]
    assert note["e"]["note"] == "peer"
    peer = Nq(place, "nq", wire)
    peer.peer = note["e"]["args"][0]
    if disconnected is not None:
        peer.continue_from(disconnected)
    peer.push_back(more)
    return peer


def _attached(attachments: Sequence[bytes]) -> dict[str, object]:
    return {"attachments": [{"$base64": b64encode(item).decode()} for item in attachments]} if attachments else {}


def _detached(item: dict[str, str]) -> bytes | str:
    """Return an attachment, or the error that replaces it."""
    return item["$error"] if "$error" in item else base91(item["$base91"])
