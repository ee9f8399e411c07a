"""Client connection to an MQTT broker. Packets of one event loop iteration are written together."""

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
"""Unsent bytes above which the link is full; below a quarter of it the link is writable again."""
MAX_WAITING: Final = 1 << 26
"""Unsent bytes at which the link is closed: the broker does not read, or the publisher ignores `is_full`."""
MAX_UNACKNOWLEDGED: Final = 1 << 14
"""Messages of QoS 1 without PUBACK at which the link is full; at half of it the link is writable again."""
_PUBACK: Final = int.from_bytes(frames.acknowledge(frames.PUBACK, 0))
_LINGER: Final = 2.0
"""Seconds for the broker to read the last packets before a close."""
_MAX_CACHED_TOPICS: Final = 1024
_MAX_CACHED_LENGTH: Final = 256
_CODES: Final = {
    1: "MQTT 3.1.1 is not supported",
    2: "the client id is not accepted",
    3: "the broker is not available",
    4: "wrong user name or password",
    5: "not authorised",
}
_AUTHENTICATION_CODES: Final = {4, 5}


class SubscriptionRefused(FivewaysError):
    """The broker refused a subscription."""


class PacketIdsExhausted(FivewaysError):
    """All packet ids are in use: the publisher ignored `is_full` for tens of thousands of messages."""


class MqttReceiver(Protocol):
    """Consumer of the messages and events of a link. Its methods must not raise."""

    def received(self, message: MqttMessage) -> None:
        """Handle a message. QoS 1 is acknowledged when this returns."""

    def writable(self) -> None:
        """Handle the end of backpressure."""

    def lost(self, reason: str) -> None:
        """Handle the end of the link. It is called once, whichever end closed the link."""


class _NullReceiver:
    """Receiver until `begin`: drops messages, since nothing is subscribed yet."""

    def received(self, message: MqttMessage) -> None: ...

    def writable(self) -> None: ...

    def lost(self, reason: str) -> None: ...


class MqttLink(asyncio.Protocol):
    """Connection to a broker, opened by `open_mqtt`. Only `subscribe` and `unsubscribe` wait for the broker."""

    transport = "mqtt"

    def __init__(self, broker: Broker, connect_packet: bytes, max_packet: int, keepalive: float) -> None:
        """Initialize; `open_mqtt` connects."""
        self.remote = broker.address
        self.is_loopback = False
        self.is_full = False
        """Backpressure: the broker reads or acknowledges too slowly."""
        self.connack: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._receiver: MqttReceiver = _NullReceiver()
        self._socket: asyncio.Transport = asyncio.Transport()
        self._connect_packet = connect_packet
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
        """Received messages of QoS 2 without PUBREL."""
        self._keepalive = Keepalive(keepalive, lambda: self._send(frames.PINGREQ), self._on_silence)
        self._linger: asyncio.TimerHandle | None = None
        self._closing = False
        self._gone = True
        self._reason = ""

    # Methods for the runtime.

    @property
    def unacknowledged(self) -> int:
        """Number of published messages of QoS 1 without PUBACK."""
        return len(self._unacknowledged)

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> None:
        """Publish at the end of this event loop iteration. Does nothing on a closed link.

        Raises:
            ValueError: Topic or QoS is invalid, or the packet is too large.
            PacketIdsExhausted: All packet ids are in use. `is_full` is set long before.
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
        """Write all queued packets now."""
        if not self._out or self._closing:
            return
        out, self._out = self._out, []
        self._size = 0
        self._socket.write(out[0] if len(out) == 1 else b"".join(out))
        if self._is_blocked and self._socket.get_write_buffer_size() > MAX_WAITING:
            self._fail("the broker does not read")

    async def subscribe(self, filters: Sequence[str], qos: int = 1) -> None:
        """Subscribe to topic filters and wait until the broker has granted them.

        Raises:
            ValueError: A topic filter is invalid.
            SubscriptionRefused: The broker refused a filter; it may have granted the others.
            ConnectionLost: The link is closed, or was lost before the broker answered.
        """
        if not filters:
            return
        packet_id = self._free_id()
        codes = await self._request(packet_id, frames.subscribe(packet_id, filters, qos))
        refused = [topic_filter for topic_filter, code in zip(filters, codes, strict=False) if code > 2]
        if refused:
            raise SubscriptionRefused(f"{self.remote} refused the subscription to {', '.join(refused)}")
        if len(codes) != len(filters):
            raise SubscriptionRefused(f"{self.remote} answered for {len(codes)} of {len(filters)} topic filters")

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        """Unsubscribe and wait for the broker; raises ValueError or ConnectionLost like `subscribe`."""
        if filters:
            packet_id = self._free_id()
            await self._request(packet_id, frames.unsubscribe(packet_id, filters))

    def unsent_bytes(self) -> int:
        """Return the number of bytes that were written and are still in this process."""
        return 0 if self._gone else self._size + self._socket.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Stop reading from the broker."""
        if not self._closing:
            self._keepalive.is_paused = True
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Continue to read."""
        if self._keepalive.is_paused and not self._closing:
            self._keepalive.is_paused = False
            self._keepalive.received_at = self._loop.time()
            self._socket.resume_reading()

    def close(self) -> None:
        """Close after all written packets, with a DISCONNECT."""
        if self._closing:
            return
        self._send(frames.DISCONNECT)
        self.flush()
        if self._closing:
            return  # the flush hit MAX_WAITING and aborted the link
        self._closing = True
        self._reason = "closed by this end"
        self._socket.close()
        self._linger = self._loop.call_later(_LINGER, self._socket.abort)

    def abort(self) -> None:
        """Close at once. The broker publishes the will."""
        if not self._gone:
            self._fail("closed by this end")

    def abandon(self) -> None:
        """Abort a connection attempt."""
        self.connack.cancel()
        self.abort()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the CONNECT packet."""
        self._gone = False
        self._socket = cast("asyncio.Transport", transport)
        self._socket.set_write_buffer_limits(HIGH_WATER, HIGH_WATER // 4)
        self.remote, self.is_loopback = describe_peer(transport)
        self._socket.write(self._connect_packet)
        self._connect_packet = b""  # it may hold a password

    def data_received(self, data: bytes) -> None:
        """Handle received packets. Packets published meanwhile are written together after the woken tasks ran."""
        self._keepalive.received_at = self._loop.time()
        will_flush, self._is_flush_scheduled = self._is_flush_scheduled, True
        try:
            self._handle_packets(self._reader.feed(data))
            if self._reader.fault is not None:
                self._fail(f"{self.remote} sent invalid MQTT: {self._reader.fault}")
        finally:
            self._is_flush_scheduled = will_flush
        if self._out and not will_flush:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._schedule_flush)  # woken tasks publish in the next event loop iteration

    def pause_writing(self) -> None:
        """Set `is_full`: the socket buffer is above its high-water mark."""
        self._is_blocked = True
        self.is_full = True

    def resume_writing(self) -> None:
        """Clear `is_full` if no other reason holds."""
        self._is_blocked = False
        self._check_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending requests, then notify the receiver."""
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

    # Handshake.

    def begin(self, receiver: MqttReceiver) -> None:
        """Set the receiver; raise ConnectionLost if the link is closed already."""
        if self._closing:
            raise ConnectionLost(self._reason)
        self._receiver = receiver
        self._keepalive.start()

    def _handle_connack(self, packet: MqttMessage | ControlPacket) -> None:
        """Handle the first packet of the broker, which accepts or refuses the connection."""
        if isinstance(packet, MqttMessage) or packet.kind != frames.CONNACK:
            self._fail(f"{self.remote} sent invalid MQTT: the first packet is not a CONNACK")
            return
        code = packet.codes[0]
        if code == frames.ACCEPTED:
            self._is_accepted = True
            if not self.connack.done():
                self.connack.set_result(None)
            return
        error = Refused if code in _AUTHENTICATION_CODES else ConnectionLost
        text = f"{self.remote} refused the connection: {_CODES.get(code, f'code {code}')}"
        if not self.connack.done():
            self.connack.set_exception(error(text))
        self._fail(text)

    # Receiving.

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
        """Handle a control packet. An answer without a pending request is ignored."""
        kind, packet_id = answer.kind, answer.packet_id
        if kind in {frames.SUBACK, frames.UNSUBACK}:
            future = self._pending_answers.pop(packet_id, None)
            if future is not None and not future.done():
                future.set_result(answer.codes)
        elif kind == frames.PUBREL:
            self._unreleased.discard(packet_id)
            self._send(frames.acknowledge(frames.PUBCOMP, packet_id))
        elif kind == frames.CONNACK:
            self._fail(f"{self.remote} sent invalid MQTT: a second CONNACK")

    def _handle_qos2(self, message: MqttMessage) -> None:
        """Deliver a message of QoS 2 once until its PUBREL. The hub never requests QoS 2."""
        if message.packet_id not in self._unreleased:
            self._unreleased.add(message.packet_id)
            self._receiver.received(message)
        self._send(frames.acknowledge(frames.PUBREC, message.packet_id))

    # Sending.

    def _encode_topic(self, topic: str) -> bytes:
        """Return a topic as bytes, from a cache of recent topics."""
        name = frames.topic_field(topic)
        if len(name) <= _MAX_CACHED_LENGTH:
            if len(self._topics) >= _MAX_CACHED_TOPICS:
                self._topics.clear()
            self._topics[topic] = name
        return name

    def _free_id(self) -> int:
        """Return an unused packet id."""
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
            # Written at once, so that the socket reports backpressure.
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
        """Clear `is_full` and notify the receiver if there is room again."""
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
