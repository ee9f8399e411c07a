"""Registrations, and the choice of a callee."""

from random import Random

import pytest

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.name_reservations import NameReservations
from fiveways.hub.refusal import Refusal
from fiveways.hub.registrations import _MAX_FORMER_NAMES, MAX_DOC_BYTES, Registrations
from fiveways.hub.session import Session
from fiveways.hub.timers import WakeTime
from fiveways.hub.traits import Credentials, ProtocolTraits
from fiveways.model import names, topics
from fiveways.model.messages import Call, Description, Discover, Register, Result, Unregister
from fiveways.wire.payload import Value
from tests.support.hub_helpers import (
    LRPM,
    UMQ,
    hub_with_peers,
    join,
    make_hub,
    only_message,
    refusal,
    register_method,
    success,
)


def called_peers(hub: Hub, times: int) -> list[str]:
    """Return the callees of the next calls, each answered at once."""
    result = []
    for _ in range(times):
        (delivery,) = hub.handle("ann", Call("c", "m"), 0.0)
        result.append(getattr(delivery, "peer", ""))
        only_message(hub.handle(result[-1], Result(only_message([delivery], Call).id), 0.0), Result)
    return result


# Sharing of a method.


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        ("", ["bob", "cleo", "dan", "bob", "cleo", "dan"]),
        ("round_robin", ["bob", "cleo", "dan", "bob", "cleo", "dan"]),
        ("first", ["bob"] * 6),
    ],
)
def test_callees_share_the_calls_of_a_method(share: str, expected: list[str]) -> None:
    hub = hub_with_peers()
    for peer in ("bob", "cleo", "dan"):
        register_method(hub, peer, "m", share=share)
    assert called_peers(hub, 6) == expected


def test_share_random_chooses_callees_at_random() -> None:
    hub = hub_with_peers()
    for peer in ("bob", "cleo", "dan"):
        register_method(hub, peer, "m", share="random")
    result = called_peers(hub, 60)
    assert {result.count(peer) > 10 for peer in ("bob", "cleo", "dan")} == {True}
    assert result != ["bob", "cleo", "dan"] * 20


def test_round_robin_continues_when_callees_change() -> None:
    hub = hub_with_peers()
    for peer in ("bob", "cleo", "dan"):
        register_method(hub, peer, "m")
    assert called_peers(hub, 2) == ["bob", "cleo"]
    hub.leave("bob", 0.0)
    assert sorted(called_peers(hub, 2)) == ["cleo", "dan"]
    register_method(hub, "eve", "m")
    assert sorted(called_peers(hub, 3)) == ["cleo", "dan", "eve"]


@pytest.mark.parametrize("share", ["round_robin", "random", "first"])
def test_callees_at_their_limit_are_skipped(share: str) -> None:
    hub = hub_with_peers({"max_pending": 2})
    for peer in ("bob", "dan"):
        register_method(hub, peer, "m", share=share)
    calls = [hub.handle(caller, Call(number, "m"), 0.0) for caller in ("ann", "cleo") for number in "12"]
    assert sorted(getattr(delivery, "peer", "") for (delivery,) in calls) == ["bob", "bob", "dan", "dan"]
    refused = refusal(hub.handle("eve", Call("c", "m"), 0.0))
    assert refused == ("eve", "c", Reason.OVERLOADED, "all callees of m have too many pending calls")


def test_first_registration_sets_kind_and_share() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m", kind="server", share="random")
    refused = refusal(hub.handle("dan", Register("1", "m", kind="unary", share="random"), 0.0))
    assert refused == ("dan", "1", Reason.BAD_ARGUMENTS, "m is already registered with kind server, not unary")
    refused = refusal(hub.handle("dan", Register("1", "m", kind="server", share="first"), 0.0))
    assert refused == ("dan", "1", Reason.BAD_ARGUMENTS, "m is already registered with share random, not first")
    register_method(hub, "dan", "m", kind="server")
    hub.leave("bob", 0.0)
    register_method(hub, "dan", "m", kind="unary", share="first")


def test_unknown_kind_or_share_is_refused() -> None:
    hub = hub_with_peers()
    assert refusal(hub.handle("bob", Register("1", "m", kind="odd"), 0.0))[2] is Reason.BAD_ARGUMENTS
    assert refusal(hub.handle("bob", Register("1", "m", share="odd"), 0.0))[2] is Reason.BAD_ARGUMENTS


# Spellings.


def test_second_spelling_of_a_name_in_one_style_is_refused() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "account.get_balance", "Account:getBalance")
    refused = refusal(hub.handle("eve", Register("1", "account.get_balance", "Account.getBalance"), 0.0))
    expected_text = "Account.getBalance is the same name as Account:getBalance, which is already registered"
    assert refused == ("eve", "1", Reason.BAD_ARGUMENTS, expected_text)
    assert refusal(hub.handle("bob", Register("1", "account.get_balance", "Account:get_balance"), 0.0))[2] is refused[2]


def test_spellings_in_different_styles_are_one_method() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "account.get_balance", "Account:getBalance")
    register_method(hub, "eve", "account.get_balance", "Account:getBalance")
    register_method(hub, "dan", "account.get_balance", "account.get_balance")
    register_method(hub, "cleo", "account.get_balance", "account-get_balance")
    calls = [
        only_message(hub.handle("ann", Call(str(n), "account.get_balance", spelling="x"), 0.0), Call) for n in range(4)
    ]
    spellings = ["Account:getBalance", "Account:getBalance", "account.get_balance", "account-get_balance"]
    assert [call.spelling for call in calls] == spellings


def test_local_application_spelling_does_not_conflict() -> None:
    hub = hub_with_peers()
    join(hub, "app", ProtocolTraits("local", names.LOCAL, topics.UMQ))
    register_method(hub, "app", "math.add_up")
    assert only_message(hub.handle("eve", Discover("d"), 0.0), Description).methods == ("math:add_up",)
    register_method(hub, "bob", "math.add_up", "Math:addUp")
    for peer, spelling in {"eve": "Math:addUp", "ann": "math.add_up", "app": "math.add_up"}.items():
        assert only_message(hub.handle(peer, Discover("d"), 0.0), Description).methods == (spelling,)


def test_missing_spelling_is_the_default_spelling() -> None:
    hub = hub_with_peers()
    register_method(hub, "dan", "a.b")
    register_method(hub, "ann", "a.b", "a.b")
    register_method(hub, "bob", "r", "r:", route=True)
    register_method(hub, "eve", "r", route=True)


# Registration and removal.


def test_reserved_names_are_refused() -> None:
    hub = hub_with_peers()
    for name in ("hub", "hub.ping", "callback", "callback.x"):
        refused = refusal(hub.handle("bob", Register("1", name), 0.0))
        assert refused[2] is Reason.BAD_ARGUMENTS
        assert refused[3].startswith(f"{name} is not free")
    register_method(hub, "bob", "hubs")


def test_registration_can_be_replaced() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m", "M", doc="old")
    register_method(hub, "bob", "m", "M", doc="new", kind="server")
    assert hub.stats()["offers"] == 1
    assert only_message(hub.handle("ann", Call("c", "m"), 0.0), Call).stream
    register_method(hub, "eve", "m", "M", kind="server")
    register_method(hub, "bob", "m", "M", kind="server")
    assert hub.stats()["offers"] == 1


def test_registration_can_be_removed() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m", "M")
    register_method(hub, "bob", "m", "M:", route=True)
    assert hub.handle("bob", Unregister("1", "m", "M:", route=True), 0.0) == success("bob", "1")
    refused = refusal(hub.handle("bob", Unregister("1", "m", "M:", route=True), 0.0))
    assert refused == ("bob", "1", Reason.BAD_ARGUMENTS, "you did not register M:")
    assert refusal(hub.handle("eve", Unregister("1", "m", "M"), 0.0))[2] is Reason.BAD_ARGUMENTS
    assert only_message(hub.handle("ann", Call("c", "m"), 0.0), Call).method == "m"
    assert hub.handle("bob", Unregister("1", "m", "M"), 0.0) == success("bob", "1")
    assert hub.stats()["offers"] == 0


def test_registrations_of_a_session_are_limited() -> None:
    hub = hub_with_peers(max_offers=2)
    register_method(hub, "bob", "a")
    register_method(hub, "bob", "b", route=True)
    refused = refusal(hub.handle("bob", Register("1", "c"), 0.0))
    assert refused == ("bob", "1", Reason.OVERLOADED, "more than 2 registrations")
    register_method(hub, "bob", "a", doc="again")
    register_method(hub, "eve", "c")
    hub.handle("bob", Unregister("1", "a"), 0.0)
    register_method(hub, "bob", "c")


def test_former_names_are_remembered_up_to_limit() -> None:
    hub = make_hub(max_offers=_MAX_FORMER_NAMES + 1)
    join(hub, "x", UMQ)
    join(hub, "y", LRPM)
    for number in range(_MAX_FORMER_NAMES + 1):
        hub.handle("x", Register("1", f"m{number}"), 0.0)
    hub.leave("x", 0.0)
    reasons = [refusal(hub.handle("y", Call("c", f"m{number}"), 0.0))[2] for number in (0, 1, _MAX_FORMER_NAMES)]
    assert reasons == [Reason.NO_SUCH_METHOD, Reason.UNAVAILABLE, Reason.UNAVAILABLE]


def test_registered_name_is_no_longer_a_former_name() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m")
    hub.leave("bob", 0.0)
    register_method(hub, "eve", "m")
    assert only_message(hub.handle("ann", Call("c", "m"), 0.0), Call).id == "1"


def test_listed_names_below_routes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fiveways.hub.registrations._MAX_LISTED_NAMES", 3)
    registrations = Registrations(Random(7), 10, NameReservations(WakeTime(), 0.0))
    one, two = (Session(peer, UMQ, Credentials(), None) for peer in ("one", "two"))  # type: ignore[arg-type]
    registrations.add(one, Register("", "a", route=True), 10)
    registrations.add(two, Register("", "b", route=True), 10)
    first, second = (method.registrations[0] for method in registrations)
    registrations.store_listed_names(one, "a", {"x": "X", "y": "Y"})
    registrations.store_listed_names(two, "b", {"p": "P", "q": "Q"})
    registrations.store_listed_names(two, "a", {"x": "Z"})
    assert (first.listed_names, second.listed_names) == ({"x": "X", "y": "Y"}, {"p": "P"})
    registrations.leave(one)
    registrations.store_listed_names(one, "a", {"x": "X", "y": "Y"})
    registrations.store_listed_names(two, "b", {"p": "P", "q": "Q", "r": "R", "s": "S"})
    assert second.listed_names == {"p": "P", "q": "Q", "r": "R"}
    registrations.leave(two)
    assert registrations._listed_count == 0


def test_refused_registration_changes_nothing() -> None:
    registrations = Registrations(Random(7), 10, NameReservations(WakeTime(), 0.0))
    session = Session("one", UMQ, Credentials(), None)  # type: ignore[arg-type]
    for message in (Register("", "hub.x"), Register("", "m", kind="odd")):
        with pytest.raises(Refusal):
            registrations.add(session, message, 10)
    with pytest.raises(Refusal):
        registrations.add(session, Register("", "m"), 0)
    assert (len(registrations), registrations._by_peer) == (0, {})


def test_stats_count_registrations() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "m", doc="d")
    register_method(hub, "eve", "m")
    register_method(hub, "eve", "n", route=True)
    assert hub.stats()["offers"] == 2
    assert only_message(hub.handle("ann", Call("c", "hub.stats"), 0.0), Result).body == Value(
        hub.stats() | {"open_calls": 0}
    )


@pytest.mark.parametrize("letter", ["x", "\u00e4"])
def test_documentation_size_is_limited(letter: str) -> None:
    hub = hub_with_peers()
    doc = letter * (MAX_DOC_BYTES // len(letter.encode()))
    register_method(hub, "bob", "m", doc=doc)
    refused = refusal(hub.handle("bob", Register("r", "n", doc=doc + "x"), 0.0))
    assert refused == ("bob", "r", Reason.BAD_ARGUMENTS, "the documentation of n is larger than 16384 bytes")
    assert hub.stats()["offers"] == 1
