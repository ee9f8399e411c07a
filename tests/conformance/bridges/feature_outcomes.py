"""What became of a feature between two protocols, and the features there are."""

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
    """What was seen: it crossed as it was, or in a way that the page tells of, or it cannot cross."""

    verdict: Verdict
    notes: frozenset[str] = frozenset()
    """Keys of `notes.NOTES`: what is changed, or which clause forbids it."""


EXACT: Final = Outcome("exact")


def changed(*notes: str) -> Outcome:
    """It crosses, but not as it was; without a note it is exact."""
    return Outcome("changed", frozenset(notes)) if notes else EXACT


def impossible(note: str) -> Outcome:
    """It cannot cross."""
    return Outcome("impossible", frozenset({note}))


Play = Callable[[Stage], Awaitable[Outcome]]


@dataclass(frozen=True)
class Feature:
    """One thing that may cross."""

    key: str
    title: str
    sentence: str
    """What is done, for the page."""
    play: Play
    timed: frozenset[str] = frozenset()
    """The callees with which it takes a hub that soon loses its patience."""


FEATURES: Final[dict[str, Feature]] = {}
"""All of them, in the order of the page."""


def feature(key: str, title: str, *, timed: Collection[str] = ()) -> Callable[[Play], Play]:
    """Add a function to the features: it does what its docstring says on a stage, and tells what it saw."""

    def add(play: Play) -> Play:
        assert key not in FEATURES, key
        FEATURES[key] = Feature(key, title, " ".join((play.__doc__ or "").split()), play, frozenset(timed))
        return play

    return add


def exact(value: object) -> str:
    """Return a value so that only the same is equal: 1 is not 1.0, nor -0.0 0; the order of keys means nothing."""
    if isinstance(value, dict):
        return f"map({', '.join(sorted(f'{key!r}: {exact(each)}' for key, each in value.items()))})"
    return f"[{', '.join(map(exact, value))}]" if isinstance(value, list) else repr(value)


def failed(received: ReceivedMessage) -> tuple[str, str]:
    """What is known of a call that failed: was it run, and which row of the table is it."""
    assert received.kind == "failure", received
    return RAN[received.name], received.name
