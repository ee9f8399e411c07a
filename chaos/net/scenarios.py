"""The scenarios: each is a series of phases of the network."""

from dataclasses import dataclass
from typing import Final

from chaos.net.relay import Conditions

GOOD: Final = Conditions()
_CUT: Final = Conditions(is_cut=True)


@dataclass(frozen=True)
class Phase:
    """A while in which nothing about the network changes."""

    seconds: float
    to_hub: Conditions = GOOD
    to_clients: Conditions = GOOD
    kills_hub: bool = False
    """The hub is killed as it begins and starts again: its clients then have connections that it does not know."""


def _alike(seconds: float, conditions: Conditions) -> Phase:
    return Phase(seconds, conditions, conditions)


def _cut(seconds: float) -> tuple[Phase, ...]:
    return _alike(seconds, _CUT), Phase(3.0)


SCENARIOS: Final[dict[str, tuple[Phase, ...]]] = {
    "loss-1": (_alike(10.0, Conditions(loss=0.01)),),
    "loss-5": (_alike(10.0, Conditions(loss=0.05)),),
    "loss-20": (_alike(15.0, Conditions(loss=0.2)),),
    "delay-200ms": (_alike(10.0, Conditions(delay=0.2, jitter=0.05)),),
    "reordered": (_alike(10.0, Conditions(loss=0.01, delay=0.02, jitter=0.02, reorder=0.1)),),
    "partitions": (Phase(2.0), *_cut(1.0), *_cut(3.0), *_cut(10.0), *_cut(30.0)),
    "one-way": (
        Phase(2.0),
        Phase(3.0, to_hub=_CUT),
        Phase(2.0),
        Phase(3.0, to_clients=_CUT),
        Phase(2.0),
    ),
    "half-open": (
        Phase(2.0),
        Phase(4.0, _CUT, _CUT, kills_hub=True),
        Phase(3.0),
        Phase(3.0, to_clients=_CUT, kills_hub=True),
    ),
    "short": (
        _alike(1.0, Conditions(loss=0.05, delay=0.01)),
        _alike(1.0, _CUT),
        _alike(1.0, Conditions(loss=0.05)),
    ),
}
FULL: Final = tuple(name for name in SCENARIOS if name != "short")
