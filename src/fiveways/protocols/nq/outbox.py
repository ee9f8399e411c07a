"""The asking half of a conversation: requests of ours, and what the peer says to them."""

from collections import OrderedDict, deque
from typing import Any

from fiveways.errors import LocalProtocolError
from fiveways.model import messages as hub
from fiveways.model.failures import Reason
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq.bridge import Following
from fiveways.protocols.nq.common import Common
from fiveways.protocols.nq.frames import Free
from fiveways.protocols.nq.holding import Waiting
from fiveways.protocols.nq.messages import (
    Acceptance,
    Answer,
    AnswerPart,
    Bad,
    CancelRequest,
    ErrorAnswer,
    Ids,
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


class Outgoing:
    """What we ask of the peer, and what it answers."""

    def __init__(self, common: Common, waiting: Waiting) -> None:
        self._common = common
        self._waiting = waiting
        self._line = common.line
        self._words = common.words
        self._asking: dict[str, Asking] = {}
        self._ages: OrderedDict[str, Asking] = OrderedDict()
        """By r, in the order in which they expire; the cancelled ones are not among them."""
        self._by_id: dict[str, Asking] = {}
        self._cancelled: deque[Asking] = deque()
        self._events = 0

    def __len__(self) -> int:
        return len(self._asking)

    def __contains__(self, hub_id: str | None) -> bool:
        return hub_id in self._by_id

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
        if isinstance(word, hub.Call) and word.extras is not None:
            asking.v = verbosity(word.extras) or asking.v
        if isinstance(word, hub.Call) and word.more:
            part = RequestPart(target, asking.r, given or bridge.JSON_NULL, 1, None, asking.v, "", free)
            raw = common.fitting(write(part))
            asking.sender = Sender(common)
            asking.sender.add(raw, end=False)
            self._line.push(asking.sender)
            self._line.rest(asking, now)
        else:
            asking.data = common.fitting(write(Request(target, asking.r, given, asking.v, "", free)))
            # As with their number, events may take half of the room.
            if not common.asked.has(len(asking.data) + (asking.word is hub.Event) * (common.asked.limit // 2)):
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
            if asking is not None and asking.state is not Asked.CANCELLED:
                if asking.receiver is None:
                    asking.a = message.a
                    asking.receiver = Receiver(self._common, "", message.a)
                if asking.receiver.i == message.a:
                    self._hear_part(asking, asking.receiver, message, now)
                    continue
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
        if message.e.note != "unknown":
            return
        for r in message.i:
            asking = self._asking.get(r)
            if asking is None or asking.state is Asked.CANCELLED:
                continue
            if asking.sender is None and asking.advance(Step.UNKNOWN):
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

    # The table of requests.

    def _open(self, asking: Asking) -> None:
        self._asking[asking.r] = asking
        self._common.asked.used += len(asking.data)
        if asking.state is Asked.CANCELLED:
            self._cancelled.append(asking)
        else:
            self._ages[asking.r] = asking
        if asking.hub_id is not None:
            self._by_id[asking.hub_id] = asking
        self._events += asking.word is hub.Event

    def _finish(self, asking: Asking, step: Step) -> None:
        asking.advance(step)
        asking.close()
        del self._asking[asking.r]
        self._ages.pop(asking.r, None)
        self._events -= asking.word is hub.Event
        if asking.hub_id is not None:
            del self._by_id[asking.hub_id]

    def _cancel(self, asking: Asking, now: float) -> None:
        """Tell the peer so again and again, for a while."""
        asking.advance(Step.CANCEL)
        asking.close()
        self._common.following.pop(asking.topic, None)
        if asking.hub_id is not None:
            del self._by_id[asking.hub_id]
            asking.hub_id = None
        self._ages.pop(asking.r, None)
        asking.expires_at = now + self._common.options.longest_wait
        self._cancelled.append(asking)
        self._line.renew(asking)

    def _fail(self, asking: Asking, reason: Reason, text: str, now: float) -> None:
        """Tell the hub that no answer will come, and the peer that none is wanted."""
        hub_id = asking.hub_id
        self._cancel(asking, now)
        if hub_id is not None:
            self._words.append(hub.Failure(hub_id, reason, text))

    def _nobody(self, ids: Ids) -> None:
        """Take note, once, of an answer to what was never asked; one that only comes again is none of these."""
        stray = next((r for r in ids if r not in self._asking and not self._common.is_ours(r)), None)
        if stray is not None:
            self._words.append(hub.Stray(stray, "an answer to a request that was never made here"))

    def expire(self, now: float) -> None:
        """Give up what is too old."""
        while self._cancelled and (self._cancelled[0].expires_at <= now or self._cancelled[0].state is Asked.DONE):
            asking = self._cancelled.popleft()
            if asking.state is not Asked.DONE:
                self._finish(asking, Step.EXPIRE)
        while self._ages and (asking := next(iter(self._ages.values()))).expires_at <= now:
            hub_id = asking.hub_id
            self._common.following.pop(asking.topic, None)
            self._finish(asking, Step.EXPIRE)
            if hub_id is not None:
                self._words.append(hub.Failure(hub_id, Reason.TIMEOUT, "the peer never answered"))

    def deadline(self) -> float | None:
        """Return when the oldest request is to be given up."""
        while self._cancelled and self._cancelled[0].state is Asked.DONE:
            self._cancelled.popleft()
        oldest = next(iter(self._ages.values())).expires_at if self._ages else None
        if not self._cancelled:
            return oldest
        return self._cancelled[0].expires_at if oldest is None else min(self._cancelled[0].expires_at, oldest)

    def renew(self) -> None:
        """Say all of it again, over another link."""
        for asking in self._asking.values():
            self._line.renew(asking)
            if asking.sender is not None and asking.sender.parts:
                self._line.renew(asking.sender)

    def export(self, now: float) -> list[dict[str, object]]:
        """Return all that is needed to go on elsewhere."""
        return [asking.export(now) for asking in self._asking.values()]

    def restore(self, saved: list[dict[str, Any]], now: float) -> None:
        """Go on where another has stopped."""
        for each in saved:
            self._open(Asking.restore(self._common, each, now))
        self._ages = OrderedDict(sorted(self._ages.items(), key=lambda item: item[1].expires_at))
        self._cancelled = deque(sorted(self._cancelled, key=lambda asking: asking.expires_at))
