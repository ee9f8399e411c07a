"""On which topics of a broker the hub answers: those of its methods, as far as no other hub was there before."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final

from fiveways.errors import ConnectionLost
from fiveways.hub.delivery import Announce
from fiveways.hub.offers import Offers
from fiveways.model import names
from fiveways.model.names import BadName
from fiveways.runtime.clock import steady_clock
from fiveways.runtime.mqtt.claims import FOLDER, HERE, SILENT, Claims
from fiveways.runtime.mqtt.contest import Contest, shown
from fiveways.runtime.mqtt.plan import Plan, can_listen
from fiveways.transports.mqtt_link import BrokerRefused, Delivered, MqttLink

_log = logging.getLogger("fiveways.mqtt")
_HUB_TOPICS: Final = frozenset({"/hub", "/callback", f"/{names.HOME}"})
_MOST_TOPICS: Final = 900
"""Topics on which the hub answers: nats-server has room for 1,023 subscriptions of one client."""
_PAUSE: Final = 0.02
"""Seconds between two messages to other hubs, whatever they do."""
_SETTLE: Final = 0.3
"""Seconds for others to say what is theirs: without their numbers, our claims could be lower, and take theirs away."""
_ECHO: Final = 1.0
"""Seconds for the broker to send back our claims, before they are published again.

nats-server 2.15 acknowledges a message of QoS 1 and yet may not deliver it, if the publisher unsubscribes at the same
moment: about 1 of 1,000 on a busy machine.
"""
_ASK: Final = 15.0
"""Seconds between two questions to other hubs whether they are there."""
_WARN_AFTER: Final = 5
"""Claims in a row that are not sent back, before the log says so."""
_TOLD: Final = 5
_ANNOUNCED_WITHIN: Final = 2.0
"""Seconds for the broker to let us listen on the topic of a new registration, before that is answered anyway."""


class _Announced:
    """A registration whose answer waits for the broker; `end` gives it, once."""

    def __init__(self, answer: Callable[[], None]) -> None:
        self.is_overdue = False
        """Whether it was answered although the broker does not let us listen yet."""
        self._answer: Callable[[], None] | None = answer
        self._timer = asyncio.get_running_loop().call_later(_ANNOUNCED_WITHIN, self._expire)

    def end(self) -> None:
        self._timer.cancel()
        answer, self._answer = self._answer, None
        if answer is not None:
            answer()

    def _expire(self) -> None:
        self.is_overdue = True
        self.end()


class Territory:
    """What is claimed, held and listened to, as long as a link to the broker."""

    def __init__(self, name: str, peer: str, plan: Plan, offers: Offers, link: MqttLink, contest: Contest) -> None:
        """Make it for the hub of this name, whose peer at the hub is everybody behind the broker."""
        self.claims = Claims(name)
        self.listened: frozenset[str] = frozenset()
        """Topics on which we answer, and are subscribed."""
        self._peer = peer
        self._plan = plan
        self._offers = offers
        self._link = link
        self._is_stale = asyncio.Event()
        self._is_lost = asyncio.Event()
        self._is_left = False
        self._contest = contest
        contest.rivals = {}
        self._clock = steady_clock
        self._asked_at = self._clock()
        self._announced: dict[_Announced, None] = {}
        self._has_listened = False
        self._echoes_missed = 0

    @property
    def is_ready(self) -> bool:
        """Whether the hub listens, on this link, on the topics of all methods whose registration was answered."""
        return self._has_listened and not any(each.is_overdue for each in self._announced)

    async def announce(self) -> None:
        """Say that we are here, and wait until the others have said what is theirs, and the broker what it retains."""
        self._publish(HERE)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_lost.wait(), _SETTLE)

    def heard(self, message: Delivered) -> None:
        """Take what a hub says, or somebody in its place."""
        claims, now = self.claims, self._clock()
        topic, payload, name = message.topic, message.payload, message.topic.removeprefix(FOLDER)
        if message.retained:
            self._contest.found_false(name, "the broker retains it", now)
            return
        if not claims.is_ours(topic, payload):
            self._contest.found_false(name, "this is the name of this hub, which did not publish it", now)
        before = claims.held
        if claims.heard(topic, payload, now):
            self._is_stale.set()
        if topic != claims.place and (lost := before - claims.held):
            self._contest.lost_topics(name, lost, now)
        self._tell_rivals()

    def look_again(self) -> None:
        """Know that methods have come or gone."""
        self._is_stale.set()

    def listen_for(self, announce: Announce, answer: Callable[[], None]) -> None:
        """Call `answer` when we listen on the topic of a new registration, or another hub has that topic.

        It is called after `_ANNOUNCED_WITHIN` seconds in any case, and when the link is lost: the registration holds,
        and is served when the broker is back.
        """
        topic = _topic_of(announce.method, is_route=announce.is_route)
        if self._is_lost.is_set() or self._is_left or (topic in self.listened and topic in self.claims.held):
            answer()
        else:
            self._announced[_Announced(answer)] = None
            self._is_stale.set()

    def withdraw(self) -> None:
        """Answer nothing new: another hub may."""
        self._is_left = True
        self._is_stale.set()

    def leave(self) -> None:
        """Tell the others that we are gone."""
        self._publish(b"")

    def lost(self) -> None:
        """Handle the end of the link."""
        self._is_lost.set()
        self._contest.rivals = {}
        self._has_listened = False
        self._is_stale.set()
        self._answer([*self._announced])

    def hears(self, topic: str) -> bool:
        """Say whether what is published there comes to us."""
        return topic in self.listened or topic in self._plan.services or self._plan.bridge.listens(topic)

    def kind_of(self, topic: str, kind: str) -> str | None:
        """Say whether it is ours to answer there, and which side streams."""
        if topic not in self.listened or topic not in self.claims.held:
            return None
        try:
            method = self._offers.find(names.fold_mqtt(topic, kind))
        except BadName:
            return "unary"
        return "unary" if method is None else method.kind

    async def keep(self, is_ready: Callable[[], object]) -> None:
        """Claim what the hub can answer, and be subscribed to what is ours to answer, until the link is lost."""
        self._is_stale.set()
        while True:
            await self._news()
            self._is_stale.clear()
            if self._is_lost.is_set():
                return
            announced = [*self._announced]
            self._look_for_others()
            try:
                await self._adjust()
            except ConnectionLost:
                return
            if self.claims.is_told and self.listened == self.claims.held:
                self._has_listened = True
                self._echoes_missed = 0
                self._answer(announced)
                is_ready()
            if not self._announced:
                await asyncio.sleep(_PAUSE)

    async def _news(self) -> None:
        """Wait until there is something to do: a change, or claims that have to be published again."""
        patience = _ECHO if self.claims.awaits_echo else _ASK if self.claims.others else None
        try:
            async with asyncio.timeout(patience):  # `wait_for` may ignore that the task is cancelled
                await self._is_stale.wait()
        except TimeoutError:
            if not self.claims.awaits_echo:
                return
            self.claims.owes_word = True
            self._echoes_missed += 1
            if self._echoes_missed == _WARN_AFTER:
                _log.warning(
                    "the broker does not send back what this hub publishes on %s, so no request is answered; "
                    "check that it lets the hub publish and subscribe there",
                    self.claims.place,
                )

    def _look_for_others(self) -> None:
        """Ask the other hubs whether they are there, and forget those that do not say so."""
        now = self._clock()
        if self.claims.others and now - self._asked_at >= _ASK:
            self._asked_at = now
            self._link.publish(self.claims.asks, HERE)
        for name in self.claims.drop_silent(now):
            self._contest.found_false(name, f"nothing has answered for it for {SILENT:g} seconds", now)
        self._tell_rivals()

    def _publish(self, payload: bytes) -> None:
        self.claims.said(payload)
        self._link.publish(self.claims.place, payload)

    async def _adjust(self) -> None:
        link = self._link
        news = self.claims.want(self._wanted())
        if news is not None:
            self._publish(news)
        held = self.claims.held
        if gone := self.listened - held:
            self.listened &= held
            await link.unsubscribe(sorted(gone))
        if new := held - self.listened:
            try:
                await link.subscribe(sorted(new))
            except BrokerRefused as exc:
                _log.warning("%s", exc)
            self.listened |= new

    def _answer(self, announced: Iterable[_Announced]) -> None:
        for each in announced:
            self._announced.pop(each, None)
            each.end()

    def _tell_rivals(self) -> None:
        rivals, before = self.claims.rivals(), self._contest.rivals
        if rivals.keys() - before.keys():
            some, hubs = ", ".join(sorted(rivals)[:_TOLD]), ", ".join(map(shown, sorted({*rivals.values()})[:_TOLD]))
            more = " and more" if len(rivals) > _TOLD else ""
            _log.info("another hub at this broker, %s, answers on %s%s", hubs, some, more)
        self._contest.rivals = rivals

    def _wanted(self) -> frozenset[str]:
        """Return the topics of all methods whose callee is not behind this very broker."""
        if self._is_left:
            return frozenset()
        wanted = set(_HUB_TOPICS)
        for method in self._offers:
            if all(offer.session.peer == self._peer for offer in method.offers):
                continue
            wanted.add(_topic_of(method.name, is_route=method.is_route))
        wanted.update(self._plan.served)
        wanted = {topic for topic in wanted if topic not in self._plan.services and can_listen(topic)}
        if len(wanted) > _MOST_TOPICS:
            _log.warning("the methods have %d topics; the hub answers on %d of them", len(wanted), _MOST_TOPICS)
            # Those that are there already stay: nobody may push them out by offering more.
            ranked = sorted(wanted, key=lambda topic: (topic not in _HUB_TOPICS, topic not in self.listened, topic))
            wanted = set(ranked[:_MOST_TOPICS])
        return frozenset(wanted)


def _topic_of(name: str, *, is_route: bool) -> str:
    return f"/{name}" if is_route else names.spell_mqtt(name)[0]
