"""The UMQ36 conversation: additions to the UMQ family."""

from collections.abc import Mapping
from typing import ClassVar, Final

from fiveways.errors import Execution, Fault, Reason, RemoteProtocolError
from fiveways.model import messages as hub
from fiveways.model.names import spell
from fiveways.protocols import builtin_methods
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.umq36 import bridge
from fiveways.protocols.umq36.messages import Call, decode, encode
from fiveways.protocols.umq36.states import OWN_TRANSITIONS, TRANSITIONS
from fiveways.protocols.umq_family import messages as umq
from fiveways.protocols.umq_family.conversation import IncomingRequest, OutgoingRequest
from fiveways.protocols.umq_family.conversation_base import AttachmentNames, HubMessages, Receiver
from fiveways.protocols.umq_family.failures import failure_text, parse_callee_failure, parse_failure
from fiveways.protocols.umq_family.fastpath import UmqFastPath
from fiveways.wire import base36
from fiveways.wire.payload import Json, Payload, Text
from fiveways.wire.strict_json import check_numbers_and_depth

_MAX_ID: Final = 2**32 - 1
_DIGITS: Final = base36.DIGITS.encode()
_MAX_FASTPATH_DIGITS: Final = 12


class Umq36Conversation(UmqFastPath):
    """A UMQ36 peer, as server or client."""

    VERSION = "1"
    CALL_KIND = ord("C")
    SEPARATOR = ":"
    DECODE = staticmethod(decode)
    ENCODE = staticmethod(encode)
    WRITE_CALL = staticmethod(bridge.write_call_frame)
    TRANSITIONS = TRANSITIONS
    OWN_TRANSITIONS = OWN_TRANSITIONS
    STYLES = bridge.STYLES
    FAULTS = bridge.FAULTS
    DENIED_CODE = 1
    CLOSING_CODE = 8
    RULE_STATE = "UMQ36-a18"
    RULE_ATTACHMENTS = "UMQ36-a16"
    RULE_VARIABLES = "UMQ36-18"

    def __init__(self, setup: ConversationSetup) -> None:
        super().__init__(setup)
        default = (setup.options or {}).get("default_method")
        self._default_method = default if isinstance(default, str) else None
        # The hub reads a callee's `E` as an exception. Only `!` means that a method did not run, but existing servers
        # do not support it (UMQ36-a09). A client sends it only if the welcome identifies a Fiveways hub.
        self._hub_supports_not_run = False

    def _receive_call_fast(self, payload: bytes) -> HubMessages | None:
        if not payload.isascii():
            payload.decode()
        head, _, array = payload.partition(b":")
        call, number = bridge.decode_two_element_call(array), head[1:]
        # The id has digits without leading zeros, few enough for the limit; no blanks surround the array.
        if number.strip(_DIGITS) or number < b"1" or len(number) > _MAX_FASTPATH_DIGITS or array.strip() != array:
            return None
        name, wire_id = call.method, number.decode()
        method = bridge.fold_fastpath_name(name)
        if not method or wire_id in self._incoming_requests:
            return None
        raw = bytes(call.body)
        check_numbers_and_depth(raw, self._limits.max_depth)
        return self._accept_call_fast(wire_id, method, Json(raw), name)

    def _wire_id(self, number: int) -> str:
        # Existing peers store ids in 32 bits (UMQ36-a04).
        return base36.write(number if number <= _MAX_ID else (number - 1) % _MAX_ID + 1)

    def _check_version(self, message: umq.Hello | umq.Welcome) -> None:
        offered = isinstance(message, umq.Hello)
        if message.version != self.VERSION and (not offered or message.version == "0"):
            raise RemoteProtocolError(Fault.VERSION, f"version {message.version}, not {self.VERSION}", "UMQ36-a06")

    def _on_call(self, message: Call, names: AttachmentNames, _now: float) -> HubMessages:
        reason, text, call = Reason.NO_SUCH_METHOD, 'the payload is not ["method", ...]', None
        try:
            call = bridge.read_call(message.payload, self._limits.max_depth)
        except builtin_methods.BadArguments as exc:
            reason, text = Reason.BAD_ARGUMENTS, str(exc)
        if call is not None:
            name, body = call
            return self._on_method_call(message.id, name, body, names)
        if self._default_method is None:
            return self._refuse(message.id, reason, text)
        return self._on_method_call(message.id, self._default_method, Text(message.payload), names)

    def _call_message(self, wire_id: str, name: str, body: Payload, attachments: int) -> Call:
        return Call(wire_id, bridge.write_call(name, body), attachments)

    def _callback_message(self, wire_id: str, token: str, body: Payload, attachments: int) -> umq.Callback:
        return umq.Callback(wire_id, bridge.token_from_hub(token), body.text(), attachments)

    def _on_method_call(self, wire_id: str, name: str, body: Payload, names: AttachmentNames) -> HubMessages:
        messages = super()._on_method_call(wire_id, name, body, names)
        for message in messages:
            if isinstance(message, hub.Call) and message.method == "hub.callback":
                self._incoming_requests[message.id] = IncomingRequest(wire_id, message)  # the response is a token
        return messages

    def _result_text(self, request: IncomingRequest, body: Payload) -> str:
        text = super()._result_text(request, body)
        return bridge.token_for_peer(text) if isinstance(request.message, hub.Call) else text

    def _parse_token(self, spelling: str) -> str:
        return bridge.token_to_hub(spelling)

    def _on_welcome(self, message: umq.Welcome, names: AttachmentNames, now: float) -> HubMessages:
        self._hub_supports_not_run = bridge.is_fiveways_welcome(message.payload)
        return super()._on_welcome(message, names, now)

    def _failure_message(self, wire_id: str, failure: hub.Failure) -> umq.Error | umq.NotRun:
        kind = umq.NotRun if self._hub_supports_not_run and failure.reason.execution is Execution.NO else umq.Error
        return kind(wire_id, failure_text(failure, bridge.CODES))

    def _read_failure(self, request: OutgoingRequest, response: umq.Error | umq.NotRun) -> hub.Failure:
        if isinstance(response, umq.NotRun):
            # It did not run, independent of the code: existing peers send `6 Not RPC server` (UMQ36-a09).
            return parse_failure(request.hub_id, response.text, bridge.NOT_RUN, Reason.UNAVAILABLE)
        # Only the codes of a hub have a meaning; a callee's own `E` is always an exception.
        if self.role is Role.SERVER:
            return parse_callee_failure(request.hub_id, response.text, bridge.CODES)
        return parse_failure(request.hub_id, response.text, bridge.CODES, Reason.RAISED)

    def _discover_message(self, wire_id: str, message: hub.Discover) -> Call:
        method, body = builtin_methods.call_from_message(message, self.STYLES)
        return self._call_message(wire_id, spell(method, self.STYLES.names), body, 0)

    def _read_description(self, hub_id: str, text: str) -> hub.HubMessage:
        description = builtin_methods.read_description(hub_id, Text(text))
        return description or hub.Failure(hub_id, Reason.RAISED, "the response is not a description")

    def _on_topic_ended(self, topic: str) -> None:
        # Existing publishers do not send this D, but the spec requires it after U on an active topic (UMQ36-a12).
        self._write_message(umq.TopicClose(topic))

    RECEIVERS: ClassVar[Mapping[type, Receiver]] = {
        **UmqFastPath.RECEIVERS,
        umq.Welcome: _on_welcome,
        Call: _on_call,
    }
