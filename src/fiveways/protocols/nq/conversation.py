"""One NQ peer, whichever link carries it: what holds the asking and the answering half of the conversation together.

It never accepts by itself: `{a, i}` goes out when the hub says that the request is safe. It never ends by a fault: what
cannot be read is answered by an error object, and the conversation goes on (NQ-a10).
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, Self

from fiveways.errors import Fault, LocalProtocolError, Reason, RemoteProtocolError, TooLarge, Unrepresentable
from fiveways.model import messages as hub
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.deferred_messages import MessageWithAttachments
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq import messages as nq
from fiveways.protocols.nq.bridge import OwnSubscription
from fiveways.protocols.nq.dedup import Tombstone
from fiveways.protocols.nq.errors import ErrorObject, escape_braces
from fiveways.protocols.nq.fastpath import NqFastPath
from fiveways.protocols.nq.frames import FreeKeys, is_final_answer, serialize_frame
from fiveways.protocols.nq.messages import decode
from fiveways.protocols.nq.serializer import write
from fiveways.protocols.nq.states import TRANSITIONS, State, advance
from fiveways.wire.packet import Packet

SAVED_VERSION: Final = 1
MAX_SYSTEM_ERRORS: Final = 8
"""About elements of one packet that cannot be answered otherwise."""
_OPEN_TRANSITIONS: Final = TRANSITIONS[State.OPEN]
_SENDABLE_WHEN_CLOSED: Final = frozenset(
    {hub.Accepted, hub.Result, hub.Failure, hub.Description, hub.Progress, hub.Attachment}
)
"""Words that may be said while there is no link, since the peer, who has a right to them, may come back."""


class NqConversation(NqFastPath):
    """One NQ peer. Fulfils `base.Conversation`."""

    def __init__(self, setup: ConversationSetup) -> None:
        super().__init__(setup)
        self.peer = setup.peer
        self.role = setup.role
        self.error: RemoteProtocolError | None = None
        self.assigned_peer_id = ""
        """The id that the other side gave us, for the next link."""
        self.peer_run = ""
        """Which conversation the other side has with us, where it told: another one begins with nothing."""
        self._state: Enum = State.OPEN
        self._final_packets: list[Packet] = []
        """What is still to be said before the link is closed."""
        self._send_identity_if_configured()

    # What the runtime sees.

    def receive_general(self, packet: Packet, now: float, past: int = 0) -> Sequence[hub.HubMessage]:
        """Take one packet of the peer, but for so many of its messages, which have been heard."""
        if self.closed:
            return ()
        self._now, self._system_errors = now, 0
        try:
            heard = decode(packet, self._shared.limits)
        except RemoteProtocolError as error:
            code = "toolarge" if error.fault is Fault.TOO_LARGE else "malformed"
            text, args = escape_braces(str(error))
            self._retransmission.send_once(write(nq.SystemNote(ErrorObject("local", True, code, "", "", text, args))))
            return ()
        about = self._shared.last_packet_requests
        del about[past:]
        for message in heard[past:] if past else heard:
            self._state = _OPEN_TRANSITIONS.get(type(message)) or advance(self._state, message)
            known = self.find_request(message)
            self.RECEIVERS[type(message)](self, message, now)
            about.append(known or self.find_request(message))
            if self.closed:
                break
        self._is_renewed = False
        if self._shared.pending_acks or self._shared.pending_stream_acks:
            self._send_acks()
        if self._shared.options.simplex:
            self._retransmission.wake(now)
        if self.closed:
            self._final_packets = self._build_packets()
        return self._take_hub_messages()

    def send_general(self, message: hub.HubMessage, now: float) -> None:
        """Say a word to the peer."""
        sender = self.SENDERS.get(type(message))
        if sender is None:
            raise LocalProtocolError(f"NQ has no way to say {type(message).__name__}")
        if self.closed and type(message) not in _SENDABLE_WHEN_CLOSED:
            raise LocalProtocolError("the link is closed")
        self._now = now
        try:
            sender(self, message, now)
        except UnicodeEncodeError as exc:
            raise Unrepresentable("half of a surrogate pair in a text") from exc

    def take_packets(self) -> list[Packet]:
        """Hand over what is to be said; what comes after the end of a link waits for the next one."""
        if not self.closed:
            return self._build_packets()
        parting, self._final_packets = self._final_packets, []
        return parting

    def _build_packets(self) -> list[Packet]:
        """Return what is to be said in as few packets as the limits allow (NQ-14)."""
        said, ops = self._retransmission.take_payloads(self._now), self._retransmission.last_operations
        if len(said) <= 1:
            return [Packet(raw, op=ops[0]) for raw in said]
        limits = self._shared.limits
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
        if self._shared.hub_messages:
            return self._now
        times = (self._retransmission.deadline(), self._incoming.deadline(), self._outgoing.deadline())
        return min((time for time in times if time is not None), default=None)

    def wake(self, now: float) -> Sequence[hub.HubMessage]:
        """Say again what was not reacted to; give up what is too old."""
        if self.closed:
            return ()
        self._now = now
        self._retransmission.wake(now)
        self._incoming.expire(now)
        self._outgoing.expire(now)
        return self._take_hub_messages()

    def flush_acceptances(self) -> None:
        """Say now what was accepted: the peer waits for nothing else."""
        self._incoming.send_due_acceptances()

    def reconnect(self, now: float) -> None:
        """Go on over another link: all that the peer has not reacted to is said again at once."""
        self._send_identity_if_configured()
        self._reopen(now)

    def _reopen(self, now: float) -> None:
        self.closed = False
        self._state = State.OPEN
        self._now = now
        self._final_packets = []
        self._resend_all()

    def _resend_all(self) -> None:
        self._is_renewed = True
        self._incoming.resend_all()
        self._outgoing.resend_all()

    def export(self, *, unaccepted: bool = False) -> dict[str, object]:
        """Return, as plain JSON, all that another conversation needs to go on in this one's place.

        What waits for its attachments is not on its way yet, and so not part of it. Requests that the hub has not
        accepted are part of it only for a hub that still knows of them: to another one the peer will repeat them.
        """
        now, common = self._now, self._shared
        return {
            "version": SAVED_VERSION,
            "named": self.assigned_peer_id,
            "prefixes": [*common.past_prefixes, common.prefix],
            "asking": self._outgoing.export(now),
            "serving": self._incoming.export(now, unaccepted=unaccepted),
            "tombs": [[key, tomb.name, until - now] for key, tomb, until in self._incoming.tombstones.items()],
            "following": [
                [target, each.subscription, each.envelope] for target, each in common.own_subscriptions.items()
            ],
            "published": sorted([name, grant] for name, grant in common.peer_subscriptions.grants.items() if grant),
        }

    @classmethod
    def restore(cls, setup: ConversationSetup, saved: Mapping[str, Any], now: float) -> Self:
        """Go on where an exported conversation has stopped: same identifiers, no answer lost, no request run twice."""
        if saved.get("version") != SAVED_VERSION:
            raise LocalProtocolError(f"a saved conversation of version {saved.get('version')}, not {SAVED_VERSION}")
        made = cls(setup)
        common = made._shared
        made.assigned_peer_id = saved["named"]
        common.start_new_prefix(saved["prefixes"])
        common.own_subscriptions.update({target: OwnSubscription(*rest) for target, *rest in saved["following"]})
        common.peer_subscriptions.grants.update(saved["published"])
        for key, tomb, left in saved["tombs"]:
            made._incoming.tombstones.restore(key, Tombstone[tomb], now + left)
        made._incoming.restore(saved["serving"], now)
        made._outgoing.restore(saved["asking"], now)
        made._reopen(now)
        return made

    def on_forget_parts(self, forget: Callable[[str], bool]) -> None:
        """Know whom to ask, by the id of a call, whether the parts of its answer that were given on can be forgotten.

        Who says so hears the answer from its beginning. It matters when a hub has begun anew in the middle of one.
        """
        self._shared.try_forget_parts = forget

    def restore_accepted(self, key: str) -> None:
        """Owe the answer to a request that was accepted by an earlier hub, which is all that is known of it."""
        self._incoming.requests.restore_accepted(key, bridge.request_id_from_key(key))

    def restore_tombstone(self, key: str, until: float) -> None:
        """Know that a request was answered by an earlier hub: a late repeat of it is not run again."""
        self._incoming.tombstones.restore(key, Tombstone.ACKNOWLEDGED, until)

    def _take_hub_messages(self) -> Sequence[hub.HubMessage]:
        messages = self._shared.hub_messages
        if not messages:
            return ()
        heard = messages.copy()
        messages.clear()
        return heard

    def _send_acks(self) -> None:
        """Acknowledge, once for the whole packet, what has come in it."""
        common = self._shared
        for first in range(0, len(common.pending_acks), common.limits.max_batch):
            self._retransmission.send_once(
                write(nq.Ack(tuple(common.pending_acks[first : first + common.limits.max_batch])))
            )
        for receiver in common.pending_stream_acks:
            self._retransmission.send_once(write(nq.Next(receiver.a, (receiver.i,), receiver.next)))
        common.pending_acks.clear()
        common.pending_stream_acks.clear()

    def send_identity(self, *, run: bool = True) -> None:
        """Tell the peer first by which id it may come back, and what those that we mint begin with."""
        args = (self.peer, self._shared.prefix) if run else (self.peer,)
        self._retransmission.send_first(write(nq.SystemNote(ErrorObject("sys", False, note="peer", args=args))))

    def _send_identity_if_configured(self) -> None:
        if self._shared.options.announce:
            self.send_identity(run=False)

    # Words with attachments.

    def _send_or_defer(self, message: MessageWithAttachments, now: float) -> None:
        """Say a word, when its attachments are there."""
        if len(self._deferred) and not isinstance(message, hub.Event) and message.id in self._deferred:
            raise LocalProtocolError(f"{message.id} waits for its attachments already")
        if not message.attachments:
            self._send_now(message, now, None)
            return
        if (isinstance(message, hub.Call) and message.more) or (isinstance(message, hub.Result) and message.stream):
            raise LocalProtocolError("NQ has no attachments in streams")
        if isinstance(message, hub.Result):
            self._incoming.requests.get_unanswered(message.id)
        elif not isinstance(message, hub.Event) and message.id in self._outgoing:
            raise LocalProtocolError(f"request {message.id} is open already")
        self._deferred.defer(message)

    def _send_now(self, message: MessageWithAttachments, now: float, free: FreeKeys | None) -> None:
        if isinstance(message, hub.Result):
            self._incoming.send_result(message, now, free)
        elif isinstance(message, hub.Event):
            self._outgoing.send_event(message, now, free)
        else:
            self._outgoing.send_request(message, now, free)

    def _send_attachment(self, message: hub.Attachment, now: float) -> None:
        held = self._deferred.add_attachment(message)
        if held is None or held.message is None:
            return
        try:
            if held.bytes_left < 0:
                raise TooLarge("the attachments are too large for one packet")
            self._send_now(held.message, now, {"attachments": bridge.write_attachments(held.attachments())})
        except LocalProtocolError as exc:
            if isinstance(held.message, hub.Result):
                # The method has run, whatever became of its answer.
                self._incoming.send_failure(hub.Failure(held.message.id, Reason.RAISED, str(exc)), now)
            elif not isinstance(held.message, hub.Event) and held.message.id is not None:
                reason = Reason.TOO_LARGE if isinstance(exc, Unrepresentable) else Reason.OVERLOADED
                self._shared.hub_messages.append(hub.Failure(held.message.id, reason, str(exc)))
            held.message = None

    def _send_cancel(self, message: hub.Cancel, now: float) -> None:
        if not self._deferred.drop(message.id):
            self._outgoing.send_cancel(message, now)

    def _send_failure(self, message: hub.Failure, now: float) -> None:
        self._incoming.send_failure(message, now)
        self._deferred.drop(message.id)

    # About the link.

    def _send_goodbye(self, message: hub.Goodbye, now: float) -> None:
        said, note = message.text, "denied" if message.denied else "goodbye"
        while True:
            text, args = escape_braces(said)
            raw = write(nq.Farewell(ErrorObject("sys", True, "", "", note, text, args)))
            if len(raw) <= self._shared.limits.max_text or not said:
                break
            said = said[: len(said) // 2]
        self._retransmission.send_once_unbounded(raw)
        self._final_packets = self._build_packets()
        self._state, self.closed = State.CLOSED, True

    def _on_farewell(self, message: nq.Farewell, now: float) -> None:
        self.closed = True
        self._shared.hub_messages.append(hub.Goodbye(message.e.format(), message.e.note == "denied"))

    def _on_system_note(self, message: nq.SystemNote, now: float) -> None:
        """Remember who we are to the peer; its complaints are never answered, or two peers would complain for ever."""
        match message.e:
            case ErrorObject(type="sys", note="peer", args=(named, *run)):
                self.assigned_peer_id = named
                if run:
                    self.peer_run = run[0]
                    self._outgoing.on_peer_run(self.peer_run)
            case ErrorObject(type="sys", note="hello") if self.role is Role.SERVER:
                self._answer_hello()

    def _answer_hello(self) -> None:
        """Tell the peer who it is and who we are; what it may have missed as well, unless that is under way."""
        self.send_identity()
        if not self._is_renewed:
            self._resend_all()

    def _on_bad_element(self, bad: nq.Bad, now: float) -> None:
        error = bridge.error_for_bad_element(bad)
        if bad.r:
            self._retransmission.send_once(write(nq.ErrorAnswer(self._shared.mint(), (bad.r,), None, error)))
            return
        if bad.a and bad.i and is_final_answer(bad.element):
            self._outgoing.on_bad_answer(bad, now)
        # Who sends many such elements at once does not need to be told of each.
        self._system_errors += 1
        if self._system_errors <= MAX_SYSTEM_ERRORS:
            self._retransmission.send_once(write(nq.SystemNote(error)))

    def _ignore(self, _said: object, now: float) -> None:
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
        nq.Idle: _ignore,
        nq.Bad: _on_bad_element,
    }

    SENDERS: ClassVar[Mapping[type[hub.HubMessage], Callable[[Any, Any, float], None]]] = {
        **dict.fromkeys((hub.Call, hub.Result, hub.Publish, hub.Event, hub.SetVariable), _send_or_defer),
        **dict.fromkeys(
            (hub.CloseTopic, hub.Register, hub.Unregister, hub.Discover, hub.UnsetVariable),
            lambda self, message, now: self._outgoing.send_request(message, now),
        ),
        hub.Part: lambda self, message, now: self._outgoing.send_part(message, now),
        hub.Accepted: lambda self, message, now: self._incoming.send_accepted(message, now),
        hub.Progress: lambda self, message, now: self._incoming.send_progress(message, now),
        hub.Failure: _send_failure,
        hub.Description: lambda self, message, now: self._incoming.send_description(message, now),
        hub.Cancel: _send_cancel,
        hub.Acknowledged: _ignore,
        hub.Subscribe: lambda self, message, now: self._outgoing.send_subscribe(message, now),
        hub.Unsubscribe: lambda self, message, now: self._outgoing.send_unsubscribe(message, now),
        hub.TopicClosed: lambda self, message, now: self._outgoing.send_event(message, now),
        hub.Attachment: _send_attachment,
        hub.Goodbye: _send_goodbye,
    }
