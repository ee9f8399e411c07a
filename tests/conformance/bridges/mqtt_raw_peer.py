"""A raw peer behind a broker that writes its own messages; paho-mqtt is its MQTT client."""

import asyncio
import json
import random
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from tests.conformance.bridges import protobuf
from tests.conformance.bridges.raw_encoding import spelled, value_of
from tests.conformance.bridges.raw_peer_base import (
    NO_META,
    RECEIVE_TIMEOUT,
    FailureDetails,
    Meta,
    NotSupported,
    RawPeer,
    ReceivedMessage,
)

REASONS: Final = {
    "hub.no_such_method": "no such method",
    "hub.no_such_callback": "no such callback",
    "hub.unavailable": "no callee is available",
    "hub.denied": "refused",
    "hub.bad_arguments": "bad arguments",
    "hub.busy": "overloaded",
    "hub.too_large": "too large",
    "timeout": "timeout",
    "hub.lost": "lost",
    "hub.cancelled": "cancelled",
}
"""The tags of the hub's failures; others belong to the callee."""
NUMBERS: Final = ("exact", "beyond", "half", "whole", "zero")
_OWN: Final = ("/hub", "/callback")
"""Topics with JSON bodies."""
_MILLISECOND: Final = 4


class Mqtt(RawPeer):
    """A raw peer of RPC over MQTT, with the schema tests/support/proto/crossing.proto."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__("mqtt-rpc")
        self._loop = loop
        self._heard: asyncio.Queue[tuple[str, bytes, bool]] = asyncio.Queue()
        self._waiting: dict[object, asyncio.Future[None]] = {}
        self._asked: dict[int, tuple[str, str]] = {}
        """Topic and type of each request of ours."""
        self._served: dict[str, tuple[str, ...]] = {}
        self._followed: set[str] = set()
        self._begun: dict[int, int] = {}
        """How many parts of a streamed request have come, or of the answer to one of ours."""
        self._client = client = paho.Client(
            CallbackAPIVersion.VERSION2, f"raw{random.getrandbits(60)}", reconnect_on_failure=False
        )
        client.on_connect = self._on_connect
        client.on_subscribe = lambda *arguments: self._post(arguments[2])
        client.on_publish = lambda *arguments: self._post(("out", arguments[2]))
        client.on_message = self._on_message
        client.connect_async("127.0.0.1", port)

    # The thread of paho.

    def _post(self, event: object) -> None:
        self._loop.call_soon_threadsafe(self._resolve, event)

    def _on_connect(
        self, _client: object, _data: object, _flags: object, code: ReasonCode, _properties: object
    ) -> None:
        assert not code.is_failure, code
        self._post("connected")

    def _on_message(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        received = message.topic, bytes(message.payload), bool(message.retain)
        self._loop.call_soon_threadsafe(self._heard.put_nowait, received)

    # The thread of the test.

    def _resolve(self, event: object) -> None:
        future = self._waiting.setdefault(event, self._loop.create_future())
        if not future.done():
            future.set_result(None)

    async def _until(self, event: object) -> None:
        future = self._waiting.setdefault(event, self._loop.create_future())
        await asyncio.wait_for(future, RECEIVE_TIMEOUT)
        del self._waiting[event]

    async def begin(self) -> None:
        """Connect to the broker and subscribe to the topics of the hub."""
        self._client.loop_start()
        await self._until("connected")
        await self.listen("/hub", "/callback", "/counter")

    async def listen(self, *topics: str) -> None:
        """Subscribe to topics."""
        _, number = self._client.subscribe([(topic, 1) for topic in topics])
        await self._until(number)

    async def serve(self, topic: str, *kinds: str) -> None:
        """Answer requests on a topic, of any type or only of these types."""
        self._served[topic] = kinds
        await self.listen(topic)

    def _send(self, topic: str, payload: bytes, *, retain: bool = False) -> int:
        return self._client.publish(topic, payload, qos=1, retain=retain).mid

    def disconnect(self) -> None:
        """Cut the connection."""
        connection = self._client.socket()
        if isinstance(connection, socket.socket):
            connection.shutdown(socket.SHUT_RDWR)
        self._client.loop_stop()

    def spell(self, namespace: str, message: str) -> str:
        return f"/{namespace.capitalize() if namespace == 'desk' else namespace}/{message.capitalize()}"

    def spell_topic(self, *segments: str) -> str:
        return "/".join(segments)

    def builtin(self, name: str) -> str:
        return f"/hub/{name}"

    # Requests.

    def call(self, name: str, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META) -> str:
        topic, _, kind = name.rpartition("/")
        number = random.getrandbits(64) | 1
        self._asked[number] = topic, kind
        value = write(topic, kind, body, attachments)
        times: list[protobuf.Field] = []
        if "timeout" in meta:
            times = [(5, int(str(meta["timeout"]))), (6, _MILLISECOND)]
        self._send(topic, protobuf.packed((1, number), (2, _any(value, kind)), (3, 1), *times))
        return str(number)

    def call_back(self, token: str, body: object) -> str:
        return self.call(f"/callback/{token}", body)

    def stream_call(self, name: str, elements: Sequence[object]) -> str:
        topic, _, kind = name.rpartition("/")
        number = random.getrandbits(64) | 1
        self._asked[number] = topic, kind
        for number_in_stream, element in enumerate(elements, 1):
            body = _any(write(topic, kind, element), kind)
            self._send(topic, protobuf.packed((1, number), (2, body), (3, int(number_in_stream == len(elements)))))
        return str(number)

    # Responses.

    def answer(
        self, call: ReceivedMessage, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META
    ) -> None:
        topic, kind = call.meta["topic"], call.name
        value = write(topic, kind, body, attachments)
        self._send(topic, protobuf.packed((1, int(call.id)), (2, _any(value)), (4, int(bool(meta.get("last", True))))))

    def stream_answer(self, call: ReceivedMessage, elements: Sequence[object]) -> None:
        for number_in_stream, element in enumerate(elements, 1):
            self.answer(call, element, meta={"last": number_in_stream == len(elements)})

    def fail(self, call: ReceivedMessage, text: str) -> None:
        self._error(call, (1, 500), (3, text.encode()))

    def reject(self, call: ReceivedMessage, text: str, reason: str = "refused") -> None:
        tag = next(tag for tag, known_name in REASONS.items() if known_name == reason)
        self._error(call, (1, 403 if reason == "refused" else 400), (2, tag.encode()), (3, text.encode()))

    def fail_with_details(self, call: ReceivedMessage, details: FailureDetails) -> FailureDetails:
        data = json.dumps(details.data).encode()
        wait = round(details.retry_after * 1000)
        self._error(
            call, (1, details.code), (2, details.name.encode()), (3, details.text.encode()), (4, wait), data=data
        )
        return details

    def _error(self, call: ReceivedMessage, *error: protobuf.Field, data: bytes = b"") -> None:
        body: list[protobuf.Field] = [(2, _any(data))] if data else []
        self._send(call.meta["topic"], protobuf.packed((1, int(call.id)), *body, (3, protobuf.packed(*error)), (4, 1)))

    def read_failure(self, failure: ReceivedMessage) -> FailureDetails:
        error, data = failure.meta["error"], failure.meta["data"]
        name = error.get(2, b"").decode()
        text = error.get(3, b"").decode()
        return FailureDetails(text, name, json.loads(data) if data else None, error.get(1, 0), error.get(4, 0) / 1000)

    # Receiving.

    async def receive(self) -> ReceivedMessage:
        while True:
            topic, payload, retained = await asyncio.wait_for(self._heard.get(), RECEIVE_TIMEOUT)
            if topic in self._followed:
                try:
                    body: Any = value_of(payload.decode()) if payload else None
                except UnicodeDecodeError:
                    body = payload
                return ReceivedMessage("event", "", topic, body, (), {"retained": retained}, payload)
            decoded = self._read(topic, payload)
            if decoded is not None:
                return decoded

    def _read(self, topic: str, payload: bytes) -> ReceivedMessage | None:
        """Parse a message; None if it is not for this peer, such as an echo."""
        parsed = protobuf.message(payload)
        number, body = parsed.get(1, 0), protobuf.message(parsed.get(2, b""))
        if 4 in parsed or isinstance(parsed.get(3), bytes):
            return self._read_response(topic, number, parsed, body)
        if topic not in self._served or number in self._asked:
            return None
        kind = body.get(1, b"").decode().rpartition("/")[2]
        if self._served[topic] and kind not in self._served[topic]:
            return None
        value, attachments = decode_body(topic, kind, body.get(2, b""))
        meta = {"topic": topic, "timeout": parsed.get(5, 0)}
        if kind.lower() == "gather":
            self._begun[number] = place = self._begun.get(number, 0) + 1
            meta |= {"part": place, "last": bool(parsed.get(3)), "empty": 2 not in parsed}
        message = "callback" if topic == "/callback" else "call"
        return ReceivedMessage(message, str(number), kind, value, attachments, meta, payload)

    def _read_response(
        self, topic: str, number: int, parsed: dict[int, Any], body: dict[int, Any]
    ) -> ReceivedMessage | None:
        if number not in self._asked or self._asked[number][0] != topic:
            return None
        if isinstance(parsed.get(3), bytes):
            error = protobuf.message(parsed[3])
            reason = REASONS.get(error.get(2, b"").decode(), "raised")
            meta: dict[str, Any] = {"error": error, "data": body.get(2, b"")}
            return ReceivedMessage("failure", str(number), reason, error.get(3, b"").decode(), (), meta)
        kind = self._asked[number][1]
        meta = {}
        if kind.lower() == "count":
            self._begun[number] = place = self._begun.get(number, 0) + 1
            meta = {"part": place, "last": bool(parsed.get(4)), "empty": 2 not in parsed}
            if 2 not in parsed:
                return ReceivedMessage("result", str(number), "", None, (), meta)
        value, attachments = decode_body(topic, kind, body.get(2, b""))
        return ReceivedMessage("result", str(number), "", value, attachments, meta)

    # Other features.

    def write_bytes(self, data: bytes) -> object:
        return data

    def read_bytes(self, value: Any) -> tuple[bytes, str]:  # noqa: ANN401  a field of bytes
        assert isinstance(value, bytes), value
        return value, "own"

    async def set(self, name: str, value: object) -> None:
        received = await self.call_and_wait("/hub/set", {"name": name, "value": value})
        assert (received.kind, received.name) == ("failure", "no such method"), received
        raise NotSupported("mqtt-rpc has no variables")

    async def register(self, name: str, **_options: object) -> None:
        await self.serve(name.rpartition("/")[0])

    async def subscribe(self, topic: str, *, envelope: bool = False) -> str:
        assert not envelope, "a message of MQTT has its topic"
        self._followed.add(topic)
        await self.listen(topic)
        return topic

    def publish(self, topic: str, data: object, attachments: Sequence[bytes] = (), *, retain: bool = False) -> NoReturn:
        raise NotSupported("MQTT answers a publication at the broker: see `tell`")

    async def publish_and_wait(self, topic: str, data: object, *, retain: bool = False) -> None:
        await self._until(("out", self._send(topic, b"" if data is None else spelled(data).encode(), retain=retain)))


def _any(value: bytes | None, kind: str = "") -> bytes:
    fields: list[protobuf.Field] = [(1, kind.encode())] if kind else []
    return protobuf.packed(*fields, *([] if value is None else [(2, value)]))


def write(topic: str, kind: str, body: Any, attachments: Sequence[bytes] = ()) -> bytes:  # noqa: ANN401  any JSON
    """Return the bytes of a body: JSON for methods of the hub, bytes without a schema."""
    if topic in _OWN:
        return b"" if body is None else json.dumps(body).encode()
    return _WRITERS.get(kind.lower(), bytes)(body) if not attachments else _parcel(body, attachments)


def decode_body(topic: str, kind: str, data: bytes) -> tuple[Any, tuple[bytes | str, ...]]:
    """Parse a body and its attachments."""
    if topic in _OWN:
        return (json.loads(data) if data else None), ()
    match kind.lower():
        case "tell" | "count" | "gather":
            return (protobuf.read_value(data) if data else None), ()
        case "weigh":
            message_fields = protobuf.message(data)
            exact, beyond = protobuf.signed(message_fields.get(1, 0)), protobuf.signed(message_fields.get(2, 0))
            numbers = (exact, beyond, message_fields.get(3, 0), message_fields.get(4, 0.0), message_fields.get(5, 0.0))
            return dict(zip(NUMBERS, numbers, strict=True)), ()
        case "pack":
            return {"data": protobuf.message(data).get(1, b"")}, ()
        case "carry":
            parcel = list(protobuf.fields(data))
            label = next((value for number, value in parcel if number == 1), b"")
            assert isinstance(label, bytes)
            files = tuple(value for number, value in parcel if number == 2 and isinstance(value, bytes))
            return {"label": label.decode()}, files
    return data, ()


def _numbers(body: Any) -> bytes:  # noqa: ANN401  any JSON
    exact, beyond, half, complete, zero = (body[name] for name in NUMBERS)
    return protobuf.packed((1, exact), (2, beyond), (3, half), (4, float(complete)), (5, float(zero)))


def _parcel(body: Any, attachments: Sequence[bytes] = ()) -> bytes:  # noqa: ANN401  any JSON
    return protobuf.packed((1, body["label"].encode()), *((2, item) for item in attachments))


_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "tell": protobuf.pack_value,
    "count": protobuf.pack_value,
    "gather": protobuf.pack_value,
    "weigh": _numbers,
    "carry": _parcel,
    "pack": lambda body: protobuf.packed((1, body["data"])),
}


async def connect_mqtt(port: int) -> Mqtt:
    """Connect a peer to the broker."""
    created = Mqtt(port, asyncio.get_running_loop())
    await created.begin()
    return created
