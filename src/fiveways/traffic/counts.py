"""Counts of operations by outcome."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from fiveways.errors import CallFailed, CallLost, CallTimeout, Cancelled, ConnectionLost, NotExecuted

OUTCOMES: Final = (
    "result",
    "failed",
    "not_executed",
    "timeout",
    "lost",
    "cancelled",
    "closed",
    "refused",
    "unfinished",
)
"""Outcomes of an operation: those of calls, a connection closed by the hub, a refused login, and no outcome."""
_ERRORS: Final = {
    CallFailed: "failed",
    NotExecuted: "not_executed",
    CallTimeout: "timeout",
    CallLost: "lost",
    Cancelled: "cancelled",
    ConnectionLost: "lost",
}


def outcome_of(exc: BaseException) -> str:
    """Return the outcome for an exception of a call."""
    return next((name for kind, name in _ERRORS.items() if isinstance(exc, kind)), "lost")


@dataclass(slots=True)
class TrafficCounts:
    """Counts of one run."""

    sent: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By protocol, kind and outcome."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Reasons of calls that were not executed."""
    events: Counter[str] = field(default_factory=Counter)
    """Received events, by protocol of the subscriber."""
    missed: Counter[str] = field(default_factory=Counter)
    """Events that were dropped by an overflow policy."""
    method_runs: Counter[str] = field(default_factory=Counter)
    """Method runs of the callees."""
    notes: list[str] = field(default_factory=list)
    """Deviations from the plan, as sentences."""

    def count(self, protocol: str, kind: str, outcome: str) -> None:
        """Count an operation."""
        self.sent[protocol, kind, outcome] += 1

    def count_error(self, protocol: str, kind: str, exc: BaseException) -> None:
        """Count an operation that raised an exception."""
        self.count(protocol, kind, outcome_of(exc))
        if isinstance(exc, NotExecuted):
            self.reasons[str(exc.reason.value)] += 1

    @property
    def total(self) -> int:
        """Number of operations."""
        return sum(self.sent.values())

    def total_of(self, *kinds: str) -> int:
        """Return the number of operations of these kinds."""
        return sum(number for (_, kind, _), number in self.sent.items() if kind in kinds)

    @property
    def confirmed_publications(self) -> int:
        """Number of publications that the hub confirmed; an MQTT broker does not confirm delivery to the hub."""
        return sum(
            number
            for (protocol, kind, outcome), number in self.sent.items()
            if (kind, outcome) == ("publication", "result") and protocol != "mqtt-rpc"
        )

    def outcomes_by(self, field: int) -> dict[str, Counter[str]]:
        """Return the outcomes by protocol (0) or by kind (1), sorted by name."""
        outcomes: dict[str, Counter[str]] = {}
        for key, number in sorted(self.sent.items(), key=lambda item: item[0][field]):
            outcomes.setdefault(key[field], Counter())[key[2]] += number
        return outcomes

    def as_dict(self) -> dict[str, object]:
        """Return all counts for programs."""
        tree: dict[str, dict[str, dict[str, int]]] = {}
        for (protocol, kind, outcome), number in sorted(self.sent.items()):
            tree.setdefault(protocol, {}).setdefault(kind, {})[outcome] = number
        return {
            "sent": tree,
            "total": self.total,
            "reasons": dict(sorted(self.reasons.items())),
            "events": dict(sorted(self.events.items())),
            "missed": dict(sorted(self.missed.items())),
            "ran": dict(sorted(self.method_runs.items())),
            "notes": self.notes,
        }
