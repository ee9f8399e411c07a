"""Everybody behind a broker: one who takes part in their place, as long as there is a link to it."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Final

from msgspec.structs import replace

from fiveways.errors import ConnectionLost, FivewaysError, LocalProtocolError, Unrepresentable
from fiveways.hub.delivery import Delivery, Subscriber
from fiveways.model import names
from fiveways.model.messages import (
    Call,
    Event,
    Failure,
    Part,
    Register,
    Result,
    Stray,
    Subscribe,
    TopicClosed,
    Welcome,
    Word,
)
from fiveways.model.names import BadName
from fiveways.model.topics import BadTopic
from fiveways.protocols import registry
from fiveways.protocols.base import Role, Setup
from fiveways.protocols.mqtt_rpc.conversation import MqttConversation
from fiveways.runtime.endpoints import traits_of
from fiveways.runtime.exchange import Exchange, addressed
from fiveways.runtime.mqtt.claims import FILTER, FOLDER, Claims
from fiveways.runtime.mqtt.plan import Plan
from fiveways.runtime.outbox import Queue
from fiveways.runtime.party import Party
from fiveways.transports.address import is_loopback
from fiveways.transports.mqtt_link import Broker, Delivered, LinkFull, MqttLink, Will, open_mqtt
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Value

_log = logging.getLogger("fiveways.mqtt")
_WAITS: Final = (0.1, 0.2, 0.4, 0.8, 1.0)
"""Seconds before the broker is tried again."""
_MOST_TOPICS: Final = 900
"""Topics on which the hub answers: nats-server has room for 1,023 subscriptions of one client."""
_MOST_WARNINGS: Final = 10
"""Answers that nobody waits for, and that are told one by one, within a minute."""
_MINUTE: Final = 60.0
_HUB_TOPICS: Final = frozenset({"/hub", "/callback", f"/{names.HOME}"})


class BrokerPeer(Party):
    """All who call and serve by way of one broker. Fulfils `transports.mqtt_link.MqttReceiver`."""

    family = "mqtt-rpc"

    def __init__(
        self,
        broker: Broker,
        plan: Plan,
        identity: str,
        exchange: Exchange,
        limits: Limits,
        random: Random,
        new_peer: Callable[[], str],
    ) -> None:
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
        self._claims = Claims("")
        self._listened: frozenset[str] = frozenset()
        """Topics on which we answer, and are subscribed."""
        self._is_lost = asyncio.Event()
        self._is_stale = asyncio.Event()
        """What we offer, or may answer, has changed."""
        self.is_ready = asyncio.Event()
        """The hub has been at the broker, and answered there what was its to answer."""
        self._own: dict[str, str] = {}
        """What we asked the hub for ourselves, for people, by id."""
        self._ids = count(1)
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """When that is: uvloop's own handle does not tell where the time has come."""
        self._warnings = 0
        self._warned_at = 0.0

    def start(self) -> None:
        """Reach for the broker, now and whenever the link to it is lost."""
        self._exchange.hub.offers.changed = self._is_stale.set
        self._task = asyncio.create_task(self._keep_linked(), name="keep the link to the broker")

    async def stop(self) -> None:
        """Leave it."""
        if self._link is not None:
            self._link.publish(self._claims.place, b"", retain=True)
            self._link.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._end("")

    # The link.

    async def _keep_linked(self) -> None:
        turn, told = 0, ""
        while True:
            self._is_lost.clear()
            try:
                await self._begin()
            except FivewaysError as exc:
                if str(exc) != told:
                    told = str(exc)
                    _log.warning("%s; tried again every second", exc)
                self._end("")
                await asyncio.sleep(_WAITS[min(turn, len(_WAITS) - 1)])
                turn += 1
                continue
            _log.info("linked to the broker at %s", self._broker)
            turn, told = 0, ""
            await self._keep_current()
            self._end("the link to the broker was lost")

    async def _begin(self) -> None:
        """Come to the broker and to the hub, and say what there is."""
        self._claims = claims = Claims(self._new_peer())
        will = Will(claims.place, b"", retain=True)
        name = f"fiveways-{self._new_peer()[:12]}"
        link = await open_mqtt(self._broker, self, client_id=name, will=will, ssl_context=self._plan.trust)
        self._link, self._listened, self.peer = link, frozenset(), self._new_peer()
        options = {"serve": self._kind_of, "codec": self._plan.codec}
        self._talk = MqttConversation(Setup(self.peer, Role.SERVER, self._random, self._limits, options))
        exchange, now = self._exchange, self._exchange.now()
        exchange.parties[self.peer] = self
        if not exchange.hub.admit(
            self.peer, self._traits, self._identity, now, is_loopback=is_loopback(self._broker.host)
        ):
            _log.warning("nobody who comes by way of the broker may do anything: set mqtt.identity")
        self._plan.bridge.begin()
        await link.subscribe([*self._plan.services, *self._plan.bridge.inward, FILTER])
        for word in self._wishes():
            exchange.handle(self.peer, word, now)
        exchange.schedule()

    def _wishes(self) -> Iterator[Word]:
        """Return what we want from the hub."""
        for offer in self._plan.offers:
            name = self._asked(f"offer {offer.method}")
            yield Register(name, offer.method, offer.spelling, doc=offer.doc, kind=offer.kind)
        for written, pattern in self._plan.bridge.outward.items():
            yield Subscribe(self._asked(f"subscribe to {written}"), pattern, written)

    def _asked(self, what: str) -> str:
        name = f"own{next(self._ids)}"
        self._own[name] = what
        return name

    async def _keep_current(self) -> None:
        """Claim what the hub can answer, and be subscribed to what is ours to answer, until the link is lost."""
        self._is_stale.set()
        while not self._is_lost.is_set():
            await self._is_stale.wait()
            self._is_stale.clear()
            link = self._link
            if link is None or self._is_lost.is_set():
                return
            try:
                news = self._claims.want(self._wanted())
                if news is not None:
                    link.publish(self._claims.place, news, retain=True)
                held = self._claims.held
                if gone := self._listened - held:
                    self._listened &= held
                    await link.unsubscribe(sorted(gone))
                if new := held - self._listened:
                    await self._listen(link, sorted(new))
                if self._claims.is_told:
                    self.is_ready.set()
            except ConnectionLost:
                return

    async def _listen(self, link: MqttLink, topics: list[str]) -> None:
        try:
            await link.subscribe(topics)
        except ConnectionLost:
            raise
        except FivewaysError as exc:
            _log.warning("the hub is not heard on %s: %s", ", ".join(topics), exc)
        self._listened |= frozenset(topics)

    def _wanted(self) -> frozenset[str]:
        """Return the topics of all methods whose callee is not behind this very broker."""
        wanted = set(_HUB_TOPICS)
        for method in self._exchange.hub.offers:
            if all(offer.session.peer == self.peer for offer in method.offers):
                continue
            wanted.add(f"/{method.name}" if method.is_route else names.spell_mqtt(method.name)[0])
        wanted.update(self._plan.served)
        wanted -= self._plan.services.keys()
        if len(wanted) > _MOST_TOPICS:
            _log.warning("the methods have %d topics; the hub answers on %d of them", len(wanted), _MOST_TOPICS)
            wanted = {*sorted(wanted - _HUB_TOPICS)[: _MOST_TOPICS - len(_HUB_TOPICS)], *_HUB_TOPICS}
        return frozenset(wanted)

    def _end(self, reason: str) -> None:
        """Leave the hub: what was given to somebody behind the broker is lost."""
        link, self._link, self._talk = self._link, None, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._own.clear()
        self._exchange.leave(self)
        if link is not None:
            link.abort()
        if reason:
            _log.warning("%s", reason)

    # What the link tells.

    def received(self, message: Delivered) -> None:
        """Let what somebody behind the broker says be heard."""
        topic, exchange = message.topic, self._exchange
        talk, now = self._talk, exchange.now()
        if talk is None:
            return
        if topic.startswith(FOLDER):
            if self._claims.heard(topic, message.payload):
                self._is_stale.set()
        elif topic in self._listened or topic in self._plan.services:
            packet = Packet(message.payload, False, topic, message.retained)
            for word in talk.receive(packet, now):
                if type(word) is Stray:
                    self._warn(word, now)
                exchange.handle(self.peer, word, now)
            if not self.marked:
                exchange.mark(self)
        else:
            publication = self._plan.bridge.take(topic, message.payload, retained=message.retained, now=now)
            if publication is not None:
                exchange.handle(self.peer, publication, now)
                exchange.schedule()

    def _warn(self, word: Stray, now: float) -> None:
        """Tell of an answer that nobody waits for; of many, only that there are many."""
        if now - self._warned_at > _MINUTE:
            self._warned_at, self._warnings = now, 0
        self._warnings += 1
        if self._warnings <= _MOST_WARNINGS:
            more = "; more of them are only counted" if self._warnings == _MOST_WARNINGS else ""
            _log.warning("%s: %s%s", word.id, word.text, more)

    def writable(self) -> None:
        """Nothing waits here."""

    def lost(self, reason: str) -> None:
        """Begin anew."""
        _log.debug("the broker is gone: %s", reason)
        self._is_lost.set()
        self._is_stale.set()

    def _kind_of(self, topic: str, kind: str) -> str | None:
        """Say whether it is ours to answer there, and which side streams."""
        if topic not in self._listened or topic not in self._claims.held:
            return None
        try:
            method = self._exchange.hub.offers.find(names.fold_mqtt(topic, kind))
        except BadName:
            return "unary"
        return "unary" if method is None else method.kind

    # What the exchange tells.

    def say(self, delivery: Delivery, now: float) -> None:
        """Say a word to whom it concerns behind the broker."""
        word, talk = delivery.word, self._talk
        if talk is None or isinstance(word, Welcome | TopicClosed):
            return
        if isinstance(word, Event):
            self._give(word, now)
        elif isinstance(word, Result | Failure) and word.id in self._own:
            what = self._own.pop(word.id)
            if isinstance(word, Failure):
                _log.warning("the broker's side may not %s: %s", what, word.text or word.reason.value)
        else:
            try:
                self._check_room()
                for each in self._in_parts(word) if isinstance(word, Call) else (word,):
                    talk.send(each, now)
            except LocalProtocolError as error:
                self._exchange.perform(self._exchange.hub.undelivered(delivery, error, now), now)
            if not self.marked:
                self._exchange.mark(self)

    def _in_parts(self, call: Call) -> Iterator[Word]:
        """Return a call as it is, but to a service that takes a stream: an array is its elements there."""
        if call.more or call.method not in self._plan.streamed:
            yield call
            return
        value = call.body.value()
        elements = value if isinstance(value, list) else [value]
        if not elements:
            raise Unrepresentable("a stream without elements, which RPC over MQTT cannot begin")
        yield replace(call, body=Value(elements[0]), more=True)
        last = len(elements) - 1
        for number, element in enumerate(elements[1:], 1):
            yield Part(call.id, Value(element), last=number == last)
        if not last:
            yield Part(call.id, None, last=True)

    def say_event(self, event: Event, subscriber: Subscriber, now: float) -> None:
        """Publish an event at the broker."""
        self._give(addressed(event, subscriber), now)

    def _give(self, event: Event, now: float) -> None:
        link = self._link
        if link is None or link.waiting() > self._limits.max_unread_events:
            return
        is_retained = self._exchange.hub.is_retained(event.topic, event.publication)
        try:
            topic, payload, retain = self._plan.bridge.give(event, is_retained=is_retained, now=now)
            link.publish(topic, payload, retain=retain)
        except (LocalProtocolError, BadTopic, LinkFull, ValueError) as exc:
            _log.debug("an event cannot be said to the broker: %s", exc)

    def _check_room(self) -> None:
        if self._link is not None and self._link.waiting() > self._limits.max_unread:
            raise LocalProtocolError("too many bytes wait for the broker")

    def flush(self) -> None:
        """Publish what there is to say."""
        talk, link = self._talk, self._link
        if talk is None or link is None:
            return
        try:
            for packet in talk.outgoing():
                link.publish(packet.channel, packet.payload)
        except LinkFull as exc:
            _log.warning("the broker is let go: %s", exc)
            link.abort()
        deadline = talk.deadline()
        if deadline is not None:
            self._wake_at(deadline)

    def cut_off(self) -> None:
        """End the link."""
        if self._link is not None:
            self._link.abort()

    def close(self, _why: str) -> None:
        """Stay: it is the broker that is slow, or nobody."""

    # Time.

    def _wake_at(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = asyncio.get_running_loop().call_at(deadline, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self._talk is None:
            return
        now = self._exchange.now()
        for word in self._talk.wake(now):
            self._exchange.handle(self.peer, word, now)
        if not self.marked:
            self._exchange.mark(self)
