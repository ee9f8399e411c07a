"""One UMQ 1.0.0 peer: what this dialect adds to the family's conversation."""

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
from fiveways.protocols.umq_family.conversation_base import AttachmentNames, HubMessages, Receiver, Sender
from fiveways.protocols.umq_family.failures import failure_text, parse_callee_failure, parse_failure
from fiveways.protocols.umq_family.fastpath import UmqFastPath
from fiveways.protocols.umq_family.requests import IncomingRequest, OutgoingRequest
from fiveways.wire.payload import Payload, Text

_VERSION_PATTERN: Final = re.compile(r"[0-9]{1,99}(\.[0-9]{1,99})*")


class Umq1Conversation(UmqFastPath):
    """One UMQ 1.0.0 peer, at either end of the link."""

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
        """A server lowers every later version to 1.0.0; a client takes nothing but what it offered."""
        ours = _parse_version(self.VERSION)
        theirs = _parse_version(message.version)
        if theirs < ours or (theirs > ours and isinstance(message, umq.Welcome)):
            raise RemoteProtocolError(Fault.VERSION, f"version {message.version}, not {self.VERSION}", "UMQ1-a06")

    def _on_hello(self, message: umq.Hello, names: AttachmentNames, now: float) -> HubMessages:
        if self._state is State.OPEN:
            raise RemoteProtocolError(Fault.UNKNOWN_KIND, "hello after the handshake", "UMQ1-a11")
        return super()._on_hello(message, names, now)

    def _on_attachment_error(self, message: umq.AttachmentError, names: AttachmentNames, now: float) -> HubMessages:
        # Attachments announced by the message itself are none that it could stand for.
        if len(self._incoming_attachments) == len(names):
            raise RemoteProtocolError(Fault.STRAY_ATTACHMENT, "no attachment is expected", self.RULE_ATTACHMENTS)
        return super()._on_attachment_error(message, names, now)

    def _on_call(self, message: Call, names: AttachmentNames, _now: float) -> HubMessages:
        return self._on_method_call(message.id, message.method, Text(message.payload), names)

    def _on_builtin_call(self, wire_id: str, hub_id: str, message: hub.HubMessage) -> HubMessages:
        if isinstance(message, hub.Subscribe | hub.Unsubscribe) and len(message.subscription) > self._limits.max_id:
            # No U could name it.
            return self._refuse(wire_id, Reason.BAD_ARGUMENTS, f"a topic id of over {self._limits.max_id} characters")
        if isinstance(message, hub.SetVariable | hub.UnsetVariable) and not self._is_valid_variable_name(message.name):
            return self._refuse(wire_id, Reason.BAD_ARGUMENTS, "no variable can have that name")
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

    def _read_failure(self, asking: OutgoingRequest, answer: umq.Error | umq.NotRun) -> hub.Failure:
        if isinstance(answer, umq.NotRun):
            return parse_failure(asking.hub_id, answer.text, bridge.NOT_RUN, Reason.UNAVAILABLE)
        # UMQ1-a08: `?` runs nothing, so its E may carry any code.
        listing = asking.message_type is hub.Discover
        # Otherwise only a hub's codes mean something: a callee may raise any text it likes.
        if self.role is Role.SERVER and not listing:
            return parse_callee_failure(asking.hub_id, answer.text, bridge.CODES)
        return parse_failure(asking.hub_id, answer.text, bridge.CODES if listing else bridge.MAYBE_RUN, Reason.RAISED)

    # Discovery has a message of its own, in both directions.

    def _on_discover(self, message: Discover, _names: AttachmentNames, _now: float) -> HubMessages:
        if len(self._incoming_requests) >= self._limits.max_pending:
            return self._refuse_discover(
                message.id, hub.Failure(message.id, Reason.OVERLOADED, "too many calls are open")
            )
        hub_id = self._unique_id(message.id)
        self._incoming_requests[hub_id] = IncomingRequest(message.id, is_discover=True)
        return (hub.Discover(hub_id, message.name),)

    def _refuse_discover(self, wire_id: str, failure: hub.Failure) -> HubMessages:
        # UMQ1-a08: `?` is answered by R or E, whatever the reason.
        self._write_message(umq.Error(wire_id, failure_text(failure, bridge.CODES)))
        return ()

    def _send_failure(self, message: hub.Failure) -> None:
        asked = self._find_incoming(message.id)
        if isinstance(asked, IncomingRequest) and asked.is_discover:
            self._refuse_discover(asked.wire_id, message)
            del self._incoming_requests[message.id]
        else:
            super()._send_failure(message)

    def _send_description(self, message: hub.Description) -> None:
        asked = self._find_incoming(message.id)
        if isinstance(asked, IncomingRequest) and asked.is_discover:
            self._write_message(umq.Result(asked.wire_id, bridge.write_listing(message)))
            del self._incoming_requests[message.id]
        else:
            super()._send_description(message)

    def _discover_message(self, wire_id: str, message: hub.Discover) -> Discover:
        if "\n" in message.name:
            raise LocalProtocolError("the name to discover has more than one line")
        return Discover(wire_id, message.name)

    def _read_description(self, hub_id: str, text: str) -> hub.HubMessage:
        read = bridge.read_listing(hub_id, text)
        return read or hub.Failure(hub_id, Reason.RAISED, "the answer is no description")

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
    """Dotted numbers, trailing zeros left out, so that 1 equals 1.0.0."""
    if not _VERSION_PATTERN.fullmatch(text):
        raise RemoteProtocolError(Fault.VERSION, f"version {text!r} is no version", "UMQ1-a06")
    numbers = [int(part) for part in text.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
