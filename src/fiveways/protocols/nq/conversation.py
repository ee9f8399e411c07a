"""One NQ peer, whichever link carries it: what holds the asking and the answering half of the conversation together.

It never accepts by itself: `{a, i}` goes out when the hub says that the request is safe. It never ends by a fault: what
cannot be read is answered by an error object, and the conversation goes on (NQ-a10).
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, Self

from fiveways.errors import Fault, LocalProtocolError, RemoteProtocolError, TooLarge, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model.failures import Reason
from fiveways.protocols.base import Role, Setup
from fiveways.protocols.holding import Carrier
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq import messages as nq
from fiveways.protocols.nq.bridge import Following
from fiveways.protocols.nq.dedup import Tomb
from fiveways.protocols.nq.errors import Err, plain
from fiveways.protocols.nq.frames import Free, is_answer, serialize_frame
from fiveways.protocols.nq.messages import decode
from fiveways.protocols.nq.plain import PlainNq
from fiveways.protocols.nq.states import TRANSITIONS, State, advance
from fiveways.protocols.nq.writing import write
from fiveways.wire.packet import Packet

SAVED_VERSION: Final = 1
MOST_COMPLAINTS: Final = 8
"""About elements of one packet that cannot be answered otherwise."""
_WHEN_OPEN: Final = TRANSITIONS[State.OPEN]
_KEPT: Final = frozenset({hub.Accepted, hub.Result, hub.Failure, hub.Description, hub.Progress, hub.Attachment})
"""Words that may be said while there is no link, since the peer, who has a right to them, may come back."""


class NqConversation(PlainNq):
    """One NQ peer. Fulfils `base.Conversation`."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.peer = setup.peer
        self.role = setup.role
        self.error: RemoteProtocolError | None = None
        self.named = ""
        """The id that the other side gave us, for the next link."""
        self.run = ""
        """Which conversation the other side has with us, where it told: another one begins with nothing."""
        self._state: Enum = State.OPEN
        self._parting: list[Packet] = []
        """What is still to be said before the link is closed."""
        self._announce()

    # What the runtime sees.

    def hear(self, packet: Packet, now: float, past: int = 0) -> Sequence[hub.Word]:
        """Take one packet of the peer, but for so many of its messages, which have been heard."""
        if self.closed:
            return ()
        self._now, self._complaints = now, 0
        try:
            heard = decode(packet, self._common.limits)
        except RemoteProtocolError as error:
            code = "toolarge" if error.fault is Fault.TOO_LARGE else "malformed"
            text, args = plain(str(error))
            self._line.say(write(nq.SystemNote(Err("local", True, code, "", "", text, args))))
            return ()
        about = self._common.about
        del about[past:]
        for message in heard[past:] if past else heard:
            self._state = _WHEN_OPEN.get(type(message)) or advance(self._state, message)
            known = self.known(message)
            self.RECEIVERS[type(message)](self, message, now)
            about.append(known or self.known(message))
            if self.closed:
                break
        self._is_renewed = False
        if self._common.thanks or self._common.heard:
            self._give_thanks()
        if self._common.options.simplex:
            self._line.wake(now)
        if self.closed:
            self._parting = self._packets()
        return self._words()

    def say(self, word: hub.Word, now: float) -> None:
        """Say a word to the peer."""
        sender = self.SENDERS.get(type(word))
        if sender is None:
            raise LocalProtocolError(f"NQ has no way to say {type(word).__name__}")
        if self.closed and type(word) not in _KEPT:
            raise LocalProtocolError("the link is closed")
        self._now = now
        try:
            sender(self, word, now)
        except UnicodeEncodeError as exc:
            raise Unrepresentable("half of a surrogate pair in a text") from exc

    def outgoing(self) -> list[Packet]:
        """Hand over what is to be said; what comes after the end of a link waits for the next one."""
        if not self.closed:
            return self._packets()
        parting, self._parting = self._parting, []
        return parting

    def _packets(self) -> list[Packet]:
        """Return what is to be said in as few packets as the limits allow (NQ-14)."""
        said, ops = self._line.take(self._now), self._line.ops
        if len(said) <= 1:
            return [Packet(raw, op=ops[0]) for raw in said]
        limits = self._common.limits
        packets: list[Packet] = []
        batch: list[bytes] = []
        room = limits.max_text
        for raw in said:
            room -= len(raw) + 1
            if batch and (room < 1 or len(batch) == limits.max_batch):
                packets.append(serialize_frame(batch, ops))
                ops = ops[len(batch) :]
                batch = []
                room = limits.max_text - len(raw) - 1
            batch.append(raw)
        packets.append(serialize_frame(batch, ops))
        return packets

    def deadline(self) -> float | None:
        """When something must be said again, or given up."""
        if self.closed:
            return None
        if self._common.words:
            return self._now
        times = (self._line.deadline(), self._incoming.deadline(), self._outgoing.deadline())
        return min((time for time in times if time is not None), default=None)

    def wake(self, now: float) -> Sequence[hub.Word]:
        """Say again what was not reacted to; give up what is too old."""
        if self.closed:
            return ()
        self._now = now
        self._line.wake(now)
        self._incoming.expire(now)
        self._outgoing.expire(now)
        return self._words()

    def accept(self) -> None:
        """Say now what was accepted: the peer waits for nothing else."""
        self._incoming.say_acceptances()

    def relink(self, now: float) -> None:
        """Go on over another link: all that the peer has not reacted to is said again at once."""
        self._announce()
        self._go_on(now)

    def _go_on(self, now: float) -> None:
        self.closed = False
        self._state = State.OPEN
        self._now = now
        self._parting = []
        self._renew()

    def _renew(self) -> None:
        self._is_renewed = True
        self._incoming.renew()
        self._outgoing.renew()

    def export(self, *, unaccepted: bool = False) -> dict[str, object]:
        """Return, as plain JSON, all that another conversation needs to go on in this one's place.

        What waits for its attachments is not on its way yet, and so not part of it. Requests that the hub has not
        accepted are part of it only for a hub that still knows of them: to another one the peer will repeat them.
        """
        now, common = self._now, self._common
        return {
            "version": SAVED_VERSION,
            "named": self.named,
            "prefixes": [*common.past, common.prefix],
            "asking": self._outgoing.export(now),
            "serving": self._incoming.export(now, unaccepted=unaccepted),
            "tombs": [[key, tomb.name, until - now] for key, tomb, until in self._incoming.tombs.all()],
            "following": [[target, each.subscription, each.envelope] for target, each in common.following.items()],
            "published": sorted([name, grant] for name, grant in common.published.grants.items() if grant),
        }

    @classmethod
    def restore(cls, setup: Setup, saved: Mapping[str, Any], now: float) -> Self:
        """Go on where an exported conversation has stopped: same identifiers, no answer lost, no request run twice."""
        if saved.get("version") != SAVED_VERSION:
            raise LocalProtocolError(f"a saved conversation of version {saved.get('version')}, not {SAVED_VERSION}")
        made = cls(setup)
        common = made._common
        made.named = saved["named"]
        common.succeed(saved["prefixes"])
        common.following.update({target: Following(*rest) for target, *rest in saved["following"]})
        common.published.grants.update(saved["published"])
        for key, tomb, left in saved["tombs"]:
            made._incoming.tombs.restore(key, Tomb[tomb], now + left)
        made._incoming.restore(saved["serving"], now)
        made._outgoing.restore(saved["asking"], now)
        made._go_on(now)
        return made

    def forgets(self, forget: Callable[[str], bool]) -> None:
        """Know whom to ask, by the id of a call, whether the parts of its answer that were given on can be forgotten.

        Who says so hears the answer from its beginning. It matters when a hub has begun anew in the middle of one.
        """
        self._common.forget = forget

    def take_over(self, key: str) -> None:
        """Owe the answer to a request that was accepted by an earlier hub, which is all that is known of it."""
        self._incoming.requests.take_over(key, bridge.request_id_of(key))

    def bury(self, key: str, until: float) -> None:
        """Know that a request was answered by an earlier hub: a late repeat of it is not run again."""
        self._incoming.tombs.restore(key, Tomb.ACKNOWLEDGED, until)

    def _words(self) -> Sequence[hub.Word]:
        words = self._common.words
        if not words:
            return ()
        heard = words.copy()
        words.clear()
        return heard

    def _give_thanks(self) -> None:
        """Acknowledge, once for the whole packet, what has come in it."""
        common = self._common
        for first in range(0, len(common.thanks), common.limits.max_batch):
            self._line.say(write(nq.Ack(tuple(common.thanks[first : first + common.limits.max_batch]))))
        for receiver in common.heard:
            self._line.say(write(nq.Next(receiver.a, (receiver.i,), receiver.next)))
        common.thanks.clear()
        common.heard.clear()

    def announce(self, *, run: bool = True) -> None:
        """Tell the peer first by which id it may come back, and what those that we mint begin with."""
        args = (self.peer, self._common.prefix) if run else (self.peer,)
        self._line.begin(write(nq.SystemNote(Err("sys", False, note="peer", args=args))))

    def _announce(self) -> None:
        if self._common.options.announce:
            self.announce(run=False)

    # Words with attachments.

    def _say_carrier(self, word: Carrier, now: float) -> None:
        """Say a word, when its attachments are there."""
        if len(self._waiting) and not isinstance(word, hub.Event) and word.id in self._waiting:
            raise LocalProtocolError(f"{word.id} waits for its attachments already")
        if not word.attachments:
            self._say_now(word, now, None)
            return
        if (isinstance(word, hub.Call) and word.more) or (isinstance(word, hub.Result) and word.stream):
            raise LocalProtocolError("NQ has no attachments in streams")
        if isinstance(word, hub.Result):
            self._incoming.requests.unanswered(word.id)
        elif not isinstance(word, hub.Event) and word.id in self._outgoing:
            raise LocalProtocolError(f"request {word.id} is open already")
        self._waiting.hold(word)

    def _say_now(self, word: Carrier, now: float, free: Free | None) -> None:
        if isinstance(word, hub.Result):
            self._incoming.say_result(word, now, free)
        elif isinstance(word, hub.Event):
            self._outgoing.say_event(word, now, free)
        else:
            self._outgoing.say_request(word, now, free)

    def _say_attachment(self, word: hub.Attachment, now: float) -> None:
        held = self._waiting.give(word)
        if held is None or held.word is None:
            return
        try:
            if held.room < 0:
                raise TooLarge("the attachments are too large for one packet")
            self._say_now(held.word, now, {"attachments": bridge.write_attachments(held.attachments())})
        except LocalProtocolError as exc:
            if isinstance(held.word, hub.Result):
                # The method has run, whatever became of its answer.
                self._incoming.say_failure(hub.Failure(held.word.id, Reason.RAISED, str(exc)), now)
            elif not isinstance(held.word, hub.Event) and held.word.id is not None:
                reason = Reason.TOO_LARGE if isinstance(exc, Unrepresentable) else Reason.BUSY
                self._common.words.append(hub.Failure(held.word.id, reason, str(exc)))
            held.word = None

    def _say_cancel(self, word: hub.Cancel, now: float) -> None:
        if not self._waiting.drop(word.id):
            self._outgoing.say_cancel(word, now)

    def _say_failure(self, word: hub.Failure, now: float) -> None:
        self._incoming.say_failure(word, now)
        self._waiting.drop(word.id)

    # About the link.

    def _say_goodbye(self, word: hub.Goodbye, now: float) -> None:
        said, note = word.text, "denied" if word.denied else "goodbye"
        while True:
            text, args = plain(said)
            raw = write(nq.Farewell(Err("sys", True, "", "", note, text, args)))
            if len(raw) <= self._common.limits.max_text or not said:
                break
            said = said[: len(said) // 2]
        self._line.insist(raw)
        self._parting = self._packets()
        self._state, self.closed = State.CLOSED, True

    def _on_farewell(self, message: nq.Farewell, now: float) -> None:
        self.closed = True
        self._common.words.append(hub.Goodbye(message.e.format(), message.e.note == "denied"))

    def _on_system_note(self, message: nq.SystemNote, now: float) -> None:
        """Remember who we are to the peer; its complaints are never answered, or two peers would complain for ever."""
        match message.e:
            case Err(type="sys", note="peer", args=(named, *run)):
                self.named = named
                if run:
                    self.run = run[0]
                    self._outgoing.told_run(self.run)
            case Err(type="sys", note="hello") if self.role is Role.SERVER:
                self._greet()

    def _greet(self) -> None:
        """Tell the peer who it is and who we are; what it may have missed as well, unless that is under way."""
        self.announce()
        if not self._is_renewed:
            self._renew()

    def _on_bad(self, bad: nq.Bad, now: float) -> None:
        error = bridge.error_of_bad(bad)
        if bad.r:
            self._line.say(write(nq.ErrorAnswer(self._common.mint(), (bad.r,), None, error)))
            return
        if bad.a and bad.i and is_answer(bad.element):
            self._outgoing.on_bad_answer(bad, now)
        # Who sends many such elements at once does not need to be told of each.
        self._complaints += 1
        if self._complaints <= MOST_COMPLAINTS:
            self._line.say(write(nq.SystemNote(error)))

    def _drop(self, _said: object, now: float) -> None:
        """Nothing needs to be done."""

    def _on_next(self, message: nq.Next, now: float) -> None:
        """With a, parts of a request of ours are meant, else parts of an answer of ours."""
        (self._outgoing if message.a else self._incoming).on_next(message, now)

    def _on_missing(self, message: nq.Missing, now: float) -> None:
        (self._outgoing if message.a else self._incoming).on_missing(message, now)

    # Functions and not methods of this conversation: a table of these would refer to it, and only a collection free it.
    RECEIVERS: ClassVar[Mapping[type[nq.Message], Callable[[Any, Any, float], None]]] = {
        nq.Request: lambda self, message, now: self._incoming.on_request(message, now),
        nq.RequestPart: lambda self, message, now: self._incoming.on_part(message, now),
        nq.Poll: lambda self, message, now: self._incoming.on_poll(message, now),
        nq.Acceptance: lambda self, message, now: self._outgoing.on_acceptance(message, now),
        nq.Answer: lambda self, message, now: self._outgoing.on_answer(message, now),
        nq.AnswerPart: lambda self, message, now: self._outgoing.on_part(message, now),
        nq.ErrorAnswer: lambda self, message, now: self._outgoing.on_error(message, now),
        nq.Note: lambda self, message, now: self._outgoing.on_note(message, now),
        nq.PollReply: lambda self, message, now: self._outgoing.on_poll_reply(message, now),
        nq.Ack: lambda self, message, now: self._incoming.on_ack(message, now),
        nq.Next: _on_next,
        nq.Missing: _on_missing,
        nq.BackMessage: lambda self, message, now: self._incoming.on_back_message(message, now),
        nq.CancelRequest: lambda self, message, now: self._incoming.on_cancel(message, now),
        nq.SystemNote: _on_system_note,
        nq.Farewell: _on_farewell,
        nq.Idle: _drop,
        nq.Bad: _on_bad,
    }

    SENDERS: ClassVar[Mapping[type[hub.Word], Callable[[Any, Any, float], None]]] = {
        **dict.fromkeys((hub.Call, hub.Result, hub.Publish, hub.Event, hub.SetVariable), _say_carrier),
        **dict.fromkeys(
            (hub.CloseTopic, hub.Register, hub.Unregister, hub.Discover, hub.UnsetVariable),
            lambda self, word, now: self._outgoing.say_request(word, now),
        ),
        hub.Part: lambda self, word, now: self._outgoing.say_part(word, now),
        hub.Accepted: lambda self, word, now: self._incoming.say_accepted(word, now),
        hub.Progress: lambda self, word, now: self._incoming.say_progress(word, now),
        hub.Failure: _say_failure,
        hub.Description: lambda self, word, now: self._incoming.say_description(word, now),
        hub.Cancel: _say_cancel,
        hub.Acknowledged: _drop,
        hub.Subscribe: lambda self, word, now: self._outgoing.say_subscribe(word, now),
        hub.Unsubscribe: lambda self, word, now: self._outgoing.say_unsubscribe(word, now),
        hub.TopicClosed: lambda self, word, now: self._outgoing.say_event(word, now),
        hub.Attachment: _say_attachment,
        hub.Goodbye: _say_goodbye,
    }
