"""Methods on offer: who may offer what, and who is chosen."""

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
from tests.support.hub_helpers import LRPM, UMQ, join, make, offer, ok, only, opened, refusal


def callees(hub: Hub, times: int) -> list[str]:
    """Who gets the next calls, each answered at once."""
    found = []
    for _ in range(times):
        (delivery,) = hub.handle("ann", Call("c", "m"), 0.0)
        found.append(getattr(delivery, "peer", ""))
        only(hub.handle(found[-1], Result(only([delivery], Call).id), 0.0), Result)
    return found


# Sharing.


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        ("", ["bob", "cleo", "dan", "bob", "cleo", "dan"]),
        ("round_robin", ["bob", "cleo", "dan", "bob", "cleo", "dan"]),
        ("first", ["bob"] * 6),
    ],
)
def test_callees_share_the_calls_of_a_method(share: str, expected: list[str]) -> None:
    hub = opened()
    for peer in ("bob", "cleo", "dan"):
        offer(hub, peer, "m", share=share)
    assert callees(hub, 6) == expected


def test_share_random_chooses_callees_at_random() -> None:
    hub = opened()
    for peer in ("bob", "cleo", "dan"):
        offer(hub, peer, "m", share="random")
    found = callees(hub, 60)
    assert {found.count(peer) > 10 for peer in ("bob", "cleo", "dan")} == {True}
    assert found != ["bob", "cleo", "dan"] * 20


def test_round_robin_continues_when_callees_change() -> None:
    hub = opened()
    for peer in ("bob", "cleo", "dan"):
        offer(hub, peer, "m")
    assert callees(hub, 2) == ["bob", "cleo"]
    hub.leave("bob", 0.0)
    assert sorted(callees(hub, 2)) == ["cleo", "dan"]
    offer(hub, "eve", "m")
    assert sorted(callees(hub, 3)) == ["cleo", "dan", "eve"]


@pytest.mark.parametrize("share", ["round_robin", "random", "first"])
def test_callees_at_their_limit_are_skipped(share: str) -> None:
    hub = opened({"max_pending": 2})
    for peer in ("bob", "dan"):
        offer(hub, peer, "m", share=share)
    calls = [hub.handle(caller, Call(number, "m"), 0.0) for caller in ("ann", "cleo") for number in "12"]
    assert sorted(getattr(delivery, "peer", "") for (delivery,) in calls) == ["bob", "bob", "dan", "dan"]
    told = refusal(hub.handle("eve", Call("c", "m"), 0.0))
    assert told == ("eve", "c", Reason.OVERLOADED, "all callees of m have too many pending calls")


def test_first_registration_sets_kind_and_share() -> None:
    hub = opened()
    offer(hub, "bob", "m", kind="server", share="random")
    told = refusal(hub.handle("dan", Register("1", "m", kind="unary", share="random"), 0.0))
    assert told == ("dan", "1", Reason.BAD_ARGUMENTS, "m is already registered with kind server, not unary")
    told = refusal(hub.handle("dan", Register("1", "m", kind="server", share="first"), 0.0))
    assert told == ("dan", "1", Reason.BAD_ARGUMENTS, "m is already registered with share random, not first")
    offer(hub, "dan", "m", kind="server")
    hub.leave("bob", 0.0)
    offer(hub, "dan", "m", kind="unary", share="first")


def test_unknown_kind_or_share_is_refused() -> None:
    hub = opened()
    assert refusal(hub.handle("bob", Register("1", "m", kind="odd"), 0.0))[2] is Reason.BAD_ARGUMENTS
    assert refusal(hub.handle("bob", Register("1", "m", share="odd"), 0.0))[2] is Reason.BAD_ARGUMENTS


# Spellings.


def test_second_spelling_of_a_name_in_one_style_is_refused() -> None:
    hub = opened()
    offer(hub, "bob", "account.get_balance", "Account:getBalance")
    told = refusal(hub.handle("eve", Register("1", "account.get_balance", "Account.getBalance"), 0.0))
    text = "Account.getBalance is the same name as Account:getBalance, which is already registered"
    assert told == ("eve", "1", Reason.BAD_ARGUMENTS, text)
    assert refusal(hub.handle("bob", Register("1", "account.get_balance", "Account:get_balance"), 0.0))[2] is told[2]


def test_spellings_in_different_styles_are_one_method() -> None:
    hub = opened()
    offer(hub, "bob", "account.get_balance", "Account:getBalance")
    offer(hub, "eve", "account.get_balance", "Account:getBalance")
    offer(hub, "dan", "account.get_balance", "account.get_balance")
    offer(hub, "cleo", "account.get_balance", "account-get_balance")
    calls = [only(hub.handle("ann", Call(str(n), "account.get_balance", spelling="x"), 0.0), Call) for n in range(4)]
    spellings = ["Account:getBalance", "Account:getBalance", "account.get_balance", "account-get_balance"]
    assert [call.spelling for call in calls] == spellings


def test_local_application_spelling_does_not_conflict() -> None:
    hub = opened()
    join(hub, "app", ProtocolTraits("local", names.LOCAL, topics.UMQ))
    offer(hub, "app", "math.add_up")
    assert only(hub.handle("eve", Discover("d"), 0.0), Description).methods == ("math:add_up",)
    offer(hub, "bob", "math.add_up", "Math:addUp")
    for peer, written in {"eve": "Math:addUp", "ann": "math.add_up", "app": "math.add_up"}.items():
        assert only(hub.handle(peer, Discover("d"), 0.0), Description).methods == (written,)


def test_missing_spelling_is_the_default_spelling() -> None:
    hub = opened()
    offer(hub, "dan", "a.b")
    offer(hub, "ann", "a.b", "a.b")
    offer(hub, "bob", "r", "r:", route=True)
    offer(hub, "eve", "r", route=True)


# Coming and going.


def test_reserved_names_are_refused() -> None:
    hub = opened()
    for name in ("hub", "hub.ping", "callback", "callback.x"):
        told = refusal(hub.handle("bob", Register("1", name), 0.0))
        assert told[2] is Reason.BAD_ARGUMENTS
        assert told[3].startswith(f"{name} is not free")
    offer(hub, "bob", "hubs")


def test_registration_can_be_replaced() -> None:
    hub = opened()
    offer(hub, "bob", "m", "M", doc="old")
    offer(hub, "bob", "m", "M", doc="new", kind="server")
    assert hub.stats()["offers"] == 1
    assert only(hub.handle("ann", Call("c", "m"), 0.0), Call).stream
    offer(hub, "eve", "m", "M", kind="server")
    offer(hub, "bob", "m", "M", kind="server")
    assert hub.stats()["offers"] == 1


def test_registration_can_be_removed() -> None:
    hub = opened()
    offer(hub, "bob", "m", "M")
    offer(hub, "bob", "m", "M:", route=True)
    assert hub.handle("bob", Unregister("1", "m", "M:", route=True), 0.0) == ok("bob", "1")
    told = refusal(hub.handle("bob", Unregister("1", "m", "M:", route=True), 0.0))
    assert told == ("bob", "1", Reason.BAD_ARGUMENTS, "you did not register M:")
    assert refusal(hub.handle("eve", Unregister("1", "m", "M"), 0.0))[2] is Reason.BAD_ARGUMENTS
    assert only(hub.handle("ann", Call("c", "m"), 0.0), Call).method == "m"
    assert hub.handle("bob", Unregister("1", "m", "M"), 0.0) == ok("bob", "1")
    assert hub.stats()["offers"] == 0


def test_registrations_of_a_session_are_limited() -> None:
    hub = opened(max_offers=2)
    offer(hub, "bob", "a")
    offer(hub, "bob", "b", route=True)
    told = refusal(hub.handle("bob", Register("1", "c"), 0.0))
    assert told == ("bob", "1", Reason.OVERLOADED, "more than 2 registrations")
    offer(hub, "bob", "a", doc="again")
    offer(hub, "eve", "c")
    hub.handle("bob", Unregister("1", "a"), 0.0)
    offer(hub, "bob", "c")


def test_former_names_are_remembered_up_to_limit() -> None:
    hub = make(max_offers=_MAX_FORMER_NAMES + 1)
    join(hub, "x", UMQ)
    join(hub, "y", LRPM)
    for number in range(_MAX_FORMER_NAMES + 1):
        hub.handle("x", Register("1", f"m{number}"), 0.0)
    hub.leave("x", 0.0)
    reasons = [refusal(hub.handle("y", Call("c", f"m{number}"), 0.0))[2] for number in (0, 1, _MAX_FORMER_NAMES)]
    assert reasons == [Reason.NO_SUCH_METHOD, Reason.UNAVAILABLE, Reason.UNAVAILABLE]


def test_registered_name_is_no_longer_a_former_name() -> None:
    hub = opened()
    offer(hub, "bob", "m")
    hub.leave("bob", 0.0)
    offer(hub, "eve", "m")
    assert only(hub.handle("ann", Call("c", "m"), 0.0), Call).id == "1"


def test_listed_names_below_routes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fiveways.hub.registrations._MAX_LISTED_NAMES", 3)
    offers = Registrations(Random(7), 10, NameReservations(WakeTime(), 0.0))
    one, two = (Session(peer, UMQ, Credentials(), None) for peer in ("one", "two"))  # type: ignore[arg-type]
    offers.add(one, Register("", "a", route=True), 10)
    offers.add(two, Register("", "b", route=True), 10)
    first, second = (method.registrations[0] for method in offers)
    offers.store_listed_names(one, "a", {"x": "X", "y": "Y"})
    offers.store_listed_names(two, "b", {"p": "P", "q": "Q"})
    offers.store_listed_names(two, "a", {"x": "Z"})
    assert (first.listed_names, second.listed_names) == ({"x": "X", "y": "Y"}, {"p": "P"})
    offers.leave(one)
    offers.store_listed_names(one, "a", {"x": "X", "y": "Y"})
    offers.store_listed_names(two, "b", {"p": "P", "q": "Q", "r": "R", "s": "S"})
    assert second.listed_names == {"p": "P", "q": "Q", "r": "R"}
    offers.leave(two)
    assert offers._listed_count == 0


def test_refused_registration_changes_nothing() -> None:
    offers = Registrations(Random(7), 10, NameReservations(WakeTime(), 0.0))
    session = Session("one", UMQ, Credentials(), None)  # type: ignore[arg-type]
    for word in (Register("", "hub.x"), Register("", "m", kind="odd")):
        with pytest.raises(Refusal):
            offers.add(session, word, 10)
    with pytest.raises(Refusal):
        offers.add(session, Register("", "m"), 0)
    assert (len(offers), offers._by_peer) == (0, {})


def test_stats_count_registrations() -> None:
    hub = opened()
    offer(hub, "bob", "m", doc="d")
    offer(hub, "eve", "m")
    offer(hub, "eve", "n", route=True)
    assert hub.stats()["offers"] == 2
    assert only(hub.handle("ann", Call("c", "hub.stats"), 0.0), Result).body == Value(hub.stats() | {"open_calls": 0})


@pytest.mark.parametrize("letter", ["x", "\u00e4"])
def test_documentation_size_is_limited(letter: str) -> None:
    hub = opened()
    doc = letter * (MAX_DOC_BYTES // len(letter.encode()))
    offer(hub, "bob", "m", doc=doc)
    told = refusal(hub.handle("bob", Register("r", "n", doc=doc + "x"), 0.0))
    assert told == ("bob", "r", Reason.BAD_ARGUMENTS, "the documentation of n is larger than 16384 bytes")
    assert hub.stats()["offers"] == 1
