"""The participant for all peers behind an MQTT broker, while the hub is connected to it."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Final

from fiveways.errors import FivewaysError, LocalProtocolError, Reason
from fiveways.hub.delivery import Announce, Delivery, Subscriber
from fiveways.hub.traits import Credentials
from fiveways.model.messages import (
    Call,
    Cancel,
    Event,
    Failure,
    HubMessage,
    Register,
    Result,
    Stray,
    Subscribe,
    TopicClosed,
    Unregister,
    Welcome,
)
from fiveways.model.topics import BadTopic
from fiveways.protocols import registry
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.mqtt_rpc.conversation import MqttConversation
from fiveways.runtime.deadline_timer import DeadlineTimer
from fiveways.runtime.endpoints import protocol_traits
from fiveways.runtime.exchange import Exchange, event_for
from fiveways.runtime.mqtt.broker_config import BrokerConfig, is_safe_topic
from fiveways.runtime.mqtt.broker_recorder import BrokerRecorder
from fiveways.runtime.mqtt.claim_monitor import ClaimMonitor
from fiveways.runtime.mqtt.request_shares import share_options
from fiveways.runtime.mqtt.streamed_calls import split_call
from fiveways.runtime.mqtt.topic_election import CLAIMS_FILTER, CLAIMS_PREFIX
from fiveways.runtime.mqtt.topic_ownership import TopicOwnership
from fiveways.runtime.outbox import FrameQueue
from fiveways.runtime.participant import Participant
from fiveways.runtime.structured_logging import RateLimitedLog, log_fields
from fiveways.settings.limits import LimitSettings
from fiveways.transports.address import is_loopback
from fiveways.transports.mqtt_link import Broker, MqttLink, MqttMessage, PacketIdsExhausted, Will, open_mqtt
from fiveways.wire.packet import Packet

_log = logging.getLogger("fiveways.mqtt")
_RECONNECT_DELAYS: Final = (0.1, 0.2, 0.4, 0.8, 1.0)
"""Seconds before each attempt to reconnect."""
_STABLE_AFTER: Final = 5.0
"""Seconds after which a lost connection was not lost because of the hub's first messages."""


class BrokerPeer(Participant, DeadlineTimer):
    """All callers and services behind one broker. Implements `transports.mqtt_link.MqttReceiver`."""

    protocol = "mqtt-rpc"

    def __init__(
        self,
        broker: Broker,
        config: BrokerConfig,
        identity: str,
        exchange: Exchange,
        limits: LimitSettings,
        random: Random,
        new_peer: Callable[[], str],
        *,
        skip_unsafe_topics: bool = False,
    ) -> None:
        """With `skip_unsafe_topics`, events on topics that some brokers cannot handle are not published."""
        self._skips_unsafe_topics = skip_unsafe_topics
        self.peer = ""
        self.outbox = FrameQueue()  # always empty: the link has its own queue
        self._broker = broker
        self._config = config
        self._identity = identity
        self._exchange = exchange
        self._limits = limits
        self._random = random
        self._new_peer = new_peer
        self._traits = protocol_traits(registry.load("mqtt-rpc"))
        self._link: MqttLink | None = None
        self._conversation: MqttConversation | None = None
        self._ownership: TopicOwnership | None = None
        self._recorder: BrokerRecorder | None = None
        self._own_requests: dict[str, str] = {}
        """The hub side's own requests: a description for the log, by request id."""
        self._ids = count(1)
        self._task: asyncio.Task[None] | None = None
        self._stray_log, self.claim_monitor = RateLimitedLog(_log), ClaimMonitor()
        self._hub_name = new_peer()
        """The name of this hub in claims at the broker."""
        self._retry_deadlines: dict[str, float] = {}
        """When calls without a timeout are retried: their callee may never have been subscribed."""
        self._last_publication = 0
        """The number of the hub's last publication before the last connection was lost."""
        self._lost_reason = ""
        self._tally = exchange.hub.traffic.protocol_stats(self.protocol)

    def is_linked(self) -> bool:
        """Return whether the hub is connected to the broker."""
        return self._link is not None

    def is_answering(self) -> bool:
        """Return whether the hub answers requests at the broker."""
        return self._ownership is not None and self._ownership.is_ready

    def start(self, is_ready: Callable[[], None]) -> None:
        """Connect to the broker and reconnect after losses; call `is_ready` when the hub answers requests there."""
        self._exchange.hub.registrations.on_change = self._on_registrations_changed
        self._exchange.hub.registration_handler.must_announce, self._exchange.announce = (
            True,
            self._confirm_registration,
        )
        self._task = asyncio.create_task(self._reconnect_loop(is_ready), name="connection to the MQTT broker")

    def _on_registrations_changed(self) -> None:
        if self._ownership is not None:
            self._ownership.on_registrations_changed()

    def _confirm_registration(self, announce: Announce, now: float) -> None:
        """Confirm a registration when peers behind the broker can call it; at once without a connection."""
        exchange, then = self._exchange, announce.delivery
        if self._ownership is None or then.peer == self.peer:
            exchange.perform([then], now)
        else:
            self._ownership.confirm_when_subscribed(announce, lambda: exchange.perform([then], exchange.now()))

    def withdraw(self) -> None:
        """Give up all topics, so that another hub can answer new requests."""
        if self._ownership is not None:
            self._ownership.withdraw()

    async def stop(self) -> None:
        """Disconnect from the broker."""
        if self._link is not None and self._ownership is not None:
            self._ownership.leave()
            self._link.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._disconnect()

    # The connection.

    async def _reconnect_loop(self, is_ready: Callable[[], None]) -> None:
        attempt, last_error = 0, ""
        while True:
            since = self._exchange.now()
            try:
                ownership = await self._connect()
                _log.info("connected to the MQTT broker", extra=log_fields(broker=str(self._broker)))
                last_error = ""
                await ownership.run(is_ready)
                _log.warning("connection to the MQTT broker lost", extra=log_fields(reason=self._lost_reason))
            except FivewaysError as exc:
                if str(exc) != last_error:
                    last_error = str(exc)
                    _log.warning("%s; trying again every second", exc)
            except Exception:  # noqa: BLE001  the MQTT side must survive any error
                _log.exception("internal error; reconnecting to the MQTT broker")
            self._disconnect()
            if self._exchange.now() - since > _STABLE_AFTER:
                attempt = 0
            else:
                self._skips_unsafe_topics = True
            await asyncio.sleep(_RECONNECT_DELAYS[min(attempt, len(_RECONNECT_DELAYS) - 1)])
            attempt += 1

    async def _connect(self) -> TopicOwnership:
        """Connect to the broker and join the hub; subscribe, and register the services."""
        client_id = f"fiveways-{self._new_peer()[:12]}"
        will = Will(CLAIMS_PREFIX + self._hub_name, b"")
        link = await open_mqtt(self._broker, self, client_id=client_id, will=will, ssl_context=self._config.ssl_context)
        self._link, self.peer, self._lost_reason = link, self._new_peer(), ""
        exchange, now, registrations = self._exchange, self._exchange.now(), self._exchange.hub.registrations
        self._ownership = ownership = TopicOwnership(
            self._hub_name, self.peer, self._config, registrations, link, self.claim_monitor
        )
        limits = dataclasses.replace(self._limits, max_text=min(self._limits.max_text, self._config.max_payload))
        options = {"serve": self._kind_of, "codec": self._config.codec, "attached": self._config.attachment_fields}
        options |= share_options(limits.max_pending, limits.share)
        self._conversation = MqttConversation(ConversationSetup(self.peer, Role.SERVER, self._random, limits, options))
        credentials = Credentials(is_loopback(self._broker.host), remote=link.remote)
        exchange.participants[self.peer] = self
        if not exchange.hub.admit(self.peer, self._traits, self._identity, now, credentials):
            _log.warning("peers behind the MQTT broker have no permissions; set mqtt.identity")
        if exchange.frame_buffer is not None and (session := exchange.hub.find_session(self.peer)) is not None:
            self._recorder = BrokerRecorder(exchange.frame_buffer, session, ownership.is_subscribed)
        self._config.topic_bridge.reset(exchange.hub.retained_value, self._last_publication, exchange.now)
        await link.subscribe([*self._config.service_topics, *self._config.topic_bridge.inbound, CLAIMS_FILTER])
        await ownership.join()
        self.register_services()
        for spelling, pattern in self._config.topic_bridge.outbound.items():
            message = Subscribe(self._add_own_request(f"subscribe to {spelling}"), pattern, spelling)
            exchange.handle(self.peer, message, exchange.now())
        exchange.schedule()
        return ownership

    def register_services(self) -> None:
        """Register the services behind the broker, for the first time or after a reload."""
        for method in self._config.service_methods if self._conversation is not None else ():
            request_id = self._add_own_request(f"offer {method.method}")
            message = Register(request_id, method.method, method.spelling, doc=method.doc, kind=method.kind)
            self._exchange.handle(self.peer, message, self._exchange.now())

    def _add_own_request(self, action: str) -> str:
        request_id = f"own{next(self._ids)}"
        self._own_requests[request_id] = action
        return request_id

    def _disconnect(self) -> None:
        """Leave the hub; calls to callees behind the broker are lost."""
        link, self._link, self._conversation = self._link, None, None
        if self._ownership is not None:
            self._ownership.lost()
            self._ownership = None
        self._cancel_timer()
        if self._recorder is not None:
            self._recorder.record_close(self._lost_reason)
            self._recorder = None
        self._own_requests.clear()
        self._retry_deadlines.clear()
        self._last_publication = self._exchange.hub.last_publication_number()
        self._exchange.leave(self)
        if link is not None:
            link.abort()

    # Calls from the link.

    def received(self, message: MqttMessage) -> None:
        """Handle a message of the broker."""
        topic, exchange = message.topic, self._exchange
        conversation, ownership, now = self._conversation, self._ownership, exchange.now()
        if conversation is None or ownership is None:
            return
        if topic.startswith(CLAIMS_PREFIX):
            ownership.receive(message)
            return
        self._tally.count_received(len(message.payload))
        packet, recorder = Packet(message.payload, False, topic, message.retained), self._recorder
        at = 0 if recorder is None else recorder.begin_receive()
        if topic in ownership.subscribed or topic in self._config.service_topics:
            self._handle_messages(conversation.receive(packet, now), now)
            if not self.is_flush_scheduled:
                exchange.schedule_flush(self)
        else:
            publication = self._config.topic_bridge.to_hub(topic, message.payload, retained=message.retained)
            if publication is not None:
                exchange.handle(self.peer, publication, now)
                exchange.schedule()
        if recorder is not None:
            recorder.record_received(at, packet)

    def _handle_messages(self, messages: Sequence[HubMessage], now: float) -> None:
        for message in messages:
            if isinstance(message, Register | Unregister):
                # Services behind a broker serve topics. A registration could take a method from another callee.
                self._send(
                    Delivery("", Failure(message.id, Reason.NO_SUCH_METHOD, "methods are not registered over MQTT")),
                    now,
                )
                continue
            if isinstance(message, Stray):
                self._stray_log.log(now, "stray message at the MQTT broker: %s: %s", message.id, message.text)
            elif (
                self._retry_deadlines and isinstance(message, Result | Failure) and message.id in self._retry_deadlines
            ):
                self._retry_deadlines.pop(message.id)
                if isinstance(message, Result) and not message.last:
                    self._retry_deadlines[message.id] = now + self._config.retry_after
            self._exchange.handle(self.peer, message, now)

    def writable(self) -> None:
        """Do nothing: the link has its own queue."""

    def lost(self, reason: str) -> None:
        """Handle the loss of the connection."""
        self._lost_reason = reason
        if self._ownership is not None:
            self._ownership.lost()

    def _kind_of(self, topic: str, kind: str) -> str | None:
        return None if self._ownership is None else self._ownership.method_kind(topic, kind)

    # Calls from the exchange.

    def deliver(self, delivery: Delivery, now: float) -> None:
        """Send a message to the peer behind the broker that it concerns."""
        message, conversation = delivery.message, self._conversation
        if conversation is None or isinstance(message, Welcome | TopicClosed):
            return
        if isinstance(message, Event):
            self._publish_event(message)
        elif isinstance(message, Result | Failure) and message.id in self._own_requests:
            action = self._own_requests.pop(message.id)
            if isinstance(message, Failure):
                _log.warning(
                    "MQTT side may not %s: %s; check the permissions of mqtt.identity",
                    action,
                    message.text or message.reason.text,
                )
        else:
            self._send(delivery, now)

    def _send(self, delivery: Delivery, now: float) -> None:
        message, conversation = delivery.message, self._conversation
        if conversation is None:
            return
        try:
            self._check_room()
            for part in split_call(message, self._config) if isinstance(message, Call) else (message,):
                conversation.send(part, now)
            if isinstance(message, Call) and message.timeout is None:
                self._retry_deadlines[message.id] = now + self._config.retry_after
        except LocalProtocolError as error:
            self._exchange.perform(self._exchange.hub.handle_undelivered(delivery, error, now), now)
        if self._recorder is not None:
            self._recorder.collect(conversation, delivery)
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)

    def deliver_event(self, event: Event, subscriber: Subscriber, now: float) -> None:
        """Publish an event at the broker."""
        self._publish_event(event_for(event, subscriber))

    def _publish_event(self, event: Event) -> None:
        try:
            self._publish_or_raise(event)
        except (LocalProtocolError, BadTopic, PacketIdsExhausted, ValueError) as exc:
            self._exchange.hub.count_undelivered()
            self._exchange.record_drop(self, event, str(exc))
            _log.debug("event not published at the MQTT broker: %s", exc)

    def _publish_or_raise(self, event: Event) -> None:
        link = self._link
        if link is None or link.unsent_bytes() > self._limits.max_unread_events:
            raise LocalProtocolError("the broker reads too slowly")
        outgoing = self._config.topic_bridge.to_broker(event)
        if outgoing is None:
            return
        topic, payload, retain = outgoing
        if self._skips_unsafe_topics and not is_safe_topic(topic):
            raise LocalProtocolError(f"the broker may not support the topic {topic!r}")
        link.publish(topic, payload, retain=retain)
        self._tally.count_sent(len(payload))
        self._config.topic_bridge.note_published(topic, payload)
        if self._recorder is not None:
            self._recorder.record_sent(Packet(payload, False, topic, op=f"p{event.publication}"))

    def record_drop(self, event: Event, reason: str) -> None:
        """Record an unpublished event in the journal, if there is one."""
        if self._recorder is not None:
            self._recorder.record_drop(event, reason)

    def unsent_bytes(self) -> int:
        """Return the number of bytes that wait for the broker."""
        return 0 if self._link is None else self._link.unsent_bytes()

    def _check_room(self) -> None:
        if self.unsent_bytes() > self._limits.max_unread:
            raise LocalProtocolError("too many bytes wait for the broker")

    def flush(self) -> None:
        """Publish the conversation's packets."""
        conversation, link = self._conversation, self._link
        if conversation is None or link is None:
            return
        try:
            packets = conversation.take_packets()
            for packet in packets if self._recorder is None else self._recorder.take_unsent(packets):
                link.publish(packet.channel, packet.payload)
                self._tally.count_sent(len(packet.payload))
                if self._recorder is not None:
                    self._recorder.record_sent(packet)
        except PacketIdsExhausted as exc:
            _log.warning("disconnecting from the MQTT broker: %s", exc)
            link.abort()
        deadline = conversation.deadline()
        if deadline is not None:
            self._set_deadline(deadline)
        if self._retry_deadlines:
            self._set_deadline(next(iter(self._retry_deadlines.values())))

    def abort(self) -> None:
        """Abort the connection."""
        if self._link is not None:
            self._link.abort()

    def close(self, _why: str) -> None:
        """Do nothing: the broker is shared by all peers behind it."""

    # Timers.

    def _on_deadline(self) -> None:
        conversation, now = self._conversation, self._exchange.now()
        if conversation is None:
            return
        self._handle_messages(conversation.wake(now), now)
        while self._retry_deadlines and (first := next(iter(self._retry_deadlines.items())))[1] <= now:
            call_id = first[0]
            del self._retry_deadlines[call_id]
            conversation.send(Cancel(call_id), now)
            self._exchange.handle(
                self.peer, Failure(call_id, Reason.LOST, "no callee behind the broker has responded"), now
            )
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)
