"""One connection to an MQTT broker: packets in, packets out, written once a loop pass."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from fiveways.errors import ConnectionLost, FivewaysError, Refused
from fiveways.transports import mqtt_frames as frames
from fiveways.transports.address import describe_peer
from fiveways.transports.mqtt_broker import Broker
from fiveways.transports.mqtt_frames import (
    PUBACK,
    ControlPacket,
    MqttMessage,
    PacketReader,
    publish,
    publish_acknowledged,
)
from fiveways.transports.mqtt_keepalive import Keepalive

HIGH_WATER: Final = 1 << 18
"""Bytes that the socket has not taken yet: above, the link is full; below a quarter of it, it takes more again."""
MAX_WAITING: Final = 1 << 26
"""Bytes of these with which the link is given up: a broker that reads nothing, or a caller who never asks `is_full`."""
MAX_UNACKNOWLEDGED: Final = 1 << 14
"""Messages of QoS 1 without their PUBACK: with so many the link is full; with half of them it takes more again."""
_PUBACK: Final = int.from_bytes(frames.acknowledge(frames.PUBACK, 0))
_LINGER: Final = 2.0
"""Seconds for the broker to read what was said before a close."""
_MAX_CACHED_TOPICS: Final = 1024
_MAX_CACHED_LENGTH: Final = 256
_CODES: Final = {
    1: "it does not speak MQTT 3.1.1",
    2: "it does not like the client id",
    3: "it is not available",
    4: "wrong user name or password",
    5: "not authorised",
}
_AUTHENTICATION_CODES: Final = {4, 5}


class SubscriptionRefused(FivewaysError):
    """The broker does not let us subscribe to a filter."""


class PacketIdsExhausted(FivewaysError):
    """Every packet id is in use: whoever publishes has not asked `is_full` for tens of thousands of messages."""


class MqttReceiver(Protocol):
    """Who gets what a link brings. None of these may raise."""

    def received(self, message: MqttMessage) -> None:
        """Take a message. With QoS 1 it is acknowledged when this returns."""

    def writable(self) -> None:
        """Know that the link takes more again."""

    def lost(self, reason: str) -> None:
        """Know that the link is gone; called once, whoever closed it."""


class _NullReceiver:
    """Receives until the link has been handed over: what comes before was not asked for."""

    def received(self, message: MqttMessage) -> None: ...

    def writable(self) -> None: ...

    def lost(self, reason: str) -> None: ...


class MqttLink(asyncio.Protocol):
    """One connection to a broker, made by `open_mqtt`. Of its methods only `subscribe` and `unsubscribe` wait."""

    transport = "mqtt"

    def __init__(self, broker: Broker, hello: bytes, max_packet: int, keepalive: float) -> None:
        """Make it; `open_mqtt` does the rest."""
        self.remote = broker.address
        self.is_loopback = False
        self.is_full = False
        """The broker reads or acknowledges more slowly than we publish."""
        self.connack: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._receiver: MqttReceiver = _NullReceiver()
        self._socket: asyncio.Transport = asyncio.Transport()
        self._connect_packet = hello
        self._reader = PacketReader(max_packet)
        self._is_accepted = False
        self._out: list[bytes] = []
        self._size = 0
        self._is_flush_scheduled = False
        self._is_blocked = False
        self._topics: dict[str, bytes] = {}
        self._last_id = 0
        self._unacknowledged: set[int] = set()
        self._pending_answers: dict[int, asyncio.Future[bytes]] = {}
        self._unreleased: set[int] = set()
        """Messages of QoS 2 that were received and not released yet."""
        self._keepalive = Keepalive(keepalive, lambda: self._send(frames.PINGREQ), self._on_silence)
        self._linger: asyncio.TimerHandle | None = None
        self._closing = False
        self._gone = True
        self._reason = ""

    # What the runtime asks for.

    @property
    def unacknowledged(self) -> int:
        """How many messages of QoS 1 were published and not acknowledged yet."""
        return len(self._unacknowledged)

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> None:
        """Publish at the end of this loop pass, together with all else; nothing happens on a link that is closed.

        Raises:
            ValueError: nothing can be published to such a topic, or with such a QoS, or so much.
            LinkFull: all packet ids are in use; a link is full long before.
        """
        name = self._topics.get(topic) or self._encode_topic(topic)
        if self._closing:
            return
        if qos == 1:
            packet_id = self._last_id % frames.MAX_PACKET_ID + 1
            if packet_id in self._unacknowledged or packet_id in self._pending_answers:
                packet_id = self._free_id()
            packet = publish_acknowledged(name, packet_id, payload, retain)
            self._last_id = packet_id
            self._unacknowledged.add(packet_id)
            if len(self._unacknowledged) >= MAX_UNACKNOWLEDGED:
                self.is_full = True
        elif qos == 0:
            packet = publish(name, payload, retain)
        else:
            raise ValueError(f"this link publishes with QoS 0 or 1, not {qos}")
        self._send(packet)

    def flush(self) -> None:
        """Write what was said in this loop pass now."""
        if not self._out or self._closing:
            return
        out, self._out = self._out, []
        self._size = 0
        self._socket.write(out[0] if len(out) == 1 else b"".join(out))
        if self._is_blocked and self._socket.get_write_buffer_size() > MAX_WAITING:
            self._fail("the broker does not read what it is sent")

    async def subscribe(self, filters: Sequence[str], qos: int = 1) -> None:
        """Subscribe, and wait until the broker has said yes to each filter.

        Raises:
            ValueError: one of them is no topic filter.
            BrokerRefused: the broker does not serve one of them; the others it does.
            ConnectionLost: the link was lost before the broker answered, or is closed.
        """
        if not filters:
            return
        packet_id = self._free_id()
        codes = await self._request(packet_id, frames.subscribe(packet_id, filters, qos))
        refused = [each for each, code in zip(filters, codes, strict=False) if code > 2]
        if refused:
            raise SubscriptionRefused(f"{self.remote} does not let us subscribe to {', '.join(refused)}")
        if len(codes) != len(filters):
            raise SubscriptionRefused(f"{self.remote} answered for {len(codes)} of {len(filters)} topic filters")

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        """Unsubscribe, and wait until the broker has done it; raises what `subscribe` does, but for BrokerRefused."""
        if filters:
            packet_id = self._free_id()
            await self._request(packet_id, frames.unsubscribe(packet_id, filters))

    def unsent_bytes(self) -> int:
        """Return how many bytes were said and have not left this process."""
        return 0 if self._gone else self._size + self._socket.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Take nothing more from the broker."""
        if not self._closing:
            self._keepalive.is_paused = True
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading."""
        if self._keepalive.is_paused and not self._closing:
            self._keepalive.is_paused = False
            self._keepalive.received_at = self._loop.time()
            self._socket.resume_reading()

    def close(self) -> None:
        """Take leave of the broker, after all that was said."""
        if self._closing:
            return
        self._send(frames.DISCONNECT)
        self.flush()
        if self._closing:
            return  # there was too much to say
        self._closing = True
        self._reason = "closed by this end"
        self._socket.close()
        self._linger = self._loop.call_later(_LINGER, self._socket.abort)

    def abort(self) -> None:
        """Close at once. The broker publishes our will."""
        if not self._gone:
            self._fail("closed by this end")

    def abandon(self) -> None:
        """Drop what was opened of a link that nobody will have."""
        self.connack.cancel()
        self.abort()

    # What the loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce ourselves."""
        self._gone = False
        self._socket = cast("asyncio.Transport", transport)
        self._socket.set_write_buffer_limits(HIGH_WATER, HIGH_WATER // 4)
        self.remote, self.is_loopback = describe_peer(transport)
        self._socket.write(self._connect_packet)
        self._connect_packet = b""  # it may hold a password

    def data_received(self, data: bytes) -> None:
        """Pass on what came. What is said meanwhile is written after whatever it wakes, all at once."""
        self._keepalive.received_at = self._loop.time()
        will_flush, self._is_flush_scheduled = self._is_flush_scheduled, True
        try:
            self._handle_packets(self._reader.feed(data))
            if self._reader.fault is not None:
                self._fail(f"{self.remote} sent what is no MQTT: {self._reader.fault}")
        finally:
            self._is_flush_scheduled = will_flush
        if self._out and not will_flush:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._schedule_flush)  # a task that was woken speaks in the next pass

    def pause_writing(self) -> None:
        """Know that the broker reads more slowly than we write."""
        self._is_blocked = True
        self.is_full = True

    def resume_writing(self) -> None:
        """Know that it has caught up."""
        self._is_blocked = False
        self._check_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all who wait for something, and the receiver last."""
        self._gone = self._closing = True
        self._keepalive.stop()
        if self._linger is not None:
            self._linger.cancel()
        self._out.clear()
        self._size = 0
        if not self._reason:
            self._reason = f"{self.remote} closed the connection" if exc is None else str(exc) or repr(exc)
        waiting: list[asyncio.Future[Any]] = [self.connack, *self._pending_answers.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(ConnectionLost(self._reason))
        self._pending_answers.clear()
        self._receiver.lost(self._reason)

    # Beginning.

    def begin(self, receiver: MqttReceiver) -> None:
        """Hand the link over to who will use it; ConnectionLost if it is gone already."""
        if self._closing:
            raise ConnectionLost(self._reason)
        self._receiver = receiver
        self._keepalive.start()

    def _handle_connack(self, packet: MqttMessage | ControlPacket) -> None:
        """Take the broker's first packet, which says whether we are let in."""
        if isinstance(packet, MqttMessage) or packet.kind != frames.CONNACK:
            self._fail(f"{self.remote} sent what is no MQTT: its first packet is no CONNACK")
            return
        code = packet.codes[0]
        if code == frames.ACCEPTED:
            self._is_accepted = True
            if not self.connack.done():
                self.connack.set_result(None)
            return
        error = Refused if code in _AUTHENTICATION_CODES else ConnectionLost
        text = f"{self.remote} does not let us in: {_CODES.get(code, f'code {code}')}"
        if not self.connack.done():
            self.connack.set_exception(error(text))
        self._fail(text)

    # In.

    def _handle_packets(self, packets: list[MqttMessage | ControlPacket]) -> None:
        if not self._is_accepted and packets:
            self._handle_connack(packets.pop(0))
        received = self._receiver.received
        for packet in packets:
            if self._closing:
                return
            if isinstance(packet, MqttMessage):
                if packet.qos == 2:
                    self._handle_qos2(packet)
                    continue
                received(packet)
                if packet.qos:
                    self._out.append((_PUBACK | packet.packet_id).to_bytes(4))
            elif packet.kind == PUBACK:
                self._unacknowledged.discard(packet.packet_id)
                if self.is_full:
                    self._check_room()
            else:
                self._handle_answer(packet)

    def _handle_answer(self, answer: ControlPacket) -> None:
        """Take note of an answer. One to what was never asked, or is over, means nothing."""
        kind, packet_id = answer.kind, answer.packet_id
        if kind in {frames.SUBACK, frames.UNSUBACK}:
            future = self._pending_answers.pop(packet_id, None)
            if future is not None and not future.done():
                future.set_result(answer.codes)
        elif kind == frames.PUBREL:
            self._unreleased.discard(packet_id)
            self._send(frames.acknowledge(frames.PUBCOMP, packet_id))
        elif kind == frames.CONNACK:
            self._fail(f"{self.remote} sent what is no MQTT: a second CONNACK")

    def _handle_qos2(self, message: MqttMessage) -> None:
        """Take a message of QoS 2, which we never ask for: given once, however often it comes before its PUBREL."""
        if message.packet_id not in self._unreleased:
            self._unreleased.add(message.packet_id)
            self._receiver.received(message)
        self._send(frames.acknowledge(frames.PUBREC, message.packet_id))

    # Out.

    def _encode_topic(self, topic: str) -> bytes:
        """Return a topic as bytes. Most are published to again and again, and are looked at once."""
        name = frames.topic_field(topic)
        if len(name) <= _MAX_CACHED_LENGTH:
            if len(self._topics) >= _MAX_CACHED_TOPICS:
                self._topics.clear()
            self._topics[topic] = name
        return name

    def _free_id(self) -> int:
        """Return a packet id that is not in use."""
        if len(self._unacknowledged) + len(self._pending_answers) >= frames.MAX_PACKET_ID:
            raise PacketIdsExhausted(f"{self.remote} has acknowledged none of {frames.MAX_PACKET_ID} messages")
        packet_id = self._last_id % frames.MAX_PACKET_ID + 1
        while packet_id in self._unacknowledged or packet_id in self._pending_answers:
            packet_id = packet_id % frames.MAX_PACKET_ID + 1
        return packet_id

    async def _request(self, packet_id: int, packet: bytes) -> bytes:
        if self._closing:
            raise ConnectionLost(self._reason)
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._pending_answers[packet_id] = answer
        self._last_id = packet_id
        self._send(packet)
        return await answer

    def _send(self, packet: bytes) -> None:
        self._out.append(packet)
        self._size += len(packet)
        if self._size > HIGH_WATER:
            # So much is written at once, for the socket to say when it has enough.
            self.flush()
        elif not self._is_flush_scheduled:
            self._schedule_flush()

    def _schedule_flush(self) -> None:
        self._is_flush_scheduled = True
        self._loop.call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._is_flush_scheduled = False
        self.flush()

    def _check_room(self) -> None:
        """See whether there is room again."""
        if self.is_full and not self._is_blocked and len(self._unacknowledged) <= MAX_UNACKNOWLEDGED // 2:
            self.is_full = False
            if not self._closing:
                self._receiver.writable()

    def _fail(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._closing = True
        self._out.clear()
        self._size = 0
        self._socket.abort()

    def _on_silence(self, seconds: float) -> None:
        self._fail(f"{self.remote} was silent for {seconds:.3g} seconds")
