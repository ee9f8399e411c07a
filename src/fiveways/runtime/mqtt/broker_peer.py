"""Everybody behind a broker: one who takes part in their place, as long as there is a link to it."""

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
from fiveways.runtime.structured_logging import RateLimitedLog
from fiveways.settings.limits import LimitSettings
from fiveways.transports.address import is_loopback
from fiveways.transports.mqtt_link import Broker, MqttLink, MqttMessage, PacketIdsExhausted, Will, open_mqtt
from fiveways.wire.packet import Packet

_log = logging.getLogger("fiveways.mqtt")
_RECONNECT_DELAYS: Final = (0.1, 0.2, 0.4, 0.8, 1.0)
"""Seconds before the broker is tried again."""
_STABLE_AFTER: Final = 5.0
"""Seconds after which a link was not lost for what we said on it first."""


class BrokerPeer(Participant, DeadlineTimer):
    """All who call and serve by way of one broker. Fulfils `transports.mqtt_link.MqttReceiver`."""

    protocol = "mqtt-rpc"

    def __init__(
        self,
        broker: Broker,
        plan: BrokerConfig,
        identity: str,
        exchange: Exchange,
        limits: LimitSettings,
        random: Random,
        new_peer: Callable[[], str],
        *,
        is_wary: bool = False,
    ) -> None:
        """Make it; with `is_wary`, topics are not said that some brokers do not bear."""
        self._skips_unsafe_topics = is_wary
        self.peer = ""
        self.outbox = FrameQueue()  # nothing waits in it: what is said is handed to the link
        self._broker = broker
        self._plan = plan
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
        """What we asked the hub for ourselves, for people, by id."""
        self._ids = count(1)
        self._task: asyncio.Task[None] | None = None
        self._stray_log, self.claim_monitor = RateLimitedLog(_log), ClaimMonitor()
        self._hub_name = new_peer()
        """By which other hubs know us."""
        self._retry_deadlines: dict[str, float] = {}
        """Calls without a time of their own, and when each is made again: whoever had it may never have been there."""
        self._last_publication = 0
        """The hub's last publication when the last link was lost."""
        self._lost_reason = ""
        self._tally = exchange.hub.traffic.protocol_stats(self.protocol)

    def is_linked(self) -> bool:
        """Say whether there is a link to the broker now."""
        return self._link is not None

    def is_answering(self) -> bool:
        """Say whether requests that come by way of the broker are answered now."""
        return self._ownership is not None and self._ownership.is_ready

    def start(self, is_ready: Callable[[], None]) -> None:
        """Reach for the broker, now and whenever the link to it is lost; call `is_ready` when the hub answers there."""
        self._exchange.hub.registrations.on_change = self._on_registrations_changed
        self._exchange.hub.registration_handler.must_announce, self._exchange.announce = (
            True,
            self._confirm_registration,
        )
        self._task = asyncio.create_task(self._reconnect_loop(is_ready), name="keep the link to the broker")

    def _on_registrations_changed(self) -> None:
        if self._ownership is not None:
            self._ownership.on_registrations_changed()

    def _confirm_registration(self, announce: Announce, now: float) -> None:
        """Answer a registration when those behind the broker can call it; at once while there is no link to it."""
        exchange, then = self._exchange, announce.delivery
        if self._ownership is None or then.peer == self.peer:
            exchange.perform([then], now)
        else:
            self._ownership.confirm_when_subscribed(announce, lambda: exchange.perform([then], exchange.now()))

    def withdraw(self) -> None:
        """Answer nothing new: another hub may."""
        if self._ownership is not None:
            self._ownership.withdraw()

    async def stop(self) -> None:
        """Leave it."""
        if self._link is not None and self._ownership is not None:
            self._ownership.leave()
            self._link.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._disconnect()

    # The link.

    async def _reconnect_loop(self, is_ready: Callable[[], None]) -> None:
        turn, told = 0, ""
        while True:
            since = self._exchange.now()
            try:
                territory = await self._connect()
                _log.info("linked to the broker at %s", self._broker)
                told = ""
                await territory.run(is_ready)
                _log.warning("the link to the broker was lost%s", self._lost_reason)
            except FivewaysError as exc:
                if str(exc) != told:
                    told = str(exc)
                    _log.warning("%s; tried again every second", exc)
            except Exception:  # noqa: BLE001  whatever it is: the broker's side must not be dead for ever
                _log.exception("the broker's side failed, and begins anew")
            self._disconnect()
            if self._exchange.now() - since > _STABLE_AFTER:
                turn = 0
            else:
                self._skips_unsafe_topics = True
            await asyncio.sleep(_RECONNECT_DELAYS[min(turn, len(_RECONNECT_DELAYS) - 1)])
            turn += 1

    async def _connect(self) -> TopicOwnership:
        """Come to the broker and to the hub, and say what there is."""
        name = f"fiveways-{self._new_peer()[:12]}"
        will = Will(CLAIMS_PREFIX + self._hub_name, b"")
        link = await open_mqtt(self._broker, self, client_id=name, will=will, ssl_context=self._plan.ssl_context)
        self._link, self.peer, self._lost_reason = link, self._new_peer(), ""
        exchange, now, offers = self._exchange, self._exchange.now(), self._exchange.hub.registrations
        self._ownership = territory = TopicOwnership(
            self._hub_name, self.peer, self._plan, offers, link, self.claim_monitor
        )
        limits = dataclasses.replace(self._limits, max_text=min(self._limits.max_text, self._plan.max_payload))
        options = {"serve": self._kind_of, "codec": self._plan.codec, "attached": self._plan.attachment_fields}
        options |= share_options(limits.max_pending, limits.share)
        self._conversation = MqttConversation(ConversationSetup(self.peer, Role.SERVER, self._random, limits, options))
        shown = Credentials(is_loopback(self._broker.host), remote=link.remote)
        exchange.participants[self.peer] = self
        if not exchange.hub.admit(self.peer, self._traits, self._identity, now, shown):
            _log.warning("nobody who comes by way of the broker may do anything: set mqtt.identity")
        if exchange.frame_buffer is not None and (session := exchange.hub.find_session(self.peer)) is not None:
            self._recorder = BrokerRecorder(exchange.frame_buffer, session, territory.is_subscribed)
        self._plan.topic_bridge.reset(exchange.hub.retained_value, self._last_publication, exchange.now)
        await link.subscribe([*self._plan.service_topics, *self._plan.topic_bridge.inbound, CLAIMS_FILTER])
        await territory.join()
        self.register_services()
        for written, pattern in self._plan.topic_bridge.outbound.items():
            word = Subscribe(self._add_own_request(f"subscribe to {written}"), pattern, written)
            exchange.handle(self.peer, word, exchange.now())
        exchange.schedule()
        return territory

    def register_services(self) -> None:
        """Offer the services behind the broker, for the first time or anew."""
        for offer in self._plan.service_methods if self._conversation is not None else ():
            name = self._add_own_request(f"offer {offer.method}")
            word = Register(name, offer.method, offer.spelling, doc=offer.doc, kind=offer.kind)
            self._exchange.handle(self.peer, word, self._exchange.now())

    def _add_own_request(self, what: str) -> str:
        name = f"own{next(self._ids)}"
        self._own_requests[name] = what
        return name

    def _disconnect(self) -> None:
        """Leave the hub: what was given to somebody behind the broker is lost."""
        link, self._link, self._conversation = self._link, None, None
        if self._ownership is not None:
            self._ownership.lost()
            self._ownership = None
        self._cancel_timer()
        if self._recorder is not None:
            self._recorder.record_close(self._lost_reason.removeprefix(": "))
            self._recorder = None
        self._own_requests.clear()
        self._retry_deadlines.clear()
        self._last_publication = self._exchange.hub.last_publication_number()
        self._exchange.leave(self)
        if link is not None:
            link.abort()

    # Calls from the link.

    def received(self, message: MqttMessage) -> None:
        """Let what somebody behind the broker says be heard."""
        topic, exchange = message.topic, self._exchange
        talk, territory, now = self._conversation, self._ownership, exchange.now()
        if talk is None or territory is None:
            return
        if topic.startswith(CLAIMS_PREFIX):
            territory.receive(message)
            return
        self._tally.count_received(len(message.payload))
        packet, recorder = Packet(message.payload, False, topic, message.retained), self._recorder
        at = 0 if recorder is None else recorder.begin_receive()
        if topic in territory.subscribed or topic in self._plan.service_topics:
            self._handle_messages(talk.receive(packet, now), now)
            if not self.is_flush_scheduled:
                exchange.schedule_flush(self)
        else:
            publication = self._plan.topic_bridge.to_hub(topic, message.payload, retained=message.retained)
            if publication is not None:
                exchange.handle(self.peer, publication, now)
                exchange.schedule()
        if recorder is not None:
            recorder.record_received(at, packet)

    def _handle_messages(self, words: Sequence[HubMessage], now: float) -> None:
        for word in words:
            if isinstance(word, Register | Unregister):
                # Who is behind a broker offers a method by serving its topic, and may not take away what others offer.
                self._send(
                    Delivery("", Failure(word.id, Reason.NO_SUCH_METHOD, "methods are not registered over MQTT")), now
                )
                continue
            if isinstance(word, Stray):
                self._stray_log.log(now, "%s: %s", word.id, word.text)
            elif self._retry_deadlines and isinstance(word, Result | Failure) and word.id in self._retry_deadlines:
                self._retry_deadlines.pop(word.id)
                if isinstance(word, Result) and not word.last:
                    self._retry_deadlines[word.id] = now + self._plan.retry_after
            self._exchange.handle(self.peer, word, now)

    def writable(self) -> None:
        """Nothing waits here."""

    def lost(self, reason: str) -> None:
        """Begin anew."""
        self._lost_reason = f": {reason}" if reason else ""
        if self._ownership is not None:
            self._ownership.lost()

    def _kind_of(self, topic: str, kind: str) -> str | None:
        return None if self._ownership is None else self._ownership.method_kind(topic, kind)

    # What the exchange tells.

    def deliver(self, delivery: Delivery, now: float) -> None:
        """Say a word to whom it concerns behind the broker."""
        word, talk = delivery.message, self._conversation
        if talk is None or isinstance(word, Welcome | TopicClosed):
            return
        if isinstance(word, Event):
            self._publish_event(word)
        elif isinstance(word, Result | Failure) and word.id in self._own_requests:
            what = self._own_requests.pop(word.id)
            if isinstance(word, Failure):
                _log.warning("the broker's side may not %s: %s", what, word.text or word.reason.text)
        else:
            self._send(delivery, now)

    def _send(self, delivery: Delivery, now: float) -> None:
        word, talk = delivery.message, self._conversation
        if talk is None:
            return
        try:
            self._check_room()
            for each in split_call(word, self._plan) if isinstance(word, Call) else (word,):
                talk.send(each, now)
            if isinstance(word, Call) and word.timeout is None:
                self._retry_deadlines[word.id] = now + self._plan.retry_after
        except LocalProtocolError as error:
            self._exchange.perform(self._exchange.hub.handle_undelivered(delivery, error, now), now)
        if self._recorder is not None:
            self._recorder.collect(talk, delivery)
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
            _log.debug("an event is not said to the broker: %s", exc)

    def _publish_or_raise(self, event: Event) -> None:
        link = self._link
        if link is None or link.unsent_bytes() > self._limits.max_unread_events:
            raise LocalProtocolError("the broker reads too slowly")
        given = self._plan.topic_bridge.to_broker(event)
        if given is None:
            return
        topic, payload, retain = given
        if self._skips_unsafe_topics and not is_safe_topic(topic):
            raise LocalProtocolError(f"the broker may not bear the topic {topic!r}")
        link.publish(topic, payload, retain=retain)
        self._tally.count_sent(len(payload))
        self._plan.topic_bridge.note_published(topic, payload)
        if self._recorder is not None:
            self._recorder.record_sent(Packet(payload, False, topic, op=f"p{event.publication}"))

    def record_drop(self, event: Event, reason: str) -> None:
        """Have it noted down that an event is not given to the broker."""
        if self._recorder is not None:
            self._recorder.record_drop(event, reason)

    def unsent_bytes(self) -> int:
        """Return how many bytes wait for the broker."""
        return 0 if self._link is None else self._link.unsent_bytes()

    def _check_room(self) -> None:
        if self.unsent_bytes() > self._limits.max_unread:
            raise LocalProtocolError("too many bytes wait for the broker")

    def flush(self) -> None:
        """Publish what there is to say."""
        talk, link = self._conversation, self._link
        if talk is None or link is None:
            return
        try:
            packets = talk.take_packets()
            for packet in packets if self._recorder is None else self._recorder.take_unsent(packets):
                link.publish(packet.channel, packet.payload)
                self._tally.count_sent(len(packet.payload))
                if self._recorder is not None:
                    self._recorder.record_sent(packet)
        except PacketIdsExhausted as exc:
            _log.warning("the broker is let go: %s", exc)
            link.abort()
        deadline = talk.deadline()
        if deadline is not None:
            self._set_deadline(deadline)
        if self._retry_deadlines:
            self._set_deadline(next(iter(self._retry_deadlines.values())))

    def abort(self) -> None:
        """End the link."""
        if self._link is not None:
            self._link.abort()

    def close(self, _why: str) -> None:
        """Stay: it is the broker that is slow, or nobody."""

    # Time.

    def _on_deadline(self) -> None:
        talk, now = self._conversation, self._exchange.now()
        if talk is None:
            return
        self._handle_messages(talk.wake(now), now)
        while self._retry_deadlines and (first := next(iter(self._retry_deadlines.items())))[1] <= now:
            call_id = first[0]
            del self._retry_deadlines[call_id]
            talk.send(Cancel(call_id), now)
            self._exchange.handle(
                self.peer, Failure(call_id, Reason.LOST, "nobody behind the broker has answered"), now
            )
        if not self.is_flush_scheduled:
            self._exchange.schedule_flush(self)
