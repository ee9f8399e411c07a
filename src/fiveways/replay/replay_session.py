"""One recorded conversation that is held again."""

from collections import OrderedDict, deque
from typing import Final, TypeVar

from fiveways.journal.records import Record
from fiveways.replay.comparison import ReplayedRequest
from fiveways.replay.frame_rewriting import FramePart, HubName
from fiveways.replay.replay_connection import ReplayConnection
from fiveways.replay.request_matcher import HubRequest

K = TypeVar("K")
V = TypeVar("V")

_MAX_ENTRIES: Final = 4096
"""Names that were known, and requests that are over: so many of the latest."""


class ReplaySession:
    """What there is to know of a conversation: its connection, its open requests, and names that are others now."""

    def __init__(self, record: Record, why_not: str = "") -> None:
        """Make it; `why_not` is the reason if it is not held again."""
        self.session_id = record.session
        self.protocol = record.protocol
        self.skip_reason = why_not
        self.is_complete_from_start = record.kind == "open"
        """The recording has its first word."""
        self.has_gap = False
        """A frame was left out of the journal, so that an error it caused may not come again."""
        self.connection: ReplayConnection | None = None
        self.peer = ""
        self.open_requests: dict[str, deque[ReplayedRequest]] = {}
        """By the id of the request; one that is used again waits for its turn."""
        self.awaited_count = 0
        """Requests that had been answered then, at the place where we are, and are not now."""
        self.finished_ids: OrderedDict[str, None] = OrderedDict()
        """Ids of requests that were answered, at both times."""
        self.recorded_requests: OrderedDict[str, HubRequest] = OrderedDict()
        """What the hub asked here then, by its id."""
        self.live_requests: OrderedDict[str, HubRequest] = OrderedDict()
        """What the hub has asked here now."""
        self.live_names: OrderedDict[HubName, str] = OrderedDict()
        """Backchannels and subscriptions: what they are called now."""
        self.waiting_parts: dict[HubName, list[FramePart]] = {}
        """What is said as soon as a name is known."""
        self.blocked_parts: deque[FramePart] = deque()
        """Attachments, and what announces them, behind an answer that cannot be given yet."""
        self.attachment_session: ReplaySession = self
        """Where the last message with attachments went."""

    @property
    def is_resumable(self) -> bool:
        """Whether it goes on over other links, so that no id is used twice."""
        return self.protocol == "nq"

    def set_live_name(self, need: HubName, name: str) -> None:
        """Know what something is called now."""
        put_bounded(self.live_names, need, name)

    def find_request(self, identifier: str, *, live: bool) -> ReplayedRequest | None:
        """Return the request that an answer belongs to: of those with its id the first that has none yet."""
        for each in self.open_requests.get(identifier, ()):
            if not (each.live_ended or not each.is_sent if live else each.recorded_ended):
                return each
        return None

    def has_answered(self, identifier: str) -> bool:
        """Say whether an answer is but a repeat."""
        return identifier in self.finished_ids or (self.is_resumable and identifier in self.open_requests)

    def add_request(self, exchange: ReplayedRequest) -> bool:
        """Take a request; say whether it is a new one."""
        if self.is_resumable and (exchange.id in self.open_requests or exchange.id in self.finished_ids):
            return False  # NQ repeats what nobody has reacted to
        self.open_requests.setdefault(exchange.id, deque()).append(exchange)
        return True

    def finish_request(self, exchange: ReplayedRequest) -> None:
        """Let go of a request that is over."""
        waiting = self.open_requests[exchange.id]
        waiting.remove(exchange)
        if not waiting:
            del self.open_requests[exchange.id]
        put_bounded(self.finished_ids, exchange.id, None)


def put_bounded(known: "OrderedDict[K, V]", key: K, value: V) -> None:
    """Keep something for a while."""
    known[key] = value
    if len(known) > _MAX_ENTRIES:
        known.popitem(last=False)
