"""On which topics of a broker the hub answers: those of its methods, as far as no other hub was there before."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from fiveways.errors import ConnectionLost
from fiveways.hub.offers import Offers
from fiveways.model import names
from fiveways.model.names import BadName
from fiveways.runtime.mqtt.claims import HERE, Claims
from fiveways.runtime.mqtt.plan import Plan, can_listen
from fiveways.transports.mqtt_link import BrokerRefused, MqttLink

_log = logging.getLogger("fiveways.mqtt")
_HUB_TOPICS: Final = frozenset({"/hub", "/callback", f"/{names.HOME}"})
_MOST_TOPICS: Final = 900
"""Topics on which the hub answers: nats-server has room for 1,023 subscriptions of one client."""
_PAUSE: Final = 0.02
"""Seconds between two messages to other hubs, whatever they do."""
_TOLD: Final = 5


class Territory:
    """What is claimed, held and listened to, as long as a link to the broker."""

    def __init__(self, name: str, peer: str, plan: Plan, offers: Offers, link: MqttLink) -> None:
        """Make it for the hub of this name, whose peer at the hub is everybody behind the broker."""
        self.claims = Claims(name)
        self.listened: frozenset[str] = frozenset()
        """Topics on which we answer, and are subscribed."""
        self._peer = peer
        self._plan = plan
        self._offers = offers
        self._link = link
        self._is_stale = asyncio.Event()
        self._is_lost = False
        self._is_left = False
        self._rivals: frozenset[str] = frozenset()

    def announce(self) -> None:
        """Say that we are here, so that others say what is theirs."""
        self._link.publish(self.claims.place, HERE)

    def heard(self, topic: str, payload: bytes) -> None:
        """Take what a hub says."""
        if self.claims.heard(topic, payload):
            self._is_stale.set()

    def look_again(self) -> None:
        """Know that methods have come or gone."""
        self._is_stale.set()

    def withdraw(self) -> None:
        """Answer nothing new: another hub may."""
        self._is_left = True
        self._is_stale.set()

    def leave(self) -> None:
        """Tell the others that we are gone."""
        self._link.publish(self.claims.place, b"")

    def lost(self) -> None:
        """Know that the link is gone."""
        self._is_lost = True
        self._is_stale.set()

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
            await self._is_stale.wait()
            self._is_stale.clear()
            if self._is_lost:
                return
            try:
                await self._adjust()
            except ConnectionLost:
                return
            if self.claims.is_told:
                is_ready()
                self._tell_rivals()
            await asyncio.sleep(_PAUSE)

    async def _adjust(self) -> None:
        link = self._link
        news = self.claims.want(self._wanted())
        if news is not None:
            link.publish(self.claims.place, news)
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

    def _tell_rivals(self) -> None:
        rivals = self.claims.rivals()
        if rivals - self._rivals:
            some = ", ".join(sorted(rivals)[:_TOLD])
            _log.info("another hub at this broker answers on %s%s", some, " and more" if len(rivals) > _TOLD else "")
        self._rivals = rivals

    def _wanted(self) -> frozenset[str]:
        """Return the topics of all methods whose callee is not behind this very broker."""
        if self._is_left:
            return frozenset()
        wanted = set(_HUB_TOPICS)
        for method in self._offers:
            if all(offer.session.peer == self._peer for offer in method.offers):
                continue
            wanted.add(f"/{method.name}" if method.is_route else names.spell_mqtt(method.name)[0])
        wanted.update(self._plan.served)
        wanted = {topic for topic in wanted if topic not in self._plan.services and can_listen(topic)}
        if len(wanted) > _MOST_TOPICS:
            _log.warning("the methods have %d topics; the hub answers on %d of them", len(wanted), _MOST_TOPICS)
            # Those that are there already stay: nobody may push them out by offering more.
            ranked = sorted(wanted, key=lambda topic: (topic not in _HUB_TOPICS, topic not in self.listened, topic))
            wanted = set(ranked[:_MOST_TOPICS])
        return frozenset(wanted)
