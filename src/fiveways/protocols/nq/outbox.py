"""The asking half of a conversation: requests of ours, and what the peer says to them."""

from fiveways.errors import LocalProtocolError
from fiveways.model import messages as hub
from fiveways.model.failures import Reason
from fiveways.protocols.holding import Waiting
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq.asked import OpenRequests
from fiveways.protocols.nq.bridge import Following
from fiveways.protocols.nq.common import Common
from fiveways.protocols.nq.frames import Free
from fiveways.protocols.nq.messages import (
    Acceptance,
    Answer,
    AnswerPart,
    Bad,
    CancelRequest,
    ErrorAnswer,
    Missing,
    Next,
    Note,
    PollReply,
    Request,
    RequestPart,
)
from fiveways.protocols.nq.requests import CANCELLED, Asking, verbosity
from fiveways.protocols.nq.states import Asked, Step
from fiveways.protocols.nq.streams import Contradiction, Receiver, Sender, acknowledge, resend
from fiveways.protocols.nq.writing import write
from fiveways.wire.payload import NULL


class Outgoing(OpenRequests):
    """What we ask of the peer, and what it answers."""

    def __init__(self, common: Common, waiting: Waiting) -> None:
        super().__init__(common)
        self._waiting = waiting

    # What the hub says.

    def say_request(self, word: bridge.Said, now: float, extra: Free | None = None, topic: str = "") -> Asking:
        """`{t, r, d}`, or the first part of it."""
        hub_id: str | None = getattr(word, "id", None)  # events have none
        self._check_room(word, hub_id)
        target, body, free = bridge.from_hub(word, topic)
        if extra is not None:
            free = extra if free is None else free | extra
        given = None if body is NULL else bridge.body_of(body)
        common = self._common
        asking = Asking(common, common.mint(), target, type(word), hub_id)
        asking.expires_at = now + common.options.request_ttl
        asking.v = common.options.verbose
        asking.op = common.op
        if isinstance(word, hub.Call) and word.extras is not None:
            asking.v = verbosity(word.extras) or asking.v
        if isinstance(word, hub.Call) and word.more:
            part = RequestPart(target, asking.r, given or bridge.JSON_NULL, 1, None, asking.v, "", free)
            raw = common.fitting(write(part))
            asking.sender = Sender(common, op=common.op)
            asking.sender.add(raw, end=False)
            self._line.push(asking.sender)
            self._line.rest(asking, now)
        else:
            asking.data = common.fitting(write(Request(target, asking.r, given, asking.v, "", free)))
            size, asked = len(asking.data), common.asked
            # As with their number, events may take half of the room.
            if (asking.word is hub.Event and asked.used + size > (asked.most + 1) // 2) or not asked.has(size):
                raise LocalProtocolError("too many bytes of requests to this peer are not answered")
            self._line.push(asking)
        self._open(asking)
        return asking

    def say_part(self, word: hub.Part, now: float) -> None:
        """`{t, r, d, n, f}`."""
        asking = self._by_id.get(word.id)
        if asking is None or asking.sender is None or asking.sender.ended:
            raise LocalProtocolError(f"no streamed request {word.id} is open")
        if word.body is None and not word.last:
            raise LocalProtocolError("only the end of a stream may carry nothing")
        sender, common = asking.sender, self._common
        body = None if word.body is None else bridge.body_of(word.body)
        number, follow = sender.last + 1, 0 if word.last else None
        raw = common.fitting(write(RequestPart(asking.t, asking.r, body, number, follow, asking.v)))
        if number > common.limits.max_stream or sender.is_full(len(raw)):
            raise LocalProtocolError(f"the peer takes no more than {number - 1} parts of request {word.id}")
        sender.add(raw, end=word.last)
        if sender.has_more():
            self._line.push(sender)

    def say_cancel(self, word: hub.Cancel, now: float) -> None:
        """`{i, e}`, fatal; a request that the hub does not wait for is left alone."""
        asking = self._by_id.get(word.id)
        if asking is not None:
            self._cancel(asking, now)

    def say_subscribe(self, word: hub.Subscribe, now: float) -> None:
        """Ask for events; they will come as requests to the target that the subscription is given here."""
        following = self._common.following
        if self._followed(word.subscription) is not None:
            raise LocalProtocolError(f"subscription {word.subscription} is open already")
        if len(following) >= self._common.limits.max_subscriptions:
            raise LocalProtocolError("too many subscriptions are open")
        target = self._common.mint()  # any other might be the name of a method
        self.say_request(word, now, None, target).topic = target
        following[target] = Following(word.subscription, word.envelope)

    def say_unsubscribe(self, word: hub.Unsubscribe, now: float) -> None:
        """Ask for no more events."""
        target = self._followed(word.subscription)
        if target is None:
            raise LocalProtocolError(f"no subscription {word.subscription} is open")
        self.say_request(word, now, None, target)
        del self._common.following[target]

    def say_event(self, word: hub.Event | hub.TopicClosed, now: float, extra: Free | None = None) -> None:
        """Send a request to a subscription of the peer's; nobody waits for its answer."""
        published = self._common.published
        grant = published.grants.get(word.subscription)
        if not grant:
            raise LocalProtocolError(f"the peer has no subscription {word.subscription}")
        self.say_request(word, now, extra).grant = grant
        if isinstance(word, hub.TopicClosed):
            published.end(word.subscription, grant)

    def _check_room(self, word: bridge.Said, hub_id: str | None) -> None:
        if hub_id in self._by_id or hub_id in self._waiting:
            raise LocalProtocolError(f"request {hub_id} is open already")
        room = self._common.limits.max_pending
        # A subscriber that does not answer may not keep the calls out.
        if len(self._asking) >= room or (isinstance(word, hub.Event) and self._events >= (room + 1) // 2):
            raise LocalProtocolError("too many requests to this peer are open")

    def _followed(self, subscription: str) -> str | None:
        following = self._common.following
        return next((target for target, each in following.items() if each.subscription == subscription), None)

    # What the peer says.

    def on_acceptance(self, message: Acceptance, now: float) -> None:
        """`{a, i}`: no need to say it again; poll now and then."""
        for r in message.i:
            asking = self._asking.get(r)
            if asking is None:
                continue
            self._begun_anew(asking, message.a, now)
            asking.a = asking.a or message.a
            if asking.advance(Step.ACCEPT):
                self._line.rest(asking, now)
                if asking.hub_id is not None and asking.word is hub.Call and not asking.accepted:
                    asking.accepted = True
                    self._words.append(hub.Accepted(asking.hub_id))

    def on_answer(self, message: Answer, now: float) -> None:
        """`{a, i, d}`: the first one is given on, each is acknowledged (NQ-12)."""
        common = self._common
        common.thanks.append(message.a)
        attached = None if message.extra is None else bridge.attached_to(message, common.limits)
        extras = bridge.extras_of(message.extra)
        for r in message.i:
            asking = self._asking.get(r)
            if asking is None:
                continue
            if asking.receiver is not None:
                self._begun_anew(asking, message.a, now)
            hub_id, word = asking.hub_id, asking.word
            self._finish(asking, Step.END)
            if hub_id is not None:
                self._words += bridge.result_of(hub_id, word, message, attached, extras)
        if asking is None or len(message.i) > 1:
            self._nobody(message.i)

    def on_part(self, message: AnswerPart, now: float) -> None:
        """`{a, i, d, n, f}`: given on in order."""
        for r in message.i:
            asking = self._asking.get(r)
            if asking is not None:
                self._begun_anew(asking, message.a, now)
            if asking is not None and asking.state is not Asked.CANCELLED:
                if asking.receiver is None:
                    asking.a = message.a
                    asking.receiver = Receiver(self._common, "", message.a)
                if asking.receiver.i == message.a:
                    self._hear_part(asking, asking.receiver, message, now)
                    continue
                if self._common.is_unheard_of(message.a):
                    continue  # who speaks here has not told who it is: it may yet be the one to hear
            # Nobody wants it, or no longer: what is acknowledged is not said again.
            self._line.say(write(Next("", (message.a,), message.n + 1)))
            if asking is not None and message.f == 0 and asking.state is Asked.CANCELLED:
                self._finish(asking, Step.END)
        self._nobody(message.i)

    def _hear_part(self, asking: Asking, receiver: Receiver[AnswerPart], message: AnswerPart, now: float) -> None:
        limits, hub_id = self._common.limits, asking.hub_id
        if message.n + (message.f or 0) > limits.max_stream:
            self._fail(asking, Reason.RAISED, "the stream is too long", now)
            return
        asking.fresh = True
        asking.advance(Step.PART)
        try:
            turn = receiver.take(message)
        except Contradiction:
            self._break_off(asking, message, now)
            return
        for part in turn:
            receiver.ended = part.n == receiver.total
            if hub_id is not None:
                self._words += bridge.element_of(hub_id, part, limits, last=receiver.ended)
        receiver.acknowledge(now, progress=bool(turn))
        if receiver.is_done:
            self._finish(asking, Step.END)
            if hub_id is not None and not receiver.ended:
                self._words.append(hub.Result(hub_id, None, (), True, True))

    def _break_off(self, asking: Asking, message: AnswerPart, now: float) -> None:
        """End a stream that contradicts itself; an error is an end wherever it stands."""
        if message.e is None:
            self._fail(asking, Reason.RAISED, "the parts of the answer contradict each other", now)
            return
        hub_id = asking.hub_id
        self._line.say(write(Next("", (message.a,), message.n + 1)))
        self._finish(asking, Step.END)
        if hub_id is not None:
            self._words.append(bridge.failure_of(hub_id, message.e, message.d))

    def on_error(self, message: ErrorAnswer, now: float) -> None:
        """`{a, i, e}`, fatal."""
        self._common.thanks.append(message.a)
        for r in message.i:
            asking = self._asking.get(r)
            if asking is None:
                continue
            self._begun_anew(asking, message.a, now)
            hub_id = asking.hub_id
            self._finish(asking, Step.END)
            self._common.following.pop(asking.topic, None)
            if hub_id is not None:
                self._words.append(bridge.failure_of(hub_id, message.e, message.d))
            elif asking.word is hub.Event and bridge.is_unknown_target(message.e):
                self._unsubscribed(asking)
        self._nobody(message.i)

    def _unsubscribed(self, asking: Asking) -> None:
        """Take note that the subscriber has forgotten its subscription, unless it has another of that name now."""
        if self._common.published.end(asking.t, asking.grant):
            self._words.append(hub.Unsubscribe(None, asking.t))

    def on_note(self, message: Note, now: float) -> None:
        """`{a, i, e}`, not fatal."""
        is_quiet = message.e.type not in bridge.VERBOSE_KINDS
        for r in message.i:
            asking = self._asking.get(r)
            if asking and asking.hub_id is not None and asking.word is hub.Call and (is_quiet or asking.v):
                self._words.append(bridge.progress_of(asking.hub_id, message.e, message.d))

    def on_poll_reply(self, message: PollReply, now: float) -> None:
        """Send a request again that the peer does not know; all else is patience (NQ-a06)."""
        for r in message.i:
            asking = self._asking.get(r)
            if asking is None or asking.state is Asked.CANCELLED:
                continue
            if message.e.note != "unknown":
                self._begun_anew(asking, message.a, now)
            elif asking.sender is None and asking.advance(Step.UNKNOWN):
                asking.a = ""
                self._line.renew(asking)
            else:
                self._fail(asking, Reason.LOST, "the peer has forgotten half of a stream", now)

    def on_next(self, message: Next, now: float) -> None:
        """`{a, i, o}`: parts of our request have come."""
        for r in message.i:
            asking = self._asking.get(r)
            if asking is not None and asking.state is not Asked.CANCELLED:
                acknowledge(asking.sender, message.o, now)
            else:
                self._give_up(message.a, asking)

    def on_missing(self, message: Missing, now: float) -> None:
        """`{a, i, o: [...]}`: parts of our request have not come."""
        numbers = frozenset(message.o)
        for r in dict.fromkeys(message.i):
            asking = self._asking.get(r)
            if asking is not None and asking.state is not Asked.CANCELLED:
                resend(asking.sender, numbers)
            else:
                self._give_up(message.a, asking)

    def _give_up(self, a: str, asking: Asking | None) -> None:
        """Tell the peer, who waits for more of a request, that no more will come."""
        if asking is not None:
            asking.a = a  # what is being said again and again may call it by this name now
        else:
            self._line.say(write(CancelRequest("", (a,), CANCELLED)))

    def on_bad_answer(self, bad: Bad, now: float) -> None:
        """Give up requests whose answer nobody can read: it would only come again."""
        self._common.thanks.append(bad.a)
        for r in bad.i:
            asking = self._asking.get(r)
            if asking is not None and asking.state is not Asked.CANCELLED:
                asking.a = bad.a
                self._fail(asking, Reason.RAISED, f"the answer cannot be read: {bad.text} [{bad.rule}]", now)
