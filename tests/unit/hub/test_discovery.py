"""Discovery queries, in the spelling of the requesting peer."""

import pytest

from fiveways.errors import LocalProtocolError, Reason
from fiveways.hub.builtin_methods import BUILT_IN_DOCS
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.settings import Identity, Permissions
from fiveways.hub.traits import Credentials, ProtocolTraits
from fiveways.model import names, topics
from fiveways.model.messages import Call, Cancel, Description, Discover, Failure, Hello, Register, Result, Unregister
from fiveways.model.names import fold_prefix
from fiveways.protocols.builtin_methods import description_payload
from fiveways.wire.payload import NULL
from tests.support.hub_helpers import (
    LRPM,
    MQTT,
    NQ,
    UMQ,
    UMQ36,
    hub_with_peers,
    join,
    only_message,
    refusal,
    register_method,
    success,
    welcome,
)

TRAITS = [UMQ, UMQ36, LRPM, MQTT, NQ]


def discover(hub: Hub, name: str = "", peer: str = "ann", now: float = 0.0) -> Deliveries:
    return hub.handle(peer, Discover("d", name), now)


def hub_with_methods() -> Hub:
    hub = hub_with_peers()
    register_method(hub, "bob", "account.get_balance", "Account:getBalance", doc="Tells a balance.")
    register_method(hub, "cleo", "log_in", "log_in")
    register_method(hub, "eve", "stock", "Stock:", route=True)
    return hub


# Lists.


def test_list_is_in_spelling_of_requesting_peer() -> None:
    hub = hub_with_methods()
    join(hub, "mia", MQTT)
    join(hub, "una", UMQ36)
    lists = {
        "ann": (("account.get_balance", "log_in"), ("stock.", "hub.")),
        "eve": (("Account:getBalance", "log_in"), ("Stock:", "hub:")),
        "una": (("account.get_balance", "log_in"), ("stock.", "hub.")),
        "cleo": (("account-get_balance", "log_in"), ("stock-", "hub-")),
        "mia": (("/account/get_balance", "/fiveways/log_in"), ("/stock/", "/hub/")),
    }
    for peer, (methods, routes) in lists.items():
        namespaces = ("Account:",) if peer == "eve" else ()
        assert discover(hub, peer=peer) == [Delivery(peer, Description("d", methods, routes, namespaces=namespaces))]


# Namespaces: routes without a registration of their own.


def hub_with_namespaces() -> Hub:
    hub = hub_with_methods()
    join(hub, "mia", MQTT)
    join(hub, "una", UMQ36)
    register_method(hub, "bob", "account.history.list_all", "Account:History:listAll")
    register_method(hub, "bob", "account.close", "Account:close")
    register_method(hub, "eve", "account.cards", "Account:Cards:", route=True)
    return hub


@pytest.mark.parametrize(
    ("peer", "name", "methods", "routes"),
    [
        ("eve", "Account:", ("getBalance", "close"), ("History:", "Cards:")),
        ("eve", "account", ("getBalance", "close"), ("History:", "Cards:")),
        ("eve", "Account:History:", ("listAll",), ()),
        ("una", "Account.", ("get_balance", "close"), ("history.", "cards.")),
        ("ann", "account.", ("get_balance", "close"), ("history.", "cards.")),
        ("ann", "account.history.", ("list_all",), ()),
        ("cleo", "account-", ("get_balance", "close"), ("history-", "cards-")),
        ("mia", "/account/", ("get_balance", "close"), ("history/", "cards.")),
    ],
)
def test_namespace_is_listed_without_its_prefix(
    peer: str, name: str, methods: tuple[str, ...], routes: tuple[str, ...]
) -> None:
    assert discover(hub_with_namespaces(), name, peer) == [Delivery(peer, Description("d", methods, routes))]


def test_namespace_of_several_peers_is_one_route() -> None:
    hub = hub_with_namespaces()
    register_method(hub, "dan", "account.open", "account:open")
    assert only_message(discover(hub, peer="eve"), Description).namespaces == ("Account:",)
    assert "open" in only_message(discover(hub, "Account:", "eve"), Description).methods


def test_registered_route_is_listed_once_and_queried_itself() -> None:
    hub = hub_with_methods()
    register_method(hub, "bob", "stock.total", "Stock:total")
    description = only_message(discover(hub, peer="eve"), Description)
    assert (description.routes, description.namespaces) == (("Stock:", "hub:"), ("Account:",))
    assert isinstance(only_message(discover(hub, "stock."), Discover), Discover)


def test_namespace_ends_with_its_last_method() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "account.close", "Account:close")
    hub.leave("bob", 0.0)
    assert only_message(discover(hub, peer="eve"), Description).namespaces == ()
    assert refusal(discover(hub, "Account:", "eve"))[2] is Reason.NO_SUCH_METHOD


def test_application_is_listed_to_umq_peers_in_its_own_spelling() -> None:
    hub = hub_with_peers()
    join(hub, "app", ProtocolTraits("local", names.LOCAL, topics.UMQ))
    join(hub, "una", UMQ36)
    register_method(hub, "app", "account.get_balance", "Account:getBalance")
    lists = {"eve": "Account:getBalance", "una": "Account.getBalance", "ann": "account.get_balance"}
    for peer, spelling in lists.items():
        assert only_message(discover(hub, peer=peer), Description).methods == (spelling,)
    assert only_message(discover(hub, peer="eve"), Description).namespaces == ("Account:",)
    assert only_message(discover(hub, "Account:", "eve"), Description).methods == ("getBalance",)


def test_list_follows_registrations() -> None:
    hub = hub_with_peers()
    assert discover(hub) == [Delivery("ann", Description("d", (), ("hub.",)))]
    register_method(hub, "bob", "m")
    assert only_message(discover(hub), Description).methods == ("m",)
    hub.leave("bob", 0.0)
    assert only_message(discover(hub), Description).methods == ()


@pytest.mark.parametrize("peer", ["ann", "bob", "cleo", "mia", "una"])
@pytest.mark.parametrize("size", [1, 40, 230])
def test_list_fits_into_one_message(peer: str, size: int) -> None:
    hub = hub_with_peers({"max_text": 4000})
    join(hub, "mia", MQTT)
    join(hub, "una", UMQ36)
    register_method(hub, "bob", "early")
    register_method(hub, "eve", "route", "route:", route=True)
    for number in range(1000):
        name = f"{number}".zfill(size)
        register_method(hub, "dan", name, name, route=number % 2 == 1)
    description = only_message(discover(hub, peer=peer), Description)
    assert 1000 < len(description_payload(description).json()) < 3000
    assert (len(description.methods) + len(description.routes) + description.more, description.more > 0) == (1003, True)
    assert "early" in description.methods[0]
    assert [name.strip("/:.-") for name in (description.routes[0], description.routes[-1])] == ["route", "hub"]
    hub.leave("dan", 0.0)
    assert only_message(discover(hub, peer=peer), Description).more == 0


def test_list_of_names_with_quotes_fits_into_one_message() -> None:
    hub = hub_with_peers({"max_text": 4000})
    for number in range(300):
        name = '"' * 40 + f"{number}"
        register_method(hub, "eve", name, name)
    description = only_message(discover(hub, peer="bob"), Description)
    assert 3000 < len(description_payload(description).json()) < 4000


def test_list_of_route_is_limited_and_omitted_names_are_counted() -> None:
    hub = hub_with_peers({"max_text": 4000})
    register_method(hub, "eve", "stock", "Stock:", route=True)
    discover(hub, "stock.")
    listed = tuple(f"m{number}" for number in range(1000))
    description = only_message(hub.handle("eve", Description("1", listed, ("sub:",), more=5), 0.0), Description)
    assert description.routes == ("sub.",)
    assert description.methods == listed[: len(description.methods)]
    assert len(description.methods) + description.more == 1005
    assert len(description_payload(description).json()) < 3000


def test_unspellable_names_are_not_listed() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "größe", "größe")
    register_method(hub, "bob", "ö", "ö:", route=True)
    assert only_message(discover(hub), Description) == Description("d", (), ("hub.",))
    assert only_message(discover(hub, peer="eve"), Description) == Description("d", ("größe",), ("ö:", "hub:"))


def test_route_is_listed_with_separator() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "r", "R", route=True)
    assert only_message(discover(hub, peer="eve"), Description).routes == ("R:", "hub:")


def test_built_in_methods_are_listed_and_documented() -> None:
    hub = hub_with_peers()
    names = tuple(name.removeprefix("hub.") for name in BUILT_IN_DOCS)
    for spelling in ("hub", "hub."):
        assert discover(hub, spelling) == [Delivery("ann", Description("d", names))]
    for name, doc in BUILT_IN_DOCS.items():
        assert discover(hub, name) == [Delivery("ann", Description("d", doc=doc))]
    assert refusal(discover(hub, "hub.nonsense"))[2] is Reason.NO_SUCH_METHOD
    assert refusal(discover(hub, "hub.ping."))[2] is Reason.NO_SUCH_METHOD


@pytest.mark.parametrize("traits", TRAITS)
def test_every_listed_name_can_be_queried(traits: ProtocolTraits) -> None:
    hub = hub_with_methods()
    style = traits.names
    join(hub, "new", traits)
    description = only_message(discover(hub, peer="new"), Description)
    assert [fold_prefix(name, style) for name in description.methods] == [
        ("account.get_balance", False),
        ("log_in", False),
    ]
    assert [fold_prefix(name, style) for name in description.routes] == [("stock", True), ("hub", True)]
    for name in description.methods:
        assert only_message(discover(hub, name, "new"), Description).doc is not None
    assert len(only_message(discover(hub, description.routes[1], "new"), Description).methods) == len(BUILT_IN_DOCS)


# Documentation.


def test_documentation_of_a_method_is_returned() -> None:
    hub = hub_with_methods()
    assert discover(hub, "account.get_balance") == [Delivery("ann", Description("d", doc="Tells a balance."))]
    assert discover(hub, "Account:getBalance", "eve") == [Delivery("eve", Description("d", doc="Tells a balance."))]
    assert discover(hub, "log_in") == [Delivery("ann", Description("d", doc=""))]


@pytest.mark.parametrize("name", ["nothing", "account.no", "account.no.", "log_in.", "a..b", "*", "x" * 300])
def test_query_for_unknown_name_is_refused(name: str) -> None:
    assert refusal(discover(hub_with_methods(), name))[:3] == ("ann", "d", Reason.NO_SUCH_METHOD)


def test_query_for_former_name_is_unavailable() -> None:
    hub = hub_with_methods()
    hub.leave("bob", 0.0)
    assert refusal(discover(hub, "account.get_balance"))[2] is Reason.UNAVAILABLE


# Queries below a route.


@pytest.mark.parametrize("spelling", ["stock.", "stock"])
def test_list_of_route_comes_from_its_callee(spelling: str) -> None:
    hub = hub_with_methods()
    assert discover(hub, spelling) == [Delivery("eve", Discover("1", ""), "1")]
    listed = Description("1", ("listTrades", "two words", "bad\nname"), ("Sub:", "Other"))
    expected = Description("d", ("list_trades", "two_words"), ("sub.", "other."))
    assert hub.handle("eve", listed, 0.0) == [Delivery("ann", expected, "1")]
    assert hub.open_calls() == 0


def test_list_in_same_style_is_unchanged() -> None:
    hub = hub_with_methods()
    discover(hub, "Stock:", "bob")
    expected = Description("d", ("listTrades",), ("Sub:",))
    assert hub.handle("eve", Description("1", ("listTrades",), ("Sub:",)), 0.0) == [Delivery("bob", expected, "1")]


def test_method_is_called_in_spelling_of_its_callee() -> None:
    hub = hub_with_methods()
    assert only_message(hub.handle("ann", Call("1", "stock.list_trades"), 0.0), Call).spelling == ""
    discover(hub, "stock.")
    hub.handle("eve", Description("2", ("ListTrades", "x")), 0.0)
    forwarded = Call("3", "list_trades", NULL, "ListTrades", timeout=30.0)
    assert hub.handle("ann", Call("2", "stock.list_trades"), 0.0) == [Delivery("eve", forwarded, "3")]
    call = Call("3", "stock.list_trades", spelling="stock:listTrades")
    assert only_message(hub.handle("bob", call, 0.0), Call).spelling == "ListTrades"
    assert discover(hub, "stock.list_trades") == [Delivery("eve", Discover("5", "ListTrades"), "5")]


@pytest.mark.parametrize(
    ("peer", "spelling", "forwarded"),
    [
        ("bob", "Stock:Sub:getIt", "Sub:getIt"),
        ("bob", "Stock:Sub:", "Sub:"),
        ("bob", "Stock.Sub.getIt", "Sub.getIt"),
        ("ann", "stock.sub.get_it", "sub:get_it"),
        ("ann", "stock.sub.", "sub:"),
        ("cleo", "stock-sub-get_it", "sub:get_it"),
    ],
)
def test_query_below_route_is_forwarded_without_prefix(peer: str, spelling: str, forwarded: str) -> None:
    hub = hub_with_methods()
    assert discover(hub, spelling, peer) == [Delivery("eve", Discover("1", forwarded), "1")]
    assert hub.handle("eve", Description("1", doc="d"), 0.0) == [Delivery(peer, Description("d", doc="d"), "1")]


def test_inner_list_is_not_stored_as_list_of_route() -> None:
    hub = hub_with_methods()
    discover(hub, "stock.sub.")
    hub.handle("eve", Description("1", ("getIt",)), 0.0)
    assert only_message(hub.handle("ann", Call("c", "stock.get_it"), 0.0), Call).spelling == ""


def test_spelling_of_caller_is_kept_if_callee_can_write_it() -> None:
    hub = hub_with_methods()
    join(hub, "una", UMQ36)
    call = Call("c", "stock.sub.get_it", spelling="Stock.Sub.getIt")
    assert only_message(hub.handle("una", call, 0.0), Call).spelling == "Sub:getIt"
    assert discover(hub, "Stock.Sub.getIt", "una") == [Delivery("eve", Discover("2", "Sub:getIt"), "2")]


LISTING = ProtocolTraits("umq", names.UMQ, topics.UMQ, lists_routes=True)


def hub_with_queried_route(limits: dict[str, int] | None = None) -> Hub:
    """Return a hub with a new route, whose callee got a route query."""
    hub = hub_with_peers(limits)
    join(hub, "lis", LISTING)
    assert register_route(hub) == [Delivery("lis", Result("r")), Delivery("lis", Discover("1"), "1")]
    return hub


def register_route(hub: Hub) -> Deliveries:
    return hub.handle("lis", Register("r", "shop", "Shop:", route=True), 0.0)


def called_spelling(hub: Hub) -> str:
    spelling = only_message(hub.handle("ann", Call("c", "shop.buy_now", spelling="shop.buy_now"), 0.0), Call).spelling
    hub.handle("ann", Cancel("c"), 0.0)
    assert isinstance(spelling, str)
    return spelling


def test_new_route_is_queried_at_once() -> None:
    hub = hub_with_queried_route()
    assert called_spelling(hub) == "buy_now"
    assert hub.handle("lis", Description("1", ("buyNow", "bad\nname")), 0.0) == []
    assert called_spelling(hub) == "buyNow"
    discover(hub, "shop.")
    hub.handle("lis", Description("4", ("BuyNow",)), 0.0)
    assert called_spelling(hub) == "BuyNow"
    assert hub.handle("lis", Register("r", "m", "m"), 0.0) == success("lis", "r")


def test_callee_without_route_list_is_called_by_folded_name() -> None:
    hub = hub_with_queried_route()
    assert hub.open_calls() == 0
    assert hub.handle("lis", Failure("1", Reason.NO_SUCH_METHOD), 0.0) == []
    assert called_spelling(hub) == "buy_now"
    assert register_route(hub)[1:] == [Delivery("lis", Discover("3"), "3")]
    assert hub.handle("lis", Result("3"), 0.0) == []
    (_, delivery) = register_route(hub)
    assert isinstance(delivery, Delivery)
    assert hub.handle_undelivered(delivery, LocalProtocolError("no"), 0.0) == []
    register_route(hub)
    assert hub.deadline() == 10.0
    assert hub.expire(10.0) == [Delivery("lis", Cancel("5"), "5")]
    register_route(hub)
    assert hub.end_calls(0.0) == [Delivery("lis", Cancel("6"), "6")]
    register_route(hub)
    assert hub.leave("lis", 0.0) == []
    assert hub.handle("lis", Description("7", ("buyNow",)), 0.0) == []


def test_one_route_query_at_a_time_and_its_result_is_for_current_registration() -> None:
    hub = hub_with_queried_route()
    assert register_route(hub) == success("lis", "r")
    hub.handle("lis", Description("1", ("buyNow",)), 0.0)
    assert called_spelling(hub) == "buyNow"
    register_route(hub)
    hub.handle("lis", Unregister("u", "shop", "Shop:", route=True), 0.0)
    assert hub.handle("lis", Description("3", ("buyNow",)), 0.0) == []
    assert hub.registrations._listed_count == 0


def test_callee_at_its_limit_gets_no_route_query() -> None:
    hub = hub_with_queried_route({"max_pending": 1})
    assert hub.handle("lis", Register("r", "other", "Other:", route=True), 0.0) == success("lis", "r")


def test_query_for_name_unspellable_for_callee_is_refused() -> None:
    hub = hub_with_peers()
    register_method(hub, "dan", "r", "r.", route=True)
    refused = refusal(discover(hub, "r:größe", "bob"))
    assert refused == ("bob", "d", Reason.BAD_ARGUMENTS, "lrpm-json cannot write the name größe")


def test_result_instead_of_description_is_failure() -> None:
    hub = hub_with_methods()
    discover(hub, "stock.")
    expected = Failure("d", Reason.RAISED, "the response is not a description")
    assert hub.handle("eve", Result("1"), 0.0) == [Delivery("ann", expected, "1")]
    discover(hub, "stock.")
    expected = Failure("d", Reason.NO_SUCH_METHOD, "what?")
    assert hub.handle("eve", Failure("2", Reason.NO_SUCH_METHOD, "what?"), 0.0) == [Delivery("ann", expected, "2")]


def test_description_without_query_is_dropped() -> None:
    hub = hub_with_methods()
    hub.handle("ann", Call("c", "account.get_balance"), 0.0)
    assert hub.handle("bob", Description("1", ("x",)), 0.0) == []
    assert hub.handle("eve", Description("9", ("x",)), 0.0) == []
    assert (hub.open_calls(), hub.stats()["stray"]) == (1, 2)


def test_query_times_out_and_can_be_cancelled() -> None:
    hub = hub_with_methods()
    discover(hub, "stock.", now=5.0)
    assert hub.deadline() == 35.0
    expected = [Delivery("eve", Cancel("1"), "1"), Delivery("ann", Failure("d", Reason.TIMEOUT), "1")]
    assert hub.expire(35.0) == expected
    discover(hub, "stock.")
    expected = [Delivery("eve", Cancel("2"), "2"), Delivery("ann", Failure("d", Reason.CANCELLED), "2")]
    assert hub.handle("ann", Cancel("d"), 0.0) == expected
    (delivery,) = discover(hub, "stock.")
    assert isinstance(delivery, Delivery)
    expected = [Delivery("ann", Failure("d", Reason.UNAVAILABLE, "no"), "3")]
    assert hub.handle_undelivered(delivery, LocalProtocolError("no"), 0.0) == expected
    discover(hub, "stock.")
    assert refusal(hub.leave("eve", 0.0))[2] is Reason.LOST


def test_queries_count_as_calls() -> None:
    hub = hub_with_peers({"max_pending": 1})
    register_method(hub, "eve", "stock", "Stock:", route=True)
    discover(hub, "stock.")
    assert refusal(discover(hub, "stock."))[2] is Reason.BAD_ARGUMENTS
    refused = refusal(hub.handle("ann", Discover("e", "stock."), 0.0))
    assert refused == ("ann", "e", Reason.OVERLOADED, "too many calls are open")
    assert refusal(discover(hub, "stock.", "dan"))[2] is Reason.OVERLOADED


def test_unrepresentable_description_fails() -> None:
    hub = hub_with_methods()
    discover(hub, "stock.")
    (delivery,) = hub.handle("eve", Description("1", ("x",)), 0.0)
    assert isinstance(delivery, Delivery)
    expected = Failure("d", Reason.RAISED, "the answer cannot be written in lrpm-json")
    assert hub.handle_undelivered(delivery, LocalProtocolError("no"), 0.0) == [Delivery("ann", expected, "1")]


# Permissions.


def test_list_has_only_callable_names() -> None:
    rights = Permissions(call=("account.get_*", "stock.list_*", "stock.sub.*", "x"))
    hub = hub_with_peers(identities=(Identity("i", "t", permissions=rights),))
    hub.arrive("i", LRPM, Credentials(bearer="t"), 0.0)
    assert hub.handle("i", Hello(), 0.0) == welcome("i")
    for method in ("account.get_balance", "account.set_balance", "y"):
        register_method(hub, "bob", method)
    for route in ("stock", "other", "x"):
        assert only_message(hub.handle("eve", Register("r", route, route=True), 0.0), Result)
    assert only_message(discover(hub, peer="i"), Description) == Description(
        "d", ("account.get_balance",), ("stock.", "hub.")
    )
    assert refusal(discover(hub, "other.", "i"))[2] is Reason.DENIED
    assert refusal(discover(hub, "y", "i"))[2] is Reason.DENIED
    assert only_message(discover(hub, "account.get_balance", "i"), Description).doc == ""
    discover(hub, "stock.", "i")
    listed = Description("1", ("listTrades", "buy"), ("Sub:", "Bank:"))
    assert hub.handle("eve", listed, 0.0) == [Delivery("i", Description("d", ("list_trades",), ("sub.",)), "1")]
