"""On which topics of a broker the hub answers: those of its methods, as far as no other hub was there before."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final

from fiveways.errors import ConnectionLost
from fiveways.hub.delivery import Announce
from fiveways.hub.registrations import Registrations
from fiveways.model import names
from fiveways.model.names import BadName
from fiveways.runtime.clock import steady_clock
from fiveways.runtime.mqtt.broker_config import BrokerConfig, is_safe_topic
from fiveways.runtime.mqtt.claim_monitor import ClaimMonitor, printable_name
from fiveways.runtime.mqtt.topic_election import CLAIMS_PREFIX, NO_CLAIMS, SILENCE_TIMEOUT, TopicElection
from fiveways.transports.mqtt_link import MqttLink, MqttMessage, SubscriptionRefused

_log = logging.getLogger("fiveways.mqtt")
_HUB_TOPICS: Final = frozenset({"/hub", "/callback", f"/{names.DEFAULT_NAMESPACE}"})
_MAX_TOPICS: Final = 900
"""Topics on which the hub answers: nats-server has room for 1,023 subscriptions of one client."""
_ADJUST_INTERVAL: Final = 0.02
"""Seconds between two messages to other hubs, whatever they do."""
_DISCOVERY_TIME: Final = 0.3
"""Seconds for others to say what is theirs: without their numbers, our claims could be lower, and take theirs away."""
_ECHO_TIMEOUT: Final = 1.0
"""Seconds for the broker to send back our claims, before they are published again.

nats-server 2.15 acknowledges a message of QoS 1 and yet may not deliver it, if the publisher unsubscribes at the same
moment: about 1 of 1,000 on a busy machine.
"""
_QUERY_INTERVAL: Final = 15.0
"""Seconds between two questions to other hubs whether they are there."""
_WARN_AFTER: Final = 5
"""Claims in a row that are not sent back, before the log says so."""
_MAX_LOGGED: Final = 5
_REGISTRATION_TIMEOUT: Final = 2.0
"""Seconds for the broker to let us listen on the topic of a new registration, before that is answered anyway."""


class _PendingRegistration:
    """A registration whose answer waits for the broker; `end` gives it, once."""

    def __init__(self, answer: Callable[[], None]) -> None:
        self.is_overdue = False
        """Whether it was answered although the broker does not let us listen yet."""
        self._confirm: Callable[[], None] | None = answer
        self._timer = asyncio.get_running_loop().call_later(_REGISTRATION_TIMEOUT, self._expire)

    def confirm(self) -> None:
        self._timer.cancel()
        answer, self._confirm = self._confirm, None
        if answer is not None:
            answer()

    def _expire(self) -> None:
        self.is_overdue = True
        self.confirm()


class TopicOwnership:
    """What is claimed, held and listened to, as long as a link to the broker."""

    def __init__(
        self, name: str, peer: str, plan: BrokerConfig, offers: Registrations, link: MqttLink, contest: ClaimMonitor
    ) -> None:
        """Make it for the hub of this name, whose peer at the hub is everybody behind the broker."""
        self.election = TopicElection(name)
        self.subscribed: frozenset[str] = frozenset()
        """Topics on which we answer, and are subscribed."""
        self._peer = peer
        self._plan = plan
        self._offers = offers
        self._link = link
        self._changed = asyncio.Event()
        self._is_lost = asyncio.Event()
        self._is_withdrawn = False
        self._contest = contest
        contest.rivals = {}
        self._clock = steady_clock
        self._queried_at = self._clock()
        self._pending_registrations: dict[_PendingRegistration, None] = {}
        self._was_subscribed = False
        self._echoes_missed = 0

    @property
    def is_ready(self) -> bool:
        """Whether the hub listens, on this link, on the topics of all methods whose registration was answered."""
        return self._was_subscribed and not any(each.is_overdue for each in self._pending_registrations)

    async def join(self) -> None:
        """Say that we are here, and wait until the others have said what is theirs, and the broker what it retains."""
        self._publish(NO_CLAIMS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_lost.wait(), _DISCOVERY_TIME)

    def receive(self, message: MqttMessage) -> None:
        """Take what a hub says, or somebody in its place."""
        claims, now = self.election, self._clock()
        topic, payload, name = message.topic, message.payload, message.topic.removeprefix(CLAIMS_PREFIX)
        if message.retained:
            self._contest.report_false_claim(name, "the broker retains it", now)
            return
        if not claims.is_own_message(topic, payload):
            self._contest.report_false_claim(name, "this is the name of this hub, which did not publish it", now)
        before = claims.owned
        if claims.receive(topic, payload, now):
            self._changed.set()
        if topic != claims.own_topic and (lost := before - claims.owned):
            self._contest.report_lost_topics(name, lost, now)
        self._log_rivals()

    def on_registrations_changed(self) -> None:
        """Know that methods have come or gone."""
        self._changed.set()

    def confirm_when_subscribed(self, announce: Announce, answer: Callable[[], None]) -> None:
        """Call `answer` when we listen on the topic of a new registration, or another hub has that topic.

        It is called after `_ANNOUNCED_WITHIN` seconds in any case, and when the link is lost: the registration holds,
        and is served when the broker is back.
        """
        topic = _topic_for(announce.method, is_route=announce.is_route)
        if self._is_lost.is_set() or self._is_withdrawn or (topic in self.subscribed and topic in self.election.owned):
            answer()
        else:
            self._pending_registrations[_PendingRegistration(answer)] = None
            self._changed.set()

    def withdraw(self) -> None:
        """Answer nothing new: another hub may."""
        self._is_withdrawn = True
        self._changed.set()

    def leave(self) -> None:
        """Tell the others that we are gone."""
        self._publish(b"")

    def lost(self) -> None:
        """Handle the end of the link."""
        self._is_lost.set()
        self._contest.rivals = {}
        self._was_subscribed = False
        self._changed.set()
        self._confirm([*self._pending_registrations])

    def is_subscribed(self, topic: str) -> bool:
        """Say whether what is published there comes to us."""
        return (
            topic in self.subscribed
            or topic in self._plan.service_topics
            or self._plan.topic_bridge.is_subscribed(topic)
        )

    def method_kind(self, topic: str, kind: str) -> str | None:
        """Say whether it is ours to answer there, and which side streams."""
        if topic not in self.subscribed or topic not in self.election.owned:
            return None
        try:
            method = self._offers.find(names.fold_mqtt(topic, kind))
        except BadName:
            return "unary"
        return "unary" if method is None else method.kind

    async def run(self, is_ready: Callable[[], object]) -> None:
        """Claim what the hub can answer, and be subscribed to what is ours to answer, until the link is lost."""
        self._changed.set()
        while True:
            await self._wait_for_change()
            self._changed.clear()
            if self._is_lost.is_set():
                return
            announced = [*self._pending_registrations]
            self._check_other_hubs()
            try:
                await self._apply_ownership()
            except ConnectionLost:
                return
            if self.election.is_confirmed and self.subscribed == self.election.owned:
                self._was_subscribed = True
                self._echoes_missed = 0
                self._confirm(announced)
                is_ready()
            if not self._pending_registrations:
                await asyncio.sleep(_ADJUST_INTERVAL)

    async def _wait_for_change(self) -> None:
        """Wait until there is something to do: a change, or claims that have to be published again."""
        patience = _ECHO_TIMEOUT if self.election.awaits_echo else _QUERY_INTERVAL if self.election.others else None
        try:
            async with asyncio.timeout(patience):  # `wait_for` may ignore that the task is cancelled
                await self._changed.wait()
        except TimeoutError:
            if not self.election.awaits_echo:
                return
            self.election.must_publish = True
            self._echoes_missed += 1
            if self._echoes_missed == _WARN_AFTER:
                _log.warning(
                    "the broker does not send back what this hub publishes on %s, so no request is answered; "
                    "check that it lets the hub publish and subscribe there",
                    self.election.own_topic,
                )

    def _check_other_hubs(self) -> None:
        """Ask the other hubs whether they are there, and forget those that do not say so."""
        now = self._clock()
        if self.election.others and now - self._queried_at >= _QUERY_INTERVAL:
            self._queried_at = now
            self._link.publish(self.election.query_topic, NO_CLAIMS)
        for name in self.election.drop_silent(now):
            self._contest.report_false_claim(name, f"nothing has answered for it for {SILENCE_TIMEOUT:g} seconds", now)
        self._log_rivals()

    def _publish(self, payload: bytes) -> None:
        self.election.note_published(payload)
        self._link.publish(self.election.own_topic, payload)

    async def _apply_ownership(self) -> None:
        link = self._link
        news = self.election.set_wanted(self._wanted_topics())
        if news is not None:
            self._publish(news)
        held = self.election.owned
        if gone := self.subscribed - held:
            self.subscribed &= held
            await link.unsubscribe(sorted(gone))
        if new := held - self.subscribed:
            try:
                await link.subscribe(sorted(new))
            except SubscriptionRefused as exc:
                _log.warning("%s", exc)
            self.subscribed |= new

    def _confirm(self, announced: Iterable[_PendingRegistration]) -> None:
        for each in announced:
            self._pending_registrations.pop(each, None)
            each.confirm()

    def _log_rivals(self) -> None:
        rivals, before = self.election.rivals(), self._contest.rivals
        if rivals.keys() - before.keys():
            some, hubs = (
                ", ".join(sorted(rivals)[:_MAX_LOGGED]),
                ", ".join(map(printable_name, sorted({*rivals.values()})[:_MAX_LOGGED])),
            )
            more = " and more" if len(rivals) > _MAX_LOGGED else ""
            _log.info("another hub at this broker, %s, answers on %s%s", hubs, some, more)
        self._contest.rivals = rivals

    def _wanted_topics(self) -> frozenset[str]:
        """Return the topics of all methods whose callee is not behind this very broker."""
        if self._is_withdrawn:
            return frozenset()
        wanted = set(_HUB_TOPICS)
        for method in self._offers:
            if all(offer.session.peer == self._peer for offer in method.registrations):
                continue
            wanted.add(_topic_for(method.name, is_route=method.is_route))
        wanted.update(self._plan.served_topics)
        wanted = {topic for topic in wanted if topic not in self._plan.service_topics and is_safe_topic(topic)}
        if len(wanted) > _MAX_TOPICS:
            _log.warning("the methods have %d topics; the hub answers on %d of them", len(wanted), _MAX_TOPICS)
            # Those that are there already stay: nobody may push them out by offering more.
            ranked = sorted(wanted, key=lambda topic: (topic not in _HUB_TOPICS, topic not in self.subscribed, topic))
            wanted = set(ranked[:_MAX_TOPICS])
        return frozenset(wanted)


def _topic_for(name: str, *, is_route: bool) -> str:
    return f"/{name}" if is_route else names.spell_mqtt(name)[0]
