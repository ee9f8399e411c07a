"""Message <-> the hub's words: names, times, bodies and failures as RPC over MQTT has them."""

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

# What the configuration may say.

ServedTopicLookup = Callable[[str, str], str | None]
"""From a topic and a type to unary, server, client or both (which side streams), None for a topic not served here."""

REQUEST: Final = "request"
RESPONSE: Final = "response"


class Codec(Protocol):
    """How bodies are written on a topic: the seam for schemas. `direction` is REQUEST or RESPONSE."""

    def to_wire(self, topic: str, kind: str, body: Payload, direction: str) -> bytes:
        """Return the bytes of a body; Unrepresentable if there are none for it."""

    def from_wire(self, topic: str, kind: str, data: bytes, direction: str) -> Payload:
        """Return the body that the bytes are; Malformed if they are none."""


class RawBytesCodec:
    """Bodies without a schema: bytes in, bytes out. An empty protobuf message is no bytes at all, and so null."""

    def to_wire(self, _topic: str, _kind: str, body: Payload, _direction: str) -> bytes:
        """Return the bytes that the body is."""
        return body.data if type(body) is Binary else body.binary()

    def from_wire(self, _topic: str, _kind: str, data: bytes, _direction: str) -> Payload:
        """Return the bytes untouched."""
        return Binary(data) if data else NULL


class JsonCodec:
    """Bodies that no schema knows, of the hub's own methods and callbacks: JSON, and bytes as they are."""

    def to_wire(self, _topic: str, _kind: str, body: Payload, _direction: str) -> bytes:
        """Return bytes as they are, anything else as JSON."""
        if type(body) is Binary:
            return body.data
        return b"" if body == NULL else body.json()

    def from_wire(self, _topic: str, _kind: str, data: bytes, _direction: str) -> Payload:
        """Return JSON where it is JSON."""
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
    """Which codec the bodies of a method (folded) have."""
    return JSON_CODEC if method.startswith(("hub.", "callback.")) else default


class RequestQuota(Protocol):
    """Parts of the limit of requests that came in: the seam for those who know how it is divided."""

    def admit(self, number: int, topic: str) -> Any:  # noqa: ANN401
        """Count a request and return its share, or a string that says which share is used up."""

    def release(self, share: Any, topic: str) -> None:  # noqa: ANN401
        """Give back what `admit` counted."""


class Options(msgspec.Struct, frozen=True):
    """What the protocol's section of the configuration says to a conversation; the transport may find more there."""

    serve: Any = None
    """Which topics we serve: a `Serve`, or {topic: {type: kind}}, or true for whatever the link delivers."""
    default_timeout: float | None = None
    """For requests that name none (MQRPC-a04); None leaves it to the hub."""
    duplicate_window: float = 60.0
    """How long the id of a finished request is remembered (MQRPC-a11)."""
    max_remembered: int | None = None
    """How many of them; twice the pending calls if not set."""
    codec: Any = RAW_BYTES_CODEC
    attached: Any = None
    """Where attachments go in the bodies of the codec: an `attaching.Attached`, None if nowhere."""
    shares: Any = None
    """How the limit of requests that came in is divided: a `Shares`, None if it is not."""
    max_per_topic: int | None = None
    """How many of our own requests may be open on one topic; as many as in all if not set."""

    def served_topic_lookup(self, default: bool) -> ServedTopicLookup:
        """Return `serve` as a function; `default` stands for true or, if not set, false."""
        serve = self.serve
        if isinstance(serve, Mapping):
            return lambda topic, kind: serve[topic].get(kind, "unary") if topic in serve else None
        if callable(serve):
            return serve  # type: ignore[no-any-return]
        kind = "unary" if (default if serve is None else serve) else None
        return lambda _topic, _type: kind


# Names.


def _reject_topic_id(_given: object, _written: str) -> NoReturn:
    raise AssertionError("MQTT subscribes at the broker")


STYLES: Final = Styles(names.MQTT, topics.MQTT, _reject_topic_id)
_UNSUPPORTED_BUILTINS: Final = frozenset({"hub.subscribe", "hub.unsubscribe", "hub.set", "hub.unset"})
"""Built-ins that a peer may not call: to subscribe is the broker's own business, and a broker has no variables."""
_CALLBACK_TOPIC: Final = "/callback"
_MAX_TYPE_LENGTH: Final = 512
_INVALID_TOPIC_CHARACTERS: Final = re.compile(r"[+#\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CACHE_SIZE: Final = 1024


class CalledMethod(msgspec.Struct, frozen=True, gc=False):
    """What a Request calls."""

    folded: str
    spelling: str
    kind: str
    """The type as the registry has it: without a path before it."""
    is_application_method: bool
    """Whether it is neither a built-in of the hub nor a callback."""


def type_name(type_url: str) -> str:
    """The bare name behind `type.googleapis.com/` and the like (MQRPC-a07)."""
    return type_url.rpartition("/")[2]


@lru_cache(maxsize=_CACHE_SIZE)
def parse_method(topic: str, type_url: str) -> CalledMethod:
    """Name what is called; BadName if it has no name. What is refused is never kept, so no entry is large."""
    kind = type_name(type_url)
    if not kind:
        raise names.BadName("a request without a type [MQRPC-03]")
    if len(type_url) > _MAX_TYPE_LENGTH:
        raise names.BadName("a type that is too long")
    folded = names.fold_mqtt(topic, kind)
    if folded in _UNSUPPORTED_BUILTINS:
        raise names.BadName(f"{folded} is not for MQTT")
    return CalledMethod(folded, f"{topic}/{kind}", kind, folded.partition(".")[0] not in names.RESERVED)


@lru_cache(maxsize=_CACHE_SIZE)
def call_target(method: str, spelling: str) -> tuple[str, str]:
    """The topic and the type of an outbound call; Unrepresentable if a broker would not take them."""
    topic, slash, kind = spelling.rpartition("/")
    # A topic with a wildcard can be subscribed to, but nothing can be published there, and NUL ends the link.
    if (
        len(spelling) > _MAX_TYPE_LENGTH
        or _INVALID_TOPIC_CHARACTERS.search(spelling)
        or (slash and not (topic and kind))
    ):
        raise Unrepresentable(f"{spelling[:_MAX_TYPE_LENGTH]!r} is not a topic, '/' and a type [MQRPC-a08]")
    if not spelling or not _is_spelling_of(spelling, method):
        # It was registered in another protocol, such as `Account:getBalance`, and a broker would not see its parts.
        topic, kind = names.spell_mqtt(method)
        return topic, _check_type_name(topic, kind)
    return topic or f"/{names.DEFAULT_NAMESPACE}", kind


def callback_target(message: Call) -> tuple[str, str]:
    """The topic and the type by which a callback is called; Unrepresentable if the token cannot be a type."""
    return _CALLBACK_TOPIC, _check_type_name(_CALLBACK_TOPIC, message.spelling or message.method)


def _is_spelling_of(spelling: str, method: str) -> bool:
    try:
        return names.fold(spelling, names.MQTT) == method
    except names.BadName:
        return False


def _check_type_name(topic: str, kind: str) -> str:
    """The type itself, if with its topic it is a name."""
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
    """Round up and stay within the field: 0 is no time but the absence of one (MQRPC-a04, MQRPC-10), as is NaN."""
    if seconds is None or math.isnan(seconds):
        return 0
    # The comparisons come first, as infinity cannot be rounded; a nanosecond less, as 0.07 * 1000 is a little over 70.
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
    Reason.TIMEOUT: (504, "timeout"),  # MQRPC-a10 names this tag; read back, it claims nothing about having run
    Reason.LOST: (502, "hub.lost"),
    Reason.CANCELLED: (499, "hub.cancelled"),
    Reason.RAISED: (500, ""),
}
_REASONS: Final = {tag: reason for reason, (_, tag) in ERRORS.items() if tag}
_MIN_ERROR_CODE: Final = 400
_MAX_SHORTENED_TEXT: Final = 200
_DEFAULT_RETRY_MILLISECONDS: Final = 1000
"""How many milliseconds to wait where the hub did not say: 0 would forbid to try again at all (MQRPC-10)."""


def error_response(message: Failure, topic: str, number: int) -> ErrorResponse:
    """Write a failure as the last Response."""
    code, tag = ERRORS[message.reason]
    retry_after = to_milliseconds(message.retry_after)
    if message.reason is Reason.RAISED:
        if message.code >= _MIN_ERROR_CODE:
            code = min(message.code, _UINT32)
        # What a method calls its own errors must not make the caller think that it never ran.
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
    """Write a failure, which has to be heard of: one that is too large goes out shorter, and then whatever its size."""
    number, topic = key
    message = error_response(hub_message, topic, number)
    packet = encode(message)
    return packet if len(packet.payload) <= limits.max_text else encode(shorten_error(message))


def shorten_error(message: ErrorResponse) -> ErrorResponse:
    """The failure without its data and with short texts, where it is too large: what failed has to be heard of."""
    tag, text = message.tag[:_MAX_SHORTENED_TEXT], message.user_message[:_MAX_SHORTENED_TEXT]
    return ErrorResponse(
        message.topic, message.correlation_id, "", None, message.code, tag, text, message.retry_after, message.eos
    )


def parse_error_response(message: ErrorResponse, hub_id: str) -> Failure:
    """Read a Response with an error; only what a hub said of itself is believed not to have run."""
    value = message.value
    retry_after = message.retry_after / 1000 or None
    reason = _REASONS.get(message.tag)
    if reason is None and message.tag.startswith(_HUB_TAG_PREFIX):
        # A newer hub has more reasons than we know: it may have run, for all we can tell.
        reason = Reason.LOST
    if reason is not None:
        data = JSON_CODEC.from_wire("", "", value, RESPONSE) if value else None
        return Failure(hub_id, reason, message.user_message, data, retry_after)
    # No message of proto3 begins with `{` or `[`, which would begin a group: that is JSON as `_error_body` writes it.
    codec: Codec = JSON_CODEC if value and value[0] in b"{[" else RAW_BYTES_CODEC
    data = codec.from_wire("", "", value, RESPONSE) if value else None
    # MQRPC-a09: that there is an error decides, not its code.
    code = message.code or 500
    return Failure(hub_id, Reason.RAISED, message.user_message, data, retry_after, message.tag, code)


def _error_body(data: Payload) -> bytes | None:
    """Error data has no schema of its own; what JSON cannot hold is left out, as the failure itself must arrive."""
    try:
        return JSON_CODEC.to_wire("", "", data, RESPONSE)
    except Unrepresentable:
        return None


def _replace_surrogates(text: str) -> str:
    """Text that UTF-8 can hold: half a surrogate pair becomes a question mark."""
    return text if text.isascii() else text.encode(errors="replace").decode()
