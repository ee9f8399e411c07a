"""Updates that peers publish to an application in this process, under agreed topic ids (UMQ `T`)."""

from collections.abc import Iterable

from fiveways.errors import Reason
from fiveways.hub.attachments import Attachments
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.permissions import Glob
from fiveways.hub.refusal import Refusal, bad_arguments, overloaded
from fiveways.hub.session import FrameAnnotation, Session
from fiveways.model.messages import StopUpdates, Update, UpdatesClosed
from fiveways.wire.limits import Limits


class Updates:
    """Topic ids of each peer that an application receives, and patterns of those that it receives from every peer."""

    def __init__(self, limits: Limits, attachments: Attachments) -> None:
        self._max_per_peer = limits.max_subscriptions
        self._max_id = limits.max_id
        self._attachments = attachments
        self._receivers: dict[str, dict[str, Session]] = {}
        """By peer and topic id."""
        self._patterns: dict[str, tuple[Session, tuple[Glob, ...]]] = {}
        """By application; the patterns may be empty."""

    def accept_matching(self, app: Session, patterns: Iterable[str]) -> None:
        """Forward updates with matching topic ids to an application, if the peer may publish on such a topic."""
        self._patterns[app.peer] = app, tuple(map(Glob, patterns))

    def accept(self, app: Session, peer: Session, name: str) -> None:
        """Forward the updates of one peer on one topic id to an application; raise Refusal if that is impossible."""
        if not peer.traits.has_updates:
            text = f"{peer.traits.protocol} has no updates to a peer: publish on a topic of the hub instead"
            raise Refusal(Reason.UNAVAILABLE, text)
        if not 0 < len(name) <= self._max_id or any(character < " " for character in name):
            raise bad_arguments(f"a topic id is a text of one line, 1 to {self._max_id} characters")
        receivers = self._receivers.get(peer.peer, {})
        if name in receivers:
            raise bad_arguments(f"topic id {name} is in use")
        if len(receivers) >= self._max_per_peer:
            raise overloaded(f"more than {self._max_per_peer} topic ids of one peer")
        self._receivers.setdefault(peer.peer, receivers)[name] = app

    def stop(self, peer: str, name: str) -> Deliveries:
        """Unsubscribe from a topic id, if it is still open."""
        return [Delivery(peer, StopUpdates(name))] if self._remove(peer, name) is not None else []

    def forward_update(self, session: Session, message: Update, _now: float) -> Deliveries:
        """Forward an update to its application; without one, tell the peer to stop."""
        app = self._receivers.get(session.peer, {}).get(message.name) or self._matching_app(session, message.name)
        if app is None:
            return [Delivery(session.peer, StopUpdates(message.name))]
        attachments = message.attachments
        if attachments:
            self._attachments.check_room(session, attachments)
            attachments = self._attachments.relay(session, attachments, (app,), "", message.body)
        return [Delivery(app.peer, Update(message.name, message.body, attachments, session.peer))]

    def forward_closed(self, session: Session, message: UpdatesClosed, _now: float) -> Deliveries:
        """Tell the application that a peer closed its topic."""
        app = self._remove(session.peer, message.name)
        return [] if app is None else [Delivery(app.peer, UpdatesClosed(message.name, session.peer))]

    def leave(self, session: Session) -> Deliveries:
        """Close all topics of a peer, or of an application."""
        if self._patterns.pop(session.peer, None) is not None:
            by_app = [
                (peer, name)
                for peer, receivers in self._receivers.items()
                for name in receivers
                if receivers[name] is session
            ]
            for peer, name in by_app:
                self._remove(peer, name)
        receivers = self._receivers.pop(session.peer, {})
        return [Delivery(app.peer, UpdatesClosed(name, session.peer)) for name, app in receivers.items()]

    def _matching_app(self, session: Session, name: str) -> Session | None:
        for app, globs in self._patterns.values():
            if any(glob.matches(name) for glob in globs):
                if session.access.publish is None or session.access.publish.allows(name):
                    return app
                session.annotation = FrameAnnotation("deny", f"you may not publish to {name}")
        return None

    def _remove(self, peer: str, name: str) -> Session | None:
        receivers = self._receivers.get(peer, {})
        app = receivers.pop(name, None)
        if app is not None and not receivers:
            del self._receivers[peer]
        return app
