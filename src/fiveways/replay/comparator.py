"""Comparison of recorded and live messages from the hub."""

import asyncio
from typing import Final

from fiveways.journal.records import Record
from fiveways.pipeline.decode.general_path import JournaledFrame
from fiveways.pipeline.decode.message_row import MessageRow
from fiveways.replay.comparison import EXTRA, Difference, ReplayedRequest, ReplayStats, response_part
from fiveways.replay.event_matcher import EventKey, EventMatcher
from fiveways.replay.frame_decoder import DecodedMessage, body_value, decode_frame, to_frame
from fiveways.replay.frame_rewriting import BACKCHANNEL, SUBSCRIPTION, HubName
from fiveways.replay.frame_sender import FrameSender
from fiveways.replay.replay_session import ReplaySession, put_bounded
from fiveways.replay.request_matcher import HubRequest, RequestMatcher
from fiveways.wire.packet import Packet

REQUEST_KINDS: Final = frozenset({"call", "callback", "publish", "subscribe", "unsubscribe", "discover"})
_ANSWER_KINDS: Final = frozenset({"result", "failure", "part", "accepted"})
_HUB_REQUEST_KINDS: Final = frozenset({"call", "callback", "discover", "event", "topic_closed"})
_EVENT_KINDS: Final = frozenset({"event", "topic_closed", "set", "unset", "attachment", "error"})
_MATCH_DELAY: Final = 0.05
"""Seconds before a live request is matched with a recorded one that has other arguments."""


class Comparator:
    """Decodes recorded and live frames, and passes each message to its matcher."""

    def __init__(self, sender: FrameSender, stats: ReplayStats) -> None:
        self._sender = sender
        self._stats = stats
        self._request_matcher = RequestMatcher(stats, sender.send_answers, self._schedule_matching)
        self._event_matcher = EventMatcher(stats)
        self.awaited: set[ReplayedRequest] = set()
        """Requests with a recorded response before the current position, but without a live one."""
        self.changed = asyncio.Event()
        """Set for every live frame."""
        self.is_after_end = False
        """The recording has ended: live messages without a recorded one may only be late, so they are not differences.
        """
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_expectations(self) -> bool:
        """Whether recorded messages exist that have not been received live."""
        return bool(self.awaited or self._request_matcher.expected or self._event_matcher.expected)

    def stop_waiting(self) -> None:
        """Stop waiting for overdue responses; they may still arrive."""
        for request in list(self.awaited):
            self._mark_late(request)

    def is_waiting_for(self, session: ReplaySession) -> bool:
        """Return whether a session lacks live messages that were recorded before the current position."""
        is_gone = session.connection is None or session.connection.closed.done()
        return not is_gone and bool(session.awaited_count or session.session_id in self._event_matcher.expected)

    def connection_lost(self, session: ReplaySession) -> None:
        """Stop waiting for the responses of a lost connection."""
        for request in [awaited for awaited in self.awaited if awaited.session is session]:
            self._mark_late(request)
        self.changed.set()

    def _mark_late(self, request: ReplayedRequest) -> None:
        request.is_late = True
        request.session.awaited_count -= 1
        self.awaited.discard(request)

    def add_requests(self, session: ReplaySession, seq: int, messages: list[DecodedMessage], *, is_sent: bool) -> None:
        """Register the requests in a recorded inbound frame."""
        for decoded in messages:
            if decoded.message.kind in REQUEST_KINDS and decoded.message.id is not None:
                session.add_request(ReplayedRequest(session, seq, decoded.message, is_sent=is_sent))

    def compare_live(self, session: ReplaySession, packet: Packet) -> None:
        """Compare a live packet from the hub."""
        payload = packet.payload
        frame = JournaledFrame(
            session.protocol, "out", packet.is_text, packet.channel or None, None, payload, len(payload)
        )
        self._compare(session, None, frame, live=True, is_complete=True)
        self.changed.set()

    def compare_recorded(self, session: ReplaySession, record: Record) -> None:
        """Compare a recorded outbound frame."""
        self._compare(session, record.seq, to_frame(record), live=False, is_complete=record.is_complete)

    def recorded_answer(self, request: HubRequest) -> None:
        """Note a recorded response to a hub request that was not received live so far."""
        self._request_matcher.answer_recorded(request)

    def report_unmatched(self) -> None:
        """Report messages that have no counterpart."""
        if self._timer is not None:
            self._timer.cancel()
        self._request_matcher.report_unmatched()
        self._event_matcher.report_unmatched()

    def _schedule_matching(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_MATCH_DELAY, self._match_by_order)

    def _match_by_order(self) -> None:
        self._timer = None
        self._request_matcher.match_by_order()

    def _compare(
        self, session: ReplaySession, seq: int | None, frame: JournaledFrame, *, live: bool, is_complete: bool
    ) -> None:
        for decoded in decode_frame(frame).messages:
            message = decoded.message
            if message.kind in _ANSWER_KINDS:
                self._compare_answer(session, decoded, live=live, is_complete=is_complete)
            elif message.kind in _HUB_REQUEST_KINDS and message.id is not None:
                self._compare_request(session, seq, decoded, live=live, is_complete=is_complete)
            elif message.kind in _EVENT_KINDS:
                # LRPM events have the subscription id of the hub, which differs.
                name = message.topic or ("" if session.protocol.startswith("lrpm") else message.target or "")
                value = frame.payload if message.kind == "attachment" else body_value(decoded.body)
                key = EventKey(session.session_id, message.kind, name)
                is_complete = is_complete and not (session.has_gap and message.kind == "error")
                if not self.is_after_end or self._event_matcher.expects(key, value):
                    self._event_matcher.add(key, value, live=live, is_complete=is_complete)

    def _compare_answer(
        self, session: ReplaySession, decoded: DecodedMessage, *, live: bool, is_complete: bool
    ) -> None:
        message = decoded.message
        request = session.find_request(message.id or "", live=live)
        if request is None:
            if live and message.kind != "accepted" and not session.has_answered(message.id or ""):
                live_response = response_part(message, decoded.body).as_dict()
                self._stats.add_difference(
                    Difference("call", EXTRA, session.session_id, id=message.id or "", live=live_response)
                )
            return
        self._learn_name(session, request, message, live=live)
        if message.kind == "accepted":
            return
        request.add(response_part(message, decoded.body, is_complete=is_complete), live=live)
        if request.name == "hub.callback":
            self._learn_token(request, body_value(decoded.body), live=live)
        self._update_awaited(request)
        if request.is_over:
            request.report(self._stats)
            session.finish_request(request)

    def _update_awaited(self, request: ReplayedRequest) -> None:
        if request.is_awaited and request not in self.awaited:
            connection = request.session.connection
            if connection is None or connection.closed.done():
                request.is_late = True
                return
            self.awaited.add(request)
            request.session.awaited_count += 1
        elif not request.is_awaited and request in self.awaited:
            self.awaited.discard(request)
            request.session.awaited_count -= 1

    def _learn_name(self, session: ReplaySession, request: ReplayedRequest, message: MessageRow, *, live: bool) -> None:
        """Map a name in a recorded response to the name in the live one."""
        if message.target is None:
            return
        request.targets[live] = message.target
        recorded, live_name = request.targets
        if recorded is None or live_name is None:
            return
        if session.is_resumable:
            self._sender.learn_name(session, HubName(BACKCHANNEL, recorded), live_name)
        elif request.kind == "subscribe":
            self._sender.learn_name(session, HubName(SUBSCRIPTION, recorded), live_name)

    def _learn_token(self, request: ReplayedRequest, token: object, *, live: bool) -> None:
        if isinstance(token, str):
            request.tokens[live] = token
        recorded, live_token = request.tokens
        if recorded and live_token:
            self._sender.learn_token(recorded, live_token)

    def _compare_request(
        self, session: ReplaySession, seq: int | None, decoded: DecodedMessage, *, live: bool, is_complete: bool
    ) -> None:
        request_id = decoded.message.id or ""
        requests = session.live_requests if live else session.recorded_requests
        if session.is_resumable and request_id in requests:
            return  # an NQ retransmission
        request = HubRequest(session, seq, decoded.message, decoded.body, is_complete=is_complete)
        put_bounded(requests, request_id, request)
        if live:
            self._request_matcher.add_live(request, is_extra=not self.is_after_end)
        else:
            self._request_matcher.add_recorded(request)
