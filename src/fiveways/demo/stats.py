"""What was seen: every call by who made it and who took it, how long it took, what failed, what was published."""

import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from fiveways.errors import CallError, CallFailed, CallLost, CallTimeout, Cancelled, ConnectionLost, NotExecuted

PROTOCOLS: Final = ("umq", "umq36", "lrpm-json", "lrpm-cbor", "mqtt-rpc", "nq")
"""What is spoken to the hub."""
CALLEES: Final = (*PROTOCOLS, "zmq")
"""And to whom calls go: a plain ZeroMQ program takes some too."""
NO_CALLEE: Final = "nobody"
"""Who takes a call of a method that there is not."""
_MAX_SAMPLES: Final = 200
"""Calls of one pair whose times are remembered."""
_MAX_LINES: Final = 40
"""Failures, topics and scenes that are remembered."""
_REASONS: Final = {
    CallFailed: "raised",
    CallTimeout: "timeout",
    CallLost: "lost",
    Cancelled: "cancelled",
    ConnectionLost: "lost",
}


@dataclass(frozen=True, slots=True)
class CallFailure:
    """One call that had no result."""

    caller: str
    callee: str
    method: str
    reason: str
    text: str


@dataclass(slots=True)
class CallPair:
    """All calls from one protocol to another."""

    calls: int = 0
    failed: int = 0
    latest_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_SAMPLES))
    """Seconds of the latest that had a result."""

    @property
    def p50(self) -> float | None:
        """Half of the latest took no longer."""
        return median(self.latest_seconds) if self.latest_seconds else None


@dataclass(slots=True)
class CallOutcome:
    """One call, for who makes it."""

    has_result: bool = False


class DemoStats:
    """Numbers of one show. Bounded: it may go on for days."""

    def __init__(self) -> None:
        self.pairs: dict[tuple[str, str], CallPair] = {}
        self.reasons: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        """Events that came, by the subscriber's protocol."""
        self.publications = 0
        self.callbacks = 0
        self.jobs = 0
        self.latest_events: dict[str, tuple[int, object]] = {}
        """How often something came on each, and what came last; the latest at the end."""
        self.failures: deque[CallFailure] = deque(maxlen=_MAX_LINES)
        self.messages: deque[str] = deque(maxlen=_MAX_LINES)
        self.first_call_at: float | None = None
        """When the first answer came, by the monotonic clock."""

    @contextmanager
    def count_call(self, caller: str, callee: str, method: str) -> Iterator["CallOutcome"]:
        """Count one call, and how it ends; one that fails as calls do has ended well enough for the show."""
        pair, counted = self.pairs.setdefault((caller, callee), CallPair()), CallOutcome()
        pair.calls += 1
        began = time.monotonic()
        try:
            yield counted
        except (CallError, ConnectionLost) as exc:
            pair.failed += 1
            reason = reason_of(exc)
            self.reasons[reason] += 1
            self.failures.append(CallFailure(caller, callee, method, reason, str(exc)))
        else:
            counted.has_result = True
            now = time.monotonic()
            pair.latest_seconds.append(now - began)
            if self.first_call_at is None:
                self.first_call_at = now

    def count_event(self, protocol: str, topic: str, data: object) -> None:
        """Count one event."""
        self.events[protocol] += 1
        number, _ = self.latest_events.pop(topic, (0, None))
        self.latest_events[topic] = number + 1, data
        if len(self.latest_events) > _MAX_LINES:
            del self.latest_events[next(iter(self.latest_events))]

    def add_message(self, scene: str) -> None:
        """Keep what somebody may like to read."""
        self.messages.append(scene)

    @property
    def calls(self) -> int:
        """All calls."""
        return sum(pair.calls for pair in self.pairs.values())

    @property
    def failed(self) -> int:
        """Those without a result."""
        return sum(pair.failed for pair in self.pairs.values())

    def calls_of(self, caller: str) -> int:
        """Return the calls of one protocol."""
        return sum(pair.calls for (who, _), pair in self.pairs.items() if who == caller)

    def missing_pairs(self) -> list[tuple[str, str]]:
        """Return who has not called whom with a result yet, of those who can.

        Behind one broker, services and callers meet without the hub.
        """
        return [
            (caller, callee)
            for caller in PROTOCOLS
            for callee in CALLEES
            if (caller, callee) != ("mqtt-rpc", "mqtt-rpc")
            and not getattr(self.pairs.get((caller, callee)), "latest_seconds", None)
        ]


def reason_of(exc: BaseException) -> str:
    """Return why a call had no result, in a word or two."""
    if isinstance(exc, NotExecuted):
        return exc.reason.text
    return next((word for kind, word in _REASONS.items() if isinstance(exc, kind)), "lost")
