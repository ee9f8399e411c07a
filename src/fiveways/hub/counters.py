"""What has happened since the hub was made, in numbers."""

from collections import Counter

from fiveways.errors import Reason
from fiveways.hub.traffic_totals import TrafficTotals


class Counters:
    """Numbers that only rise."""

    __slots__ = (
        "arrived",
        "deliveries",
        "dropped",
        "failures",
        "refused",
        "refused_logins",
        "refused_sessions",
        "results",
        "stray",
        "traffic",
        "undelivered",
    )

    def __init__(self, traffic: TrafficTotals) -> None:
        self.traffic = traffic
        """The same and more, one by one."""
        self.arrived = 0
        """Links that came, whoever was behind them."""
        self.refused_logins = 0
        self.refused_sessions = 0
        """Sessions and connections for which there was no place."""
        self.refused = 0
        """Requests that the hub itself did not carry out, for whatever reason."""
        self.results = 0
        self.failures: Counter[Reason] = Counter()
        self.deliveries = 0
        """Events, one for each subscriber of each publication."""
        self.dropped = 0
        """Requests that could not be carried out, and wanted no answer."""
        self.stray = 0
        """Answers that nobody waited for."""
        self.undelivered = 0
        """Words that the receiver's protocol could not say."""

    def as_dict(self) -> dict[str, object]:
        """Return all of them by name."""
        numbers: dict[str, object] = {name: getattr(self, name) for name in self.__slots__ if name != "traffic"}
        numbers["failures"] = {reason.value: number for reason, number in self.failures.items()}
        return numbers
