"""Ownership and reservation of registered names."""

from collections import Counter
from typing import Any

import pytest

from fiveways.errors import Reason
from fiveways.hub import name_reservations
from fiveways.hub.core import Hub
from fiveways.hub.settings import HubSettings, Identity, Permissions
from fiveways.hub.traits import Credentials
from fiveways.model.messages import Call, Hello, Register, Result, SetVariable, Unregister
from fiveways.wire.payload import Text
from tests.support.hub_helpers import LRPM, NQ, count_objects, make_hub, only_message, refusal, register_method, welcome

GRACE = 60.0
OWNER = Identity("owner", "of-owner")
STRANGER = Identity("stranger", "of-stranger")
PARTNER = Identity("partner", "of-partner", permissions=Permissions(offer=("a.*", "m")))
IDENTITIES = (OWNER, STRANGER, PARTNER)


def hub_with_peers(**settings: Any) -> Hub:  # noqa: ANN401  fields of HubSettings
    """Return a hub with a caller, and with one session of each identity."""
    hub = make_hub(identities=IDENTITIES, name_grace=GRACE, **settings)
    for peer in ("caller", "guest", "owner", "stranger", "partner"):
        join_as(hub, peer)
    return hub


def join_as(hub: Hub, peer: str, identity: str = "", now: float = 0.0) -> None:
    """Add a session of the identity with this name, or an anonymous one."""
    name = identity or peer
    identities = {known.name for known in IDENTITIES}
    hub.arrive(peer, LRPM, Credentials(bearer=f"of-{name}" if name in identities else ""), now)
    assert hub.handle(peer, Hello(), now) == welcome(peer)


def register(hub: Hub, peer: str, method: str, now: float = 0.0, **options: Any) -> str:  # noqa: ANN401  of Register
    """Register a name; return the text of the refusal, if it is denied."""
    deliveries = hub.handle(peer, Register("r", method, **options), now)
    if isinstance(getattr(deliveries[0], "message", None), Result):
        return ""
    to, _, reason, text = refusal(deliveries)
    assert (to, reason) == (peer, Reason.DENIED)
    return text


def count_calls(hub: Hub, method: str = "m", times: int = 40, now: float = 0.0) -> Counter[str]:
    """Return the number of calls that each peer gets."""
    result: Counter[str] = Counter()
    for _ in range(times):
        (delivery,) = hub.handle("caller", Call("c", method), now)
        message = only_message([delivery], Call)
        result[getattr(delivery, "peer", "")] += 1
        only_message(hub.handle(getattr(delivery, "peer", ""), Result(message.id), now), Result)
    return result


def unavailable(hub: Hub, method: str, now: float = 0.0) -> bool:
    return refusal(hub.handle("caller", Call("c", method), now))[2] is Reason.UNAVAILABLE


# Other identities and anonymous peers.


@pytest.mark.parametrize("other", ["stranger", "guest"])
@pytest.mark.parametrize("share", ["", "round_robin", "first"])
def test_only_owner_gets_calls_of_its_method(other: str, share: str) -> None:
    hub = hub_with_peers()
    register_method(hub, "owner", "m", share=share)
    assert register(hub, other, "m", spelling="M", share=share) == "M belongs to another identity"
    assert count_calls(hub) == {"owner": 40}


@pytest.mark.parametrize("other", ["stranger", "guest"])
def test_names_below_a_route_of_another_identity_are_denied(other: str) -> None:
    hub = hub_with_peers()
    register_method(hub, "owner", "a", route=True)
    result = "a, which is above a.b.c, belongs to another identity"
    assert register(hub, other, "a.b.c") == result
    assert register(hub, other, "a.b.c", route=True) == result
    assert register(hub, other, "a", route=True) == "a belongs to another identity"
    assert register(hub, other, "ab.c") == ""
    assert count_calls(hub, "a.b.c") == {"owner": 40}


@pytest.mark.parametrize("other", ["stranger", "guest"])
def test_owner_that_reconnects_within_the_grace_period_gets_all_calls(other: str) -> None:
    hub = hub_with_peers()
    register_method(hub, "owner", "m", share="first")
    hub.leave("owner", 10.0)
    assert register(hub, other, "m", 69.9) == "m belongs to another identity"
    hub.expire(69.9)
    join_as(hub, "owner", now=69.9)
    hub.expire(1000.0)
    assert register(hub, other, "m", 1000.0, share="first") == "m belongs to another identity"
    register_method(hub, "owner", "m", share="first")
    assert register(hub, other, "m", 1000.0, share="first") == "m belongs to another identity"
    assert count_calls(hub) == {"owner": 40}


def test_name_is_free_after_the_grace_period() -> None:
    hub = hub_with_peers()
    before = count_objects(hub)
    register_method(hub, "owner", "m")
    register_method(hub, "owner", "a", route=True)
    hub.leave("owner", 10.0)
    assert hub.deadline() == 70.0
    hub.expire(70.0)
    assert hub.deadline() is None
    assert register(hub, "stranger", "m", 70.0) == register(hub, "guest", "a.b", 70.0) == ""
    assert (hub.admission.name_reservations.reserved, hub.admission.name_reservations._by_identity) == ({}, {})
    hub.leave("stranger", 0.0)
    hub.leave("guest", 0.0)
    hub.expire(1000.0)
    assert count_objects(hub) < before


def test_name_stays_reserved_while_the_owner_has_another_session() -> None:
    hub = hub_with_peers()
    join_as(hub, "second", "owner")
    register_method(hub, "owner", "m")
    hub.leave("owner", 0.0)
    assert hub.expire(1000.0) == []
    assert register(hub, "stranger", "m", 1000.0) == "m belongs to another identity"
    assert register(hub, "second", "m", 1000.0) == ""
    assert hub.handle("second", Unregister("u", "m"), 1000.0)
    assert register(hub, "stranger", "m", 1000.0) == "m belongs to another identity"


def test_sessions_of_one_identity_share_a_name() -> None:
    hub = hub_with_peers()
    join_as(hub, "second", "owner")
    register_method(hub, "owner", "m")
    register_method(hub, "second", "m")
    assert count_calls(hub) == {"owner": 20, "second": 20}
    hub.leave("owner", 0.0)
    assert hub.admission.name_reservations.reserved == {}
    assert register(hub, "stranger", "m") == "m belongs to another identity"


def test_anonymous_peers_share_names_among_themselves() -> None:
    hub = hub_with_peers()
    register_method(hub, "guest", "m")
    register_method(hub, "caller", "m")
    assert count_calls(hub) == {"guest": 20, "caller": 20}
    hub.leave("guest", 0.0)
    assert hub.admission.name_reservations.reserved == {}


def test_identity_displaces_anonymous_peers() -> None:
    hub = hub_with_peers()
    for method, route in (("m", False), ("a", True), ("a.b", False), ("a.b", True), ("ab", False)):
        register_method(hub, "guest", method, route=route)
    register_method(hub, "owner", "m", kind="server")
    register_method(hub, "owner", "a", route=True)
    assert count_calls(hub) == count_calls(hub, "a.b") == {"owner": 40}
    assert count_calls(hub, "ab") == {"guest": 40}
    assert hub.registrations.count_of("guest") == 1
    hub.handle("guest", Unregister("u", "ab"), 0.0)
    assert (hub.registrations.count_of("guest"), len(hub.registrations)) == (0, 2)


def test_peer_that_shows_its_token_later_owns_what_it_registered_before() -> None:
    hub = hub_with_peers()
    register_method(hub, "guest", "m")
    register_method(hub, "guest", "n")
    hub.handle("guest", SetVariable("v", "token", Text("of-owner")), 0.0)
    assert register(hub, "stranger", "m") == "m belongs to another identity"
    hub.handle("guest", Unregister("u", "n"), 0.0)
    assert register(hub, "stranger", "n") == "n belongs to another identity"
    assert register(hub, "owner", "m") == ""


# Agreement and permission.


def test_identities_share_a_name_that_both_register_as_open() -> None:
    hub = hub_with_peers()
    register_method(hub, "owner", "m", share="open")
    assert register(hub, "stranger", "m") == register(hub, "guest", "m", share="open")
    assert register(hub, "stranger", "m", share="open") == ""
    assert count_calls(hub) == {"owner": 20, "stranger": 20}
    hub.leave("owner", 0.0)
    hub.handle("stranger", Unregister("u", "m"), 1.0)
    assert register(hub, "stranger", "m", share="first") == "m belongs to another identity"
    assert register(hub, "stranger", "m", share="open") == ""


def test_permission_for_a_pattern_other_than_a_star_allows_names_of_other_identities() -> None:
    hub = hub_with_peers()
    register_method(hub, "owner", "m")
    register_method(hub, "owner", "a", route=True)
    assert register(hub, "partner", "m") == register(hub, "partner", "a.b") == ""
    assert count_calls(hub) == {"owner": 20, "partner": 20}
    hub.leave("owner", 0.0)
    assert register(hub, "stranger", "m") == "m belongs to another identity"
    hub.expire(GRACE)
    assert register(hub, "stranger", "m") == "m belongs to another identity"
    hub.leave("partner", 0.0)
    hub.expire(2 * GRACE)
    assert register(hub, "stranger", "m") == ""


def test_permission_of_anonymous_peers_does_not_allow_names_of_identities() -> None:
    hub = hub_with_peers(anonymous_permissions=Permissions(offer=("m",)))
    register_method(hub, "owner", "m", share="open")
    assert register(hub, "guest", "m", share="open") == "m belongs to another identity"


@pytest.mark.parametrize("pattern", ["*", "**"])
def test_pattern_of_stars_alone_is_no_permission(pattern: str) -> None:
    wide = Identity("stranger", "of-stranger", permissions=Permissions(offer=(pattern,)))
    hub = make_hub(identities=(OWNER, wide))
    join_as(hub, "owner")
    join_as(hub, "stranger")
    register_method(hub, "owner", "m")
    assert register(hub, "stranger", "m") == "m belongs to another identity"


def test_methods_of_an_application_in_the_hub_belong_to_it() -> None:
    hub = hub_with_peers()
    register_method(hub, "guest", "m")
    hub.arrive("app", NQ, Credentials(is_trusted=True), 0.0)
    hub.handle("app", Hello(), 0.0)
    register_method(hub, "owner", "n")
    register_method(hub, "app", "m")
    register_method(hub, "app", "n")
    assert register(hub, "owner", "m") == register(hub, "guest", "m") == "m belongs to another identity"
    assert count_calls(hub) == {"app": 40}
    assert register(hub, "partner", "m") == ""


# Routes above a reserved name.


def test_calls_of_a_reserved_name_do_not_go_to_a_route_of_another_identity() -> None:
    hub = hub_with_peers()
    register_method(hub, "owner", "a.b.c")
    register_method(hub, "owner", "a.d", route=True)
    register_method(hub, "stranger", "a", route=True)
    assert count_calls(hub, "a.b.c") == count_calls(hub, "a.d.e") == {"owner": 40}
    hub.leave("owner", 0.0)
    assert unavailable(hub, "a.b.c")
    assert unavailable(hub, "a.d.e")
    assert count_calls(hub, "a.x") == {"stranger": 40}
    hub.expire(GRACE)
    assert count_calls(hub, "a.b.c") == count_calls(hub, "a.d.e") == {"stranger": 40}


def test_calls_of_a_reserved_name_go_to_a_route_of_the_owner_or_of_an_identity_with_permission() -> None:
    hub = hub_with_peers()
    join_as(hub, "second", "owner")
    register_method(hub, "owner", "a.b.c")
    register_method(hub, "second", "a", route=True)
    hub.leave("owner", 0.0)
    assert count_calls(hub, "a.b.c") == {"second": 40}
    hub = hub_with_peers()
    register_method(hub, "owner", "a.b.c")
    register_method(hub, "partner", "a", route=True)
    hub.leave("owner", 0.0)
    assert count_calls(hub, "a.b.c") == {"partner": 40}


# Limits and reloads.


def test_reserved_names_of_an_identity_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_reservations, "_MAX_RESERVED", 2)
    hub = hub_with_peers()
    for method in ("m", "n", "o"):
        register_method(hub, "owner", method)
        hub.handle("owner", Unregister("u", method), 0.0)
    assert [register(hub, "stranger", method) for method in ("m", "n")] == ["", "n belongs to another identity"]
    assert len(hub.admission.name_reservations.reserved) == 2


def test_names_stay_reserved_while_a_token_is_rotated_and_are_free_if_the_permission_goes() -> None:
    hub = hub_with_peers()
    register_method(hub, "owner", "m")
    rotated = Identity("owner", "another")
    hub.reload(HubSettings(identities=(rotated, STRANGER)))
    assert hub.registrations.count_of("owner") == 0
    assert register(hub, "stranger", "m") == "m belongs to another identity"
    hub.reload(HubSettings(identities=(Identity("owner", "another", permissions=Permissions(offer=("n",))), STRANGER)))
    assert register(hub, "stranger", "m") == ""


def test_names_of_an_identity_that_is_removed_are_free() -> None:
    hub = hub_with_peers()
    register_method(hub, "owner", "m")
    hub.reload(HubSettings(identities=(STRANGER,)))
    assert register(hub, "stranger", "m") == ""


def test_grace_period_of_zero_seconds_reserves_nothing() -> None:
    hub = hub_with_peers()
    hub.reload(HubSettings(identities=IDENTITIES, name_grace=0.0))
    register_method(hub, "owner", "m")
    hub.leave("owner", 5.0)
    hub.expire(5.0)
    assert register(hub, "stranger", "m", 5.0) == ""
