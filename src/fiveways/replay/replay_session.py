"""State of one replayed session."""

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
"""Maximum number of names and finished requests to remember."""


class ReplaySession:
    """A replayed session: its connection, open requests, and live names of the hub."""

    def __init__(self, record: Record, skip_reason: str = "") -> None:
        """Create a session from its first record; `skip_reason` is the reason if it is not replayed."""
        self.session_id = record.session
        self.protocol = record.protocol
        self.skip_reason = skip_reason
        self.is_complete_from_start = record.kind == "open"
        """The recording contains the start of the session."""
        self.has_gap = False
        """A frame is missing in the journal, so recorded errors about it will not occur again."""
        self.connection: ReplayConnection | None = None
        self.peer = ""
        self.open_requests: dict[str, deque[ReplayedRequest]] = {}
        """By request id; a reused id has several requests in their order."""
        self.awaited_count = 0
        """Requests with a recorded response before the current position, but without a live one."""
        self.finished_ids: OrderedDict[str, None] = OrderedDict()
        """Ids of requests with both responses."""
        self.recorded_requests: OrderedDict[str, HubRequest] = OrderedDict()
        """Recorded requests of the hub to this session, by id."""
        self.live_requests: OrderedDict[str, HubRequest] = OrderedDict()
        """Live requests of the hub to this session, by id."""
        self.live_names: OrderedDict[HubName, str] = OrderedDict()
        """Live names of backchannels and subscriptions."""
        self.waiting_parts: dict[HubName, list[FramePart]] = {}
        """Parts to send as soon as a name is known."""
        self.blocked_parts: deque[FramePart] = deque()
        """Attachments and their announcements, behind a response that cannot be sent so far."""
        self.attachment_session: ReplaySession = self
        """The session of the last message with attachments."""

    @property
    def is_resumable(self) -> bool:
        """Whether the session outlives its connections, so ids are never reused."""
        return self.protocol == "nq"

    def set_live_name(self, hub_name: HubName, live_name: str) -> None:
        """Set the live name for a hub name."""
        put_bounded(self.live_names, hub_name, live_name)

    def find_request(self, request_id: str, *, live: bool) -> ReplayedRequest | None:
        """Return the first request with this id that has no complete response; None if there is none."""
        for request in self.open_requests.get(request_id, ()):
            if not (request.live_ended or not request.is_sent if live else request.recorded_ended):
                return request
        return None

    def has_answered(self, request_id: str) -> bool:
        """Return whether a response is a repetition."""
        return request_id in self.finished_ids or (self.is_resumable and request_id in self.open_requests)

    def add_request(self, request: ReplayedRequest) -> bool:
        """Add a request; return False for a retransmission."""
        if self.is_resumable and (request.id in self.open_requests or request.id in self.finished_ids):
            return False  # an NQ retransmission
        self.open_requests.setdefault(request.id, deque()).append(request)
        return True

    def finish_request(self, request: ReplayedRequest) -> None:
        """Remove a finished request."""
        waiting = self.open_requests[request.id]
        waiting.remove(request)
        if not waiting:
            del self.open_requests[request.id]
        put_bounded(self.finished_ids, request.id, None)


def put_bounded(entries: "OrderedDict[K, V]", key: K, value: V) -> None:
    """Add an entry, and delete the oldest one beyond the limit."""
    entries[key] = value
    if len(entries) > _MAX_ENTRIES:
        entries.popitem(last=False)
