"""Registrations: a peer offers a method or a route, or withdraws it."""

from fiveways.errors import Reason
from fiveways.hub.delivery import Announce, Deliveries, Delivery
from fiveways.hub.discovery import Discovery
from fiveways.hub.durable_requests import DurableRequests
from fiveways.hub.refusal import Refusal
from fiveways.hub.registrations import Registrations
from fiveways.hub.session import Session
from fiveways.hub.settings import HubSettings
from fiveways.model.messages import Register, Result, Unregister


class RegistrationHandler:
    """Checks registrations, and tells everybody who waits for them."""

    def __init__(
        self, settings: HubSettings, offers: Registrations, discovery: Discovery, owing: DurableRequests
    ) -> None:
        self._settings = settings
        self._registrations = offers
        self._discovery = discovery
        self._durable_requests = owing
        self.must_announce = False
        """A broker must hear of a registration before it is answered."""

    def configure(self, settings: HubSettings) -> None:
        """Apply new limits."""
        self._settings = settings

    def register(self, session: Session, word: Register, now: float) -> Deliveries:
        """Add a method or a route; a Refusal if the peer may not offer it, or if the name is taken."""
        if not session.access.may_register(word.method, route=word.route):
            raise Refusal(Reason.DENIED, f"you may not offer {word.spelling or word.method}")
        self._registrations.add(session, word, self._settings.max_offers)
        asked = self._discovery.query_route(session, word.method, now) if word.route else []
        owed = self._durable_requests.handle_registration(word.method, is_route=word.route, now=now)
        done = Delivery(session.peer, Result(word.id))
        return [Announce(word.method, word.route, done) if self.must_announce else done, *asked, *owed]

    def unregister(self, session: Session, word: Unregister, _now: float) -> Deliveries:
        """Remove a method or a route."""
        self._registrations.remove(session, word)
        return [Delivery(session.peer, Result(word.id))]
