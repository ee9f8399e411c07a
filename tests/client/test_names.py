"""What users may write."""

import pytest

from fiveways.client import names
from fiveways.errors import NotExecuted
from fiveways.model.failures import Reason
from fiveways.model.names import LRPM, UMQ, UMQ36


@pytest.mark.parametrize("written", ["account.get_balance", "Account:getBalance", "Account.get-balance"])
def test_any_spelling_of_a_method_is_folded_and_kept(written: str) -> None:
    assert names.target(written) == names.Target("account.get_balance", written)


@pytest.mark.parametrize("written", ["callback.abc123", "callback:ABC123"])
def test_a_callback_is_called_by_its_token(written: str) -> None:
    assert names.target(written) == names.Target("abc123", callback=True)


@pytest.mark.parametrize(
    ("written", "style", "expected"),
    [
        ("Account:getBalance", UMQ, "Account:getBalance"),
        ("account.get_balance", UMQ36, "account.get_balance"),
        ("Account:getBalance", LRPM, "account.get_balance"),
        ("Account:", LRPM, "account."),
        ("account.", LRPM, "account."),
        ("", LRPM, ""),
    ],
)
def test_a_name_stays_as_it_is_where_the_protocol_can_write_it(written: str, style: object, expected: str) -> None:
    assert names.written(written, style) == expected  # type: ignore[arg-type]


def test_what_names_nothing_is_not_executed() -> None:
    for read in (names.target, names.offered, names.topic, names.pattern):
        with pytest.raises(NotExecuted):
            read("")
    with pytest.raises(NotExecuted) as caught:
        names.target("a b*")
    assert caught.value.reason is Reason.NO_METHOD
    with pytest.raises(NotExecuted, match="the hub's own"):
        names.offered("hub.mine")
    with pytest.raises(NotExecuted, match="separator"):
        names.offered("mine.")
    with pytest.raises(NotExecuted, match="wildcard"):
        names.topic("a.*")
    with pytest.raises(NotExecuted):
        names.written("Ünicode:x", LRPM)
