"""The NQ error codes of failures, written and read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.errors import LocalProtocolError, Reason, Unrepresentable
from fiveways.model.messages import Event, Failure
from fiveways.protocols.nq.bridge import CODES, REASONS, error_from_failure, failure_from_error, request_from_message


def test_error_codes_are_complete() -> None:
    assert set(CODES) == set(Reason)
    assert {REASONS[code] for code in CODES.values() if code} == set(Reason) - {Reason.LOST, Reason.RAISED}


@pytest.mark.parametrize("reason", [reason for reason in Reason if CODES[reason] is not None])
@given(text=st.text(min_size=1), wait=st.none() | st.integers(0, 10**6))
def test_failure_is_read_back_unchanged(reason: Reason, text: str, wait: int | None) -> None:
    retry_after = wait / 1000 if reason is Reason.OVERLOADED and wait is not None else None
    failure = Failure("x", reason, text, retry_after=retry_after)
    assert failure_from_error("x", error_from_failure(failure)) == failure


def test_failure_without_an_nq_form_is_refused() -> None:
    for failure, accepted in [(Failure("x", Reason.LOST), False), (Failure("x", Reason.UNAVAILABLE), True)]:
        with pytest.raises(LocalProtocolError):
            error_from_failure(failure, accepted=accepted)


def test_event_with_invalid_topic_is_refused() -> None:
    with pytest.raises(Unrepresentable):
        request_from_message(Event("mine", ("",)))
