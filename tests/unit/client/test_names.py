"""Names of methods and topics in the user's spelling."""

import pytest

from fiveways.client import names
from fiveways.errors import NotExecuted, Reason
from fiveways.model.names import LRPM, UMQ, UMQ36


@pytest.mark.parametrize("spelling", ["account.get_balance", "Account:getBalance", "Account.get-balance"])
def test_target_has_folded_name_and_spelling(spelling: str) -> None:
    assert names.parse_target(spelling) == names.CallTarget("account.get_balance", spelling)


@pytest.mark.parametrize("spelling", ["callback.abc123", "callback:ABC123"])
def test_callback_target_is_its_token(spelling: str) -> None:
    assert names.parse_target(spelling) == names.CallTarget("abc123", is_callback=True)


@pytest.mark.parametrize(
    ("spelling", "style", "expected"),
    [
        ("Account:getBalance", UMQ, "Account:getBalance"),
        ("account.get_balance", UMQ36, "account.get_balance"),
        ("Account:getBalance", LRPM, "account.get_balance"),
        ("Account:", LRPM, "account."),
        ("account.", LRPM, "account."),
        ("", LRPM, ""),
    ],
)
def test_name_is_unchanged_if_the_protocol_can_spell_it(spelling: str, style: object, expected: str) -> None:
    assert names.spell_name(spelling, style) == expected  # type: ignore[arg-type]


def test_invalid_name_raises_not_executed() -> None:
    for read in (names.parse_target, names.fold_method, names.parse_topic, names.parse_pattern):
        with pytest.raises(NotExecuted):
            read("")
    with pytest.raises(NotExecuted) as caught:
        names.parse_target("a b*")
    assert caught.value.reason is Reason.NO_SUCH_METHOD
    with pytest.raises(NotExecuted, match="the hub's own"):
        names.fold_method("hub.mine")
    with pytest.raises(NotExecuted, match="separator"):
        names.fold_method("mine.")
    with pytest.raises(NotExecuted, match="wildcard"):
        names.parse_topic("a.*")
    with pytest.raises(NotExecuted):
        names.spell_name("Ünicode:x", LRPM)
