"""A service that its requests control, clients of it, and a bare link for messages that no client sends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, ParamSpec

from google.protobuf.message import Message

import fiveways
from fiveways.client.connection_state import ConnectionState
from fiveways.client.mqtt import MqttPeer, MqttSettings, Retry, Stub
from fiveways.errors import RemoteProtocolError
from fiveways.protocols.mqtt_rpc.messages import Message as RpcMessage
from fiveways.protocols.mqtt_rpc.messages import Request, decode, encode
from fiveways.transports.mqtt_link import Broker, MqttLink, MqttMessage, open_mqtt
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.support.broker_processes import RunningBroker
from tests.support.compiled_schema import greeter

P = ParamSpec("P")
BAD = -1
HANG = -2
_topics = count(1)


def message(kind: str, **fields: object) -> Any:  # noqa: ANN401  generated classes
    """Return a message of the tests' schema."""
    return getattr(greeter().module, kind)(**fields)


def new_topic() -> str:
    """Return a topic that no other test of this process uses."""
    return f"/greeter{next(_topics)}"


class Greeter:
    """Serves tests/support/proto/greeter.proto: `fail` and -1 fail, `hang` and -2 wait for `go_on`."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.hangs = asyncio.Event()
        self.runs = 0
        self.ended: list[str] = []
        """The end of each call that was hanging."""

    async def _hang(self) -> None:
        self.hangs.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("went on")

    async def SayHello(self, request: Any) -> Message:  # noqa: ANN401, N802  as the schema has it
        self.runs += 1
        if request.name == "fail":
            raise fiveways.Fail("no such name", "no_name", {"name": "fail"}, code=422, retry_after=0.25)
        if request.name == "hang":
            await self._hang()
        reply: Message = message("HelloReply", text=f"hello {request.name}")
        return reply

    async def count(self, request: Any) -> AsyncIterator[Message]:  # noqa: ANN401
        self.runs += 1
        for number in range(1, max(request.up_to, 2) + 1):
            yield message("CountReply", number=number)
            if request.up_to == BAD:
                raise fiveways.Fail("no such number", "no_number", code=422)
            if request.up_to == HANG:
                await self._hang()

    async def sum(self, requests: AsyncIterator[Any]) -> Message:
        self.runs += 1
        total = 0
        async for request in requests:
            if request.number == BAD:
                raise fiveways.Fail("no such number", "no_number", code=422)
            if request.number == HANG:
                await self._hang()
            total += request.number
        reply: Message = message("SumReply", total=total)
        return reply

    async def Chat(self, lines: AsyncIterator[Any]) -> AsyncIterator[Message]:  # noqa: N802
        self.runs += 1
        async for line in lines:
            if line.text == "fail":
                raise fiveways.Fail("no such line", "no_line", code=422)
            if line.text == "hang":
                await self._hang()
            yield message("ChatLine", text=f"you said {line.text}")


def quick(**settings: Any) -> MqttSettings:  # noqa: ANN401  fields of a dataclass
    """Return client settings with a short timeout."""
    return MqttSettings(**({"timeout": 20.0} | settings))


def at(broker: RunningBroker, settings: MqttSettings | None = None) -> MqttPeer:
    return MqttPeer(Broker.parse(broker.url), settings or quick())


class Pair:
    """A caller and a service, each with its own link."""

    def __init__(self, caller: MqttPeer, callee: MqttPeer, service: Any, topic: str) -> None:  # noqa: ANN401
        self.caller = caller
        self.callee = callee
        self.service = service
        self.topic = topic

    def stub(self, *, timeout: float | None = None, retry: Retry | None = None) -> Stub:
        return self.caller.stub(greeter().module, topic=self.topic, timeout=timeout, retry=retry)


@asynccontextmanager
async def pair(
    broker: RunningBroker,
    settings: MqttSettings | None = None,
    *,
    own_timeout: float = 30.0,
    service: Any = None,  # noqa: ANN401
) -> AsyncIterator[Pair]:
    """Run a service, and connect a caller."""
    topic, implementation = new_topic(), service or Greeter()
    async with (
        at(broker, settings) as caller,
        at(broker) as callee,
        callee.serve(greeter().module, implementation, topic=topic, timeout=own_timeout),
    ):
        yield Pair(caller, callee, implementation, topic)


class Bare:
    """A link without a client: sends and receives raw messages. Fulfils `MqttReceiver`."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.heard: asyncio.Queue[MqttMessage] = asyncio.Queue()
        self.link: MqttLink

    def received(self, message: MqttMessage) -> None:
        self.heard.put_nowait(message)

    def writable(self) -> None: ...

    def lost(self, reason: str) -> None: ...

    def say(self, *messages: RpcMessage | bytes, retain: bool = False) -> None:
        for item in messages:
            payload = item if isinstance(item, bytes) else encode(item).payload
            self.link.publish(self.topic, payload, retain=retain)

    async def next(self) -> RpcMessage:
        """Return the next valid message."""
        while True:
            packet = await self.heard.get()
            with suppress(RemoteProtocolError):
                decoded: RpcMessage = decode(Packet(packet.payload, False, packet.topic), Limits())[0]
                return decoded

    async def answer(self) -> RpcMessage:
        """Return the next response."""
        while isinstance(response := await self.next(), Request):
            pass
        return response

    async def answer_for(self, number: int) -> RpcMessage:
        """Return the next response to a request."""
        while (response := await self.answer()).correlation_id != number:
            pass
        return response

    async def request(self) -> Request:
        """Return the next request."""
        while not isinstance(next_request := await self.next(), Request):
            pass
        return next_request


@asynccontextmanager
async def bare(broker: RunningBroker, topic: str) -> AsyncIterator[Bare]:
    """Open a bare link that is subscribed to a topic."""
    bare_link = Bare(topic)
    bare_link.link = await open_mqtt(Broker.parse(broker.url), bare_link)
    try:
        await bare_link.link.subscribe([topic])
        yield bare_link
    finally:
        bare_link.link.close()


async def wait_for_state(peer: MqttPeer, wanted: ConnectionState) -> str:
    """Wait for a state of a client; return its text."""
    async for status in peer.states():
        if status.state is wanted:
            return status.text
    raise AssertionError(f"the state {wanted} was not reached")
