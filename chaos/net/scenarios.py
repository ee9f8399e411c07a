"""The scenarios; each is a series of network phases."""

from dataclasses import dataclass
from typing import Final

from chaos.net.relay import Conditions

GOOD: Final = Conditions()
_CUT: Final = Conditions(is_cut=True)


@dataclass(frozen=True)
class Phase:
    """A time in which the conditions of the network are constant."""

    seconds: float
    to_hub: Conditions = GOOD
    to_clients: Conditions = GOOD
    kills_hub: bool = False
    """Whether the hub is killed and restarted at the begin: its clients then have stale connections."""


def _both_ways(seconds: float, conditions: Conditions) -> Phase:
    return Phase(seconds, conditions, conditions)


def _cut(seconds: float) -> tuple[Phase, ...]:
    return _both_ways(seconds, _CUT), Phase(3.0)


SCENARIOS: Final[dict[str, tuple[Phase, ...]]] = {
    "loss-1": (_both_ways(10.0, Conditions(loss=0.01)),),
    "loss-5": (_both_ways(10.0, Conditions(loss=0.05)),),
    "loss-20": (_both_ways(15.0, Conditions(loss=0.2)),),
    "delay-200ms": (_both_ways(10.0, Conditions(delay=0.2, jitter=0.05)),),
    "reordered": (_both_ways(10.0, Conditions(loss=0.01, delay=0.02, jitter=0.02, reorder=0.1)),),
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
        _both_ways(1.0, Conditions(loss=0.05, delay=0.01)),
        _both_ways(1.0, _CUT),
        _both_ways(1.0, Conditions(loss=0.05)),
    ),
}
FULL: Final = tuple(name for name in SCENARIOS if name != "short")
