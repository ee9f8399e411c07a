"""One recorded conversation that is held again."""

from collections import OrderedDict, deque
from typing import Final, TypeVar

from fiveways.journal.rows import Record
from fiveways.replay.desk import Ask
from fiveways.replay.judging import Exchange
from fiveways.replay.naming import Need, Piece
from fiveways.replay.wires import Wire

K = TypeVar("K")
V = TypeVar("V")

_REMEMBERED: Final = 4096
"""Names that were known, and requests that are over: so many of the latest."""


class Talk:
    """What there is to know of a conversation: its connection, its open requests, and names that are others now."""

    def __init__(self, record: Record, why_not: str = "") -> None:
        """Make it; `why_not` is the reason if it is not held again."""
        self.session = record.session
        self.protocol = record.protocol
        self.why_not = why_not
        self.is_from_start = record.kind == "open"
        """The recording has its first word."""
        self.has_gap = False
        """A frame was left out of the journal, so that an error it caused may not come again."""
        self.wire: Wire | None = None
        self.peer = ""
        self.exchanges: dict[str, deque[Exchange]] = {}
        """By the id of the request; one that is used again waits for its turn."""
        self.due = 0
        """Requests that had been answered then, at the place where we are, and are not now."""
        self.over: OrderedDict[str, None] = OrderedDict()
        """Ids of requests that were answered, at both times."""
        self.asked: OrderedDict[str, Ask] = OrderedDict()
        """What the hub asked here then, by its id."""
        self.heard: OrderedDict[str, Ask] = OrderedDict()
        """What the hub has asked here now."""
        self.names: OrderedDict[Need, str] = OrderedDict()
        """Backchannels and subscriptions: what they are called now."""
        self.waiting: dict[Need, list[Piece]] = {}
        """What is said as soon as a name is known."""
        self.blocked: deque[Piece] = deque()
        """Attachments, and what announces them, behind an answer that cannot be given yet."""
        self.last: Talk = self
        """Where the last message with attachments went."""

    @property
    def lasts(self) -> bool:
        """Whether it goes on over other links, so that no id is used twice."""
        return self.protocol == "nq"

    def know(self, need: Need, name: str) -> None:
        """Know what something is called now."""
        remember(self.names, need, name)

    def find(self, identifier: str, *, live: bool) -> Exchange | None:
        """Return the request that an answer belongs to: of those with its id the first that has none yet."""
        for each in self.exchanges.get(identifier, ()):
            if not (each.live_ended or not each.is_sent if live else each.recorded_ended):
                return each
        return None

    def has_answered(self, identifier: str) -> bool:
        """Say whether an answer is but a repeat."""
        return identifier in self.over or (self.lasts and identifier in self.exchanges)

    def open(self, exchange: Exchange) -> bool:
        """Take a request; say whether it is a new one."""
        if self.lasts and (exchange.id in self.exchanges or exchange.id in self.over):
            return False  # NQ repeats what nobody has reacted to
        self.exchanges.setdefault(exchange.id, deque()).append(exchange)
        return True

    def forget(self, exchange: Exchange) -> None:
        """Let go of a request that is over."""
        waiting = self.exchanges[exchange.id]
        waiting.remove(exchange)
        if not waiting:
            del self.exchanges[exchange.id]
        remember(self.over, exchange.id, None)


def remember(known: "OrderedDict[K, V]", key: K, value: V) -> None:
    """Keep something for a while."""
    known[key] = value
    if len(known) > _REMEMBERED:
        known.popitem(last=False)
