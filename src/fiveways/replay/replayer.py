"""Replay of the inbound frames of a journal to a hub.

Frames are sent in their recorded order and at their recorded pace, but never before their causes: all recorded
responses to the session must have been received live. A frame that changes the state of the hub, such as a
registration or a subscription, waits for all sessions, and all sessions wait for its response.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from fiveways.journal.records import Record
from fiveways.model.text_redaction import REDACTED
from fiveways.pipeline.decode.message_row import MessageRow
from fiveways.replay.comparator import REQUEST_KINDS, Comparator
from fiveways.replay.comparison import Difference, ReplayedRequest, ReplayStats
from fiveways.replay.frame_decoder import DecodedMessage, body_value, decode_frame, to_frame
from fiveways.replay.frame_rewriting import split_frame
from fiveways.replay.frame_sender import FrameSender
from fiveways.replay.replay_connection import ConnectFailed, ReplayConnection, connection_settings
from fiveways.replay.replay_session import ReplaySession, put_bounded
from fiveways.replay.replay_target import ReplayTarget
from fiveways.wire.packet import Packet

_HANDSHAKE_KINDS: Final = frozenset({"hello", "proof"})
"""Messages that are not replayed, because each connection has a live handshake."""
_STATE_CHANGE_KINDS: Final = frozenset({"subscribe", "unsubscribe", "set", "unset"})
_STATELESS_METHODS: Final = frozenset(
    {"hub.echo", "hub.get", "hub.ping", "hub.publish", "hub.push", "hub.stats", "hub.time", "hub.traffic"}
)
"""Built-in methods without an effect that other sessions must wait for."""
_MIN_WAIT: Final = 0.05
"""Minimum timeout of a response, in seconds."""
_FINAL_WAIT: Final = 0.1
"""Seconds to wait for unexpected messages at the end."""
_SECOND: Final = 1e9
_YIELD_INTERVAL: Final = 64
"""Records between two yields to the event loop."""
_CLOSE_TIMEOUT: Final = 2.0
_SessionKey = tuple[str, str]


class ReplayConfig(msgspec.Struct, frozen=True):
    """Configuration of a replay."""

    target: ReplayTarget
    speed: float = 1.0
    """Factor of the recorded speed; infinite for no delays."""
    answer_timeout: float = 5.0
    """Timeout of a response in seconds; it is halved after each timeout."""
    max_frames: int | None = None
    """Maximum number of frames to send."""
    protocol: str = ""
    session: str = ""
    token: str = ""
    identity: str = ""
    secret: str = ""


class Replayer:
    """Replays recorded sessions."""

    def __init__(self, config: ReplayConfig, on_progress: Callable[[int], None] = lambda _count: None) -> None:
        """Create a replayer; `on_progress` receives the number of newly processed records."""
        self._config = config
        self._on_progress = on_progress
        self.stats = ReplayStats()
        self.sessions = 0
        """Number of replayed sessions."""
        self.skipped_sessions: dict[str, int] = {}
        """Number of skipped sessions, by reason."""
        self.redacted = 0
        """Number of frames that were sent with redacted values."""
        self.sender = FrameSender()
        self._comparator = Comparator(self.sender, self.stats)
        self._sessions: dict[_SessionKey, ReplaySession] = {}
        self._finished_sessions: OrderedDict[_SessionKey, None] = OrderedDict()
        self._answer_timeout = config.answer_timeout
        self._loop = asyncio.get_running_loop()
        self._start: tuple[float, int] | None = None
        self._frames = 0

    async def run(self, records: Iterable[Record]) -> None:
        """Send all records, wait for outstanding messages, and disconnect."""
        try:
            for count, record in enumerate(records, 1):
                await self._process_record(record)
                if not count % _YIELD_INTERVAL:
                    self._on_progress(_YIELD_INTERVAL)
                    await asyncio.sleep(0)
                if self._is_limit_reached and not any(session.open_requests for session in self._sessions.values()):
                    break
            self._comparator.is_after_end = True
            await self._wait_until(lambda: not self._comparator.has_expectations)
            await asyncio.sleep(_FINAL_WAIT)
        finally:
            await self._disconnect()
        for session in self._sessions.values():
            self._finish_session(session, is_cut=True)
        self._comparator.report_unmatched()

    @property
    def _is_limit_reached(self) -> bool:
        return self._config.max_frames is not None and self._frames >= self._config.max_frames

    # Processing of records.

    async def _process_record(self, record: Record) -> None:
        config = self._config
        if config.protocol and record.protocol != config.protocol:
            return
        if config.session and not record.session.startswith(config.session):
            return
        session = self._session_of(record)
        if session is None or session.skip_reason:
            return
        if record.is_marker:
            if record.kind == "close":
                await self._close_session(session, record)
        elif record.direction == "out":
            self._comparator.compare_recorded(session, record)
        else:
            await self._send_frame(session, record)

    def _session_of(self, record: Record) -> ReplaySession | None:
        key = _session_key(record)
        session = self._sessions.get(key)
        if session is None and key not in self._finished_sessions and not (record.is_marker and record.kind != "open"):
            address = self._config.target.address(record.protocol, record.transport)
            session = self._sessions[key] = ReplaySession(record, address if isinstance(address, str) else "")
            if session.skip_reason:
                reason = f"{record.protocol}/{record.transport}: {session.skip_reason}"
                self.skipped_sessions[reason] = self.skipped_sessions.get(reason, 0) + 1
        return session

    async def _send_frame(self, session: ReplaySession, record: Record) -> None:
        messages, _ = decode_frame(to_frame(record))
        kinds = {decoded.message.kind for decoded in messages}
        if kinds & _HANDSHAKE_KINDS:
            await self._connect(session, record, greets=True)
            return
        skip_reason = self._skip_reason(record, messages, kinds)
        if skip_reason is None:
            await self._wait_until_due(record)
            await self._wait_for_causes(session, messages)
            skip_reason = (
                None
                if await self._connect(session, record, greets=not session.is_complete_from_start)
                else "no connection"
            )
        self._comparator.add_requests(session, record.seq, messages, is_sent=skip_reason is None)
        if skip_reason is not None:
            self.sender.unsent[skip_reason] += 1
            session.has_gap |= record.payload is None
            return
        self._frames += 1
        payload = self.sender.replace_tokens(record.payload or b"")
        self.redacted += REDACTED.encode() in payload
        for part in split_frame(session.protocol, Packet(payload, record.kind == "text", record.channel or "")):
            request = self.sender.send(session, part)
            if request is not None:
                self._comparator.recorded_answer(request)
        if session.connection is not None:
            await session.connection.wait_writable()

    def _skip_reason(self, record: Record, messages: list[DecodedMessage], kinds: set[str]) -> str | None:
        """Return the reason why a frame is not sent; None if it is sent."""
        if record.payload is None:
            return "omitted from the journal"
        if not record.is_complete:
            return "truncated in the journal"
        if kinds == {"set"} and body_value(messages[0].body) == REDACTED:
            return "redacted"
        # Responses are sent even beyond the limit, so that earlier requests complete.
        return "over the limit" if self._is_limit_reached and (kinds & REQUEST_KINDS or not kinds) else None

    async def _wait_until_due(self, record: Record) -> None:
        if self._start is None:
            self._start = self._loop.time(), record.at
        start, first = self._start
        wait = start + (record.at - first) / _SECOND / self._config.speed - self._loop.time()
        if wait > 0:
            await asyncio.sleep(wait)

    async def _wait_for_causes(self, session: ReplaySession, messages: list[DecodedMessage]) -> None:
        """Wait for the messages that preceded a frame in the recording."""
        awaited = self._comparator.awaited
        if any(_is_state_change(decoded.message) for decoded in messages):
            await self._wait_until(lambda: not awaited)
        elif awaited:
            await self._wait_until(lambda: not session.awaited_count and not any(map(_changed_state, awaited)))

    async def _wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Wait with a timeout; responses that have not arrived by then are late, and are not waited for again."""
        changed = self._comparator.changed
        deadline = self._loop.time() + self._answer_timeout
        while not is_ready():
            remaining = deadline - self._loop.time()
            if remaining <= 0:
                self._answer_timeout = max(self._answer_timeout / 2, _MIN_WAIT)
                self._comparator.stop_waiting()
                return
            changed.clear()
            try:
                async with asyncio.timeout(remaining):
                    await changed.wait()
            except TimeoutError:
                pass

    # Connections.

    async def _connect(self, session: ReplaySession, record: Record, *, greets: bool) -> bool:
        """Ensure that a session has a connection; return False if that fails.

        `greets` is False for peers that sent no handshake.
        """
        connection, config = session.connection, self._config
        if connection is not None and connection.is_closing:
            await asyncio.wait([connection.closed], timeout=_CLOSE_TIMEOUT)
        elif connection is not None and not connection.closed.done():
            return True
        address = config.target.address(session.protocol, record.transport)
        if isinstance(address, str):
            return False
        if connection is not None and not connection.is_closing:
            self.stats.add_difference(Difference("session", "ended too early", session.session_id, session.protocol))
        settings = connection_settings(address, config.token, config.identity, config.secret)
        connection = ReplayConnection(
            settings,
            lambda packet: self._comparator.compare_live(session, packet),
            lambda: self._comparator.connection_lost(session),
        )
        try:
            await connection.open(session.peer, greets=greets)
        except ConnectFailed as exc:
            self.stats.add_difference(Difference("session", str(exc), session.session_id, session.protocol))
            session.skip_reason = str(exc)
            return False
        self.sessions += session.connection is None
        session.connection, session.peer = connection, connection.peer
        return True

    async def _close_session(self, session: ReplaySession, record: Record) -> None:
        if session.connection is not None:
            await self._wait_until(lambda: not self._comparator.is_waiting_for(session))
            session.connection.close()
        if not session.is_resumable:
            self._finish_session(session)
            del self._sessions[_session_key(record)]
            put_bounded(self._finished_sessions, _session_key(record), None)

    def _finish_session(self, session: ReplaySession, *, is_cut: bool = False) -> None:
        """Report requests of a session that has ended."""
        for requests in session.open_requests.values():
            for request in requests:
                self._comparator.awaited.discard(request)
                request.report(self.stats, is_cut=is_cut)
        session.open_requests.clear()
        session.awaited_count = 0

    async def _disconnect(self) -> None:
        connections = [session.connection for session in self._sessions.values() if session.connection is not None]
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.wait([connection.closed for connection in connections], timeout=_CLOSE_TIMEOUT)


def _session_key(record: Record) -> _SessionKey:
    """Return the key of a session; an NQ session has several connections."""
    return record.run, (record.protocol == "nq" and record.peer) or record.session


def _is_state_change(message: MessageRow) -> bool:
    """Return whether other sessions may depend on the effect of a message."""
    return message.kind in _STATE_CHANGE_KINDS or (
        message.kind == "call" and _is_state_changing_method(message.method or "")
    )


def _changed_state(request: ReplayedRequest) -> bool:
    return request.kind in _STATE_CHANGE_KINDS or (request.kind == "call" and _is_state_changing_method(request.name))


def _is_state_changing_method(method: str) -> bool:
    return method.startswith("hub.") and method not in _STATELESS_METHODS
