"""Handlers of registrations and their removal."""

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
    """Checks registrations, and dispatches the requests that wait for them."""

    def __init__(
        self,
        settings: HubSettings,
        registrations: Registrations,
        discovery: Discovery,
        durable_requests: DurableRequests,
    ) -> None:
        self._settings = settings
        self._registrations = registrations
        self._discovery = discovery
        self._durable_requests = durable_requests
        self.must_announce = False
        """A broker must know a registration before the response."""

    def configure(self, settings: HubSettings) -> None:
        """Apply new limits."""
        self._settings = settings

    def register(self, session: Session, message: Register, now: float) -> Deliveries:
        """Register a method or a route; raise Refusal if the peer may not, or if the name is taken."""
        if not session.access.may_register(message.method, route=message.route):
            raise Refusal(Reason.DENIED, f"you may not register {message.spelling or message.method}")
        self._registrations.add(session, message, self._settings.max_offers)
        query = self._discovery.query_route(session, message.method, now) if message.route else []
        redelivered = self._durable_requests.handle_registration(message.method, is_route=message.route, now=now)
        response = Delivery(session.peer, Result(message.id))
        return [
            Announce(message.method, message.route, response) if self.must_announce else response,
            *query,
            *redelivered,
        ]

    def unregister(self, session: Session, message: Unregister, _now: float) -> Deliveries:
        """Remove a method or a route."""
        self._registrations.remove(session, message)
        return [Delivery(session.peer, Result(message.id))]
