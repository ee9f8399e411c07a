"""The features of the matrix and their outcomes between two protocols."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal

from tests.conformance.bridges.pair_environment import Stage
from tests.conformance.bridges.raw_peer_base import TABLE, ReceivedMessage

PROTOCOLS: Final = ("umq36", "umq", "lrpm-json", "lrpm-cbor", "mqtt-rpc", "nq")
"""In the order of the page."""
RAN: Final = {row[0]: row[1] for row in TABLE}
Verdict = Literal["exact", "changed", "impossible"]


@dataclass(frozen=True)
class Outcome:
    """The observed outcome: exact, changed as a note documents, or impossible."""

    verdict: Verdict
    notes: frozenset[str] = frozenset()
    """Keys of `conversion_notes.NOTES`: the change, or the rule that makes it impossible."""


EXACT: Final = Outcome("exact")


def changed(*notes: str) -> Outcome:
    """Return the outcome for a documented change; without a note it is exact."""
    return Outcome("changed", frozenset(notes)) if notes else EXACT


def impossible(note: str) -> Outcome:
    """Return the outcome for a feature that a protocol cannot express."""
    return Outcome("impossible", frozenset({note}))


Play = Callable[[Stage], Awaitable[Outcome]]


@dataclass(frozen=True)
class Feature:
    """A feature that is tested between each pair of protocols."""

    key: str
    title: str
    sentence: str
    """The description on the page."""
    play: Play
    timed: frozenset[str] = frozenset()
    """The callees that need the hub with a short timeout."""


FEATURES: Final[dict[str, Feature]] = {}
"""All features in the order of the page."""


def feature(key: str, title: str, *, timed: Collection[str] = ()) -> Callable[[Play], Play]:
    """Return a decorator that adds a feature. Its docstring is the description on the page."""

    def add(play: Play) -> Play:
        assert key not in FEATURES, key
        FEATURES[key] = Feature(key, title, " ".join((play.__doc__ or "").split()), play, frozenset(timed))
        return play

    return add


def exact(value: object) -> str:
    """Return a text that is equal only for identical values: 1 is not 1.0, nor -0.0 0; the order of keys is ignored."""
    if isinstance(value, dict):
        return f"map({', '.join(sorted(f'{key!r}: {exact(item)}' for key, item in value.items()))})"
    return f"[{', '.join(map(exact, value))}]" if isinstance(value, list) else repr(value)


def failed(received: ReceivedMessage) -> tuple[str, str]:
    """Return whether the method of a failed call ran, and the reason."""
    assert received.kind == "failure", received
    return RAN[received.name], received.name
