"""What a hub has done and has to do, in the words of Prometheus."""

from collections.abc import Iterator, Mapping
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_GAUGES: Final = {
    "sessions": "Peers that are connected, or may come back.",
    "offers": "Methods and routes on offer.",
    "subscriptions": "Subscriptions of all peers.",
    "retained": "Topics whose last value is kept.",
    "callbacks": "Callbacks that were not called yet.",
    "open_calls": "Calls that wait for their answer.",
    "owed": "Accepted requests of NQ that wait for their answer.",
}
_COUNTERS: Final = {
    "calls": "Calls that were made.",
    "publications": "Publications.",
    "deliveries": "Events, one for each subscriber of each publication.",
    "results": "Calls that ended with a result.",
    "arrived": "Links that came, whoever was behind them.",
    "refused": "Requests that the hub itself did not carry out.",
    "refused_logins": "Peers that did not show who they are.",
    "dropped": "Requests that could not be carried out, and wanted no answer.",
    "stray": "Answers that nobody waited for.",
    "undelivered": "Words that the receiver's protocol could not say.",
    "journaled": "Records of the journal that are on disk.",
    "journal_lost": "Records that could not be written to the journal.",
}


def told(stats: Mapping[str, object]) -> bytes:
    """Return the page for `hub.stats`."""
    return ("\n".join(_lines(stats)) + "\n").encode()


def _lines(stats: Mapping[str, object]) -> Iterator[str]:
    for kind, table in (("gauge", _GAUGES), ("counter", _COUNTERS)):
        end = "_total" if kind == "counter" else ""
        for name, what in table.items():
            if name in stats:  # a hub without a journal has no numbers of one
                yield from _head(f"fiveways_{name}{end}", what, kind)
                yield f"fiveways_{name}{end} {stats[name]}"
    failures = stats["failures"]
    yield from _head("fiveways_failures_total", "Calls that ended without a result, by reason.", "counter")
    if isinstance(failures, Mapping):
        yield from (f'fiveways_failures_total{{reason="{reason}"}} {count}' for reason, count in failures.items())


def _head(name: str, what: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {what}", f"# TYPE {name} {kind}"
