"""A journal's inbound side, sent again to a hub.

Frames go out in the order and at the pace they came, and never before the causes they had then: what a session had been
answered by then must have been answered again, and what changes the hub, such as an offer or a subscription, waits for
all, and all for it.
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
"""What we say in our own words."""
_STATE_CHANGE_KINDS: Final = frozenset({"subscribe", "unsubscribe", "set", "unset"})
_STATELESS_METHODS: Final = frozenset(
    {"hub.echo", "hub.get", "hub.ping", "hub.publish", "hub.push", "hub.stats", "hub.time", "hub.traffic"}
)
"""Built-in methods of which others notice nothing, or need not before their next word."""
_MIN_WAIT: Final = 0.05
"""Seconds that are waited in any case."""
_FINAL_WAIT: Final = 0.1
"""Seconds for what nobody expects to come nevertheless."""
_SECOND: Final = 1e9
_YIELD_INTERVAL: Final = 64
"""Records after which others get a word in."""
_CLOSE_TIMEOUT: Final = 2.0
_SessionKey = tuple[str, str]


class ReplayConfig(msgspec.Struct, frozen=True):
    """How it is done."""

    target: ReplayTarget
    speed: float = 1.0
    """How many times faster; infinite for flat out."""
    answer_timeout: float = 5.0
    """Seconds that an answer may take. Each that is missing halves them for the next."""
    max_frames: int | None = None
    """Frames that are sent at most."""
    protocol: str = ""
    session: str = ""
    token: str = ""
    identity: str = ""
    secret: str = ""


class Replayer:
    """Holds recorded conversations again."""

    def __init__(self, options: ReplayConfig, told: Callable[[int], None] = lambda _count: None) -> None:
        """Make it; `told` hears how many records are done."""
        self._options = options
        self._on_progress = told
        self.stats = ReplayStats()
        self.sessions = 0
        """Conversations that were held again."""
        self.skipped_sessions: dict[str, int] = {}
        """Those that were not, by the reason."""
        self.redacted = 0
        """Frames that were sent with stars in them."""
        self.sender = FrameSender()
        self._comparator = Comparator(self.sender, self.stats)
        self._sessions: dict[_SessionKey, ReplaySession] = {}
        self._finished_sessions: OrderedDict[_SessionKey, None] = OrderedDict()
        self._answer_timeout = options.answer_timeout
        self._loop = asyncio.get_running_loop()
        self._start: tuple[float, int] | None = None
        self._frames = 0

    async def run(self, records: Iterable[Record]) -> None:
        """Send all of it, wait for what is still to come, and leave."""
        try:
            for count, record in enumerate(records, 1):
                await self._process_record(record)
                if not count % _YIELD_INTERVAL:
                    self._on_progress(_YIELD_INTERVAL)
                    await asyncio.sleep(0)
                if self._is_limit_reached and not any(talk.open_requests for talk in self._sessions.values()):
                    break
            self._comparator.is_after_end = True
            await self._wait_until(lambda: not self._comparator.has_expectations)
            await asyncio.sleep(_FINAL_WAIT)
        finally:
            await self._disconnect()
        for talk in self._sessions.values():
            self._finish_session(talk, is_cut=True)
        self._comparator.report_unmatched()

    @property
    def _is_limit_reached(self) -> bool:
        return self._options.max_frames is not None and self._frames >= self._options.max_frames

    # What was recorded.

    async def _process_record(self, record: Record) -> None:
        options = self._options
        if options.protocol and record.protocol != options.protocol:
            return
        if options.session and not record.session.startswith(options.session):
            return
        talk = self._session_of(record)
        if talk is None or talk.skip_reason:
            return
        if record.is_marker:
            if record.kind == "close":
                await self._close_session(talk, record)
        elif record.direction == "out":
            self._comparator.compare_recorded(talk, record)
        else:
            await self._send_frame(talk, record)

    def _session_of(self, record: Record) -> ReplaySession | None:
        key = _session_key(record)
        talk = self._sessions.get(key)
        if talk is None and key not in self._finished_sessions and not (record.is_marker and record.kind != "open"):
            found = self._options.target.address(record.protocol, record.transport)
            talk = self._sessions[key] = ReplaySession(record, found if isinstance(found, str) else "")
            if talk.skip_reason:
                why = f"{record.protocol}/{record.transport}: {talk.skip_reason}"
                self.skipped_sessions[why] = self.skipped_sessions.get(why, 0) + 1
        return talk

    async def _send_frame(self, talk: ReplaySession, record: Record) -> None:
        said, _ = decode_frame(to_frame(record))
        kinds = {each.message.kind for each in said}
        if kinds & _HANDSHAKE_KINDS:
            await self._connect(talk, record, greets=True)
            return
        why_not = self._skip_reason(record, said, kinds)
        if why_not is None:
            await self._wait_until_due(record)
            await self._wait_for_causes(talk, said)
            why_not = (
                None if await self._connect(talk, record, greets=not talk.is_complete_from_start) else "no connection"
            )
        self._comparator.add_requests(talk, record.seq, said, is_sent=why_not is None)
        if why_not is not None:
            self.sender.unsent[why_not] += 1
            talk.has_gap |= record.payload is None
            return
        self._frames += 1
        payload = self.sender.replace_tokens(record.payload or b"")
        self.redacted += REDACTED.encode() in payload
        for piece in split_frame(talk.protocol, Packet(payload, record.kind == "text", record.channel or "")):
            ask = self.sender.send(talk, piece)
            if ask is not None:
                self._comparator.recorded_answer(ask)
        if talk.connection is not None:
            await talk.connection.wait_writable()

    def _skip_reason(self, record: Record, said: list[DecodedMessage], kinds: set[str]) -> str | None:
        """Return why a frame is not sent again."""
        if record.payload is None:
            return "left out of the journal"
        if not record.is_complete:
            return "cut in the journal"
        if kinds == {"set"} and body_value(said[0].body) == REDACTED:
            return "redacted"
        # Answers go on, for what was sent before to be answered.
        return "over the limit" if self._is_limit_reached and (kinds & REQUEST_KINDS or not kinds) else None

    async def _wait_until_due(self, record: Record) -> None:
        if self._start is None:
            self._start = self._loop.time(), record.at
        start, first = self._start
        wait = start + (record.at - first) / _SECOND / self._options.speed - self._loop.time()
        if wait > 0:
            await asyncio.sleep(wait)

    async def _wait_for_causes(self, talk: ReplaySession, said: list[DecodedMessage]) -> None:
        """Wait for what had happened before a frame came."""
        due = self._comparator.awaited
        if any(_is_state_change(each.message) for each in said):
            await self._wait_until(lambda: not due)
        elif due:
            await self._wait_until(lambda: not talk.awaited_count and not any(map(_changed_state, due)))

    async def _wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Wait, but not for ever: what does not come by then is late, and nobody waits for it again."""
        changed = self._comparator.changed
        deadline = self._loop.time() + self._answer_timeout
        while not is_ready():
            left = deadline - self._loop.time()
            if left <= 0:
                self._answer_timeout = max(self._answer_timeout / 2, _MIN_WAIT)
                self._comparator.stop_waiting()
                return
            changed.clear()
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                pass

    # Connections.

    async def _connect(self, talk: ReplaySession, record: Record, *, greets: bool) -> bool:
        """Have a connection; say whether there is one. Who did not greet then does not now."""
        wire, options = talk.connection, self._options
        if wire is not None and wire.is_closing:
            await asyncio.wait([wire.closed], timeout=_CLOSE_TIMEOUT)
        elif wire is not None and not wire.closed.done():
            return True
        address = options.target.address(talk.protocol, record.transport)
        if isinstance(address, str):
            return False
        if wire is not None and not wire.is_closing:
            self.stats.add_difference(Difference("session", "ended too early", talk.session_id, talk.protocol))
        settings = connection_settings(address, options.token, options.identity, options.secret)
        wire = ReplayConnection(
            settings,
            lambda packet: self._comparator.compare_live(talk, packet),
            lambda: self._comparator.connection_lost(talk),
        )
        try:
            await wire.open(talk.peer, greets=greets)
        except ConnectFailed as exc:
            self.stats.add_difference(Difference("session", str(exc), talk.session_id, talk.protocol))
            talk.skip_reason = str(exc)
            return False
        self.sessions += talk.connection is None
        talk.connection, talk.peer = wire, wire.peer
        return True

    async def _close_session(self, talk: ReplaySession, record: Record) -> None:
        if talk.connection is not None:
            await self._wait_until(lambda: not self._comparator.is_waiting_for(talk))
            talk.connection.close()
        if not talk.is_resumable:
            self._finish_session(talk)
            del self._sessions[_session_key(record)]
            put_bounded(self._finished_sessions, _session_key(record), None)

    def _finish_session(self, talk: ReplaySession, *, is_cut: bool = False) -> None:
        """Say what became of requests that nobody waits for any more."""
        for waiting in talk.open_requests.values():
            for exchange in waiting:
                self._comparator.awaited.discard(exchange)
                exchange.report(self.stats, is_cut=is_cut)
        talk.open_requests.clear()
        talk.awaited_count = 0

    async def _disconnect(self) -> None:
        wires = [talk.connection for talk in self._sessions.values() if talk.connection is not None]
        for wire in wires:
            wire.close()
        if wires:
            await asyncio.wait([wire.closed for wire in wires], timeout=_CLOSE_TIMEOUT)


def _session_key(record: Record) -> _SessionKey:
    """Return what tells conversations apart: one of NQ goes over several links, one after the other."""
    return record.run, (record.protocol == "nq" and record.peer) or record.session


def _is_state_change(message: MessageRow) -> bool:
    """Say whether others may notice that a message was taken."""
    return message.kind in _STATE_CHANGE_KINDS or (
        message.kind == "call" and _is_state_changing_method(message.method or "")
    )


def _changed_state(exchange: ReplayedRequest) -> bool:
    return exchange.kind in _STATE_CHANGE_KINDS or (
        exchange.kind == "call" and _is_state_changing_method(exchange.name)
    )


def _is_state_changing_method(method: str) -> bool:
    return method.startswith("hub.") and method not in _STATELESS_METHODS
