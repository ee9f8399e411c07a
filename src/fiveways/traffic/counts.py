"""What was sent, and what became of it."""

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
"""How a thing can end: as calls do; by a link that the hub closed, a login that it refused; and not at all."""
_ERRORS: Final = {
    CallFailed: "failed",
    NotExecuted: "not_executed",
    CallTimeout: "timeout",
    CallLost: "lost",
    Cancelled: "cancelled",
    ConnectionLost: "lost",
}


def outcome_of(exc: BaseException) -> str:
    """Return how a call ended that raised this."""
    return next((name for kind, name in _ERRORS.items() if isinstance(exc, kind)), "lost")


@dataclass(slots=True)
class TrafficCounts:
    """Numbers of one run."""

    sent: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By protocol, kind and outcome."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why calls were not executed."""
    events: Counter[str] = field(default_factory=Counter)
    """Events that came, by the subscriber's protocol."""
    missed: Counter[str] = field(default_factory=Counter)
    """Events that the hub or we had no room for."""
    method_runs: Counter[str] = field(default_factory=Counter)
    """Methods that the workers ran."""
    notes: list[str] = field(default_factory=list)
    """What did not go as planned, in words."""

    def count(self, protocol: str, kind: str, outcome: str) -> None:
        """Count one."""
        self.sent[protocol, kind, outcome] += 1

    def count_error(self, protocol: str, kind: str, exc: BaseException) -> None:
        """Count one that raised this."""
        self.count(protocol, kind, outcome_of(exc))
        if isinstance(exc, NotExecuted):
            self.reasons[str(exc.reason.value)] += 1

    @property
    def total(self) -> int:
        """How many things were sent."""
        return sum(self.sent.values())

    def total_of(self, *kinds: str) -> int:
        """Return how many of these kinds were sent, whatever became of them."""
        return sum(number for (_, kind, _), number in self.sent.items() if kind in kinds)

    @property
    def confirmed_publications(self) -> int:
        """How many publications the hub has confirmed; a broker does not tell whether they came to it."""
        return sum(
            number
            for (protocol, kind, outcome), number in self.sent.items()
            if (kind, outcome) == ("publication", "result") and protocol != "mqtt-rpc"
        )

    def outcomes_by(self, which: int) -> dict[str, Counter[str]]:
        """Return the outcomes by protocol (0) or by kind (1), in the order of their names."""
        found: dict[str, Counter[str]] = {}
        for key, number in sorted(self.sent.items(), key=lambda item: item[0][which]):
            found.setdefault(key[which], Counter())[key[2]] += number
        return found

    def as_dict(self) -> dict[str, object]:
        """Return all of it for programs."""
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
