"""What the hub asks of callees, then and now: the answer of then goes to what is asked now."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from fiveways.pipeline.decode.rows import Message
from fiveways.replay.judging import BODY, EXTRA, MISSING, Difference, Tally, same
from fiveways.replay.naming import Piece
from fiveways.replay.speech import value_of
from fiveways.wire.payload import Payload

if TYPE_CHECKING:
    from fiveways.replay.talks import Talk

_MOST: Final = 10_000
"""Requests that wait for their likes, on either side; the oldest are given up first."""


class Ask:
    """A request of the hub to a peer."""

    __slots__ = ("answers", "body", "id", "is_extra", "is_known", "kind", "like", "name", "seq", "talk")

    def __init__(
        self, talk: "Talk", seq: int | None, message: Message, body: Payload | None, *, is_known: bool
    ) -> None:
        self.talk = talk
        self.seq = seq
        self.id = message.id or ""
        self.kind = message.kind
        self.name = message.method or message.topic or message.target or ""
        self.body = value_of(body)
        self.is_known = is_known
        self.is_extra = True
        self.like: Ask | None = None
        """The one of the other time that it stands for."""
        self.answers: list[Piece] = []
        """What was said to it then, and waits for it to be asked now."""

    @property
    def subject(self) -> tuple[str, str, str]:
        """What two of them have in common that may be the same."""
        return self.talk.protocol, self.kind, self.name

    def is_same(self, live: "Ask") -> bool:
        """Say whether the one of now is this one, to the last argument."""
        return not self.is_known or same(self.body, live.body)


class Desk:
    """Finds for each request of now the one of then.

    Those with the same arguments belong together, of several those in the same session. Where no arguments are the
    same, the first belongs to the first, once there is an answer to be given and `settle` is called.
    """

    def __init__(self, tally: Tally, paired: Callable[[Ask], None], doubt: Callable[[], None]) -> None:
        """Make it; `paired` hears of each of then whose like has come, `doubt` when there is something to settle."""
        self._tally = tally
        self._paired = paired
        self._doubt = doubt
        self._recorded: dict[tuple[str, str, str], dict[Ask, None]] = {}
        self._live: dict[tuple[str, str, str], dict[Ask, None]] = {}
        self.expected = 0
        """Those of then that were not asked yet."""

    def recorded(self, ask: Ask) -> None:
        """Take one of then."""
        for like in _by_session(self._live, ask):
            if ask.is_same(like):
                self._pair(ask, like)
                return
        self._recorded.setdefault(ask.subject, {})[ask] = None
        self.expected += 1
        if self.expected > _MOST:
            self._give_up(next(iter(next(each for each in self._recorded.values() if each))))

    def live(self, ask: Ask, *, is_extra: bool = True) -> None:
        """Take one of now; `is_extra` says that one of then should be there, or come."""
        ask.is_extra = is_extra
        for like in _by_session(self._recorded, ask):
            if like.is_same(ask):
                self._pair(like, ask)
                return
        waiting = self._live.setdefault(ask.subject, {})
        waiting[ask] = None
        if len(waiting) > _MOST:
            self._give_up(next(iter(waiting)))
        if any(each.answers for each in _by_session(self._recorded, ask)):
            self._doubt()

    def answered(self, ask: Ask) -> None:
        """Know that there is an answer to one of then that was not asked yet."""
        if self._live.get(ask.subject):
            self._doubt()

    def settle(self) -> None:
        """Let the first belong to the first, where an answer waits and no arguments are the same."""
        for subject in list(self._live):
            for live in list(self._live[subject]):
                found = next((each for each in _by_session(self._recorded, live) if each.answers), None)
                if found is not None:
                    self._pair(found, live)

    def _pair(self, recorded: Ask, live: Ask) -> None:
        if self._recorded.get(recorded.subject, {}).pop(recorded, self) is not self:
            self.expected -= 1
        self._live.get(live.subject, {}).pop(live, None)
        recorded.like = live
        if recorded.is_same(live):
            self._tally.equal("request")
        else:
            self._differs(BODY, recorded, live)
        self._paired(recorded)

    def _give_up(self, ask: Ask) -> None:
        is_recorded = ask in self._recorded.get(ask.subject, {})
        (self._recorded if is_recorded else self._live)[ask.subject].pop(ask)
        self.expected -= is_recorded
        if not is_recorded and not ask.is_extra:
            return
        self._differs(MISSING if is_recorded else EXTRA, ask if is_recorded else None, None if is_recorded else ask)

    def _differs(self, verdict: str, recorded: Ask | None, live: Ask | None) -> None:
        shown = recorded or live
        assert shown is not None  # noqa: S101  one of them is given
        bodies = [None if each is None else each.body for each in (recorded, live)]
        name = shown.name or shown.kind
        self._tally.differs(Difference("request", verdict, shown.talk.session, name, shown.id, shown.seq, *bodies))

    def close(self) -> None:
        """Say what was asked at one time only."""
        for pool in (self._recorded, self._live):
            for waiting in pool.values():
                for ask in list(waiting):
                    self._give_up(ask)


def _by_session(pool: dict[tuple[str, str, str], dict[Ask, None]], ask: Ask) -> Iterator[Ask]:
    """Give those that may be the same, those of the same session first."""
    waiting = pool.get(ask.subject, {})
    yield from [each for each in waiting if each.talk is ask.talk]
    yield from [each for each in waiting if each.talk is not ask.talk]
