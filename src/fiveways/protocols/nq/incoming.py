"""The answering half of a conversation: requests of the peer, and what the hub says to them."""

from typing import Any

from fiveways.model import messages as hub
from fiveways.model.failures import Reason
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq import messages as nq
from fiveways.protocols.nq.answering import Answering
from fiveways.protocols.nq.bridge import CLOSED, JSON_NULL, Refused, key_of, read_attachments, to_hub
from fiveways.protocols.nq.common import Common
from fiveways.protocols.nq.dedup import LONGEST_REASON, Finished, Tomb
from fiveways.protocols.nq.errors import Err
from fiveways.protocols.nq.messages import Request, RequestPart
from fiveways.protocols.nq.requests import CANCELLED, Serving
from fiveways.protocols.nq.states import Step, Taken
from fiveways.protocols.nq.streams import Contradiction, Receiver, acknowledge, resend
from fiveways.protocols.nq.writing import write
from fiveways.wire.payload import NULL, Payload

WAITING = Err("tmp", False, note="waiting")
_ACK, _ACKNOWLEDGED = Step.ACK, Tomb.ACKNOWLEDGED  # members of an Enum are slow to look up


class Incoming(Answering):
    """What the peer asks, and what it is answered."""

    def __init__(self, common: Common) -> None:
        super().__init__(common)
        self._words = common.words
        self.finished = Finished(common)
        self.tombs = self.finished.tombs

    # Requests.

    def on_request(self, message: Request, now: float) -> None:
        """Take a request, or recognise one that was taken before."""
        key = key_of(message.t, message.r)
        if (key in self.requests or self.finished.may_know(key)) and self._is_known(key, message.r, now):
            return
        try:
            if message.t in self._common.following or message.t == CLOSED:
                self._event(key, message, now)
                return
            self._check_room()
            attached: tuple[hub.Attachment, ...] = ()
            if message.extra is None and not message.v:
                word = to_hub(key, message.t or self._common.options.default_method, message.d or NULL, None)
            else:
                attached = read_attachments(key, message.extra, self._common.limits)
                word = self._word(key, message, attached)
            topic = None if type(word) is hub.Call else self._common.published.ask(word)
        except Refused as refused:
            self._line.say(self.finished.refuse(key, message.r, refused, now))
            return
        serving = self._open(key, message)
        if topic is not None:
            serving.topic, serving.grant = topic
        self._words.append(word)
        if attached and getattr(word, "attachments", ()):
            self._words += attached

    def on_part(self, message: RequestPart, now: float) -> None:
        """Take one part of a streamed request; the hub hears them in order."""
        key = key_of(message.t, message.r)
        serving = self.requests.get(key)
        if serving is None or serving.receiver is None:
            if self._is_known(key, message.r, now):
                return
            try:
                serving = self._open_stream(key, message)
            except Refused as refused:
                self._line.say(self.finished.refuse(key, message.r, refused, now))
                return
        receiver = serving.receiver
        assert receiver is not None  # noqa: S101  a streamed request that is not answered has one
        if message.n + (message.f or 0) > self._common.limits.max_stream:
            self._give_up(serving, Err("local", True, "toolarge", text="the stream is too long"), now)
            return
        before = receiver.next
        try:
            turn = receiver.take(message)
        except Contradiction:
            self._give_up(serving, Err("local", True, "malformed", text="the parts contradict each other"), now)
            return
        for part in turn:
            self._hear_part(serving, part, receiver.total, now)
        if serving.state is Taken.ANSWERED:
            return  # the first part was refused
        if receiver.is_done and not receiver.ended:
            self._words.append(hub.Part(key, None, last=True))
            receiver.ended = True
        if message.n == 1 and before > 1 and serving.accepted:
            self._say_acceptance(serving)
        receiver.acknowledge(now, progress=receiver.next > before)

    def _open_stream(self, key: str, message: RequestPart) -> Serving:
        self._check_room()
        if message.d is None and message.n <= 1:
            raise Refused(Reason.BAD_ARGUMENTS, "a streamed request needs an element")
        self._word(key, message, ())  # Refused now, if it will be
        serving = self._open(key, message)
        serving.receiver = Receiver(self._common, serving.a, serving.r)
        return serving

    def _open(self, key: str, message: Request | RequestPart) -> Serving:
        serving = Serving(self._common.mint(), key, message.r)
        if message.v:
            serving.v = message.v
        self.requests.add(serving)
        return serving

    def _word(self, key: str, message: Request | RequestPart, attached: tuple[hub.Attachment, ...]) -> hub.Word:
        target = message.t or self._common.options.default_method
        names = tuple(each.name for each in attached)
        more = isinstance(message, RequestPart)
        return to_hub(key, target, message.d or NULL, message.extra, names, more=more, verbose=message.v)

    def _check_room(self) -> None:
        if self.requests.is_full():
            raise Refused(Reason.BUSY, "too many requests are open, or too many answers not acknowledged")

    def _hear_part(self, serving: Serving, part: RequestPart, total: int | None, now: float) -> None:
        receiver = serving.receiver
        if receiver is None:
            return  # its first part was refused
        if part.n > 1:
            receiver.ended = part.n == total
            self._words.append(hub.Part(serving.key, part.d, last=receiver.ended))
            return
        try:
            attached = read_attachments(serving.key, part.extra, self._common.limits)
            self._words.append(self._word(serving.key, part, attached))
            self._words += attached
        except Refused as refused:
            error = bridge.error_of(hub.Failure("", refused.reason, refused.text[:LONGEST_REASON]))
            serving.unheard = True
            self._keep(serving, write(nq.ErrorAnswer(serving.a, (serving.r,), None, error)), now)

    def _give_up(self, serving: Serving, error: Err, now: float) -> None:
        """End a request. If the hub has heard of it, it is the hub that has to say so."""
        if serving.receiver is not None and serving.receiver.next == 1:
            serving.unheard = True
            self._keep(serving, write(nq.ErrorAnswer(serving.a, (serving.r,), None, error)), now)
        elif not serving.cancelled:
            serving.cancelled = True
            serving.excuse = error
            self._words.append(hub.Cancel(serving.key))

    def _is_known(self, key: str, r: str, now: float) -> bool:
        """Whether the request has come before; if so, say again what was said then."""
        serving = self.requests.get(key)
        if serving is None:
            answer = self.finished.answer(key, r, now)
            if answer is not None:
                self._line.say(answer)
            return answer is not None
        serving.repeats += 1
        if serving.state is Taken.ANSWERED:
            self._say_again(serving)
            return True
        if serving.accepted:
            self._say_acceptance(serving)
        if serving.v:
            self._line.say(write(nq.Note(serving.a, (r,), None, WAITING)))
        if isinstance(serving.v, str):
            # Only who asks for it by a text hears NQ talk about itself (NQ-10).
            error = Err("debug", False, "", "", "repeat", "came again, {1} so far", (str(serving.repeats),))
            self._line.say(write(nq.Note(serving.a, (r,), None, error)))
        return True

    def _say_again(self, serving: Serving) -> None:
        if serving.sender is None:
            self._line.push(serving)
        else:
            serving.sender.late()
            self._line.push(serving.sender)

    def _event(self, key: str, message: Request, now: float) -> None:
        """Hear an event of a subscription of ours, or its end; the answer needs nobody above."""
        body = message.d or NULL
        if message.t == CLOSED:
            self._topic_closed(body)
        else:
            following = self._common.following[message.t]
            attached = read_attachments(key, message.extra, self._common.limits)
            names = tuple(each.name for each in attached)
            self._words.append(bridge.event_of(following, body, message.extra, names))
            self._words += attached
        self.tombs.add(key, Tomb.EVENT, now)
        self._line.say(write(nq.Answer(self._common.mint(), (message.r,), JSON_NULL)))

    def _topic_closed(self, body: Payload) -> None:
        match bridge.value_of(body):
            case {"id": str(target)}:
                following = self._common.following.pop(target, None)
                if following is not None:
                    self._words.append(hub.TopicClosed(following.subscription))
            case _:
                raise Refused(Reason.BAD_ARGUMENTS, "needs id, the subscription that has ended")

    # What the peer says about its requests.

    def on_poll(self, message: nq.Poll, now: float) -> None:
        """Tell what became of a request; an answer that is there follows (NQ-a06)."""
        key = key_of(message.t, message.p)
        serving = self.requests.get(key)
        if serving is not None:
            note = "done" if serving.state is Taken.ANSWERED else "pending"
            self._line.say(write(nq.PollReply(serving.a, (message.p,), Err("sys", False, note=note))))
            if serving.state is Taken.ANSWERED:
                self._say_again(serving)
            return
        a, answer = self._common.mint(), self.finished.answer(key, message.p, now)
        note = "unknown" if answer is None else "done"
        self._line.say(write(nq.PollReply(a, (message.p,), Err("sys", False, note=note))))
        if answer is not None:
            self._line.say(answer)

    def on_ack(self, message: nq.Ack, now: float) -> None:
        """Let a single answer go. On a stream, or before the answer, a bare `{i}` means nothing (NQ-a02)."""
        for backchannel in message.i:
            serving = self.requests.on(backchannel)
            if serving is not None and serving.sender is None and serving.said:
                self.acknowledged(serving, now)

    def on_next(self, message: nq.Next, now: float) -> None:
        """Let the parts go that have come."""
        for backchannel in message.i:
            serving = self.requests.on(backchannel)
            if serving is not None and acknowledge(serving.sender, message.o, now):
                self.acknowledged(serving, now)

    def on_missing(self, message: nq.Missing, now: float) -> None:
        """Say the parts again that are missing."""
        numbers = frozenset(message.o)
        for backchannel in frozenset(message.i):
            serving = self.requests.on(backchannel)
            if serving is not None:
                resend(serving.sender, numbers)

    def on_cancel(self, message: nq.CancelRequest, now: float) -> None:
        """Tell the hub, once, that the answer is not wanted any more."""
        for identifier in message.i:
            serving = self.requests.on(identifier) or self.requests.get(key_of(message.t, identifier))
            if serving is None:
                continue
            if serving.state is Taken.ANSWERED:
                self._say_again(serving)
            else:
                self._give_up(serving, CANCELLED, now)

    def on_back_message(self, message: nq.BackMessage, now: float) -> None:
        """Say that nobody reads the backchannel: the hub has no word for it."""
        for backchannel in dict.fromkeys(message.i):
            serving = self.requests.on(backchannel)
            if serving is not None and serving.state is not Taken.ANSWERED:
                error = Err("warn", False, warn="unread", text="nobody reads this backchannel")
                self._line.say(write(nq.Note(serving.a, (serving.r,), None, error)))

    def acknowledged(self, serving: Serving, now: float) -> None:
        """Keep nothing more of a request but its key: its answer has come."""
        serving.advance(_ACK)
        self.requests.forget(serving)
        self.tombs.add(serving.key, _ACKNOWLEDGED, now)
        if not serving.unheard:
            self._words.append(hub.Acknowledged(serving.key))

    # Time.

    def expire(self, now: float) -> None:
        """Say what was accepted; let answers go that the peer never took, which somebody should know."""
        self.say_acceptances(now)
        while (serving := self.requests.oldest()) is not None and serving.expires_at <= now:
            serving.advance(Step.EXPIRE)
            self.requests.forget(serving)
            self.tombs.add(serving.key, Tomb.EXPIRED, now)
            if not serving.unheard:
                self._words.append(hub.Stray(serving.key, "the answer was never acknowledged, and its time is over"))
        self.tombs.expire(now)

    def deadline(self) -> float | None:
        """Return when the next acceptance is to be said, or the oldest answer to be given up."""
        if self.unsaid:
            return self.unsaid[0][0]
        oldest = self.requests.oldest()
        return None if oldest is None else oldest.expires_at

    def renew(self) -> None:
        """Say all of it again, over another link."""
        for serving in self.requests.all():
            if serving.always:
                self._line.renew(serving)
            if serving.sender is not None:
                self._line.renew(serving.sender)
            if serving.receiver is not None:
                self._line.renew(serving.receiver)

    def export(self, now: float, *, unaccepted: bool) -> list[dict[str, object]]:
        """Return all that is needed to go on elsewhere."""
        return [each.export(now) for each in self.requests.all() if unaccepted or each.state is not Taken.RECEIVED]

    def restore(self, saved: list[dict[str, Any]], now: float) -> None:
        """Go on where another has stopped."""
        servings = [Serving.restore(self._common, each, now) for each in saved]
        for serving in servings:
            self.requests.add(serving)
            if serving.topic and not serving.grant and serving.state is not Taken.ANSWERED:
                self._common.published.grants.setdefault(serving.topic, "")
        for serving in sorted(servings, key=lambda each: each.expires_at):
            if serving.state is Taken.ANSWERED:
                self.requests.keep(serving, serving.expires_at)
