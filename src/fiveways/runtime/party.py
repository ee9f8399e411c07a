"""Whoever takes part: a peer behind a link, or an application in this process."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from fiveways.hub.delivery import Delivery, Subscriber
from fiveways.hub.session import Stage
from fiveways.model.messages import Event, Goodbye, Word
from fiveways.runtime.outbox import Queue, Shared

if TYPE_CHECKING:
    from fiveways.runtime.exchange import Exchange

# ruff: noqa: B027  what a party need not care for it leaves as it is here: nothing happens

_NORMAL: Final = 1000
_REFUSED: Final = 1008


class Ride(Protocol):
    """What a party shares with others."""

    name: str
    """Of the subscription."""

    def missed_by(self, party: "Party") -> int:
        """Return how many events the party has skipped since this was asked last."""

    def deliver_to(self, party: "Party") -> None:
        """Give the party events again that has skipped some."""

    def let_off(self, party: "Party") -> object:
        """Put what came so far into the party's own outbox, and keep nothing more for it."""


class Party(ABC):
    """One of those to whom the hub's deliveries go. None of its methods raises; here, most of them do nothing."""

    peer: str
    family: str = ""
    """Its protocol: who is of another family gets other bytes for the same event."""
    outbox: Queue
    """What waits for it."""
    alikes: Collection[str] = frozenset()
    """Subscriptions for which the next event is the same bytes as for others of its family, who say so too."""
    ride: "Ride | None" = None
    """Its group, while what comes for it is kept there and not in its outbox."""
    choked: bool = False
    """It reads so slowly that the policy of its topics has to strike."""
    may_skip: bool = False
    """What it misses may be counted together with what others miss: `skips_in`."""
    missed: int = 0
    """Events that it did not get, since it was too slow for them or cannot be told."""
    lagged: bool = False
    """It was told of that it reads too slowly."""
    marked: bool = False
    """It will be flushed when this pass of the loop is over."""

    _exchange: "Exchange"

    @property
    def is_admitted(self) -> bool:
        """Whether it is authenticated, or admitted as anonymous."""
        return self._exchange.hub.stage_of(self.peer) is Stage.OPEN

    @abstractmethod
    def say(self, delivery: Delivery, now: float) -> None:
        """Take a word."""

    @abstractmethod
    def say_event(self, event: Event, subscriber: Subscriber, now: float) -> Shared | None:
        """Take an event without attachments; return its frame, if others of the family may get the same."""

    def event_frame(self, event: Event, subscriber: Subscriber) -> Shared | None:
        """Return what an event is for all of the family who are alike, without telling anybody; None if it is not."""
        return None

    def hand(self, frames: bytes, burst: Sequence[Shared]) -> None:
        """Pass on what it got together with others: all frames in one, and one by one."""

    def relieve(self) -> None:
        """Pass on what was said, if that is much already."""

    def flush(self) -> None:
        """Pass on all that was said."""

    def skip(self, subscription: str, events: int = 1) -> None:
        """Know that events were left out."""

    def skips_in(self, group: "Ride") -> None:
        """Let a group count what it misses there."""

    def skips_no_more(self, group: "Ride") -> None:
        """Take over what a group has counted that is about to go."""

    def settle(self) -> None:
        """Take over what groups have counted."""

    def note_drop(self, event: Event, reason: str) -> None:
        """Have it noted down that an event did not reach it, where that is done."""

    def waiting(self) -> int:
        """Return how many bytes wait for it in memory."""
        return 0

    def hold_back(self, publisher: "Party") -> None:
        """Let a publisher wait until this party has caught up."""

    def wait(self) -> None:
        """Publish nothing more, until all who hold it back have let go."""

    def let_go(self) -> None:
        """Go on, unless somebody else holds it back."""

    def cut_off(self) -> None:
        """End it at once: something is wrong with it."""

    @abstractmethod
    def close(self, why: str) -> None:
        """End it, with a word where there is still room for one."""


def close_code(farewell: Goodbye | None) -> tuple[int, str]:
    """Return the code and the reason with which a WebSocket is closed behind a farewell: 1008 for a refused login."""
    if farewell is None:
        return _NORMAL, ""
    return (_REFUSED if farewell.denied else _NORMAL), farewell.text


def nobody_listens(_word: Word, _now: float) -> None:
    """Stand for a conversation that has not begun."""
