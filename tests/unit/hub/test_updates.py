"""Updates of peers for an application."""

import pytest

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Delivery
from fiveways.hub.refusal import Refusal
from fiveways.hub.settings import DEFAULTS, Permissions
from fiveways.hub.traits import Credentials, ProtocolTraits
from fiveways.model import names, topics
from fiveways.model.messages import Attachment, Hello, StopUpdates, Update, UpdatesClosed
from fiveways.wire.payload import Text
from tests.support.hub_helpers import LRPM, count_objects, join, make_hub

APP = ProtocolTraits("app", names.LOCAL, topics.UMQ, accepts_streams=True, cancels=True)
UMQ = ProtocolTraits("umq", names.UMQ, topics.UMQ, has_updates=True)


def hub_with_application(*patterns: str, anonymous_permissions: Permissions = DEFAULTS.anonymous_permissions) -> Hub:
    """Return a hub with two peers, and with an application that accepts updates of these patterns."""
    hub = make_hub({"max_subscriptions": 2}, anonymous_permissions=anonymous_permissions)
    hub.arrive("app", APP, Credentials(is_trusted=True), 0.0)
    hub.handle("app", Hello(), 0.0)
    join(hub, "ann", UMQ)
    join(hub, "bob", UMQ)
    app = hub.find_session("app")
    assert app is not None
    hub.updates.accept_matching(app, patterns)
    return hub


def accept_updates(hub: Hub, peer: str, name: str) -> None:
    hub.peer_requests.take_updates(hub.updates, "app", peer, name, 0.0)


def test_update_goes_to_application_that_accepts_it() -> None:
    hub = hub_with_application()
    accept_updates(hub, "ann", "feed")
    update = Update("feed", Text("x"))
    assert hub.handle("ann", update, 0.0) == [Delivery("app", Update("feed", Text("x"), peer="ann"))]
    assert hub.handle("bob", update, 0.0) == [Delivery("bob", StopUpdates("feed"))]


def test_attachments_of_update_are_relayed() -> None:
    hub = hub_with_application()
    accept_updates(hub, "ann", "feed")
    forwarded = Update("feed", Text("x"), ("a1",), "ann")
    assert hub.handle("ann", Update("feed", Text("x"), ("1",)), 0.0) == [Delivery("app", forwarded)]
    assert hub.handle("ann", Attachment("1", b"x"), 0.0) == [Delivery("app", Attachment("a1", b"x"))]
    assert hub.handle("bob", Update("feed", Text("x"), ("1",)), 0.0) == [Delivery("bob", StopUpdates("feed"))]
    assert hub.handle("bob", Attachment("1", b"x"), 0.0) == []


def test_topic_is_closed_by_peer_application_or_departure() -> None:
    hub = hub_with_application()
    before = count_objects(hub)
    accept_updates(hub, "ann", "feed")
    assert hub.handle("ann", UpdatesClosed("feed"), 0.0) == [Delivery("app", UpdatesClosed("feed", "ann"))]
    assert hub.handle("ann", UpdatesClosed("feed"), 0.0) == []
    accept_updates(hub, "ann", "feed")
    assert hub.updates.stop("ann", "feed") == [Delivery("ann", StopUpdates("feed"))]
    assert hub.updates.stop("ann", "feed") == []
    assert count_objects(hub) == before
    accept_updates(hub, "ann", "feed")
    assert hub.leave("ann", 0.0) == [Delivery("app", UpdatesClosed("feed", "ann"))]
    accept_updates(hub, "bob", "feed")
    hub.leave("app", 0.0)
    assert hub.handle("bob", Update("feed"), 0.0) == [Delivery("bob", StopUpdates("feed"))]


def test_topic_ids_are_checked_and_limited() -> None:
    hub = hub_with_application()
    accept_updates(hub, "ann", "a")
    accept_updates(hub, "ann", "b")
    accept_updates(hub, "bob", "a")
    for name, reason in (("a", Reason.BAD_ARGUMENTS), ("c", Reason.OVERLOADED), ("", Reason.BAD_ARGUMENTS)):
        with pytest.raises(Refusal) as caught:
            accept_updates(hub, "ann", name)
        assert caught.value.reason is reason
    join(hub, "dan", LRPM)
    with pytest.raises(Refusal, match="lrpm-json has no updates"):
        accept_updates(hub, "dan", "a")


def test_pattern_accepts_updates_of_peers_with_permission() -> None:
    hub = hub_with_application("log.*")
    assert hub.handle("ann", Update("log.disk"), 0.0) == [Delivery("app", Update("log.disk", peer="ann"))]
    assert hub.handle("ann", Update("other"), 0.0) == [Delivery("ann", StopUpdates("other"))]
    hub = hub_with_application("log.*", anonymous_permissions=Permissions(publish=("prices.*",)))
    assert hub.handle("ann", Update("log.disk"), 0.0) == [Delivery("ann", StopUpdates("log.disk"))]
    session = hub.find_session("ann")
    assert session is not None
    assert session.annotation is not None
    assert session.annotation.kind == "deny"
