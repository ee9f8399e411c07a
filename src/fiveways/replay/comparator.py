"""What is heard, and what was heard then: each goes to where the other is waited for."""

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
"""Seconds before a request of now is taken for one of then with other arguments."""


class Comparator:
    """Compares what comes back with what came back."""

    def __init__(self, voice: FrameSender, tally: ReplayStats) -> None:
        self._sender = voice
        self._stats = tally
        self._request_matcher = RequestMatcher(tally, voice.send_answers, self._schedule_matching)
        self._event_matcher = EventMatcher(tally)
        self.awaited: set[ReplayedRequest] = set()
        """Requests that had been answered then, at the place where we are, and are not now."""
        self.changed = asyncio.Event()
        """Set with whatever comes."""
        self.is_after_end = False
        """The recording is over: what comes now, and had not come then, may have come later."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_expectations(self) -> bool:
        """Whether something came then that has not come yet."""
        return bool(self.awaited or self._request_matcher.expected or self._event_matcher.expected)

    def stop_waiting(self) -> None:
        """Know that nobody waits any longer for what is due; it may still come."""
        for exchange in list(self.awaited):
            self._mark_late(exchange)

    def is_waiting_for(self, talk: ReplaySession) -> bool:
        """Say whether something is to come in one conversation that came then, before the place where we are."""
        is_gone = talk.connection is None or talk.connection.closed.done()
        return not is_gone and bool(talk.awaited_count or talk.session_id in self._event_matcher.expected)

    def connection_lost(self, talk: ReplaySession) -> None:
        """Know that nothing more will come over a link."""
        for exchange in [each for each in self.awaited if each.session is talk]:
            self._mark_late(exchange)
        self.changed.set()

    def _mark_late(self, exchange: ReplayedRequest) -> None:
        exchange.is_late = True
        exchange.session.awaited_count -= 1
        self.awaited.discard(exchange)

    def add_requests(self, talk: ReplaySession, seq: int, said: list[DecodedMessage], *, is_sent: bool) -> None:
        """Expect answers to what is asked in a frame."""
        for each in said:
            if each.message.kind in REQUEST_KINDS and each.message.id is not None:
                talk.add_request(ReplayedRequest(talk, seq, each.message, is_sent=is_sent))

    def compare_live(self, talk: ReplaySession, packet: Packet) -> None:
        """Take what came now."""
        payload = packet.payload
        frame = JournaledFrame(
            talk.protocol, "out", packet.is_text, packet.channel or None, None, payload, len(payload)
        )
        self._compare(talk, None, frame, live=True, is_known=True)
        self.changed.set()

    def compare_recorded(self, talk: ReplaySession, record: Record) -> None:
        """Take what came then."""
        self._compare(talk, record.seq, to_frame(record), live=False, is_known=record.is_complete)

    def recorded_answer(self, ask: HubRequest) -> None:
        """Know that there was an answer to something that was not asked yet."""
        self._request_matcher.answer_recorded(ask)

    def report_unmatched(self) -> None:
        """Say what came at one time only."""
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
        self, talk: ReplaySession, seq: int | None, frame: JournaledFrame, *, live: bool, is_known: bool
    ) -> None:
        for each in decode_frame(frame).messages:
            message = each.message
            if message.kind in _ANSWER_KINDS:
                self._compare_answer(talk, each, live=live, is_known=is_known)
            elif message.kind in _HUB_REQUEST_KINDS and message.id is not None:
                self._compare_request(talk, seq, each, live=live, is_known=is_known)
            elif message.kind in _EVENT_KINDS:
                # In LRPM an event names its subscription, by a number of the hub's.
                name = message.topic or ("" if talk.protocol.startswith("lrpm") else message.target or "")
                value = frame.payload if message.kind == "attachment" else body_value(each.body)
                place = EventKey(talk.session_id, message.kind, name)
                is_known = is_known and not (talk.has_gap and message.kind == "error")
                if not self.is_after_end or self._event_matcher.expects(place, value):
                    self._event_matcher.add(place, value, live=live, is_known=is_known)

    def _compare_answer(self, talk: ReplaySession, said: DecodedMessage, *, live: bool, is_known: bool) -> None:
        message = said.message
        exchange = talk.find_request(message.id or "", live=live)
        if exchange is None:
            if live and message.kind != "accepted" and not talk.has_answered(message.id or ""):
                found = response_part(message, said.body).as_dict()
                self._stats.add_difference(
                    Difference("call", EXTRA, talk.session_id, "", message.id or "", None, None, found)
                )
            return
        self._learn_name(talk, exchange, message, live=live)
        if message.kind == "accepted":
            return
        exchange.add(response_part(message, said.body, is_known=is_known), live=live)
        if exchange.name == "hub.callback":
            self._learn_token(exchange, body_value(said.body), live=live)
        self._update_awaited(exchange)
        if exchange.is_over:
            exchange.report(self._stats)
            talk.finish_request(exchange)

    def _update_awaited(self, exchange: ReplayedRequest) -> None:
        if exchange.is_awaited and exchange not in self.awaited:
            wire = exchange.session.connection
            if wire is None or wire.closed.done():
                exchange.is_late = True
                return
            self.awaited.add(exchange)
            exchange.session.awaited_count += 1
        elif not exchange.is_awaited and exchange in self.awaited:
            self.awaited.discard(exchange)
            exchange.session.awaited_count -= 1

    def _learn_name(self, talk: ReplaySession, exchange: ReplayedRequest, message: MessageRow, *, live: bool) -> None:
        """Know what the hub calls something now that it called otherwise."""
        if message.target is None:
            return
        exchange.targets[live] = message.target
        was, now = exchange.targets
        if was is None or now is None:
            return
        if talk.is_resumable:
            self._sender.learn_name(talk, HubName(BACKCHANNEL, was), now)
        elif exchange.kind == "subscribe":
            self._sender.learn_name(talk, HubName(SUBSCRIPTION, was), now)

    def _learn_token(self, exchange: ReplayedRequest, token: object, *, live: bool) -> None:
        if isinstance(token, str):
            exchange.tokens[live] = token
        was, now = exchange.tokens
        if was and now:
            self._sender.learn_token(was, now)

    def _compare_request(
        self, talk: ReplaySession, seq: int | None, said: DecodedMessage, *, live: bool, is_known: bool
    ) -> None:
        identifier = said.message.id or ""
        known = talk.live_requests if live else talk.recorded_requests
        if talk.is_resumable and identifier in known:
            return  # NQ repeats what nobody has reacted to
        ask = HubRequest(talk, seq, said.message, said.body, is_known=is_known)
        put_bounded(known, identifier, ask)
        if live:
            self._request_matcher.add_live(ask, is_extra=not self.is_after_end)
        else:
            self._request_matcher.add_recorded(ask)
