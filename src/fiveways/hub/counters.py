"""Counters since the start of the hub."""

from collections import Counter

from fiveways.errors import Reason
from fiveways.hub.traffic_totals import TrafficTotals


class Counters:
    """Counters that only increase."""

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
        """Totals by protocol, method and topic."""
        self.arrived = 0
        """Connections, admitted or not."""
        self.refused_logins = 0
        self.refused_sessions = 0
        """Sessions and connections refused because of a limit."""
        self.refused = 0
        """Requests that the hub itself refused, for any reason."""
        self.results = 0
        self.failures: Counter[Reason] = Counter()
        self.deliveries = 0
        """Events, one for each subscriber of each publication."""
        self.dropped = 0
        """Refused requests that needed no response."""
        self.stray = 0
        """Responses without a pending call."""
        self.undelivered = 0
        """Messages that the receiver's protocol could not represent."""

    def as_dict(self) -> dict[str, object]:
        """Return all counters by name."""
        numbers: dict[str, object] = {name: getattr(self, name) for name in self.__slots__ if name != "traffic"}
        numbers["failures"] = {reason.value: number for reason, number in self.failures.items()}
        return numbers
