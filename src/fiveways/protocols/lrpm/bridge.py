"""Conversion between LRPM messages and hub messages: uris, keys of meta, failures and attachments."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from fiveways.errors import (
    Execution,
    Fault,
    FivewaysError,
    LocalProtocolError,
    Reason,
    RemoteProtocolError,
    Unrepresentable,
)
from fiveways.model import messages as hub
from fiveways.model import names, topics
from fiveways.model.names import BadName
from fiveways.model.topics import BadTopic, Topic
from fiveways.protocols import builtin_methods
from fiveways.protocols.lrpm import frames
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.frames import MAX_U64, NO_META, Encoding, Meta
from fiveways.wire.limits import Limits
from fiveways.wire.payload import NULL, Payload, Value

PROTOCOL_ERROR: Final = ".err.protocol"
AUTH_ERROR: Final = ".err.auth"
CANCELLED_ERROR: Final = ".err.cancelled"
NORMAL_GOODBYE: Final = ".bye.normal"
RAISED_ERROR: Final = "app.err.failed"
HUB_ERROR_PREFIX: Final = "hub.err."
CALLEE_ERROR_PREFIX: Final = "callee.err."  # a callee's errors for a method that did not run

URIS: Final = {
    Reason.NO_SUCH_METHOD: "hub.err.no_such_procedure",
    Reason.NO_SUCH_CALLBACK: "hub.err.no_such_callback",
    Reason.UNAVAILABLE: "hub.err.unavailable",
    Reason.DENIED: "hub.err.denied",
    Reason.BAD_ARGUMENTS: "hub.err.bad_arguments",
    Reason.OVERLOADED: "hub.err.busy",
    Reason.TOO_LARGE: "hub.err.too_large",
    Reason.TIMEOUT: "hub.err.timeout",
    Reason.LOST: "hub.err.lost",
    Reason.CANCELLED: CANCELLED_ERROR,
    Reason.RAISED: RAISED_ERROR,
}
REASONS: Final = {uri: reason for reason, uri in URIS.items()}
_NOT_RUN: Final = {
    why: uri.replace(HUB_ERROR_PREFIX, CALLEE_ERROR_PREFIX)
    for why, uri in URIS.items()
    if why.execution is Execution.NO
}
_CALLEE_REASONS: Final = {CANCELLED_ERROR: Reason.CANCELLED, **{uri: reason for reason, uri in _NOT_RUN.items()}}

_MAX_SHOWN_LENGTH: Final = 64
_CACHE_SIZE: Final = 1024
_MILLISECONDS: Final = 1000
_MAX_SECONDS: Final = 1e12
_DEFAULT_RETRY_AFTER: Final = 1.0
_URI: Final = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)*")


class RequestRefused(FivewaysError):
    """A valid request that gets an ERROR without reaching the hub."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.retry_after = _DEFAULT_RETRY_AFTER if reason is Reason.OVERLOADED else None


# Names. A uri is a folded name already; only the hub's own names must be told apart.


def _name_too_long_text(name: str, max_name: int) -> str:
    return f"the name is too long: {len(name.encode())} of at most {max_name} bytes"


class Target(msgspec.Struct, frozen=True, gc=False):
    """The meaning of a procedure."""

    method: str
    callback: bool = False
    builtin: bool = False


@lru_cache(_CACHE_SIZE)
def parse_procedure(procedure: str) -> Target:
    """Return the target of a call by the peer; BadName if it is not a uri (LRPM-05, -a12, -a14)."""
    if _URI.fullmatch(procedure) is None:
        raise BadName(f"{procedure[:_MAX_SHOWN_LENGTH]!r} is not a uri of a procedure")
    method = names.fold(procedure, names.LRPM)
    first, _, rest = method.partition(".")
    if first == "callback" and rest:
        return Target(rest, callback=True)
    return Target(method, builtin=first == "hub")


def procedure_parser(max_name: int) -> Callable[[str], Target]:
    """Return `parse_procedure`, with a check of the length first if the limit is below that of names."""

    def parse_bounded(procedure: str) -> Target:
        if len(procedure) > max_name:
            raise BadName(_name_too_long_text(procedure, max_name))
        return parse_procedure(procedure)

    return parse_procedure if max_name >= names.MAX_BYTES else parse_bounded


@lru_cache(_CACHE_SIZE)
def procedure_for(method: str, spelling: str, callback: bool) -> str:
    """Return the uri for a call of the peer's method; Unrepresentable if there is none."""
    if callback:
        uri = f"callback.{method.lower()}"
    elif _URI.fullmatch(spelling):
        return spelling
    else:
        # No spelling, or a caller's spelling in a wider alphabet that the peer cannot have registered.
        uri = names.spell(method, names.LRPM)
    if _URI.fullmatch(uri) is None:
        raise Unrepresentable(f"LRPM cannot write the name {method[:_MAX_SHOWN_LENGTH]!r}")
    return uri


def check_names(message: hub.HubMessage, max_name: int) -> None:
    """Refuse a name or topic that is too long, and a registration that could not be called (LRPM-05)."""
    match message:
        case hub.Register(spelling=name) | hub.Unregister(spelling=name):
            if _URI.fullmatch(name.removesuffix(".")) is None:
                raise RequestRefused(Reason.BAD_ARGUMENTS, f"{name[:_MAX_SHOWN_LENGTH]!r} is not a uri")
        case hub.SetVariable(name=name) | hub.UnsetVariable(name=name) | hub.Discover(name=name):
            pass
        case hub.Publish(topic=topic) | hub.CloseTopic(topic=topic):
            name = ".".join(topic)
        case hub.Subscribe(pattern=pattern):
            name = ".".join("*".join(level) for level in pattern.levels)
        case _:
            return
    if len(name.encode()) > max_name:
        raise RequestRefused(Reason.BAD_ARGUMENTS, _name_too_long_text(name, max_name))


# Meta. A known key of the wrong type is an ERROR in a request and ignored elsewhere.

T = TypeVar("T", bool, int, str, list[object], dict[str, object])


def meta_value(meta: Meta, key: str, default: T, *, strict: bool = False) -> T:
    """Return the value of a key if it has the type of `default`, else the default."""
    value = meta.get(key, default)
    # Compare exact types: True is not a number. Numbers in LRPM are unsigned.
    if type(value) is type(default) and (type(value) is not int or 0 <= value <= MAX_U64):
        return value
    if strict:
        raise RequestRefused(Reason.BAD_ARGUMENTS, f"meta.{key} must be {_TYPE_NAMES[type(default)]}")
    return default


_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "true or false",
    int: "an unsigned integer",
    str: "a string",
    list: "a list",
    dict: "a map",
}


def read_attachments(
    meta: Meta, encoding: Encoding, limits: Limits, free_names: Iterator[str], *, strict: bool
) -> Sequence[hub.Attachment]:
    """Return the attachments in `meta.attachments` with new names; null is a failed attachment."""
    items = meta_value(meta, "attachments", list[object](), strict=strict)
    if len(items) > limits.max_attachments:
        text = f"{len(items)} attachments are too many"
        raise (
            RequestRefused(Reason.TOO_LARGE, text) if strict else RemoteProtocolError(Fault.TOO_LARGE, text, "LRPM-08")
        )
    errors = meta_value(meta, "attachment_errors", dict[str, object](), strict=strict)
    attachments = []
    for index, item in enumerate(items):
        data, error = b"", None
        try:
            data = b"" if item is None else encoding.read_attachment(item)
        except ValueError as exc:
            if strict:
                raise RequestRefused(Reason.BAD_ARGUMENTS, f"meta.attachments[{index}]: {exc}") from None
            error = str(exc)
        if item is None:
            reason = errors.get(str(index))
            error = reason if isinstance(reason, str) else "failed"
        elif len(data) > limits.max_attachment:
            data, error = b"", f"larger than {limits.max_attachment} bytes"
        attachments.append(hub.Attachment(next(free_names), data, error))
    return attachments


def meta_with_attachments(meta: Meta, attachments: Sequence[hub.Attachment], encoding: Encoding) -> Meta:
    """Return the meta with attachments; a failed one is null, and its error is in `attachment_errors`."""
    items = [
        encoding.write_attachment(bytes(attachment.data)) if attachment.error is None else None
        for attachment in attachments
    ]
    errors = {
        str(index): attachment.error for index, attachment in enumerate(attachments) if attachment.error is not None
    }
    return {**meta, "attachments": items, **({"attachment_errors": errors} if errors else {})}


# Calls and results.

_CALL_META_DEFAULTS: Final = dict[str, Any](timeout=0, stream=False, progress=False, traceparent="", redelivered=False)


def read_call(hub_id: str, message: lrpm.Call, target: Target, attachment_names: tuple[str, ...]) -> hub.Call:
    """Return the peer's call; RequestRefused for an invalid meta."""
    milliseconds, *rest = read_call_meta(message.meta)
    timeout = milliseconds / _MILLISECONDS if milliseconds else None
    return hub.Call(
        hub_id, target.method, message.body, message.procedure, attachment_names, target.callback, timeout, False, *rest
    )


def read_call_meta(meta: Meta) -> Iterable[Any]:
    """Return the call options of a meta in the order of `_CALL_META_DEFAULTS`; RequestRefused for a wrong type."""
    options = dict(_CALL_META_DEFAULTS)
    for key in meta:
        if key in options:
            options[key] = meta_value(meta, key, options[key], strict=True)
    return options.values()


def call_meta(message: hub.Call) -> Meta:
    """Return the meta of our call."""
    milliseconds = 0 if message.timeout is None else timeout_milliseconds(message.timeout)
    rest = _non_default_options(traceparent=message.traceparent, redelivered=message.redelivered)
    return {**frames.call_meta(milliseconds, message.stream, message.progress), **rest}


@lru_cache(1024)
def timeout_milliseconds(timeout: float) -> int:
    """Return a timeout in milliseconds, at least 1, because 0 means no timeout."""
    return _to_milliseconds(timeout) or 1


def read_result(hub_id: str, message: lrpm.Result, attachment_names: tuple[str, ...]) -> hub.HubMessage:
    """Return the hub message for a RESULT: a result, one element of it, or progress."""
    meta, body = message.meta, message.body
    if meta_value(meta, "progress", False):
        items = meta_value(meta, "args", list[object]())
        args = tuple(item for item in items if isinstance(item, str))
        kind, code, text = meta_value(meta, "kind", "note"), meta_value(meta, "code", ""), meta_value(meta, "text", "")
        return hub.Progress(hub_id, body, kind, code, text, args if len(args) == len(items) else ())
    if not meta_value(meta, "part", 0):
        return hub.Result(hub_id, body, attachment_names)
    last = meta_value(meta, "last", False)
    empty = last and meta_value(meta, "empty", False)
    return hub.Result(hub_id, None if empty else body, attachment_names, stream=True, last=last)


def progress_meta(message: hub.Progress) -> Meta:
    """Return the meta that marks a RESULT as progress."""
    kind = message.kind if message.kind != "note" else ""
    return {
        "progress": True,
        **_non_default_options(kind=kind, code=message.code, text=message.text, args=list(message.args)),
    }


def part_meta(message: hub.Result, number: int, *, last: bool) -> Meta:
    """Return the meta of part `number` of a streamed result. An end without an element is marked as empty."""
    return {"part": number, **_non_default_options(last=last, empty=last and message.body is None)}


def publication_id(body: Payload | None) -> int:
    """Return the number that the hub assigned to a publication."""
    number = None if body is None else body.value()
    if type(number) is not int or not 0 <= number <= MAX_U64:
        raise LocalProtocolError("a publication id must be an unsigned integer of 64 bits")
    return number


# Topics.


def read_publish(hub_id: str, message: lrpm.Publish, attachment_names: tuple[str, ...]) -> hub.Publish:
    """Return the peer's publication; RequestRefused for an invalid topic or meta (LRPM-a12, -a14, -a17)."""
    topic = _read_topic(topics.parse, message.topic)
    retain = meta_value(message.meta, "retain", False, strict=True)
    exclude = meta_value(message.meta, "exclude_me", False, strict=True)
    return hub.Publish(hub_id, topic, message.body, attachment_names, retain, exclude)


def read_subscribe(hub_id: str, message: lrpm.Subscribe, new_number: Callable[[], str]) -> hub.Subscribe:
    """Return the peer's subscription; RequestRefused for an invalid pattern or meta (LRPM-a12, -a14)."""
    pattern = _read_topic(topics.parse_pattern, message.topic)
    when_full = meta_value(message.meta, "when_full", "", strict=True)
    if when_full not in builtin_methods.OVERFLOW_POLICIES:
        raise RequestRefused(
            Reason.BAD_ARGUMENTS, f"meta.when_full must be {', '.join(filter(None, builtin_methods.OVERFLOW_POLICIES))}"
        )
    envelope = meta_value(message.meta, "envelope", False, strict=True)
    return hub.Subscribe(hub_id, pattern, new_number(), envelope, when_full)


ParsedT = TypeVar("ParsedT")


def _read_topic(parse: Callable[[str, topics.TopicStyle], ParsedT], spelling: str) -> ParsedT:
    try:
        return parse(spelling, topics.LRPM)
    except BadTopic as exc:
        raise RequestRefused(Reason.BAD_ARGUMENTS, str(exc)) from exc


def publish_meta(message: hub.Publish) -> Meta:
    """Return the meta of our publication."""
    return (
        _non_default_options(retain=message.retain, exclude_me=message.exclude_me)
        if message.retain or message.exclude_me
        else NO_META
    )


def subscribe_meta(message: hub.Subscribe) -> Meta:
    """Return the meta of our subscription."""
    return _non_default_options(envelope=message.envelope, when_full=message.when_full)


def read_topic(meta: Meta, default: Topic) -> Topic:
    """Return the topic in the meta of an EVENT (LRPM-a13), else the subscribed topic."""
    try:
        return topics.parse(meta_value(meta, "topic", ""), topics.LRPM)
    except BadTopic:
        return default


def event_meta(message: hub.Event) -> Meta:
    """Return the meta of an event: its topic and the number of missed events before it."""
    topic = topics.spell(message.topic, topics.LRPM)
    return {"topic": topic, "missed": message.missed} if message.missed else {"topic": topic}


# Failures and goodbyes.


def replace_surrogates(text: str) -> str:
    """Return the text with unpaired surrogates replaced by question marks, because UTF-8 cannot encode them."""
    return text.encode(errors="replace").decode()


def error_fallbacks(kind: int, request_id: int, failure: hub.Failure, *, to_hub: bool = False) -> Iterator[lrpm.Error]:
    """Yield the ERROR of a failure, then shorter versions in case it cannot be written: a failure must arrive."""
    uri = _NOT_RUN[failure.reason] if to_hub and failure.reason in _NOT_RUN else URIS[failure.reason]
    error = _error_message(kind, request_id, failure, uri)
    yield error
    meta = {key: value for key, value in error.meta.items() if key != "text"}
    if failure.data is not None:
        text = replace_surrogates(failure.text)
        yield lrpm.Error(kind, request_id, error.error, Value(text) if text else NULL, meta)
    yield lrpm.Error(kind, request_id, uri, NULL)


def _error_message(kind: int, request_id: int, failure: hub.Failure, uri: str) -> lrpm.Error:
    """Return the ERROR. Its body is the failure's data, else its text."""
    # Never use a uri that means that the method did not run.
    error_name = failure.name if failure.reason is Reason.RAISED else ""
    if _URI.fullmatch(error_name) and not error_name.startswith(("hub.", CALLEE_ERROR_PREFIX)):
        uri = error_name
    text = replace_surrogates(failure.text)
    wait_meta = {} if failure.retry_after is None else {"retry_after": _to_milliseconds(failure.retry_after)}
    if failure.data is not None:
        # A text in the meta, even an empty one, marks a string in the body as data.
        text_meta = {"text": text} if text or isinstance(_value_or_payload(failure.data), str) else NO_META
        return lrpm.Error(kind, request_id, uri, failure.data, {**wait_meta, **text_meta})
    return lrpm.Error(kind, request_id, uri, Value(text) if text else NULL, wait_meta)


def read_error(hub_id: str, message: lrpm.Error, *, from_hub: bool) -> hub.Failure:
    """Return the failure of our request.

    A callee that sends `hub.err.unavailable` may forward the error of a call of its own, after it ran. Therefore every
    uri of a callee is an exception, except `.err.cancelled` and `callee.err.*`, which a hub never sends.
    """
    uri, meta, data, value = message.error, message.meta, None, _value_or_payload(message.body)
    reason, text = (REASONS if from_hub else _CALLEE_REASONS).get(uri), meta_value(meta, "text", "")
    if isinstance(value, str) and not isinstance(meta.get("text"), str):
        text = value
    elif value is not None:
        data = message.body
    if from_hub and reason is None and uri.startswith(HUB_ERROR_PREFIX):
        # An unknown reason of the hub does not tell whether the method ran.
        reason, text = Reason.LOST, text or uri[:_MAX_SHOWN_LENGTH]
    milliseconds = meta_value(meta, "retry_after", -1)
    retry_after = milliseconds / _MILLISECONDS if milliseconds >= 0 else None
    name = "" if reason is not None or uri == RAISED_ERROR else uri
    return hub.Failure(hub_id, reason or Reason.RAISED, text, data, retry_after, name)


def _value_or_payload(body: Payload) -> object:
    try:
        return body.value()
    except Unrepresentable:
        return body


def goodbye_message(message: hub.Goodbye) -> lrpm.Goodbye:
    """Return our GOODBYE."""
    return lrpm.Goodbye(
        AUTH_ERROR if message.denied else NORMAL_GOODBYE, _non_default_options(text=replace_surrogates(message.text))
    )


def read_goodbye(message: lrpm.Goodbye) -> hub.Goodbye:
    """Return the peer's goodbye; without a text, its reason is the text."""
    text = meta_value(message.meta, "text", "")
    default = "" if message.reason == NORMAL_GOODBYE else message.reason[:_MAX_SHOWN_LENGTH]
    return hub.Goodbye(text or default, denied=message.reason == AUTH_ERROR)


def _non_default_options(**options: str | bool | int | list[str]) -> dict[str, object]:
    """Return the options that differ from their defaults, which are all empty or false."""
    return {key: value for key, value in options.items() if value}


def _to_milliseconds(seconds: float) -> int:
    return round(seconds * _MILLISECONDS) if 0 < seconds < _MAX_SECONDS else 0 if seconds <= 0 else int(_MAX_SECONDS)
