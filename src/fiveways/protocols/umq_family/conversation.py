"""The general path of a UMQ conversation: requests, responses, topics and variables.

A dialect subclasses it, defines the syntax of calls and the error codes, and adds its own messages.
"""

from abc import abstractmethod
from collections.abc import Mapping
from itertools import count
from typing import ClassVar, Final

import msgspec

from fiveways.errors import Fault, LocalProtocolError, Reason, RemoteProtocolError
from fiveways.model import messages as hub
from fiveways.model.names import BadName, fold, spell
from fiveways.protocols import builtin_methods
from fiveways.protocols.base import ConversationSetup
from fiveways.protocols.umq_family import messages as umq
from fiveways.protocols.umq_family.conversation_base import (
    NO_MESSAGES,
    AttachmentNames,
    HubMessages,
    Receiver,
    Sender,
    UmqConversationBase,
)
from fiveways.protocols.umq_family.frames import write_text
from fiveways.protocols.umq_family.messages import UmqMessage
from fiveways.protocols.umq_family.states import State
from fiveways.protocols.umq_family.subscriptions import OwnSubscription, OwnSubscriptions, PeerSubscriptions
from fiveways.protocols.umq_family.variables import Variables
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload, Text

OPEN: Final = State.OPEN
"""A module constant: attribute access on an Enum class takes longer than writing a frame."""


class IncomingRequest(msgspec.Struct, frozen=True, gc=False):
    """A pending request of the peer, other than a plain call, with the state for its response."""

    wire_id: str
    message: hub.HubMessage | None = None
    """The hub message, if its success changes the state of the conversation."""
    is_discover: bool = False
    """Whether the dialect's discover message was used; the response then has that message's form."""


class OutgoingRequest(msgspec.Struct, frozen=True, gc=False):
    """A pending request of ours other than a plain call. For a plain call only the hub id is stored."""

    hub_id: str
    message_type: type[hub.HubMessage]
    topic: str | None = None
    """Our topic id, removed again if the subscription is denied."""


class UmqConversation(UmqConversationBase):
    """A UMQ peer. Implements `base.Conversation`."""

    STYLES: ClassVar[builtin_methods.Styles]
    WRITE_CALL: ClassVar["staticmethod[[str, str, Payload], Packet]"]
    """Serializes a call without attachments from its id, method name and body."""

    def __init__(self, setup: ConversationSetup) -> None:
        super().__init__(setup)
        self.variables = Variables(setup.limits)
        self._last_id = 0
        self._last_topic_id = 0
        self._duplicate_numbers = count(2)
        self._incoming_requests: dict[str, str | IncomingRequest] = {}
        self._outgoing_requests: dict[str, str | OutgoingRequest] = {}
        self._outgoing_by_hub_id: dict[str, str] = {}
        self._peer_subscriptions = PeerSubscriptions(setup.limits.max_subscriptions)
        self._own_subscriptions = OwnSubscriptions()

    # Methods of the dialects.

    @abstractmethod
    def _wire_id(self, number: int) -> str:
        """Return the dialect's form of our identifier `number`."""

    @abstractmethod
    def _call_message(self, wire_id: str, name: str, body: Payload, attachments: int) -> UmqMessage: ...

    @abstractmethod
    def _callback_message(self, wire_id: str, token: str, body: Payload, attachments: int) -> umq.Callback: ...

    @abstractmethod
    def _failure_message(self, wire_id: str, failure: hub.Failure) -> umq.Error | umq.NotRun: ...

    @abstractmethod
    def _read_failure(self, request: OutgoingRequest, response: umq.Error | umq.NotRun) -> hub.Failure: ...

    @abstractmethod
    def _discover_message(self, wire_id: str, message: hub.Discover) -> UmqMessage: ...

    @abstractmethod
    def _read_description(self, hub_id: str, text: str) -> hub.HubMessage: ...

    def _parse_token(self, spelling: str) -> str:
        """Return the callback token that the peer spelled this way."""
        return spelling

    def _result_text(self, _request: IncomingRequest, body: Payload) -> str:
        """Return the payload of a response to anything but a plain call."""
        return body.text()

    def _on_topic_ended(self, topic: str) -> None:
        """Handle the end of an active subscription of the peer."""

    # Requests of the peer and our responses.

    def _on_method_call(self, wire_id: str, name: str, body: Payload, names: AttachmentNames) -> HubMessages:
        """Handle a call; `name` is the method as spelled by the peer."""
        try:
            method = fold(name, self.STYLES.names)
        except BadName as exc:
            return self._refuse(wire_id, Reason.NO_SUCH_METHOD, str(exc))
        if len(self._incoming_requests) >= self._limits.max_pending:
            return self._refuse(wire_id, Reason.OVERLOADED, "too many calls are open")
        hub_id = wire_id if wire_id not in self._incoming_requests else self._unique_id(wire_id)
        if method.startswith("hub."):
            try:
                message = builtin_methods.message_from_call(hub_id, method, body, self.STYLES, names)
            except builtin_methods.BadArguments as exc:
                return self._refuse(wire_id, Reason.BAD_ARGUMENTS, str(exc))
            if type(message) is hub.Publish:  # its result changes no state here
                self._incoming_requests[hub_id] = wire_id
                return (message,)
            if message is not None:
                return self._on_builtin_call(wire_id, hub_id, message)
        self._incoming_requests[hub_id] = wire_id
        return (hub.Call(hub_id, method, body, name, names),)

    def _on_builtin_call(self, wire_id: str, hub_id: str, message: hub.HubMessage) -> HubMessages:
        refusal = None
        if isinstance(message, hub.Subscribe):
            refusal = self._peer_subscriptions.claim(message.subscription)
        elif isinstance(message, hub.SetVariable):
            refusal = self.variables.refusal(message.name)
        elif isinstance(message, hub.Unsubscribe):
            if self._peer_subscriptions.end(message.subscription):
                self._on_topic_ended(message.subscription)
            else:
                refusal = Reason.BAD_ARGUMENTS, f"no topic {message.subscription} is open"
        if refusal is not None:
            return self._refuse(wire_id, *refusal)
        if isinstance(message, hub.SetVariable):
            self.variables.request(message.name)
        self._incoming_requests[hub_id] = IncomingRequest(wire_id, message)
        return (message,)

    def _apply_granted(self, message: hub.HubMessage | None) -> None:
        if isinstance(message, hub.Subscribe):
            self._peer_subscriptions.grant(message.subscription)
        elif isinstance(message, hub.SetVariable):
            self.variables.grant(message.name, message.body.text())
        elif isinstance(message, hub.UnsetVariable):
            self.variables.remote.pop(message.name, None)

    def _undo_denied(self, message: hub.HubMessage | None) -> None:
        if isinstance(message, hub.Subscribe):
            self._peer_subscriptions.reject(message.subscription)
        elif isinstance(message, hub.SetVariable):
            self.variables.deny(message.name)

    def _on_callback(self, message: umq.Callback, names: AttachmentNames, _now: float) -> HubMessages:
        if len(self._incoming_requests) >= self._limits.max_pending:
            return self._refuse(message.id, Reason.OVERLOADED, "too many calls are open")
        hub_id = self._unique_id(message.id)
        self._incoming_requests[hub_id] = message.id
        token = self._parse_token(message.callback)
        return (hub.Call(hub_id, token, Text(message.payload), attachments=names, callback=True),)

    def _unique_id(self, wire_id: str) -> str:
        """Return a hub id for a request: an identifier that the peer uses twice at once gets a suffix."""
        hub_id = wire_id
        while hub_id in self._incoming_requests:
            hub_id = f"{wire_id}#{next(self._duplicate_numbers)}"
        return hub_id

    def _refuse(self, wire_id: str, reason: Reason, text: str) -> HubMessages:
        self._write_message(self._failure_message(wire_id, hub.Failure(wire_id, reason, text)))
        return NO_MESSAGES

    def _find_incoming(self, hub_id: str) -> str | IncomingRequest:
        request = self._incoming_requests.get(hub_id)
        if request is None:
            raise LocalProtocolError(f"no request {hub_id} is open")
        return request

    def _send_result(self, message: hub.Result) -> None:
        request, body = self._incoming_requests.get(message.id), message.body
        if type(request) is str and body is not None and not message.stream and not message.attachments:
            # Most responses are plain: no message object is built for them.
            self._write_packet(write_text(f"R{request}{self._separator}{body.text()}"))
            del self._incoming_requests[message.id]
            return
        request = self._find_incoming(message.id)
        if message.stream or body is None:
            raise LocalProtocolError("UMQ needs a streamed result as one array")
        wire_id, text = (
            (request, body.text()) if isinstance(request, str) else (request.wire_id, self._result_text(request, body))
        )
        self._write_message(umq.Result(wire_id, text, len(message.attachments)), message.attachments)
        del self._incoming_requests[message.id]
        if isinstance(request, IncomingRequest):
            self._apply_granted(request.message)

    def _send_failure(self, message: hub.Failure) -> None:
        request = self._find_incoming(message.id)
        self._write_message(self._failure_message(request if isinstance(request, str) else request.wire_id, message))
        del self._incoming_requests[message.id]
        if isinstance(request, IncomingRequest):
            self._undo_denied(request.message)

    def _send_description(self, message: hub.Description) -> None:
        request = self._find_incoming(message.id)
        wire_id = request if isinstance(request, str) else request.wire_id
        self._write_message(umq.Result(wire_id, builtin_methods.description_payload(message).text()))
        del self._incoming_requests[message.id]

    # Our requests and the peer's responses.

    def _send_call(self, message: hub.Call) -> None:
        if message.more:
            raise LocalProtocolError("UMQ needs a streamed request as one array")
        hub_id = message.id
        wire_id = self._next_id(hub_id)
        attachments = message.attachments
        if message.callback:
            self._write_message(
                self._callback_message(wire_id, message.method, message.body, len(attachments)), attachments
            )
        else:
            name = message.spelling or spell(message.method, self.STYLES.names)
            if attachments or self._state is not OPEN:
                self._write_message(self._call_message(wire_id, name, message.body, len(attachments)), attachments)
            else:
                self._write_packet(self.WRITE_CALL(wire_id, name, message.body))
        self._last_id += 1
        self._outgoing_requests[wire_id] = hub_id
        self._outgoing_by_hub_id[hub_id] = wire_id

    def _send_builtin(self, message: builtin_methods.Builtin) -> None:
        """Call a method of the hub, because UMQ has no message of its own for this."""
        topic = None
        if isinstance(message, hub.Subscribe):
            self._own_subscriptions.check_free(message.subscription)
            topic = self._wire_id(self._last_topic_id + 1)
        wire_id = self._next_id(message.id)
        method, body = builtin_methods.call_from_message(message, self.STYLES, topic)
        attachments: AttachmentNames = getattr(message, "attachments", ())
        self._write_message(
            self._call_message(wire_id, spell(method, self.STYLES.names), body, len(attachments)), attachments
        )
        self._last_id += 1
        if message.id is not None:
            self._expect_answer(wire_id, OutgoingRequest(message.id, type(message), topic))
        if topic is not None and isinstance(message, hub.Subscribe):
            self._last_topic_id += 1
            self._own_subscriptions.add(
                topic, OwnSubscription(message.subscription, message.pattern.literal, message.envelope)
            )

    def _send_discover(self, message: hub.Discover) -> None:
        wire_id = self._next_id(message.id)
        self._write_message(self._discover_message(wire_id, message))
        self._last_id += 1
        self._expect_answer(wire_id, OutgoingRequest(message.id, hub.Discover))

    def _next_id(self, hub_id: str | None) -> str:
        if hub_id in self._outgoing_by_hub_id:
            raise LocalProtocolError(f"request {hub_id} is open already")
        if len(self._outgoing_requests) >= self._limits.max_pending:
            raise LocalProtocolError("too many requests to this peer are open")
        return self._wire_id(self._last_id + 1)

    def _expect_answer(self, wire_id: str, request: OutgoingRequest) -> None:
        self._outgoing_requests[wire_id] = request
        self._outgoing_by_hub_id[request.hub_id] = wire_id

    def _send_cancel(self, message: hub.Cancel) -> None:
        """Forget the request: UMQ has no message to cancel it, and a late response is ignored."""
        request = self._pop_outgoing(self._outgoing_by_hub_id.get(message.id, ""))
        if request is not None and request.topic is not None:
            self._own_subscriptions.remove(request.topic)

    def _pop_outgoing(self, wire_id: str) -> OutgoingRequest | None:
        """Remove and return our request with this id; None if it is unknown or closed."""
        request = self._outgoing_requests.pop(wire_id, None)
        if isinstance(request, str):
            request = OutgoingRequest(request, hub.Call)
        if request is not None:
            del self._outgoing_by_hub_id[request.hub_id]
        return request

    def _on_result(self, message: umq.Result, names: AttachmentNames, _now: float) -> HubMessages:
        request = self._outgoing_requests.get(message.id)
        if isinstance(request, str):
            del self._outgoing_requests[message.id], self._outgoing_by_hub_id[request]
            return (hub.Result(request, Text(message.payload), names),)
        request = self._pop_outgoing(message.id)
        if request is None:
            return NO_MESSAGES
        if request.message_type is hub.Discover:
            return (self._read_description(request.hub_id, message.payload),)
        return (hub.Result(request.hub_id, Text(message.payload), names),)

    def _on_failure(self, message: umq.Error | umq.NotRun, _names: AttachmentNames, _now: float) -> HubMessages:
        request = self._pop_outgoing(message.id)
        if request is None:
            return NO_MESSAGES
        if request.topic is not None:
            self._own_subscriptions.remove(request.topic)
        return (self._read_failure(request, message),)

    # Topics.

    def _on_update(self, message: umq.TopicUpdate, names: AttachmentNames, _now: float) -> HubMessages:
        subscription = self._own_subscriptions.get(message.id)
        if subscription is None:
            self._write_message(umq.Unsubscribe(message.id))
            return NO_MESSAGES
        event = hub.Event(subscription.subscription, subscription.topic, Text(message.payload), names)
        return (builtin_methods.unwrap_event(event, self.STYLES) if subscription.envelope else event,)

    def shared_frame(self, message: hub.Event) -> Packet | None:
        """Return the update: its only field that depends on the subscriber is the topic id."""
        if message.attachments or self.closed or message.subscription not in self._peer_subscriptions.active:
            return None
        text = builtin_methods.event_body(message, self.STYLES).text()
        return self._check_size(write_text(f"T{message.subscription}{self._separator}{text}"))

    def _on_topic_close(self, message: umq.TopicClose, _names: AttachmentNames, _now: float) -> HubMessages:
        subscription = self._own_subscriptions.remove(message.id)
        return NO_MESSAGES if subscription is None else (hub.TopicClosed(subscription),)

    def _on_unsubscribe(self, message: umq.Unsubscribe, _names: AttachmentNames, _now: float) -> HubMessages:
        if not self._peer_subscriptions.end(message.id):
            return NO_MESSAGES
        self._on_topic_ended(message.id)
        return (hub.Unsubscribe(None, message.id),)

    def _send_event(self, message: hub.Event) -> None:
        if (packet := self.shared_frame(message)) is not None:
            self.unsent.append(packet)
            return
        self._peer_subscriptions.check_active(message.subscription)
        text, attachments = builtin_methods.event_body(message, self.STYLES).text(), message.attachments
        self._write_message(umq.TopicUpdate(message.subscription, text, len(attachments)), attachments)

    def _send_topic_closed(self, message: hub.TopicClosed) -> None:
        self._peer_subscriptions.check_active(message.subscription)
        self._write_message(umq.TopicClose(message.subscription))
        self._peer_subscriptions.end(message.subscription)

    def _send_unsubscribe(self, message: hub.Unsubscribe) -> None:
        topic = self._own_subscriptions.topic_id(message.subscription)
        if message.id is None:
            self._write_message(umq.Unsubscribe(topic))
        else:
            self._send_builtin(msgspec.structs.replace(message, subscription=topic))
        self._own_subscriptions.remove(topic)

    # Variables.

    def _on_set(self, message: umq.SetVariable, names: AttachmentNames, _now: float) -> HubMessages:
        refusal = self.variables.refusal(message.name)
        if refusal is not None:
            raise RemoteProtocolError(Fault.TOO_LARGE, refusal[1], self.RULE_VARIABLES)
        self.variables.remote[message.name] = message.payload
        return (hub.SetVariable(None, message.name, Text(message.payload), names),)

    def _on_unset(self, message: umq.UnsetVariable, _names: AttachmentNames, _now: float) -> HubMessages:
        known = self.variables.remote.pop(message.name, None) is not None
        return (hub.UnsetVariable(None, message.name),) if known else NO_MESSAGES

    def _send_set(self, message: hub.SetVariable) -> None:
        text = message.body.text()
        if message.id is None:
            self._write_message(umq.SetVariable(message.name, text, len(message.attachments)), message.attachments)
        else:
            self._send_builtin(message)
        self.variables.local[message.name] = text

    def _send_unset(self, message: hub.UnsetVariable) -> None:
        if message.id is None:
            self._write_message(umq.UnsetVariable(message.name))
        else:
            self._send_builtin(message)
        self.variables.local.pop(message.name, None)

    def _ignore(self, _word: hub.HubMessage) -> None:
        """Do nothing: UMQ has no message for this, and none is needed."""

    RECEIVERS: ClassVar[Mapping[type, Receiver]] = {
        **UmqConversationBase.RECEIVERS,
        umq.Callback: _on_callback,
        umq.Result: _on_result,
        umq.Error: _on_failure,
        umq.NotRun: _on_failure,
        umq.TopicUpdate: _on_update,
        umq.TopicClose: _on_topic_close,
        umq.Unsubscribe: _on_unsubscribe,
        umq.SetVariable: _on_set,
        umq.UnsetVariable: _on_unset,
    }

    SENDERS: ClassVar[Mapping[type[hub.HubMessage], Sender]] = {
        **UmqConversationBase.SENDERS,
        hub.Call: _send_call,
        hub.Cancel: _send_cancel,
        hub.Result: _send_result,
        hub.Failure: _send_failure,
        hub.Discover: _send_discover,
        hub.Description: _send_description,
        hub.Publish: _send_builtin,
        hub.CloseTopic: _send_builtin,
        hub.Register: _send_builtin,
        hub.Unregister: _send_builtin,
        hub.Subscribe: _send_builtin,
        hub.Unsubscribe: _send_unsubscribe,
        hub.Event: _send_event,
        hub.TopicClosed: _send_topic_closed,
        hub.SetVariable: _send_set,
        hub.UnsetVariable: _send_unset,
        hub.Accepted: _ignore,
        hub.Progress: _ignore,
        hub.Acknowledged: _ignore,
    }
