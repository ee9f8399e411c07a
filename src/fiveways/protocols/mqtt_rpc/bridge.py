"""Conversion between RPC over MQTT and hub messages: names, times, bodies and failures."""

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NoReturn, Protocol

import msgspec

from fiveways.errors import Malformed, Reason, Unrepresentable
from fiveways.model import names, topics
from fiveways.model.messages import Call, Failure
from fiveways.protocols.builtin_methods import Styles
from fiveways.protocols.mqtt_rpc.messages import ErrorResponse, encode
from fiveways.protocols.mqtt_rpc.rpc_pb2 import TimeoutUnit
from fiveways.wire import strict_json
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Binary, Json, Payload

# Configuration.

ServedTopicLookup = Callable[[str, str], str | None]
"""Returns the streaming kind for a topic and a type (unary, server, client or both); None if it is not served."""

REQUEST: Final = "request"
RESPONSE: Final = "response"


class Codec(Protocol):
    """The codec of bodies on a topic, which implements schemas. `direction` is REQUEST or RESPONSE."""

    def to_wire(self, topic: str, kind: str, body: Payload, direction: str) -> bytes:
        """Return the bytes of a body; Unrepresentable if the codec cannot express it."""

    def from_wire(self, topic: str, kind: str, data: bytes, direction: str) -> Payload:
        """Return the body for the bytes; Malformed if they are invalid."""


class RawBytesCodec:
    """The codec without a schema: bytes stay bytes. An empty protobuf message has no bytes and becomes null."""

    def to_wire(self, _topic: str, _kind: str, body: Payload, _direction: str) -> bytes:
        """Return the bytes of the body."""
        return body.data if type(body) is Binary else body.binary()

    def from_wire(self, _topic: str, _kind: str, data: bytes, _direction: str) -> Payload:
        """Return the bytes unchanged."""
        return Binary(data) if data else NULL


class JsonCodec:
    """The codec of the hub's methods and of callbacks, which have no schema: JSON, and bytes unchanged."""

    def to_wire(self, _topic: str, _kind: str, body: Payload, _direction: str) -> bytes:
        """Return bytes unchanged and other values as JSON."""
        if type(body) is Binary:
            return body.data
        return b"" if body == NULL else body.json()

    def from_wire(self, _topic: str, _kind: str, data: bytes, _direction: str) -> Payload:
        """Return a JSON payload if the bytes are JSON, else a binary one."""
        if not data:
            return NULL
        try:
            strict_json.check(data)
        except Malformed:
            return Binary(data)
        return Json(data)


RAW_BYTES_CODEC: Final = RawBytesCodec()
JSON_CODEC: Final = JsonCodec()


def codec_for_method(method: str, default: Codec) -> Codec:
    """Return the codec for the bodies of a method (folded)."""
    return JSON_CODEC if method.startswith(("hub.", "callback.")) else default


class RequestQuota(Protocol):
    """The limit of incoming requests, divided into shares."""

    def admit(self, number: int, topic: str) -> Any:  # noqa: ANN401
        """Count a request and return its share, or a string that names the exhausted share."""

    def release(self, share: Any, topic: str) -> None:  # noqa: ANN401
        """Release a share of `admit`."""


class Options(msgspec.Struct, frozen=True):
    """The protocol's section of the configuration for a conversation; the transport may read other keys."""

    serve: Any = None
    """The served topics: a `ServedTopicLookup`, {topic: {type: kind}}, or true for all topics of the connection."""
    default_timeout: float | None = None
    """For requests without a timeout (MQRPC-a04); with None the hub decides."""
    duplicate_window: float = 60.0
    """Seconds for which the id of a finished request is stored (MQRPC-a11)."""
    max_remembered: int | None = None
    """Limit for the number of stored ids; default: twice the limit of pending calls."""
    codec: Any = RAW_BYTES_CODEC
    attached: Any = None
    """The attachment fields in the bodies of the codec: an `AttachmentFieldLookup`, or None."""
    shares: Any = None
    """The division of the limit of incoming requests: a `RequestQuota`, or None."""
    max_per_topic: int | None = None
    """Limit for our pending requests on one topic; default: the limit for all topics."""

    def served_topic_lookup(self, default: bool) -> ServedTopicLookup:
        """Return `serve` as a function; `default` replaces true or, if not set, false."""
        serve = self.serve
        if isinstance(serve, Mapping):
            return lambda topic, kind: serve[topic].get(kind, "unary") if topic in serve else None
        if callable(serve):
            return serve  # type: ignore[no-any-return]
        kind = "unary" if (default if serve is None else serve) else None
        return lambda _topic, _type: kind


# Names.


def _reject_topic_id(_given: object, _written: str) -> NoReturn:
    raise AssertionError("MQTT clients subscribe at the broker")


STYLES: Final = Styles(names.MQTT, topics.MQTT, _reject_topic_id)
_UNSUPPORTED_BUILTINS: Final = frozenset({"hub.subscribe", "hub.unsubscribe", "hub.set", "hub.unset"})
"""Built-ins that a peer may not call: subscriptions are made at the broker, which has no variables."""
_CALLBACK_TOPIC: Final = "/callback"
_MAX_TYPE_LENGTH: Final = 512
_INVALID_TOPIC_CHARACTERS: Final = re.compile(r"[+#\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CACHE_SIZE: Final = 1024


class CalledMethod(msgspec.Struct, frozen=True, gc=False):
    """The method that a Request calls."""

    folded: str
    spelling: str
    kind: str
    """The type name without a path before it."""
    is_application_method: bool
    """Whether it is neither a built-in method of the hub nor a callback."""


def type_name(type_url: str) -> str:
    """Return the type name without `type.googleapis.com/` and the like (MQRPC-a07)."""
    return type_url.rpartition("/")[2]


@lru_cache(maxsize=_CACHE_SIZE)
def parse_method(topic: str, type_url: str) -> CalledMethod:
    """Return the called method; BadName if the name is invalid. Failures are not cached, so all entries are small."""
    kind = type_name(type_url)
    if not kind:
        raise names.BadName("the request has no type [MQRPC-03]")
    if len(type_url) > _MAX_TYPE_LENGTH:
        raise names.BadName("the type is too long")
    folded = names.fold_mqtt(topic, kind)
    if folded in _UNSUPPORTED_BUILTINS:
        raise names.BadName(f"{folded} is not available over MQTT")
    return CalledMethod(folded, f"{topic}/{kind}", kind, folded.partition(".")[0] not in names.RESERVED)


@lru_cache(maxsize=_CACHE_SIZE)
def call_target(method: str, spelling: str) -> tuple[str, str]:
    """Return the topic and the type of our call; Unrepresentable if a broker would refuse them."""
    topic, slash, kind = spelling.rpartition("/")
    # A broker refuses to publish on a topic with a wildcard, and closes the connection because of NUL.
    if (
        len(spelling) > _MAX_TYPE_LENGTH
        or _INVALID_TOPIC_CHARACTERS.search(spelling)
        or (slash and not (topic and kind))
    ):
        raise Unrepresentable(f"{spelling[:_MAX_TYPE_LENGTH]!r} is not a topic, '/' and a type [MQRPC-a08]")
    if not spelling or not _is_spelling_of(spelling, method):
        # The method was registered in another protocol, for example as `Account:getBalance`, which has no topic levels.
        topic, kind = names.spell_mqtt(method)
        return topic, _check_type_name(topic, kind)
    return topic or f"/{names.DEFAULT_NAMESPACE}", kind


def callback_target(message: Call) -> tuple[str, str]:
    """Return the topic and the type for a call of a callback; Unrepresentable if the token is not a type name."""
    return _CALLBACK_TOPIC, _check_type_name(_CALLBACK_TOPIC, message.spelling or message.method)


def _is_spelling_of(spelling: str, method: str) -> bool:
    try:
        return names.fold(spelling, names.MQTT) == method
    except names.BadName:
        return False


def _check_type_name(topic: str, kind: str) -> str:
    """Return the type; Unrepresentable if it does not form a name with its topic."""
    try:
        names.fold_mqtt(topic, kind)
    except names.BadName as exc:
        raise Unrepresentable(str(exc)) from exc
    return kind


# Times.

MILLISECOND: Final = int(TimeoutUnit.MILLISECOND)
UNIT_SECONDS: Final[dict[int, float]] = {
    TimeoutUnit.UNSPECIFIED: 0.001,
    TimeoutUnit.HOUR: 3600.0,
    TimeoutUnit.MINUTE: 60.0,
    TimeoutUnit.SECOND: 1.0,
    TimeoutUnit.MILLISECOND: 0.001,
}
_UINT32: Final = 0xFFFFFFFF


def to_milliseconds(seconds: float | None) -> int:
    """Round up and limit to the field: 0 means no timeout (MQRPC-a04, MQRPC-10), as does NaN."""
    if seconds is None or math.isnan(seconds):
        return 0
    # Compare first, because infinity cannot be rounded. Subtract a nanosecond, because 0.07 * 1000 is slightly more
    # than 70.
    if seconds <= 0:
        return 1
    return _UINT32 if seconds >= _UINT32 / 1000 else max(1, math.ceil(seconds * 1000 - 1e-6))


# Failures.

_HUB_TAG_PREFIX: Final = "hub."
ERRORS: Final = {
    Reason.NO_SUCH_METHOD: (404, "hub.no_such_method"),
    Reason.NO_SUCH_CALLBACK: (404, "hub.no_such_callback"),
    Reason.UNAVAILABLE: (503, "hub.unavailable"),
    Reason.DENIED: (403, "hub.denied"),
    Reason.BAD_ARGUMENTS: (400, "hub.bad_arguments"),
    Reason.OVERLOADED: (429, "hub.busy"),
    Reason.TOO_LARGE: (413, "hub.too_large"),
    Reason.TIMEOUT: (504, "timeout"),  # the tag of MQRPC-a10; when read it does not mean that the method did not run
    Reason.LOST: (502, "hub.lost"),
    Reason.CANCELLED: (499, "hub.cancelled"),
    Reason.RAISED: (500, ""),
}
_REASONS: Final = {tag: reason for reason, (_, tag) in ERRORS.items() if tag}
_MIN_ERROR_CODE: Final = 400
_MAX_SHORTENED_TEXT: Final = 200
_DEFAULT_RETRY_MILLISECONDS: Final = 1000
"""The retry delay if the hub gave none: 0 would mean never to retry (MQRPC-10)."""


def error_response(message: Failure, topic: str, number: int) -> ErrorResponse:
    """Return a failure as the last Response."""
    code, tag = ERRORS[message.reason]
    retry_after = to_milliseconds(message.retry_after)
    if message.reason is Reason.RAISED:
        if message.code >= _MIN_ERROR_CODE:
            code = min(message.code, _UINT32)
        # A method's own tag must not look like an error of the hub, which could mean that the method did not run.
        tag = (
            f"app.{message.name}"
            if message.name.startswith(_HUB_TAG_PREFIX) or message.name in _REASONS
            else message.name
        )
    elif message.reason is Reason.OVERLOADED and not retry_after:
        retry_after = _DEFAULT_RETRY_MILLISECONDS
    value = None if message.data is None else _error_body(message.data)
    text = message.text or (message.reason.text if message.reason is not Reason.RAISED else "")
    return ErrorResponse(
        topic, number, "", value, code, _replace_surrogates(tag), _replace_surrogates(text), retry_after, True
    )


def encode_failure(hub_message: Failure, key: tuple[int, str], limits: Limits) -> Packet:
    """Return the packet of a failure, shortened if it is too large, because a failure must arrive."""
    number, topic = key
    message = error_response(hub_message, topic, number)
    packet = encode(message)
    return packet if len(packet.payload) <= limits.max_text else encode(shorten_error(message))


def shorten_error(message: ErrorResponse) -> ErrorResponse:
    """Return the failure without its data and with short texts."""
    tag, text = message.tag[:_MAX_SHORTENED_TEXT], message.user_message[:_MAX_SHORTENED_TEXT]
    return ErrorResponse(
        message.topic, message.correlation_id, "", None, message.code, tag, text, message.retry_after, message.eos
    )


def parse_error_response(message: ErrorResponse, hub_id: str) -> Failure:
    """Return the failure of a Response with an error; only errors of a hub can mean that the method did not run."""
    value = message.value
    retry_after = message.retry_after / 1000 or None
    reason = _REASONS.get(message.tag)
    if reason is None and message.tag.startswith(_HUB_TAG_PREFIX):
        # An unknown reason of a newer hub: the method may have run.
        reason = Reason.LOST
    if reason is not None:
        data = JSON_CODEC.from_wire("", "", value, RESPONSE) if value else None
        return Failure(hub_id, reason, message.user_message, data, retry_after)
    # A proto3 message cannot begin with `{` or `[`, which would start a group: these bytes are JSON of `_error_body`.
    codec: Codec = JSON_CODEC if value and value[0] in b"{[" else RAW_BYTES_CODEC
    data = codec.from_wire("", "", value, RESPONSE) if value else None
    # MQRPC-a09: the presence of an error decides, not its code.
    code = message.code or 500
    return Failure(hub_id, Reason.RAISED, message.user_message, data, retry_after, message.tag, code)


def _error_body(data: Payload) -> bytes | None:
    """Return error data as JSON because it has no schema; None if that fails, because the failure must arrive."""
    try:
        return JSON_CODEC.to_wire("", "", data, RESPONSE)
    except Unrepresentable:
        return None


def _replace_surrogates(text: str) -> str:
    """Return the text with unpaired surrogates replaced by question marks, because UTF-8 cannot encode them."""
    return text if text.isascii() else text.encode(errors="replace").decode()
