"""Spelling of names below a route."""

import pytest

from fiveways.hub.name_spelling import cut_spelling, respell, spell_below_route, spell_name, spell_route, strip_prefix
from fiveways.model.names import LRPM, MQTT, NQ, UMQ, UMQ36, NameStyle


@pytest.mark.parametrize(
    ("spelling", "prefix", "name", "style", "expected"),
    [
        ("Account:getBalance", "account", "account.get_balance", UMQ, "getBalance"),
        ("Account.Sub:getBalance", "account", "account.sub.get_balance", UMQ, "Sub:getBalance"),
        ("Account.Sub:getBalance", "account.sub", "account.sub.get_balance", UMQ, "getBalance"),
        ("a.b", "a", "a.b", LRPM, "b"),
        ("a-b", "a", "a.b", NQ, "b"),
        ("/Account/getBalance", "account", "account.get_balance", MQTT, "getBalance"),
        # The topic of names without a namespace: it is written here, and is not a level of the name.
        ("/fiveways/x.y", "x", "x.y", MQTT, ""),
        ("", "a", "a.b", UMQ, ""),
        ("ab", "a", "a.b", UMQ, ""),
        ("a:", "a", "a.b", UMQ, ""),
    ],
)
def test_prefix_is_cut_off_spelling(spelling: str, prefix: str, name: str, style: NameStyle, expected: str) -> None:
    assert cut_spelling(spelling, prefix, name, style) == expected


@pytest.mark.parametrize(
    ("style", "spelling", "target_style", "expected"),
    [
        (UMQ36, "Shop.Sub.buyNow", UMQ, "Sub:buyNow"),
        (UMQ36, "Shop.Sub.buyNow", UMQ36, "Sub.buyNow"),
        (UMQ, "Shop.Sub:buyNow", UMQ36, "Sub.buyNow"),
        (UMQ, "Shop:Sub:buyNow", NQ, "Sub-buyNow"),
        (UMQ, "Shop:Sub:buyNow", MQTT, "Sub/buyNow"),
        (MQTT, "/Shop/Sub/buyNow", UMQ, "Sub:buyNow"),
        (LRPM, "shop.sub.buy_now", UMQ, "sub:buy_now"),
        # Upper case, and a `-` that would cut the name.
        (UMQ, "Shop:Sub:buyNow", LRPM, ""),
        (UMQ, "Shop:Sub:buy-now", NQ, ""),
        (UMQ, "", UMQ36, ""),
    ],
)
def test_name_below_prefix_is_respelled_in_another_style(
    style: NameStyle, spelling: str, target_style: NameStyle, expected: str
) -> None:
    assert respell(spelling, "shop", "shop.sub.buy_now", style, target_style) == expected


def test_names_below_route_are_spelled() -> None:
    assert strip_prefix("a.b", "a.b.c.d") == "c.d"
    assert strip_prefix("a.b", "a.b") == ""
    assert spell_below_route("a.b", MQTT) == "a/b"
    assert spell_below_route("a.b", UMQ) == "a:b"


def test_unspellable_name_is_empty() -> None:
    assert (spell_name("ö", LRPM), spell_below_route("ö", LRPM), spell_route("ö", LRPM)) == ("", "", "")
    assert spell_route("fiveways", MQTT) == ""
