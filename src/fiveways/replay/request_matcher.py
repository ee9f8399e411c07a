"""What the hub asks of callees, then and now: the answer of then goes to what is asked now."""

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
"""Requests that wait for their likes, on either side; the oldest are given up first."""


class HubRequest:
    """A request of the hub to a peer."""

    __slots__ = ("answers", "body", "counterpart", "id", "is_complete", "is_extra", "kind", "name", "seq", "session")

    def __init__(
        self, talk: "ReplaySession", seq: int | None, message: MessageRow, body: Payload | None, *, is_known: bool
    ) -> None:
        self.session = talk
        self.seq = seq
        self.id = message.id or ""
        self.kind = message.kind
        self.name = message.method or message.topic or message.target or ""
        self.body = body_value(body)
        self.is_complete = is_known
        self.is_extra = True
        self.counterpart: HubRequest | None = None
        """The one of the other time that it stands for."""
        self.answers: list[FramePart] = []
        """What was said to it then, and waits for it to be asked now."""

    @property
    def match_key(self) -> tuple[str, str, str]:
        """What two of them have in common that may be the same."""
        return self.session.protocol, self.kind, self.name

    def matches(self, live: "HubRequest") -> bool:
        """Say whether the one of now is this one, to the last argument."""
        return not self.is_complete or values_equal(self.body, live.body)


class RequestMatcher:
    """Finds for each request of now the one of then.

    Those with the same arguments belong together, of several those in the same session. Where no arguments are the
    same, the first belongs to the first, once there is an answer to be given and `settle` is called.
    """

    def __init__(self, tally: ReplayStats, paired: Callable[[HubRequest], None], doubt: Callable[[], None]) -> None:
        """Make it; `paired` hears of each of then whose like has come, `doubt` when there is something to settle."""
        self._tally = tally
        self._on_match = paired
        self._on_ambiguity = doubt
        self._recorded: dict[tuple[str, str, str], dict[HubRequest, None]] = {}
        self._live: dict[tuple[str, str, str], dict[HubRequest, None]] = {}
        self.expected = 0
        """Those of then that were not asked yet."""

    def add_recorded(self, ask: HubRequest) -> None:
        """Take one of then."""
        for like in _candidates(self._live, ask):
            if ask.matches(like):
                self._match(ask, like)
                return
        self._recorded.setdefault(ask.match_key, {})[ask] = None
        self.expected += 1
        if self.expected > _MAX_WAITING:
            self._give_up(next(iter(next(each for each in self._recorded.values() if each))))

    def add_live(self, ask: HubRequest, *, is_extra: bool = True) -> None:
        """Take one of now; `is_extra` says that one of then should be there, or come."""
        ask.is_extra = is_extra
        for like in _candidates(self._recorded, ask):
            if like.matches(ask):
                self._match(like, ask)
                return
        waiting = self._live.setdefault(ask.match_key, {})
        waiting[ask] = None
        if len(waiting) > _MAX_WAITING:
            self._give_up(next(iter(waiting)))
        if any(each.answers for each in _candidates(self._recorded, ask)):
            self._on_ambiguity()

    def answer_recorded(self, ask: HubRequest) -> None:
        """Know that there is an answer to one of then that was not asked yet."""
        if self._live.get(ask.match_key):
            self._on_ambiguity()

    def match_by_order(self) -> None:
        """Let the first belong to the first, where an answer waits and no arguments are the same."""
        for subject in list(self._live):
            for live in list(self._live[subject]):
                found = next((each for each in _candidates(self._recorded, live) if each.answers), None)
                if found is not None:
                    self._match(found, live)

    def _match(self, recorded: HubRequest, live: HubRequest) -> None:
        if self._recorded.get(recorded.match_key, {}).pop(recorded, self) is not self:
            self.expected -= 1
        self._live.get(live.match_key, {}).pop(live, None)
        recorded.counterpart = live
        if recorded.matches(live):
            self._tally.count_equal("request")
        else:
            self._report_difference(DIFFERENT_BODY, recorded, live)
        self._on_match(recorded)

    def _give_up(self, ask: HubRequest) -> None:
        is_recorded = ask in self._recorded.get(ask.match_key, {})
        (self._recorded if is_recorded else self._live)[ask.match_key].pop(ask)
        self.expected -= is_recorded
        if not is_recorded and not ask.is_extra:
            return
        self._report_difference(
            MISSING if is_recorded else EXTRA, ask if is_recorded else None, None if is_recorded else ask
        )

    def _report_difference(self, verdict: str, recorded: HubRequest | None, live: HubRequest | None) -> None:
        shown = recorded or live
        assert shown is not None  # noqa: S101  one of them is given
        bodies = [None if each is None else each.body for each in (recorded, live)]
        name = shown.name or shown.kind
        self._tally.add_difference(
            Difference("request", verdict, shown.session.session_id, name, shown.id, shown.seq, *bodies)
        )

    def report_unmatched(self) -> None:
        """Say what was asked at one time only."""
        for pool in (self._recorded, self._live):
            for waiting in pool.values():
                for ask in list(waiting):
                    self._give_up(ask)


def _candidates(pool: dict[tuple[str, str, str], dict[HubRequest, None]], ask: HubRequest) -> Iterator[HubRequest]:
    """Give those that may be the same, those of the same session first."""
    waiting = pool.get(ask.match_key, {})
    yield from [each for each in waiting if each.session is ask.session]
    yield from [each for each in waiting if each.session is not ask.session]
