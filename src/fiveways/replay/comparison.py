"""Comparison of recorded and live responses, and the statistics of a replay."""

import math
from collections import Counter, deque
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from fiveways.errors import FivewaysError
from fiveways.model.text_redaction import REDACTED
from fiveways.model.value_redaction import redact_value
from fiveways.pipeline.decode.message_row import MessageRow
from fiveways.replay.frame_decoder import body_value
from fiveways.wire import strict_json
from fiveways.wire.payload import Payload

if TYPE_CHECKING:
    from fiveways.replay.replay_session import ReplaySession

VARYING_METHODS: Final = frozenset(
    {"hub.callback", "hub.peers", "hub.publish", "hub.results", "hub.rights", "hub.stats", "hub.time", "hub.traffic"}
)
"""Built-in methods with a different result at each call: only the status is compared."""
EQUAL, DIFFERENT_BODY, DIFFERENT_STATUS, MISSING, EXTRA = (
    "equal",
    "different body",
    "different status",
    "missing",
    "extra",
)
VERDICTS: Final = (EQUAL, DIFFERENT_BODY, DIFFERENT_STATUS, MISSING, EXTRA)
_MAX_DIFFERENCES: Final = 10
"""Differences to keep in full."""
_MAX_SESSIONS: Final = 1000
_DIGEST_BYTES: Final = 16


class ResponsePart(NamedTuple):
    """A part of a response, or its end. `body` is None if it is unknown."""

    kind: str
    status: str | None = None
    reason: str | None = None
    code: str | None = None
    body: Payload | None = None
    is_complete: bool = True

    @property
    def is_final(self) -> bool:
        """Whether this is the end of the response."""
        return self.kind != "part"

    def as_dict(self) -> dict[str, object]:
        """Return the part for output."""
        row: dict[str, object] = {"status": self.status or self.kind}
        row |= {key: value for key, value in (("reason", self.reason), ("code", self.code)) if value is not None}
        return {**row, "body": body_value(self.body)} if self.is_complete else row


def response_part(message: MessageRow, body: Payload | None, *, is_complete: bool = True) -> ResponsePart:
    """Return a message as a part of the response that it belongs to."""
    return ResponsePart(message.kind, message.status, message.reason, message.code, body, is_complete)


class Difference(msgspec.Struct, frozen=True):
    """A difference between the recording and the replay."""

    what: str
    """`call`, `request`, `event` or `session`."""
    verdict: str
    session: str
    name: str = ""
    id: str = ""
    seq: int | None = None
    """The record of the request."""
    recorded: object = None
    live: object = None


class ReplayStats:
    """Counts of equal and different messages, and the first differences."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {"call": Counter(), "request": Counter(), "event": Counter()}
        self.sessions: dict[str, Counter[str]] = {}
        """Counts of differences by session and verdict."""
        self.differences: list[Difference] = []
        self.open_at_end = 0
        """Calls without a response at the end of the recording."""
        self.lost: Counter[str] = Counter()
        """Sessions that could not be opened, or ended too early, by reason."""

    def count_equal(self, category: str, count: int = 1) -> None:
        """Count equal messages."""
        self.counts[category][EQUAL] += count

    def add_difference(self, difference: Difference, count: int = 1) -> None:
        """Count different messages; keep the first differences."""
        if difference.what == "session":
            self.lost[difference.verdict] += 1
        else:
            self.counts[difference.what][difference.verdict] += count
            if difference.session in self.sessions or len(self.sessions) < _MAX_SESSIONS:
                self.sessions.setdefault(difference.session, Counter())[difference.verdict] += count
        if len(self.differences) < _MAX_DIFFERENCES:
            recorded, live = redact_value(difference.recorded), redact_value(difference.live)
            self.differences.append(msgspec.structs.replace(difference, recorded=recorded, live=live))

    @property
    def is_equal(self) -> bool:
        """Whether there are no differences."""
        differences = sum(
            count for verdicts in self.counts.values() for verdict, count in verdicts.items() if verdict != EQUAL
        )
        return not differences and not self.lost


class ReplayedRequest:
    """A request of a recorded peer, with its recorded and its live response."""

    __slots__ = (
        "_differing_parts",
        "_live",
        "_recorded",
        "id",
        "is_late",
        "is_sent",
        "kind",
        "live_ended",
        "name",
        "recorded_ended",
        "seq",
        "session",
        "targets",
        "tokens",
        "verdict",
    )

    def __init__(self, session: "ReplaySession", seq: int, message: MessageRow, *, is_sent: bool) -> None:
        self.session = session
        self.seq = seq
        self.id = message.id or ""
        self.kind = message.kind
        self.name = message.method or message.topic or message.target or message.kind
        self.is_sent = is_sent
        self.is_late = False
        """The wait for the live response has timed out."""
        self.targets: list[str | None] = [None, None]
        """Name in the recorded and in the live response: the hub's backchannel in NQ, its subscription in LRPM."""
        self.tokens = ["", ""]
        """Callback token in the recorded and in the live response."""
        self._recorded: deque[ResponsePart] = deque()
        self._live: deque[ResponsePart] = deque()
        self.recorded_ended = self.live_ended = False
        self.verdict = EQUAL
        self._differing_parts: tuple[ResponsePart | None, ResponsePart | None] = (None, None)

    @property
    def is_over(self) -> bool:
        """Whether both responses have ended."""
        return self.recorded_ended and (self.live_ended or not self.is_sent)

    @property
    def is_awaited(self) -> bool:
        """Whether only the recorded response has ended, and the live one is not late."""
        return self.is_sent and self.recorded_ended and not self.live_ended and not self.is_late

    def add(self, part: ResponsePart, *, live: bool) -> None:
        """Add a part of the recorded or the live response."""
        if live:
            self._live.append(part)
            self.live_ended = self.live_ended or part.is_final
        else:
            self._recorded.append(part)
            self.recorded_ended = self.recorded_ended or part.is_final
        while self._recorded and self._live:
            self._compare(self._recorded.popleft(), self._live.popleft())

    def _compare(self, recorded: ResponsePart, live: ResponsePart) -> None:
        if self.verdict == DIFFERENT_STATUS:
            return
        verdict = EQUAL
        if (recorded.kind, recorded.status, recorded.reason, recorded.code) != (
            live.kind,
            live.status,
            live.reason,
            live.code,
        ):
            verdict = DIFFERENT_STATUS
        elif (
            recorded.is_complete
            and self.name not in VARYING_METHODS
            and not values_equal(body_value(recorded.body), body_value(live.body))
        ):
            verdict = DIFFERENT_BODY
        if verdict != EQUAL and (self.verdict == EQUAL or verdict == DIFFERENT_STATUS):
            self.verdict, self._differing_parts = verdict, (recorded, live)

    def report(self, stats: ReplayStats, *, is_cut: bool = False) -> None:
        """Count the verdict; with `is_cut` the recording ends in the middle of the session."""
        if not self.is_sent:
            return
        if is_cut and not self.recorded_ended:
            stats.open_at_end += 1
            return
        if not self.live_ended and self.recorded_ended:
            self.verdict, self._differing_parts = MISSING, (self._recorded[-1] if self._recorded else None, None)
        elif not self.recorded_ended and self.live_ended:
            self.verdict, self._differing_parts = EXTRA, (None, self._live[-1] if self._live else None)
        elif not self.live_ended:
            return  # without a response in both runs
        elif self.verdict == EQUAL and (self._recorded or self._live):
            # One response has more parts than the other.
            self.verdict = DIFFERENT_BODY
            self._differing_parts = (
                self._recorded[-1] if self._recorded else None,
                self._live[-1] if self._live else None,
            )
        if self.verdict == EQUAL:
            stats.count_equal("call")
            return
        recorded, live = (None if part is None else part.as_dict() for part in self._differing_parts)
        stats.add_difference(
            Difference(
                "call",
                self.verdict,
                self.session.session_id,
                self.name,
                id=self.id,
                seq=self.seq,
                recorded=recorded,
                live=live,
            )
        )


def values_equal(recorded: object, live: object) -> bool:
    """Return whether two values are equal; a redacted value equals any other."""
    if recorded == REDACTED:
        return True
    if isinstance(recorded, dict) and isinstance(live, dict):
        return recorded.keys() == live.keys() and all(values_equal(value, live[key]) for key, value in recorded.items())
    if isinstance(recorded, list) and isinstance(live, list):
        return len(recorded) == len(live) and all(map(values_equal, recorded, live))
    if isinstance(recorded, bool) or isinstance(live, bool):
        return recorded is live
    if isinstance(recorded, float) and isinstance(live, float) and math.isnan(recorded):
        return math.isnan(live)
    return recorded == live


def digest(value: object) -> str:
    """Return a digest that is the same for equal values."""
    if isinstance(value, bytes):
        raw = value
    else:
        try:
            raw = strict_json.write(_normalized(value))
        except (FivewaysError, ValueError, TypeError):
            raw = repr(value).encode()
    return blake2b(raw, digest_size=_DIGEST_BYTES).hexdigest()


def _normalized(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _normalized(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list):
        return [_normalized(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_redacted(value: object) -> bool:
    """Return whether any part of a value was redacted."""
    if isinstance(value, dict):
        return any(map(is_redacted, value.values()))
    return any(map(is_redacted, value)) if isinstance(value, list) else value == REDACTED
