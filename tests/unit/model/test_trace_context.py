"""Tests of the parser for the header traceparent."""

import pytest

from fiveways.model.trace_context import TraceContext, format_traceparent, parse_traceparent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True), ("02", False), ("ff", True)])
def test_traceparent_is_parsed(flags: str, is_sampled: bool) -> None:
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-{flags}") == TraceContext(int(TRACE, 16), int(SPAN, 16), is_sampled)


def test_formatted_traceparent_round_trips() -> None:
    for is_sampled in (False, True):
        context = TraceContext(1, 2, is_sampled)
        assert parse_traceparent(format_traceparent(context)) == context
        assert len(format_traceparent(context)) == 55


def test_later_version_may_have_more_fields() -> None:
    assert parse_traceparent(f"01-{TRACE}-{SPAN}-01-what-is-new") == parse_traceparent(f"00-{TRACE}-{SPAN}-01")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "nonsense",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}٣-{SPAN}-01",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"01-{TRACE}-{SPAN}-01-{'x' * 300}",
    ],
)
def test_invalid_traceparent_is_ignored(line: str) -> None:
    assert parse_traceparent(line) is None
