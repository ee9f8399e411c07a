"""What of a name lies below a route."""

import pytest

from fiveways.hub.names import below, cut, spelled, spelled_below, spelled_route
from fiveways.model.names import LRPM, MQTT, NQ, UMQ, NameStyle


@pytest.mark.parametrize(
    ("spelling", "prefix", "name", "style", "expected"),
    [
        ("Account:getBalance", "account", "account.get_balance", UMQ, "getBalance"),
        ("Account.Sub:getBalance", "account", "account.sub.get_balance", UMQ, "Sub:getBalance"),
        ("Account.Sub:getBalance", "account.sub", "account.sub.get_balance", UMQ, "getBalance"),
        ("a.b", "a", "a.b", LRPM, "b"),
        ("a-b", "a", "a.b", NQ, "b"),
        ("/Account/getBalance", "account", "account.get_balance", MQTT, "getBalance"),
        # Here the home of names without a namespace is written, and is no level of the name.
        ("/fiveways/x.y", "x", "x.y", MQTT, ""),
        ("", "a", "a.b", UMQ, ""),
        ("ab", "a", "a.b", UMQ, ""),
        ("a:", "a", "a.b", UMQ, ""),
    ],
)
def test_cutting_a_prefix_off(spelling: str, prefix: str, name: str, style: NameStyle, expected: str) -> None:
    assert cut(spelling, prefix, name, style) == expected


def test_names_below() -> None:
    assert below("a.b", "a.b.c.d") == "c.d"
    assert below("a.b", "a.b") == ""
    assert spelled_below("a.b", MQTT) == "a/b"
    assert spelled_below("a.b", UMQ) == "a:b"


def test_what_a_style_cannot_write_is_nothing() -> None:
    assert (spelled("ö", LRPM), spelled_below("ö", LRPM), spelled_route("ö", LRPM)) == ("", "", "")
    assert spelled_route("fiveways", MQTT) == ""
