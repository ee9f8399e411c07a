"""Matching of recorded and live requests from the hub: live requests receive the recorded responses."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from fiveways.pipeline.decode.message_row import MessageRow
from fiveways.replay.comparison import DIFFERENT_BODY, EXTRA, MISSING, Difference, ReplayStats, values_equal
from fiveways.replay.frame_decoder import body_value
from fiveways.replay.frame_rewriting import FramePart
from fiveways.wire.payload import Payload

if TYPE_CHECKING:
    from fiveways.replay.replay_session import ReplaySession

_MAX_WAITING: Final = 10_000
"""Maximum unmatched requests, recorded or live; the oldest are reported first."""


class HubRequest:
    """A request of the hub to a peer."""

    __slots__ = ("answers", "body", "counterpart", "id", "is_complete", "is_extra", "kind", "name", "seq", "session")

    def __init__(
        self, session: "ReplaySession", seq: int | None, message: MessageRow, body: Payload | None, *, is_complete: bool
    ) -> None:
        self.session = session
        self.seq = seq
        self.id = message.id or ""
        self.kind = message.kind
        self.name = message.method or message.topic or message.target or ""
        self.body = body_value(body)
        self.is_complete = is_complete
        self.is_extra = True
        self.counterpart: HubRequest | None = None
        """The matching live request of a recorded one."""
        self.answers: list[FramePart] = []
        """Recorded responses that wait for the live request."""

    @property
    def match_key(self) -> tuple[str, str, str]:
        """The key that matching requests have in common."""
        return self.session.protocol, self.kind, self.name

    def matches(self, live: "HubRequest") -> bool:
        """Return whether a live request has the same arguments as this recorded one."""
        return not self.is_complete or values_equal(self.body, live.body)


class RequestMatcher:
    """Finds the recorded request for each live one.

    Requests with equal arguments match, preferably in the same session. Without equal arguments, `match_by_order`
    matches requests in their order, if a recorded response is available.
    """

    def __init__(
        self, stats: ReplayStats, on_match: Callable[[HubRequest], None], on_ambiguity: Callable[[], None]
    ) -> None:
        """Create a matcher.

        `on_match` receives matched recorded requests; `on_ambiguity` is called when `match_by_order` is needed.
        """
        self._stats = stats
        self._on_match = on_match
        self._on_ambiguity = on_ambiguity
        self._recorded: dict[tuple[str, str, str], dict[HubRequest, None]] = {}
        self._live: dict[tuple[str, str, str], dict[HubRequest, None]] = {}
        self.expected = 0
        """Recorded requests without a live one."""

    def add_recorded(self, request: HubRequest) -> None:
        """Add a recorded request."""
        for candidate in _candidates(self._live, request):
            if request.matches(candidate):
                self._match(request, candidate)
                return
        self._recorded.setdefault(request.match_key, {})[request] = None
        self.expected += 1
        if self.expected > _MAX_WAITING:
            self._give_up(next(iter(next(requests for requests in self._recorded.values() if requests))))

    def add_live(self, request: HubRequest, *, is_extra: bool = True) -> None:
        """Add a live request.

        `is_extra` is False if a missing recorded request is not a difference.
        """
        request.is_extra = is_extra
        for candidate in _candidates(self._recorded, request):
            if candidate.matches(request):
                self._match(candidate, request)
                return
        waiting = self._live.setdefault(request.match_key, {})
        waiting[request] = None
        if len(waiting) > _MAX_WAITING:
            self._give_up(next(iter(waiting)))
        if any(recorded.answers for recorded in _candidates(self._recorded, request)):
            self._on_ambiguity()

    def answer_recorded(self, request: HubRequest) -> None:
        """Note that a response is available for an unmatched recorded request."""
        if self._live.get(request.match_key):
            self._on_ambiguity()

    def match_by_order(self) -> None:
        """Match the first requests in order, if a recorded response is available."""
        for match_key in list(self._live):
            for live in list(self._live[match_key]):
                recorded = next(
                    (candidate for candidate in _candidates(self._recorded, live) if candidate.answers), None
                )
                if recorded is not None:
                    self._match(recorded, live)

    def _match(self, recorded: HubRequest, live: HubRequest) -> None:
        if self._recorded.get(recorded.match_key, {}).pop(recorded, self) is not self:
            self.expected -= 1
        self._live.get(live.match_key, {}).pop(live, None)
        recorded.counterpart = live
        if recorded.matches(live):
            self._stats.count_equal("request")
        else:
            self._report_difference(DIFFERENT_BODY, recorded, live)
        self._on_match(recorded)

    def _give_up(self, request: HubRequest) -> None:
        is_recorded = request in self._recorded.get(request.match_key, {})
        (self._recorded if is_recorded else self._live)[request.match_key].pop(request)
        self.expected -= is_recorded
        if not is_recorded and not request.is_extra:
            return
        self._report_difference(
            MISSING if is_recorded else EXTRA, request if is_recorded else None, None if is_recorded else request
        )

    def _report_difference(self, verdict: str, recorded: HubRequest | None, live: HubRequest | None) -> None:
        request = recorded or live
        assert request is not None  # noqa: S101  callers pass at least one
        name = request.name or request.kind
        self._stats.add_difference(
            Difference(
                "request",
                verdict,
                request.session.session_id,
                name,
                id=request.id,
                seq=request.seq,
                recorded=recorded.body if recorded else None,
                live=live.body if live else None,
            )
        )

    def report_unmatched(self) -> None:
        """Report all unmatched requests."""
        for pool in (self._recorded, self._live):
            for requests in pool.values():
                for request in list(requests):
                    self._give_up(request)


def _candidates(pool: dict[tuple[str, str, str], dict[HubRequest, None]], request: HubRequest) -> Iterator[HubRequest]:
    """Yield the requests that may match, those of the same session first."""
    requests = pool.get(request.match_key, {})
    yield from [candidate for candidate in requests if candidate.session is request.session]
    yield from [candidate for candidate in requests if candidate.session is not request.session]
