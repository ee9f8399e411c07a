"""Statistics of the demo: calls by caller and callee, latency, failures and events."""

import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from fiveways.errors import CallError, CallFailed, CallLost, CallTimeout, Cancelled, ConnectionLost, NotExecuted

PROTOCOLS: Final = ("umq", "umq36", "lrpm-json", "lrpm-cbor", "mqtt-rpc", "nq")
"""Protocols of the clients."""
CALLEES: Final = (*PROTOCOLS, "zmq")
"""Protocols of the callees, with the plain ZeroMQ program."""
NO_CALLEE: Final = "nobody"
"""The callee of a call without a registration."""
_MAX_SAMPLES: Final = 200
"""Latencies to keep per pair."""
_MAX_LINES: Final = 40
"""Failures, topics and messages to keep."""
_REASONS: Final = {
    CallFailed: "raised",
    CallTimeout: "timeout",
    CallLost: "lost",
    Cancelled: "cancelled",
    ConnectionLost: "lost",
}


@dataclass(frozen=True, slots=True)
class CallFailure:
    """A call without a result."""

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
    """Latencies of the latest calls with a result, in seconds."""

    @property
    def p50(self) -> float | None:
        """The median of the latest latencies."""
        return median(self.latest_seconds) if self.latest_seconds else None


@dataclass(slots=True)
class CallOutcome:
    """The outcome of a call, for its caller."""

    has_result: bool = False


class DemoStats:
    """Statistics of one run, with bounded memory."""

    def __init__(self) -> None:
        self.pairs: dict[tuple[str, str], CallPair] = {}
        self.reasons: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        """Received events, by protocol of the subscriber."""
        self.publications = 0
        self.callbacks = 0
        self.jobs = 0
        self.latest_events: dict[str, tuple[int, object]] = {}
        """Number of events and latest value by topic; the latest topic is last."""
        self.failures: deque[CallFailure] = deque(maxlen=_MAX_LINES)
        self.messages: deque[str] = deque(maxlen=_MAX_LINES)
        self.first_call_at: float | None = None
        """Time of the first response, by the monotonic clock."""

    @contextmanager
    def count_call(self, caller: str, callee: str, method: str) -> Iterator["CallOutcome"]:
        """Count a call and its outcome; failures of the call are suppressed."""
        pair, outcome = self.pairs.setdefault((caller, callee), CallPair()), CallOutcome()
        pair.calls += 1
        started_at = time.monotonic()
        try:
            yield outcome
        except (CallError, ConnectionLost) as exc:
            pair.failed += 1
            reason = reason_of(exc)
            self.reasons[reason] += 1
            self.failures.append(CallFailure(caller, callee, method, reason, str(exc)))
        else:
            outcome.has_result = True
            now = time.monotonic()
            pair.latest_seconds.append(now - started_at)
            if self.first_call_at is None:
                self.first_call_at = now

    def count_event(self, protocol: str, topic: str, data: object) -> None:
        """Count an event."""
        self.events[protocol] += 1
        number, _ = self.latest_events.pop(topic, (0, None))
        self.latest_events[topic] = number + 1, data
        if len(self.latest_events) > _MAX_LINES:
            del self.latest_events[next(iter(self.latest_events))]

    def add_message(self, message: str) -> None:
        """Add a message for the live view."""
        self.messages.append(message)

    @property
    def calls(self) -> int:
        """Number of calls."""
        return sum(pair.calls for pair in self.pairs.values())

    @property
    def failed(self) -> int:
        """Number of calls without a result."""
        return sum(pair.failed for pair in self.pairs.values())

    def calls_of(self, caller: str) -> int:
        """Return the number of calls from one protocol."""
        return sum(pair.calls for (protocol, _), pair in self.pairs.items() if protocol == caller)

    def missing_pairs(self) -> list[tuple[str, str]]:
        """Return the pairs of caller and callee without a successful call.

        Peers behind the same MQTT broker call each other without the hub.
        """
        return [
            (caller, callee)
            for caller in PROTOCOLS
            for callee in CALLEES
            if (caller, callee) != ("mqtt-rpc", "mqtt-rpc")
            and not self.pairs.get((caller, callee), CallPair()).latest_seconds
        ]


def reason_of(exc: BaseException) -> str:
    """Return the reason of a failed call, in one or two words."""
    if isinstance(exc, NotExecuted):
        return exc.reason.text
    return next((reason for error_class, reason in _REASONS.items() if isinstance(exc, error_class)), "lost")
