"""Everybody behind a broker: one who takes part in their place, as long as there is a link to it."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Final

from fiveways.errors import FivewaysError, LocalProtocolError
from fiveways.hub.delivery import Announce, Delivery, Subscriber
from fiveways.hub.traits import Credentials
from fiveways.model.failures import Reason
from fiveways.model.messages import (
    Call,
    Cancel,
    Event,
    Failure,
    Register,
    Result,
    Stray,
    Subscribe,
    TopicClosed,
    Unregister,
    Welcome,
    Word,
)
from fiveways.model.topics import BadTopic
from fiveways.protocols import registry
from fiveways.protocols.base import Role, Setup
from fiveways.protocols.mqtt_rpc.conversation import MqttConversation
from fiveways.runtime.endpoints import traits_of
from fiveways.runtime.exchange import Exchange, addressed
from fiveways.runtime.lines import Sparing
from fiveways.runtime.mqtt.claims import FILTER, FOLDER
from fiveways.runtime.mqtt.contest import Contest
from fiveways.runtime.mqtt.parts import in_parts
from fiveways.runtime.mqtt.plan import Plan, can_listen
from fiveways.runtime.mqtt.recording import BrokerRecorder
from fiveways.runtime.mqtt.shares import shares_of
from fiveways.runtime.mqtt.territory import Territory
from fiveways.runtime.outbox import Queue
from fiveways.runtime.party import Party
from fiveways.runtime.waking import Sleeper
from fiveways.settings.limits import LimitSettings
from fiveways.transports.address import is_loopback
from fiveways.transports.mqtt_link import Broker, Delivered, LinkFull, MqttLink, Will, open_mqtt
from fiveways.wire.packet import Packet

_log = logging.getLogger("fiveways.mqtt")
_WAITS: Final = (0.1, 0.2, 0.4, 0.8, 1.0)
"""Seconds before the broker is tried again."""
_SHORT_LIFE: Final = 5.0
"""Seconds after which a link was not lost for what we said on it first."""


class BrokerPeer(Party, Sleeper):
    """All who call and serve by way of one broker. Fulfils `transports.mqtt_link.MqttReceiver`."""

    family = "mqtt-rpc"

    def __init__(
        self,
        broker: Broker,
        plan: Plan,
        identity: str,
        exchange: Exchange,
        limits: LimitSettings,
        random: Random,
        new_peer: Callable[[], str],
        *,
        is_wary: bool = False,
    ) -> None:
        """Make it; with `is_wary`, topics are not said that some brokers do not bear."""
        self._is_wary = is_wary
        self.peer = ""
        self.outbox = Queue()  # nothing waits in it: what is said is handed to the link
        self._broker = broker
        self._plan = plan
        self._identity = identity
        self._exchange = exchange
        self._limits = limits
        self._random = random
        self._new_peer = new_peer
        self._traits = traits_of(registry.load("mqtt-rpc"))
        self._link: MqttLink | None = None
        self._talk: MqttConversation | None = None
        self._territory: Territory | None = None
        self._recorder: BrokerRecorder | None = None
        self._own: dict[str, str] = {}
        """What we asked the hub for ourselves, for people, by id."""
        self._ids = count(1)
        self._task: asyncio.Task[None] | None = None
        self._strays, self.contest = Sparing(_log), Contest()
        self._name = new_peer()
        """By which other hubs know us."""
        self._patient: dict[str, float] = {}
        """Calls without a time of their own, and when each is made again: whoever had it may never have been there."""
        self._left_at = 0
        """The hub's last publication when the last link was lost."""
        self._why = ""
        self._tally = exchange.hub.traffic.tally(self.family)

    def is_linked(self) -> bool:
        """Say whether there is a link to the broker now."""
        return self._link is not None

    def is_answering(self) -> bool:
        """Say whether requests that come by way of the broker are answered now."""
        return self._territory is not None and self._territory.is_ready

    def start(self, is_ready: Callable[[], None]) -> None:
        """Reach for the broker, now and whenever the link to it is lost; call `is_ready` when the hub answers there."""
        self._exchange.hub.offers.changed = self._look_again
        self._exchange.hub.registering.announces, self._exchange.announce = True, self._announce
        self._task = asyncio.create_task(self._keep_linked(is_ready), name="keep the link to the broker")

    def _look_again(self) -> None:
        if self._territory is not None:
            self._territory.look_again()

    def _announce(self, announce: Announce, now: float) -> None:
        """Answer a registration when those behind the broker can call it; at once while there is no link to it."""
        exchange, then = self._exchange, announce.then
        if self._territory is None or then.to == self.peer:
            exchange.perform([then], now)
        else:
            self._territory.listen_for(announce, lambda: exchange.perform([then], exchange.now()))

    def withdraw(self) -> None:
        """Answer nothing new: another hub may."""
        if self._territory is not None:
            self._territory.withdraw()

    async def stop(self) -> None:
        """Leave it."""
        if self._link is not None and self._territory is not None:
            self._territory.leave()
            self._link.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._end()

    # The link.

    async def _keep_linked(self, is_ready: Callable[[], None]) -> None:
        turn, told = 0, ""
        while True:
            since = self._exchange.now()
            try:
                territory = await self._begin()
                _log.info("linked to the broker at %s", self._broker)
                told = ""
                await territory.keep(is_ready)
                _log.warning("the link to the broker was lost%s", self._why)
            except FivewaysError as exc:
                if str(exc) != told:
                    told = str(exc)
                    _log.warning("%s; tried again every second", exc)
            except Exception:  # noqa: BLE001  whatever it is: the broker's side must not be dead for ever
                _log.exception("the broker's side failed, and begins anew")
            self._end()
            if self._exchange.now() - since > _SHORT_LIFE:
                turn = 0
            else:
                self._is_wary = True
            await asyncio.sleep(_WAITS[min(turn, len(_WAITS) - 1)])
            turn += 1

    async def _begin(self) -> Territory:
        """Come to the broker and to the hub, and say what there is."""
        name = f"fiveways-{self._new_peer()[:12]}"
        will = Will(FOLDER + self._name, b"")
        link = await open_mqtt(self._broker, self, client_id=name, will=will, ssl_context=self._plan.trust)
        self._link, self.peer, self._why = link, self._new_peer(), ""
        exchange, now, offers = self._exchange, self._exchange.now(), self._exchange.hub.offers
        self._territory = territory = Territory(self._name, self.peer, self._plan, offers, link, self.contest)
        limits = dataclasses.replace(self._limits, max_text=min(self._limits.max_text, self._plan.max_payload))
        options = {"serve": self._kind_of, "codec": self._plan.codec, "attached": self._plan.attached}
        options |= shares_of(limits.max_pending, limits.share)
        self._talk = MqttConversation(Setup(self.peer, Role.SERVER, self._random, limits, options))
        shown = Credentials(is_loopback(self._broker.host), remote=link.remote)
        exchange.parties[self.peer] = self
        if not exchange.hub.admit(self.peer, self._traits, self._identity, now, shown):
            _log.warning("nobody who comes by way of the broker may do anything: set mqtt.identity")
        if exchange.tape is not None and (session := exchange.hub.session(self.peer)) is not None:
            self._recorder = BrokerRecorder(exchange.tape, session, territory.hears)
        self._plan.bridge.begin(exchange.hub.retained, self._left_at, exchange.now)
        await link.subscribe([*self._plan.services, *self._plan.bridge.inward, FILTER])
        await territory.announce()
        self.offer()
        for written, pattern in self._plan.bridge.outward.items():
            word = Subscribe(self._asked(f"subscribe to {written}"), pattern, written)
            exchange.handle(self.peer, word, exchange.now())
        exchange.schedule()
        return territory

    def offer(self) -> None:
        """Offer the services behind the broker, for the first time or anew."""
        for offer in self._plan.offers if self._talk is not None else ():
            name = self._asked(f"offer {offer.method}")
            word = Register(name, offer.method, offer.spelling, doc=offer.doc, kind=offer.kind)
            self._exchange.handle(self.peer, word, self._exchange.now())

    def _asked(self, what: str) -> str:
        name = f"own{next(self._ids)}"
        self._own[name] = what
        return name

    def _end(self) -> None:
        """Leave the hub: what was given to somebody behind the broker is lost."""
        link, self._link, self._talk = self._link, None, None
        if self._territory is not None:
            self._territory.lost()
            self._territory = None
        self._sleep_on()
        if self._recorder is not None:
            self._recorder.end(self._why.removeprefix(": "))
            self._recorder = None
        self._own.clear()
        self._patient.clear()
        self._left_at = self._exchange.hub.last_publication()
        self._exchange.leave(self)
        if link is not None:
            link.abort()

    # Calls from the link.

    def received(self, message: Delivered) -> None:
        """Let what somebody behind the broker says be heard."""
        topic, exchange = message.topic, self._exchange
        talk, territory, now = self._talk, self._territory, exchange.now()
        if talk is None or territory is None:
            return
        if topic.startswith(FOLDER):
            territory.heard(message)
            return
        self._tally.heard(len(message.payload))
        packet, recorder = Packet(message.payload, False, topic, message.retained), self._recorder
        at = 0 if recorder is None else recorder.listen()
        if topic in territory.listened or topic in self._plan.services:
            self._hear(talk.receive(packet, now), now)
            if not self.marked:
                exchange.mark(self)
        else:
            publication = self._plan.bridge.take(topic, message.payload, retained=message.retained)
            if publication is not None:
                exchange.handle(self.peer, publication, now)
                exchange.schedule()
        if recorder is not None:
            recorder.heard(at, packet)

    def _hear(self, words: Sequence[Word], now: float) -> None:
        for word in words:
            if isinstance(word, Register | Unregister):
                # Who is behind a broker offers a method by serving its topic, and may not take away what others offer.
                self._say(Delivery("", Failure(word.id, Reason.NO_METHOD, "methods are not registered over MQTT")), now)
                continue
            if isinstance(word, Stray):
                self._strays.tell(now, "%s: %s", word.id, word.text)
            elif self._patient and isinstance(word, Result | Failure) and word.id in self._patient:
                self._patient.pop(word.id)
                if isinstance(word, Result) and not word.last:
                    self._patient[word.id] = now + self._plan.retry_after
            self._exchange.handle(self.peer, word, now)

    def writable(self) -> None:
        """Nothing waits here."""

    def lost(self, reason: str) -> None:
        """Begin anew."""
        self._why = f": {reason}" if reason else ""
        if self._territory is not None:
            self._territory.lost()

    def _kind_of(self, topic: str, kind: str) -> str | None:
        return None if self._territory is None else self._territory.kind_of(topic, kind)

    # What the exchange tells.

    def say(self, delivery: Delivery, now: float) -> None:
        """Say a word to whom it concerns behind the broker."""
        word, talk = delivery.word, self._talk
        if talk is None or isinstance(word, Welcome | TopicClosed):
            return
        if isinstance(word, Event):
            self._give(word)
        elif isinstance(word, Result | Failure) and word.id in self._own:
            what = self._own.pop(word.id)
            if isinstance(word, Failure):
                _log.warning("the broker's side may not %s: %s", what, word.text or word.reason.value)
        else:
            self._say(delivery, now)

    def _say(self, delivery: Delivery, now: float) -> None:
        word, talk = delivery.word, self._talk
        if talk is None:
            return
        try:
            self._check_room()
            for each in in_parts(word, self._plan) if isinstance(word, Call) else (word,):
                talk.send(each, now)
            if isinstance(word, Call) and word.timeout is None:
                self._patient[word.id] = now + self._plan.retry_after
        except LocalProtocolError as error:
            self._exchange.perform(self._exchange.hub.undelivered(delivery, error, now), now)
        if self._recorder is not None:
            self._recorder.collect(talk, delivery)
        if not self.marked:
            self._exchange.mark(self)

    def say_event(self, event: Event, subscriber: Subscriber, now: float) -> None:
        """Publish an event at the broker."""
        self._give(addressed(event, subscriber))

    def _give(self, event: Event) -> None:
        try:
            self._tell_event(event)
        except (LocalProtocolError, BadTopic, LinkFull, ValueError) as exc:
            self._exchange.hub.count_undelivered()
            self._exchange.drop(self, event, str(exc))
            _log.debug("an event is not said to the broker: %s", exc)

    def _tell_event(self, event: Event) -> None:
        link = self._link
        if link is None or link.waiting() > self._limits.max_unread_events:
            raise LocalProtocolError("the broker reads too slowly")
        given = self._plan.bridge.give(event)
        if given is None:
            return
        topic, payload, retain = given
        if self._is_wary and not can_listen(topic):
            raise LocalProtocolError(f"the broker may not bear the topic {topic!r}")
        link.publish(topic, payload, retain=retain)
        self._tally.said(len(payload))
        self._plan.bridge.said(topic, payload)
        if self._recorder is not None:
            self._recorder.said(Packet(payload, False, topic, op=f"p{event.publication}"))

    def note_drop(self, event: Event, reason: str) -> None:
        """Have it noted down that an event is not given to the broker."""
        if self._recorder is not None:
            self._recorder.dropped(event, reason)

    def waiting(self) -> int:
        """Return how many bytes wait for the broker."""
        return 0 if self._link is None else self._link.waiting()

    def _check_room(self) -> None:
        if self.waiting() > self._limits.max_unread:
            raise LocalProtocolError("too many bytes wait for the broker")

    def flush(self) -> None:
        """Publish what there is to say."""
        talk, link = self._talk, self._link
        if talk is None or link is None:
            return
        try:
            packets = talk.outgoing()
            for packet in packets if self._recorder is None else self._recorder.take(packets):
                link.publish(packet.channel, packet.payload)
                self._tally.said(len(packet.payload))
                if self._recorder is not None:
                    self._recorder.said(packet)
        except LinkFull as exc:
            _log.warning("the broker is let go: %s", exc)
            link.abort()
        deadline = talk.deadline()
        if deadline is not None:
            self._wake_at(deadline)
        if self._patient:
            self._wake_at(next(iter(self._patient.values())))

    def cut_off(self) -> None:
        """End the link."""
        if self._link is not None:
            self._link.abort()

    def close(self, _why: str) -> None:
        """Stay: it is the broker that is slow, or nobody."""

    # Time.

    def _wake(self) -> None:
        talk, now = self._talk, self._exchange.now()
        if talk is None:
            return
        self._hear(talk.wake(now), now)
        while self._patient and (first := next(iter(self._patient.items())))[1] <= now:
            call_id = first[0]
            del self._patient[call_id]
            talk.send(Cancel(call_id), now)
            self._exchange.handle(
                self.peer, Failure(call_id, Reason.LOST, "nobody behind the broker has answered"), now
            )
        if not self.marked:
            self._exchange.mark(self)
