"""The NQ conversation, which combines the halves for outgoing and incoming requests.

It never accepts a request by itself: `{a, i}` is sent when the hub has accepted the request. An error never ends it: an
invalid element is answered by an error object (NQ-a10).
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
"""Limit for errors without a request id in response to one packet."""
_OPEN_TRANSITIONS: Final = TRANSITIONS[State.OPEN]
_SENDABLE_WHEN_CLOSED: Final = frozenset(
    {hub.Accepted, hub.Result, hub.Failure, hub.Description, hub.Progress, hub.Attachment}
)
"""Messages that can be sent without a connection, because the peer may reconnect for them."""


class NqConversation(NqFastPath):
    """An NQ peer. Implements `base.Conversation`."""

    def __init__(self, setup: ConversationSetup) -> None:
        super().__init__(setup)
        self.peer = setup.peer
        self.role = setup.role
        self.error: RemoteProtocolError | None = None
        self.assigned_peer_id = ""
        """Our id at the peer, for the next connection."""
        self.peer_run = ""
        """The prefix of the peer's conversation, if known: a new prefix means that the peer lost its state."""
        self._state: Enum = State.OPEN
        self._final_packets: list[Packet] = []
        """Packets to send before the connection is closed."""
        self._send_identity_if_configured()

    # The interface of base.Conversation.

    def receive_general(self, packet: Packet, now: float, skip: int = 0) -> Sequence[hub.HubMessage]:
        """Handle a packet of the peer, except for its first `skip` messages, which the fast path has handled."""
        if self.closed:
            return ()
        self._now, self._system_errors = now, 0
        try:
            messages = decode(packet, self._shared.limits)
        except RemoteProtocolError as error:
            code = "toolarge" if error.fault is Fault.TOO_LARGE else "malformed"
            text, args = escape_braces(str(error))
            self._retransmission.send_once(write(nq.SystemNote(ErrorObject.local(code, text, args))))
            return ()
        packet_requests = self._shared.last_packet_requests
        del packet_requests[skip:]
        for message in messages[skip:] if skip else messages:
            self._state = _OPEN_TRANSITIONS.get(type(message)) or advance(self._state, message)
            request = self.find_request(message)
            self.RECEIVERS[type(message)](self, message, now)
            packet_requests.append(request or self.find_request(message))
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
        """Send a hub message to the peer."""
        sender = self.SENDERS.get(type(message))
        if sender is None:
            raise LocalProtocolError(f"NQ has no message for {type(message).__name__}")
        if self.closed and type(message) not in _SENDABLE_WHEN_CLOSED:
            raise LocalProtocolError("the connection is closed")
        self._now = now
        try:
            sender(self, message, now)
        except UnicodeEncodeError as exc:
            raise Unrepresentable("a text contains an unpaired surrogate") from exc

    def take_packets(self) -> list[Packet]:
        """Return the packets to write; after the close of a connection later messages wait for the next one."""
        if not self.closed:
            return self._build_packets()
        packets, self._final_packets = self._final_packets, []
        return packets

    def _build_packets(self) -> list[Packet]:
        """Return the queued messages in as few packets as the limits allow (NQ-14)."""
        payloads, ops = self._retransmission.take_payloads(self._now), self._retransmission.last_operations
        if len(payloads) <= 1:
            return [Packet(raw, op=ops[0]) for raw in payloads]
        limits = self._shared.limits
        packets: list[Packet] = []
        batch: list[bytes] = []
        bytes_left = limits.max_text
        for raw in payloads:
            bytes_left -= len(raw) + 1
            if batch and (bytes_left < 1 or len(batch) == limits.max_batch):
                packets.append(serialize_frame(batch, ops))
                ops = ops[len(batch) :]
                batch = []
                bytes_left = limits.max_text - len(raw) - 1
            batch.append(raw)
        packets.append(serialize_frame(batch, ops))
        return packets

    def deadline(self) -> float | None:
        """Return the time of the next retransmission or expiry."""
        if self.closed:
            return None
        if self._shared.hub_messages:
            return self._now
        times = (self._retransmission.deadline(), self._incoming.deadline(), self._outgoing.deadline())
        return min((time for time in times if time is not None), default=None)

    def wake(self, now: float) -> Sequence[hub.HubMessage]:
        """Retransmit and expire requests and answers."""
        if self.closed:
            return ()
        self._now = now
        self._retransmission.wake(now)
        self._incoming.expire(now)
        self._outgoing.expire(now)
        return self._take_hub_messages()

    def flush_acceptances(self) -> None:
        """Send delayed acceptances now, because the peer waits for nothing else."""
        self._incoming.send_due_acceptances()

    def reconnect(self, now: float) -> None:
        """Continue on another connection: everything unacknowledged is retransmitted at once."""
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
        """Return the state of the conversation as plain JSON, for `restore`.

        It does not contain messages that wait for their attachments. With `unaccepted` it contains requests that the
        hub has not accepted, which only helps a hub that still knows them: to another hub the peer retransmits them.
        """
        now, shared = self._now, self._shared
        return {
            "version": SAVED_VERSION,
            "named": self.assigned_peer_id,
            "prefixes": [*shared.past_prefixes, shared.prefix],
            "asking": self._outgoing.export(now),
            "serving": self._incoming.export(now, unaccepted=unaccepted),
            "tombs": [
                [key, tombstone.name, until - now] for key, tombstone, until in self._incoming.tombstones.items()
            ],
            "following": [
                [target, subscription.subscription, subscription.envelope]
                for target, subscription in shared.own_subscriptions.items()
            ],
            "published": sorted([name, grant] for name, grant in shared.peer_subscriptions.grants.items() if grant),
        }

    @classmethod
    def restore(cls, setup: ConversationSetup, saved: Mapping[str, Any], now: float) -> Self:
        """Restore an exported conversation: it keeps identifiers, loses no answer and runs no request twice."""
        if saved.get("version") != SAVED_VERSION:
            raise LocalProtocolError(
                f"version {saved.get('version')} of a saved conversation is not supported, only {SAVED_VERSION}"
            )
        conversation = cls(setup)
        shared = conversation._shared
        conversation.assigned_peer_id = saved["named"]
        shared.start_new_prefix(saved["prefixes"])
        shared.own_subscriptions.update({target: OwnSubscription(*rest) for target, *rest in saved["following"]})
        shared.peer_subscriptions.grants.update(saved["published"])
        for key, tombstone, time_left in saved["tombs"]:
            conversation._incoming.tombstones.restore(key, Tombstone[tombstone], now + time_left)
        conversation._incoming.restore(saved["serving"], now)
        conversation._outgoing.restore(saved["asking"], now)
        conversation._reopen(now)
        return conversation

    def on_forget_parts(self, forget: Callable[[str], bool]) -> None:
        """Set a function that revokes the delivered parts of a streamed result by the call's id.

        If it returns true, the result is delivered again from its beginning. It is needed when the other hub restarts
        in the middle of a stream.
        """
        self._shared.try_forget_parts = forget

    def restore_accepted(self, key: str) -> None:
        """Restore a request that an earlier hub process accepted, of which only the key is known."""
        self._incoming.requests.restore_accepted(key, bridge.request_id_from_key(key))

    def restore_tombstone(self, key: str, until: float) -> None:
        """Restore the tombstone of a request that an earlier hub process answered."""
        self._incoming.tombstones.restore(key, Tombstone.ACKNOWLEDGED, until)

    def _take_hub_messages(self) -> Sequence[hub.HubMessage]:
        messages = self._shared.hub_messages
        if not messages:
            return ()
        taken = messages.copy()
        messages.clear()
        return taken

    def _send_acks(self) -> None:
        """Acknowledge the answers and parts of the current packet together."""
        shared = self._shared
        for first in range(0, len(shared.pending_acks), shared.limits.max_batch):
            self._retransmission.send_once(
                write(nq.Ack(tuple(shared.pending_acks[first : first + shared.limits.max_batch])))
            )
        for receiver in shared.pending_stream_acks:
            self._retransmission.send_once(write(nq.Next(receiver.a, (receiver.i,), receiver.next)))
        shared.pending_acks.clear()
        shared.pending_stream_acks.clear()

    def send_identity(self, *, run: bool = True) -> None:
        """Send the peer its id for reconnects first, and with `run` the prefix of our identifiers."""
        args = (self.peer, self._shared.prefix) if run else (self.peer,)
        self._retransmission.send_first(write(nq.SystemNote(ErrorObject.system("peer", args))))

    def _send_identity_if_configured(self) -> None:
        if self._shared.options.announce:
            self.send_identity(run=False)

    # Messages with attachments.

    def _send_or_defer(self, message: MessageWithAttachments, now: float) -> None:
        """Send a message once its attachments are complete."""
        if len(self._deferred) and not isinstance(message, hub.Event) and message.id in self._deferred:
            raise LocalProtocolError(f"{message.id} waits for its attachments already")
        if not message.attachments:
            self._send_now(message, now, None)
            return
        if (isinstance(message, hub.Call) and message.more) or (isinstance(message, hub.Result) and message.stream):
            raise LocalProtocolError("NQ does not support attachments in streams")
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
        deferred = self._deferred.add_attachment(message)
        if deferred is None or deferred.message is None:
            return
        try:
            if deferred.bytes_left < 0:
                raise TooLarge("the attachments are too large for one packet")
            self._send_now(deferred.message, now, {"attachments": bridge.write_attachments(deferred.attachments())})
        except LocalProtocolError as exc:
            if isinstance(deferred.message, hub.Result):
                # The method ran even though its result is lost.
                self._incoming.send_failure(hub.Failure(deferred.message.id, Reason.RAISED, str(exc)), now)
            elif not isinstance(deferred.message, hub.Event) and deferred.message.id is not None:
                reason = Reason.TOO_LARGE if isinstance(exc, Unrepresentable) else Reason.OVERLOADED
                self._shared.hub_messages.append(hub.Failure(deferred.message.id, reason, str(exc)))
            deferred.message = None

    def _send_cancel(self, message: hub.Cancel, now: float) -> None:
        if not self._deferred.drop(message.id):
            self._outgoing.send_cancel(message, now)

    def _send_failure(self, message: hub.Failure, now: float) -> None:
        self._incoming.send_failure(message, now)
        self._deferred.drop(message.id)

    # The connection.

    def _send_goodbye(self, message: hub.Goodbye, now: float) -> None:
        reason_text, note = message.text, "denied" if message.denied else "goodbye"
        while True:
            text, args = escape_braces(reason_text)
            raw = write(nq.Farewell(ErrorObject("sys", True, note=note, text=text, args=args)))
            if len(raw) <= self._shared.limits.max_text or not reason_text:
                break
            reason_text = reason_text[: len(reason_text) // 2]
        self._retransmission.send_once_unbounded(raw)
        self._final_packets = self._build_packets()
        self._state, self.closed = State.CLOSED, True

    def _on_farewell(self, message: nq.Farewell, now: float) -> None:
        self.closed = True
        self._shared.hub_messages.append(hub.Goodbye(message.e.format(), message.e.note == "denied"))

    def _on_system_note(self, message: nq.SystemNote, now: float) -> None:
        """Store our id at the peer. Errors are never answered, because two peers could answer each other for ever."""
        match message.e:
            case ErrorObject(type="sys", note="peer", args=(peer_id, *run)):
                self.assigned_peer_id = peer_id
                if run:
                    self.peer_run = run[0]
                    self._outgoing.on_peer_run(self.peer_run)
            case ErrorObject(type="sys", note="hello") if self.role is Role.SERVER:
                self._answer_hello()

    def _answer_hello(self) -> None:
        """Send both identities, and retransmit everything unless that has happened since the peer was last heard."""
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
        # One packet with many invalid elements gets only a few errors.
        self._system_errors += 1
        if self._system_errors <= MAX_SYSTEM_ERRORS:
            self._retransmission.send_once(write(nq.SystemNote(error)))

    def _ignore(self, _message: object, now: float) -> None:
        """Do nothing."""

    def _on_next(self, message: nq.Next, now: float) -> None:
        """Handle `Next`: with a it acknowledges parts of our request, else parts of our answer."""
        (self._outgoing if message.a else self._incoming).on_next(message, now)

    def _on_missing(self, message: nq.Missing, now: float) -> None:
        (self._outgoing if message.a else self._incoming).on_missing(message, now)

    # Functions, not bound methods: these would form a reference cycle with the conversation.
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
