"""What is heard, and what was heard then: each goes to where the other is waited for."""

import asyncio
from typing import Final

from fiveways.journal.rows import Record
from fiveways.pipeline.decode.plain import Frame
from fiveways.pipeline.decode.rows import Message
from fiveways.replay.desk import Ask, Desk
from fiveways.replay.happenings import Happenings, Place
from fiveways.replay.judging import EXTRA, Difference, Exchange, Tally, answer_of
from fiveways.replay.naming import CHANNEL, SUBSCRIPTION, Need
from fiveways.replay.speech import Said, frame_of, listen, value_of
from fiveways.replay.talks import Talk, remember
from fiveways.replay.voice import Voice
from fiveways.wire.packet import Packet

REQUESTS: Final = frozenset({"call", "callback", "publish", "subscribe", "unsubscribe", "discover"})
_ANSWERS: Final = frozenset({"result", "failure", "part", "accepted"})
_ASKED: Final = frozenset({"call", "callback", "discover", "event", "topic_closed"})
_TOLD: Final = frozenset({"event", "topic_closed", "set", "unset", "attachment", "error"})
_DOUBT: Final = 0.05
"""Seconds before a request of now is taken for one of then with other arguments."""


class Ear:
    """Compares what comes back with what came back."""

    def __init__(self, voice: Voice, tally: Tally) -> None:
        self._voice = voice
        self._tally = tally
        self._desk = Desk(tally, voice.give, self._doubt)
        self._happenings = Happenings(tally)
        self.due: set[Exchange] = set()
        """Requests that had been answered then, at the place where we are, and are not now."""
        self.changed = asyncio.Event()
        """Set with whatever comes."""
        self.is_after_end = False
        """The recording is over: what comes now, and had not come then, may have come later."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def expects(self) -> bool:
        """Whether something came then that has not come yet."""
        return bool(self.due or self._desk.expected or self._happenings.expected)

    def give_up(self) -> None:
        """Know that nobody waits any longer for what is due; it may still come."""
        for exchange in list(self.due):
            self._pass_over(exchange)

    def awaits(self, talk: Talk) -> bool:
        """Say whether something is to come in one conversation that came then, before the place where we are."""
        is_gone = talk.wire is None or talk.wire.gone.done()
        return not is_gone and bool(talk.due or talk.session in self._happenings.expected)

    def lost(self, talk: Talk) -> None:
        """Know that nothing more will come over a link."""
        for exchange in [each for each in self.due if each.talk is talk]:
            self._pass_over(exchange)
        self.changed.set()

    def _pass_over(self, exchange: Exchange) -> None:
        exchange.is_late = True
        exchange.talk.due -= 1
        self.due.discard(exchange)

    def open(self, talk: Talk, seq: int, said: list[Said], *, is_sent: bool) -> None:
        """Expect answers to what is asked in a frame."""
        for each in said:
            if each.message.kind in REQUESTS and each.message.id is not None:
                talk.open(Exchange(talk, seq, each.message, is_sent=is_sent))

    def hear(self, talk: Talk, packet: Packet) -> None:
        """Take what came now."""
        payload = packet.payload
        frame = Frame(talk.protocol, "out", packet.is_text, packet.channel or None, None, payload, len(payload))
        self._hear(talk, None, frame, live=True, is_known=True)
        self.changed.set()

    def recall(self, talk: Talk, record: Record) -> None:
        """Take what came then."""
        self._hear(talk, record.seq, frame_of(record), live=False, is_known=record.is_whole)

    def answered(self, ask: Ask) -> None:
        """Know that there was an answer to something that was not asked yet."""
        self._desk.answered(ask)

    def close(self) -> None:
        """Say what came at one time only."""
        if self._timer is not None:
            self._timer.cancel()
        self._desk.close()
        self._happenings.close()

    def _doubt(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DOUBT, self._settle)

    def _settle(self) -> None:
        self._timer = None
        self._desk.settle()

    def _hear(self, talk: Talk, seq: int | None, frame: Frame, *, live: bool, is_known: bool) -> None:
        for each in listen(frame).said:
            message = each.message
            if message.kind in _ANSWERS:
                self._answer(talk, each, live=live, is_known=is_known)
            elif message.kind in _ASKED and message.id is not None:
                self._ask(talk, seq, each, live=live, is_known=is_known)
            elif message.kind in _TOLD:
                # In LRPM an event names its subscription, by a number of the hub's.
                name = message.topic or ("" if talk.protocol.startswith("lrpm") else message.target or "")
                value = frame.payload if message.kind == "attachment" else value_of(each.body)
                place = Place(talk.session, message.kind, name)
                is_known = is_known and not (talk.has_gap and message.kind == "error")
                if not self.is_after_end or self._happenings.expects(place, value):
                    self._happenings.add(place, value, live=live, is_known=is_known)

    def _answer(self, talk: Talk, said: Said, *, live: bool, is_known: bool) -> None:
        message = said.message
        exchange = talk.find(message.id or "", live=live)
        if exchange is None:
            if live and message.kind != "accepted" and not talk.has_answered(message.id or ""):
                found = answer_of(message, said.body).told()
                self._tally.differs(Difference("call", EXTRA, talk.session, "", message.id or "", None, None, found))
            return
        self._learn(talk, exchange, message, live=live)
        if message.kind == "accepted":
            return
        exchange.add(answer_of(message, said.body, is_known=is_known), live=live)
        if exchange.name == "hub.callback":
            self._learn_token(exchange, value_of(said.body), live=live)
        self._watch(exchange)
        if exchange.is_over:
            exchange.close(self._tally)
            talk.forget(exchange)

    def _watch(self, exchange: Exchange) -> None:
        if exchange.is_due and exchange not in self.due:
            wire = exchange.talk.wire
            if wire is None or wire.gone.done():
                exchange.is_late = True
                return
            self.due.add(exchange)
            exchange.talk.due += 1
        elif not exchange.is_due and exchange in self.due:
            self.due.discard(exchange)
            exchange.talk.due -= 1

    def _learn(self, talk: Talk, exchange: Exchange, message: Message, *, live: bool) -> None:
        """Know what the hub calls something now that it called otherwise."""
        if message.target is None:
            return
        exchange.targets[live] = message.target
        was, now = exchange.targets
        if was is None or now is None:
            return
        if talk.lasts:
            self._voice.learn(talk, Need(CHANNEL, was), now)
        elif exchange.kind == "subscribe":
            self._voice.learn(talk, Need(SUBSCRIPTION, was), now)

    def _learn_token(self, exchange: Exchange, token: object, *, live: bool) -> None:
        if isinstance(token, str):
            exchange.tokens[live] = token
        was, now = exchange.tokens
        if was and now:
            self._voice.learn_token(was, now)

    def _ask(self, talk: Talk, seq: int | None, said: Said, *, live: bool, is_known: bool) -> None:
        identifier = said.message.id or ""
        known = talk.heard if live else talk.asked
        if talk.lasts and identifier in known:
            return  # NQ repeats what nobody has reacted to
        ask = Ask(talk, seq, said.message, said.body, is_known=is_known)
        remember(known, identifier, ask)
        if live:
            self._desk.live(ask, is_extra=not self.is_after_end)
        else:
            self._desk.recorded(ask)
