"""One UMQ36 peer: what this dialect adds to the family's conversation."""

from collections.abc import Mapping
from typing import ClassVar, Final

from fiveways.errors import Fault, RemoteProtocolError
from fiveways.model import messages as hub
from fiveways.model.failures import Ran, Reason
from fiveways.model.names import spell
from fiveways.protocols import builtins
from fiveways.protocols.base import Role, Setup
from fiveways.protocols.umq36 import bridge
from fiveways.protocols.umq36.messages import Call, decode, encode
from fiveways.protocols.umq36.states import OWN_TRANSITIONS, TRANSITIONS
from fiveways.protocols.umq_family import messages as umq
from fiveways.protocols.umq_family.failures import failure_of, raised, text_of
from fiveways.protocols.umq_family.link import Names, Receiver, Words
from fiveways.protocols.umq_family.plain import PlainUmq
from fiveways.protocols.umq_family.requests import Asked, Asking
from fiveways.wire import base36
from fiveways.wire.jsontext import check_trusted
from fiveways.wire.payload import Json, Payload, Text

_LAST_ID: Final = 2**32 - 1
_DIGITS: Final = base36.DIGITS.encode()
_FEW_DIGITS: Final = 12


class Umq36Conversation(PlainUmq):
    """One UMQ36 peer, at either end of the link."""

    VERSION = "1"
    CALL = ord("C")
    SEPARATOR = ":"
    DECODE = staticmethod(decode)
    ENCODE = staticmethod(encode)
    WRITE_CALL = staticmethod(bridge.write_plain_call)
    TRANSITIONS = TRANSITIONS
    OWN_TRANSITIONS = OWN_TRANSITIONS
    STYLES = bridge.STYLES
    FAULTS = bridge.FAULTS
    DENIED = 1
    CLOSING = 8
    RULE_STATE = "UMQ36-a18"
    RULE_ATTACHMENTS = "UMQ36-a16"
    RULE_VARIABLES = "UMQ36-18"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        default = (setup.options or {}).get("default_method")
        self._default_method = default if isinstance(default, str) else None
        # The hub takes a callee's E for an exception. Only `!` says that a method was not run, and existing servers do
        # not understand it (UMQ36-a09): a client says it to a hub of ours alone, which its welcome tells.
        self._hub_reads_not_run = False

    def _hear_call(self, payload: bytes) -> Words | None:
        if not payload.isascii():
            payload.decode()
        head, _, array = payload.partition(b":")
        call, number = bridge.read_simple(array), head[1:]
        # An id is plain digits, no zero before them, and too few to be too large; no blanks stand around the array.
        if number.strip(_DIGITS) or number < b"1" or len(number) > _FEW_DIGITS or array.strip() != array:
            return None
        name, wire_id = call.method, number.decode()
        method = bridge.ordinary(name)
        if not method or wire_id in self._asked:
            return None
        raw = bytes(call.body)
        check_trusted(raw, self._limits.max_depth)
        return self._heard_call(wire_id, method, Json(raw), name)

    def _wire_id(self, number: int) -> str:
        # 32 bits are all that existing peers have (UMQ36-a04).
        return base36.write(number if number <= _LAST_ID else (number - 1) % _LAST_ID + 1)

    def _check_version(self, message: umq.Hello | umq.Welcome) -> None:
        offered = isinstance(message, umq.Hello)
        if message.version != self.VERSION and (not offered or message.version == "0"):
            raise RemoteProtocolError(Fault.VERSION, f"version {message.version}, not {self.VERSION}", "UMQ36-a06")

    def _on_call(self, message: Call, names: Names, _now: float) -> Words:
        reason, text, read = Reason.NO_METHOD, 'the payload is not ["method", ...]', None
        try:
            read = bridge.read_call(message.payload, self._limits.max_depth)
        except builtins.BadArguments as exc:
            reason, text = Reason.BAD_ARGUMENTS, str(exc)
        if read is not None:
            name, body = read
            return self._requested(message.id, name, body, names)
        if self._default_method is None:
            return self._refuse(message.id, reason, text)
        return self._requested(message.id, self._default_method, Text(message.payload), names)

    def _call(self, wire_id: str, name: str, body: Payload, attachments: int) -> Call:
        return Call(wire_id, bridge.write_call(name, body), attachments)

    def _callback(self, wire_id: str, token: str, body: Payload, attachments: int) -> umq.Callback:
        return umq.Callback(wire_id, bridge.token_from_hub(token), body.text(), attachments)

    def _requested(self, wire_id: str, name: str, body: Payload, names: Names) -> Words:
        words = super()._requested(wire_id, name, body, names)
        for word in words:
            if isinstance(word, hub.Call) and word.method == "hub.callback":
                self._asked[word.id] = Asked(wire_id, word)  # its answer is a token
        return words

    def _answer(self, asked: Asked, body: Payload) -> str:
        text = super()._answer(asked, body)
        return bridge.token_as_told(text) if isinstance(asked.word, hub.Call) else text

    def _token(self, written: str) -> str:
        return bridge.token_to_hub(written)

    def _on_welcome(self, message: umq.Welcome, names: Names, now: float) -> Words:
        self._hub_reads_not_run = bridge.names_session(message.payload)
        return super()._on_welcome(message, names, now)

    def _failure(self, wire_id: str, failure: hub.Failure) -> umq.Error | umq.NotRun:
        kind = umq.NotRun if self._hub_reads_not_run and failure.reason.ran is Ran.NO else umq.Error
        return kind(wire_id, text_of(failure, bridge.CODES))

    def _read_failure(self, asking: Asking, answer: umq.Error | umq.NotRun) -> hub.Failure:
        if isinstance(answer, umq.NotRun):
            # It did not run, whatever the code: existing peers say `6 Not RPC server` (UMQ36-a09).
            return failure_of(asking.hub_id, answer.text, bridge.NOT_RUN, Reason.UNAVAILABLE)
        # Only a hub's codes mean something; a callee's own E is always an exception of its own.
        if self.role is Role.SERVER:
            return raised(asking.hub_id, answer.text, bridge.CODES)
        return failure_of(asking.hub_id, answer.text, bridge.CODES, Reason.RAISED)

    def _discover(self, wire_id: str, word: hub.Discover) -> Call:
        method, body = builtins.write(word, self.STYLES)
        return self._call(wire_id, spell(method, self.STYLES.names), body, 0)

    def _read_description(self, hub_id: str, text: str) -> hub.Word:
        read = builtins.read_description(hub_id, Text(text))
        return read or hub.Failure(hub_id, Reason.RAISED, "the answer is no description")

    def _topic_ended(self, topic: str) -> None:
        # Existing publishers forget it, but the document is clear: U on a live topic is answered by D (UMQ36-a12).
        self._say(umq.TopicClose(topic))

    RECEIVERS: ClassVar[Mapping[type, Receiver]] = {
        **PlainUmq.RECEIVERS,
        umq.Welcome: _on_welcome,
        Call: _on_call,
    }
