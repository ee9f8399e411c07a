"""Ownership of topics at a broker: the hub answers on the topics of its methods, unless another hub was first."""

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
from fiveways.runtime.structured_logging import log_fields
from fiveways.transports.mqtt_link import MqttLink, MqttMessage, SubscriptionRefused

_log = logging.getLogger("fiveways.mqtt")
_HUB_TOPICS: Final = frozenset({"/hub", "/callback", f"/{names.DEFAULT_NAMESPACE}"})
_MAX_TOPICS: Final = 900
"""Topics on which the hub answers: nats-server has room for 1,023 subscriptions of one client."""
_ADJUST_INTERVAL: Final = 0.02
"""Minimum seconds between two messages to other hubs."""
_DISCOVERY_TIME: Final = 0.3
"""Seconds for other hubs to publish their claims: without their numbers, ours could be lower and win."""
_ECHO_TIMEOUT: Final = 1.0
"""Seconds for the broker to echo the claims, before they are published again.

nats-server 2.15 acknowledges a message of QoS 1 and yet may not deliver it if the publisher unsubscribes at the same
moment: about 1 of 1,000 on a busy machine.
"""
_QUERY_INTERVAL: Final = 15.0
"""Seconds between two queries to other hubs."""
_WARN_AFTER: Final = 5
"""Missed echoes in a row before a warning."""
_MAX_LOGGED: Final = 5
_REGISTRATION_TIMEOUT: Final = 2.0
"""Seconds for the broker to accept the subscription for a new registration, before it is confirmed anyway."""


class _PendingRegistration:
    """A registration that waits for the broker before it is confirmed."""

    def __init__(self, confirm: Callable[[], None]) -> None:
        self.is_overdue = False
        """Whether it was confirmed before the broker accepted the subscription."""
        self._confirm: Callable[[], None] | None = confirm
        self._timer = asyncio.get_running_loop().call_later(_REGISTRATION_TIMEOUT, self._expire)

    def confirm(self) -> None:
        self._timer.cancel()
        confirm, self._confirm = self._confirm, None
        if confirm is not None:
            confirm()

    def _expire(self) -> None:
        self.is_overdue = True
        self.confirm()


class TopicOwnership:
    """Claimed, owned and subscribed topics during one connection to the broker."""

    def __init__(
        self,
        name: str,
        peer: str,
        config: BrokerConfig,
        registrations: Registrations,
        link: MqttLink,
        monitor: ClaimMonitor,
    ) -> None:
        """`name` is the hub's name at the broker; `peer` is the broker's peer id at the hub."""
        self.election = TopicElection(name)
        self.subscribed: frozenset[str] = frozenset()
        """Owned topics that are subscribed."""
        self._peer = peer
        self._config = config
        self._registrations = registrations
        self._link = link
        self._changed = asyncio.Event()
        self._is_lost = asyncio.Event()
        self._is_withdrawn = False
        self._monitor = monitor
        monitor.rivals = {}
        self._clock = steady_clock
        self._queried_at = self._clock()
        self._pending_registrations: dict[_PendingRegistration, None] = {}
        self._was_subscribed = False
        self._echoes_missed = 0

    @property
    def is_ready(self) -> bool:
        """Whether the hub is subscribed to the topics of all methods with a confirmed registration."""
        return self._was_subscribed and not any(registration.is_overdue for registration in self._pending_registrations)

    async def join(self) -> None:
        """Announce this hub, and wait for the claims of other hubs and for the broker's retained messages."""
        self._publish(NO_CLAIMS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_lost.wait(), _DISCOVERY_TIME)

    def receive(self, message: MqttMessage) -> None:
        """Handle a claim message of a hub, or a forged one."""
        election, now = self.election, self._clock()
        topic, payload, name = message.topic, message.payload, message.topic.removeprefix(CLAIMS_PREFIX)
        if message.retained:
            self._monitor.report_false_claim(name, "it is retained", now)
            return
        if not election.is_own_message(topic, payload):
            self._monitor.report_false_claim(name, "it has the name of this hub, which did not publish it", now)
        before = election.owned
        if election.receive(topic, payload, now):
            self._changed.set()
        if topic != election.own_topic and (lost := before - election.owned):
            self._monitor.report_lost_topics(name, lost, now)
        self._log_rivals()

    def on_registrations_changed(self) -> None:
        """Update the claims after methods were registered or unregistered."""
        self._changed.set()

    def confirm_when_subscribed(self, announce: Announce, confirm: Callable[[], None]) -> None:
        """Call `confirm` when the topic of a new registration is subscribed or owned by another hub.

        It is called after `_REGISTRATION_TIMEOUT` seconds in any case, and when the connection is lost: the
        registration stays, and is served after the next connection.
        """
        topic = _topic_for(announce.method, is_route=announce.is_route)
        if self._is_lost.is_set() or self._is_withdrawn or (topic in self.subscribed and topic in self.election.owned):
            confirm()
        else:
            self._pending_registrations[_PendingRegistration(confirm)] = None
            self._changed.set()

    def withdraw(self) -> None:
        """Give up all topics, so that another hub can answer new requests."""
        self._is_withdrawn = True
        self._changed.set()

    def leave(self) -> None:
        """Tell other hubs that this hub is gone."""
        self._publish(b"")

    def lost(self) -> None:
        """Handle the loss of the connection."""
        self._is_lost.set()
        self._monitor.rivals = {}
        self._was_subscribed = False
        self._changed.set()
        self._confirm([*self._pending_registrations])

    def is_subscribed(self, topic: str) -> bool:
        """Return whether the hub receives messages on the topic."""
        return (
            topic in self.subscribed
            or topic in self._config.service_topics
            or self._config.topic_bridge.is_subscribed(topic)
        )

    def method_kind(self, topic: str, kind: str) -> str | None:
        """Return the kind of a method if this hub owns its topic, else None."""
        if topic not in self.subscribed or topic not in self.election.owned:
            return None
        try:
            method = self._registrations.find(names.fold_mqtt(topic, kind))
        except BadName:
            return "unary"
        return "unary" if method is None else method.kind

    async def run(self, is_ready: Callable[[], object]) -> None:
        """Claim the topics of the hub's methods, and subscribe to the owned ones, until the connection is lost."""
        self._changed.set()
        while True:
            await self._wait_for_change()
            self._changed.clear()
            if self._is_lost.is_set():
                return
            pending = [*self._pending_registrations]
            self._check_other_hubs()
            try:
                await self._apply_ownership()
            except ConnectionLost:
                return
            if self.election.is_confirmed and self.subscribed == self.election.owned:
                self._was_subscribed = True
                self._echoes_missed = 0
                self._confirm(pending)
                is_ready()
            if not self._pending_registrations:
                await asyncio.sleep(_ADJUST_INTERVAL)

    async def _wait_for_change(self) -> None:
        """Wait for a change, or until claims must be published again."""
        timeout = _ECHO_TIMEOUT if self.election.awaits_echo else _QUERY_INTERVAL if self.election.others else None
        try:
            async with asyncio.timeout(timeout):  # `wait_for` may swallow a cancellation
                await self._changed.wait()
        except TimeoutError:
            if not self.election.awaits_echo:
                return
            self.election.must_publish = True
            self._echoes_missed += 1
            if self._echoes_missed == _WARN_AFTER:
                _log.warning(
                    "the MQTT broker does not echo messages on %s, so the hub answers no requests; "
                    "allow the hub to publish and subscribe there",
                    self.election.own_topic,
                )

    def _check_other_hubs(self) -> None:
        """Query the other hubs, and forget those that do not answer."""
        now = self._clock()
        if self.election.others and now - self._queried_at >= _QUERY_INTERVAL:
            self._queried_at = now
            self._link.publish(self.election.query_topic, NO_CLAIMS)
        for name in self.election.drop_silent(now):
            self._monitor.report_false_claim(name, f"no answer for {SILENCE_TIMEOUT:g} seconds", now)
        self._log_rivals()

    def _publish(self, payload: bytes) -> None:
        self.election.note_published(payload)
        self._link.publish(self.election.own_topic, payload)

    async def _apply_ownership(self) -> None:
        link = self._link
        message = self.election.set_wanted(self._wanted_topics())
        if message is not None:
            self._publish(message)
        owned = self.election.owned
        if lost_topics := self.subscribed - owned:
            self.subscribed &= owned
            await link.unsubscribe(sorted(lost_topics))
        if new_topics := owned - self.subscribed:
            try:
                await link.subscribe(sorted(new_topics))
            except SubscriptionRefused as exc:
                _log.warning("%s", exc)
            self.subscribed |= new_topics

    def _confirm(self, pending: Iterable[_PendingRegistration]) -> None:
        for registration in pending:
            self._pending_registrations.pop(registration, None)
            registration.confirm()

    def _log_rivals(self) -> None:
        rivals, before = self.election.rivals(), self._monitor.rivals
        if rivals.keys() - before.keys():
            some_topics, hubs = (
                ", ".join(sorted(rivals)[:_MAX_LOGGED]),
                ", ".join(map(printable_name, sorted({*rivals.values()})[:_MAX_LOGGED])),
            )
            suffix = " and more" if len(rivals) > _MAX_LOGGED else ""
            _log.info(
                "another hub at this MQTT broker owns topics", extra=log_fields(hubs=hubs, topics=some_topics + suffix)
            )
        self._monitor.rivals = rivals

    def _wanted_topics(self) -> frozenset[str]:
        """Return the topics of all methods with a callee that is not behind this broker."""
        if self._is_withdrawn:
            return frozenset()
        wanted = set(_HUB_TOPICS)
        for method in self._registrations:
            if all(registration.session.peer == self._peer for registration in method.registrations):
                continue
            wanted.add(_topic_for(method.name, is_route=method.is_route))
        wanted.update(self._config.served_topics)
        wanted = {topic for topic in wanted if topic not in self._config.service_topics and is_safe_topic(topic)}
        if len(wanted) > _MAX_TOPICS:
            _log.warning(
                "too many topics of methods; the hub answers on some",
                extra=log_fields(topics=len(wanted), limit=_MAX_TOPICS),
            )
            # Subscribed topics stay: new registrations must not displace them.
            ranked = sorted(wanted, key=lambda topic: (topic not in _HUB_TOPICS, topic not in self.subscribed, topic))
            wanted = set(ranked[:_MAX_TOPICS])
        return frozenset(wanted)


def _topic_for(name: str, *, is_route: bool) -> str:
    return f"/{name}" if is_route else names.spell_mqtt(name)[0]
