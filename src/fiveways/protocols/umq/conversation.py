"""The UMQ 1.0.0 conversation: additions to the UMQ family."""

import re
from collections.abc import Mapping
from typing import ClassVar, Final

from fiveways.errors import Execution, Fault, LocalProtocolError, Reason, RemoteProtocolError
from fiveways.model import messages as hub
from fiveways.protocols.base import Role
from fiveways.protocols.umq import bridge
from fiveways.protocols.umq.messages import Call, Discover, decode, encode, is_variable_name
from fiveways.protocols.umq.states import OWN_TRANSITIONS, TRANSITIONS, State
from fiveways.protocols.umq_family import messages as umq
from fiveways.protocols.umq_family.conversation import IncomingRequest, OutgoingRequest
from fiveways.protocols.umq_family.conversation_base import AttachmentNames, HubMessages, Receiver, Sender
from fiveways.protocols.umq_family.failures import failure_text, parse_callee_failure, parse_failure
from fiveways.protocols.umq_family.fastpath import UmqFastPath
from fiveways.wire.payload import Payload, Text

_VERSION_PATTERN: Final = re.compile(r"[0-9]{1,99}(\.[0-9]{1,99})*")


class Umq1Conversation(UmqFastPath):
    """A UMQ 1.0.0 peer, as server or client."""

    VERSION = "1.0.0"
    CALL_KIND = ord("M")
    SEPARATOR = "\n"
    DECODE = staticmethod(decode)
    ENCODE = staticmethod(encode)
    WRITE_CALL = staticmethod(bridge.write_call_frame)
    TRANSITIONS = TRANSITIONS
    OWN_TRANSITIONS = OWN_TRANSITIONS
    STYLES = bridge.STYLES
    FAULTS = bridge.FAULTS
    DENIED_CODE = 12
    CLOSING_CODE = 11
    RULE_STATE = "UMQ1-a10"
    RULE_ATTACHMENTS = "UMQ1-a11"
    RULE_VARIABLES = "UMQ1-a16"

    def _receive_call_fast(self, payload: bytes) -> HubMessages | None:
        head, _, call = payload.decode().partition("\n")
        name, _, text = call.partition("\n")
        wire_id, method = head[1:], bridge.fold_fastpath_name(name)
        if not method or not 0 < len(wire_id) <= self._limits.max_id or wire_id in self._incoming_requests:
            return None
        return self._accept_call_fast(wire_id, method, Text(text), name)

    def _wire_id(self, number: int) -> str:
        return str(number)

    def _check_version(self, message: umq.Hello | umq.Welcome) -> None:
        """Check a version.

        A server lowers later versions to 1.0.0; a client accepts only the version that it offered.
        """
        ours = _parse_version(self.VERSION)
        theirs = _parse_version(message.version)
        if theirs < ours or (theirs > ours and isinstance(message, umq.Welcome)):
            raise RemoteProtocolError(Fault.VERSION, f"version {message.version}, not {self.VERSION}", "UMQ1-a06")

    def _on_hello(self, message: umq.Hello, names: AttachmentNames, now: float) -> HubMessages:
        if self._state is State.OPEN:
            raise RemoteProtocolError(Fault.UNKNOWN_KIND, "hello after the handshake", "UMQ1-a11")
        return super()._on_hello(message, names, now)

    def _on_attachment_error(self, message: umq.AttachmentError, names: AttachmentNames, now: float) -> HubMessages:
        # The message cannot replace an attachment that it announces itself.
        if len(self._incoming_attachments) == len(names):
            raise RemoteProtocolError(Fault.STRAY_ATTACHMENT, "no attachment is expected", self.RULE_ATTACHMENTS)
        return super()._on_attachment_error(message, names, now)

    def _on_call(self, message: Call, names: AttachmentNames, _now: float) -> HubMessages:
        return self._on_method_call(message.id, message.method, Text(message.payload), names)

    def _on_builtin_call(self, wire_id: str, hub_id: str, message: hub.HubMessage) -> HubMessages:
        if isinstance(message, hub.Subscribe | hub.Unsubscribe) and len(message.subscription) > self._limits.max_id:
            # The peer could not end the subscription: a `U` with such an id is too long.
            return self._refuse(wire_id, Reason.BAD_ARGUMENTS, f"a topic id of over {self._limits.max_id} characters")
        if isinstance(message, hub.SetVariable | hub.UnsetVariable) and not self._is_valid_variable_name(message.name):
            return self._refuse(wire_id, Reason.BAD_ARGUMENTS, "invalid variable name")
        return super()._on_builtin_call(wire_id, hub_id, message)

    def _is_valid_variable_name(self, name: str) -> bool:
        return is_variable_name(name) and len(name) <= self._limits.max_name

    def _call_message(self, wire_id: str, name: str, body: Payload, attachments: int) -> Call:
        return Call(wire_id, name, body.text(), attachments)

    def _callback_message(self, wire_id: str, token: str, body: Payload, attachments: int) -> umq.Callback:
        return umq.Callback(wire_id, token, body.text(), attachments)

    def _failure_message(self, wire_id: str, failure: hub.Failure) -> umq.Error | umq.NotRun:
        kind = umq.NotRun if failure.reason.execution is Execution.NO else umq.Error
        return kind(wire_id, bridge.write_failure_text(failure))

    def _read_failure(self, request: OutgoingRequest, response: umq.Error | umq.NotRun) -> hub.Failure:
        if isinstance(response, umq.NotRun):
            return parse_failure(request.hub_id, response.text, bridge.NOT_RUN, Reason.UNAVAILABLE)
        # UMQ1-a08: `?` runs nothing, so its E may carry any code.
        is_discover = request.message_type is hub.Discover
        # Only the codes of a hub have a meaning: a callee may raise any text.
        if self.role is Role.SERVER and not is_discover:
            return parse_callee_failure(request.hub_id, response.text, bridge.CODES)
        return parse_failure(
            request.hub_id, response.text, bridge.CODES if is_discover else bridge.MAYBE_RUN, Reason.RAISED
        )

    # Discovery has its own message in both directions.

    def _on_discover(self, message: Discover, _names: AttachmentNames, _now: float) -> HubMessages:
        if len(self._incoming_requests) >= self._limits.max_pending:
            return self._refuse_discover(
                message.id, hub.Failure(message.id, Reason.OVERLOADED, "too many calls are open")
            )
        hub_id = self._unique_id(message.id)
        self._incoming_requests[hub_id] = IncomingRequest(message.id, is_discover=True)
        return (hub.Discover(hub_id, message.name),)

    def _refuse_discover(self, wire_id: str, failure: hub.Failure) -> HubMessages:
        # UMQ1-a08: the response to `?` is R or E for every reason.
        self._write_message(umq.Error(wire_id, failure_text(failure, bridge.CODES)))
        return ()

    def _send_failure(self, message: hub.Failure) -> None:
        request = self._find_incoming(message.id)
        if isinstance(request, IncomingRequest) and request.is_discover:
            self._refuse_discover(request.wire_id, message)
            del self._incoming_requests[message.id]
        else:
            super()._send_failure(message)

    def _send_description(self, message: hub.Description) -> None:
        request = self._find_incoming(message.id)
        if isinstance(request, IncomingRequest) and request.is_discover:
            self._write_message(umq.Result(request.wire_id, bridge.write_listing(message)))
            del self._incoming_requests[message.id]
        else:
            super()._send_description(message)

    def _discover_message(self, wire_id: str, message: hub.Discover) -> Discover:
        if "\n" in message.name:
            raise LocalProtocolError("the name to discover has more than one line")
        return Discover(wire_id, message.name)

    def _read_description(self, hub_id: str, text: str) -> hub.HubMessage:
        description = bridge.read_listing(hub_id, text)
        return description or hub.Failure(hub_id, Reason.RAISED, "the response is not a description")

    RECEIVERS: ClassVar[Mapping[type, Receiver]] = {
        **UmqFastPath.RECEIVERS,
        umq.Hello: _on_hello,
        umq.AttachmentError: _on_attachment_error,
        Call: _on_call,
        Discover: _on_discover,
    }
    SENDERS: ClassVar[Mapping[type[hub.HubMessage], Sender]] = {
        **UmqFastPath.SENDERS,
        hub.Failure: _send_failure,
        hub.Description: _send_description,
    }


def _parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version without trailing zeros, because 1 equals 1.0.0."""
    if not _VERSION_PATTERN.fullmatch(text):
        raise RemoteProtocolError(Fault.VERSION, f"{text!r} is not a version", "UMQ1-a06")
    numbers = [int(part) for part in text.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
