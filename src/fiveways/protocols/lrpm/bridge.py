"""Message <-> the hub's words: uris, the keys of meta that we understand, the table of failures, attachments."""

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
CALLEE_ERROR_PREFIX: Final = "callee.err."  # by which a callee says that it did not run a method

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
    """A well-formed request that gets an ERROR at once, without bothering the hub."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.retry_after = _DEFAULT_RETRY_AFTER if reason is Reason.OVERLOADED else None


# Names. A uri is a folded name already, so what is left is to tell the hub's own names from the others.


def _name_too_long_text(name: str, max_name: int) -> str:
    return f"the name is too long: {len(name.encode())} of at most {max_name} bytes"


class Target(msgspec.Struct, frozen=True, gc=False):
    """What a procedure means."""

    method: str
    callback: bool = False
    builtin: bool = False


@lru_cache(_CACHE_SIZE)
def parse_procedure(procedure: str) -> Target:
    """Return what a procedure that the peer calls means; BadName if it is no uri (LRPM-05, -a12, -a14)."""
    if _URI.fullmatch(procedure) is None:
        raise BadName(f"{procedure[:_MAX_SHOWN_LENGTH]!r} is no uri of a procedure")
    method = names.fold(procedure, names.LRPM)
    first, _, rest = method.partition(".")
    if first == "callback" and rest:
        return Target(rest, callback=True)
    return Target(method, builtin=first == "hub")


def procedure_parser(max_name: int) -> Callable[[str], Target]:
    """Return `target`, and where names are to be shorter than they may be anyway, with a look at their length first."""

    def bounded(procedure: str) -> Target:
        if len(procedure) > max_name:
            raise BadName(_name_too_long_text(procedure, max_name))
        return parse_procedure(procedure)

    return parse_procedure if max_name >= names.MAX_BYTES else bounded


@lru_cache(_CACHE_SIZE)
def procedure_for(method: str, spelling: str, callback: bool) -> str:
    """Return the uri by which we call a method of the peer; Unrepresentable if it has none."""
    if callback:
        uri = f"callback.{method.lower()}"
    elif _URI.fullmatch(spelling):
        return spelling
    else:
        # No spelling of its own, or that of a caller in a wider alphabet, which the peer could not have offered.
        uri = names.spell(method, names.LRPM)
    if _URI.fullmatch(uri) is None:
        raise Unrepresentable(f"LRPM cannot write the name {method[:_MAX_SHOWN_LENGTH]!r}")
    return uri


def check_names(message: hub.HubMessage, max_name: int) -> None:
    """Refuse a name or topic that is too long, and an offer of one that we could not call back under (LRPM-05)."""
    match message:
        case hub.Register(spelling=name) | hub.Unregister(spelling=name):
            if _URI.fullmatch(name.removesuffix(".")) is None:
                raise RequestRefused(Reason.BAD_ARGUMENTS, f"{name[:_MAX_SHOWN_LENGTH]!r} is no uri")
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


# Meta. A wrong type of a key that we understand is an ERROR for a request, and no key at all elsewhere.

T = TypeVar("T", bool, int, str, list[object], dict[str, object])


def meta_value(meta: Meta, key: str, default: T, *, strict: bool = False) -> T:
    """Return the value of a key if it has the type of `default`, which stands for an absent one."""
    value = meta.get(key, default)
    # The very type: True is no number. Numbers are unsigned, as everywhere in LRPM.
    if type(value) is type(default) and (type(value) is not int or 0 <= value <= MAX_U64):
        return value
    if strict:
        raise RequestRefused(Reason.BAD_ARGUMENTS, f"meta.{key} must be {_TYPE_NAMES[type(default)]}")
    return default


_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "true or false",
    int: "an unsigned integer",
    str: "a text",
    list: "a list",
    dict: "a map",
}


def read_attachments(
    meta: Meta, encoding: Encoding, limits: Limits, free_names: Iterator[str], *, strict: bool
) -> Sequence[hub.Attachment]:
    """Return what `meta.attachments` holds, named; a null in it is one that failed."""
    items = meta_value(meta, "attachments", list[object](), strict=strict)
    if len(items) > limits.max_attachments:
        text = f"{len(items)} attachments are too many"
        raise (
            RequestRefused(Reason.TOO_LARGE, text) if strict else RemoteProtocolError(Fault.TOO_LARGE, text, "LRPM-08")
        )
    errors = meta_value(meta, "attachment_errors", dict[str, object](), strict=strict)
    found = []
    for index, item in enumerate(items):
        data, error = b"", None
        try:
            data = b"" if item is None else encoding.read_attachment(item)
        except ValueError as exc:
            if strict:
                raise RequestRefused(Reason.BAD_ARGUMENTS, f"meta.attachments[{index}]: {exc}") from None
            error = str(exc)
        if item is None:
            why = errors.get(str(index))
            error = why if isinstance(why, str) else "failed"
        elif len(data) > limits.max_attachment:
            data, error = b"", f"larger than {limits.max_attachment} bytes"
        found.append(hub.Attachment(next(free_names), data, error))
    return found


def meta_with_attachments(meta: Meta, attachments: Sequence[hub.Attachment], encoding: Encoding) -> Meta:
    """Return a meta that holds these; a failed one is null, and its reason stands beside."""
    listed = [encoding.write_attachment(bytes(each.data)) if each.error is None else None for each in attachments]
    errors = {str(index): each.error for index, each in enumerate(attachments) if each.error is not None}
    return {**meta, "attachments": listed, **({"attachment_errors": errors} if errors else {})}


# Calls and results.

_CALL_META_DEFAULTS: Final = dict[str, Any](timeout=0, stream=False, progress=False, traceparent="", redelivered=False)


def read_call(hub_id: str, message: lrpm.Call, aim: Target, attached: tuple[str, ...]) -> hub.Call:
    """Return the call that the peer makes; Refused for what its meta says wrongly."""
    wait, *rest = read_call_meta(message.meta)
    timeout = wait / _MILLISECONDS if wait else None
    return hub.Call(hub_id, aim.method, message.body, message.procedure, attached, aim.callback, timeout, False, *rest)


def read_call_meta(meta: Meta) -> Iterable[Any]:
    """Return what the meta of a call says, in the order of `_CALL_OPTIONS`; Refused for a wrong type."""
    options = dict(_CALL_META_DEFAULTS)
    for key in meta:
        if key in options:
            options[key] = meta_value(meta, key, options[key], strict=True)
    return options.values()


def call_meta(message: hub.Call) -> Meta:
    """Return what a call of ours has to say beside its body."""
    wait = 0 if message.timeout is None else timeout_milliseconds(message.timeout)
    rest = _non_default_options(traceparent=message.traceparent, redelivered=message.redelivered)
    return {**frames.call_meta(wait, message.stream, message.progress), **rest}


@lru_cache(1024)
def timeout_milliseconds(timeout: float) -> int:
    """Return a timeout in milliseconds; the shortest is one, for none is for ever."""
    return _to_milliseconds(timeout) or 1


def read_result(hub_id: str, message: lrpm.Result, attached: tuple[str, ...]) -> hub.HubMessage:
    """Return the result, one element of it, or the progress that a RESULT stands for."""
    meta, body = message.meta, message.body
    if meta_value(meta, "progress", False):
        given = meta_value(meta, "args", list[object]())
        args = tuple(each for each in given if isinstance(each, str))
        kind, code, text = meta_value(meta, "kind", "note"), meta_value(meta, "code", ""), meta_value(meta, "text", "")
        return hub.Progress(hub_id, body, kind, code, text, args if len(args) == len(given) else ())
    if not meta_value(meta, "part", 0):
        return hub.Result(hub_id, body, attached)
    last = meta_value(meta, "last", False)
    empty = last and meta_value(meta, "empty", False)
    return hub.Result(hub_id, None if empty else body, attached, stream=True, last=last)


def progress_meta(message: hub.Progress) -> Meta:
    """Return the meta that makes a RESULT a side message."""
    kind = message.kind if message.kind != "note" else ""
    return {
        "progress": True,
        **_non_default_options(kind=kind, code=message.code, text=message.text, args=list(message.args)),
    }


def part_meta(message: hub.Result, number: int, *, last: bool) -> Meta:
    """Return the meta of the `number`-th part of a streamed answer. An end without an element says that it is empty."""
    return {"part": number, **_non_default_options(last=last, empty=last and message.body is None)}


def publication_id(body: Payload | None) -> int:
    """Return the number that the hub gave a publication."""
    number = None if body is None else body.value()
    if type(number) is not int or not 0 <= number <= MAX_U64:
        raise LocalProtocolError("a publication is known by an unsigned integer of 64 bits")
    return number


# Topics.


def read_publish(hub_id: str, message: lrpm.Publish, attached: tuple[str, ...]) -> hub.Publish:
    """Return what the peer publishes; Refused if the topic or the meta is wrong (LRPM-a12, -a14, -a17)."""
    topic = _read_topic(topics.parse, message.topic)
    retain = meta_value(message.meta, "retain", False, strict=True)
    exclude = meta_value(message.meta, "exclude_me", False, strict=True)
    return hub.Publish(hub_id, topic, message.body, attached, retain, exclude)


def read_subscribe(hub_id: str, message: lrpm.Subscribe, new_number: Callable[[], str]) -> hub.Subscribe:
    """Return what the peer subscribes to; Refused if the pattern or the meta is wrong (LRPM-a12, -a14)."""
    pattern = _read_topic(topics.parse_pattern, message.topic)
    when_full = meta_value(message.meta, "when_full", "", strict=True)
    if when_full not in builtin_methods.OVERFLOW_POLICIES:
        raise RequestRefused(
            Reason.BAD_ARGUMENTS, f"meta.when_full must be {', '.join(filter(None, builtin_methods.OVERFLOW_POLICIES))}"
        )
    envelope = meta_value(message.meta, "envelope", False, strict=True)
    return hub.Subscribe(hub_id, pattern, new_number(), envelope, when_full)


ParsedT = TypeVar("ParsedT")


def _read_topic(read: Callable[[str, topics.TopicStyle], ParsedT], written: str) -> ParsedT:
    try:
        return read(written, topics.LRPM)
    except BadTopic as exc:
        raise RequestRefused(Reason.BAD_ARGUMENTS, str(exc)) from exc


def publish_meta(message: hub.Publish) -> Meta:
    """Return what a publication of ours has to say beside its body."""
    return (
        _non_default_options(retain=message.retain, exclude_me=message.exclude_me)
        if message.retain or message.exclude_me
        else NO_META
    )


def subscribe_meta(message: hub.Subscribe) -> Meta:
    """Return how we want to be served."""
    return _non_default_options(envelope=message.envelope, when_full=message.when_full)


def read_topic(meta: Meta, default: Topic) -> Topic:
    """Return the topic that an EVENT names (LRPM-a13), or else the one that was subscribed to."""
    try:
        return topics.parse(meta_value(meta, "topic", ""), topics.LRPM)
    except BadTopic:
        return default


def event_meta(message: hub.Event) -> Meta:
    """Return the topic of an event, and what its subscriber missed before it."""
    topic = topics.spell(message.topic, topics.LRPM)
    return {"topic": topic, "missed": message.missed} if message.missed else {"topic": topic}


# Failures and partings.


def replace_surrogates(text: str) -> str:
    """Return a text that can be written: halves of surrogate pairs become question marks."""
    return text.encode(errors="replace").decode()


def error_fallbacks(kind: int, request_id: int, failure: hub.Failure, *, to_hub: bool = False) -> Iterator[lrpm.Error]:
    """Give the ERROR that says why, and if that cannot be written, those that say ever less: a failure must arrive."""
    uri = _NOT_RUN[failure.reason] if to_hub and failure.reason in _NOT_RUN else URIS[failure.reason]
    error = _error_message(kind, request_id, failure, uri)
    yield error
    wait = {key: value for key, value in error.meta.items() if key != "text"}
    if failure.data is not None:
        text = replace_surrogates(failure.text)
        yield lrpm.Error(kind, request_id, error.error, Value(text) if text else NULL, wait)
    yield lrpm.Error(kind, request_id, uri, NULL)


def _error_message(kind: int, request_id: int, failure: hub.Failure, uri: str) -> lrpm.Error:
    """What the method itself gave as data is the body, else the text is."""
    # A method that ran must not pass for one that did not.
    own = failure.name if failure.reason is Reason.RAISED else ""
    if _URI.fullmatch(own) and not own.startswith(("hub.", CALLEE_ERROR_PREFIX)):
        uri = own
    text = replace_surrogates(failure.text)
    wait = {} if failure.retry_after is None else {"retry_after": _to_milliseconds(failure.retry_after)}
    if failure.data is not None:
        # A text beside it, even an empty one, tells that a string is data.
        told = {"text": text} if text or isinstance(_value_or_payload(failure.data), str) else NO_META
        return lrpm.Error(kind, request_id, uri, failure.data, {**wait, **told})
    return lrpm.Error(kind, request_id, uri, Value(text) if text else NULL, wait)


def read_error(hub_id: str, message: lrpm.Error, *, from_hub: bool) -> hub.Failure:
    """Return why a request of ours failed.

    A callee that says `hub.err.unavailable` may just pass on how a call of its own ended, after it ran. So every uri of
    a callee is an exception of its own, but `.err.cancelled` and `callee.err.*`, which no hub says.
    """
    uri, meta, data, value = message.error, message.meta, None, _value_or_payload(message.body)
    reason, text = (REASONS if from_hub else _CALLEE_REASONS).get(uri), meta_value(meta, "text", "")
    if isinstance(value, str) and not isinstance(meta.get("text"), str):
        text = value
    elif value is not None:
        data = message.body
    if from_hub and reason is None and uri.startswith(HUB_ERROR_PREFIX):
        # A reason of the hub that we do not know does not tell whether the method was run.
        reason, text = Reason.LOST, text or uri[:_MAX_SHOWN_LENGTH]
    wait = meta_value(meta, "retry_after", -1)
    retry_after = wait / _MILLISECONDS if wait >= 0 else None
    name = "" if reason is not None or uri == RAISED_ERROR else uri
    return hub.Failure(hub_id, reason or Reason.RAISED, text, data, retry_after, name)


def _value_or_payload(body: Payload) -> object:
    try:
        return body.value()
    except Unrepresentable:
        return body


def goodbye_message(message: hub.Goodbye) -> lrpm.Goodbye:
    """Return our farewell."""
    return lrpm.Goodbye(
        AUTH_ERROR if message.denied else NORMAL_GOODBYE, _non_default_options(text=replace_surrogates(message.text))
    )


def read_goodbye(message: lrpm.Goodbye) -> hub.Goodbye:
    """Return the peer's farewell; a reason without a text speaks for itself."""
    text = meta_value(message.meta, "text", "")
    silent = "" if message.reason == NORMAL_GOODBYE else message.reason[:_MAX_SHOWN_LENGTH]
    return hub.Goodbye(text or silent, denied=message.reason == AUTH_ERROR)


def _non_default_options(**options: str | bool | int | list[str]) -> dict[str, object]:
    """Return the options that say something, as all defaults are empty or false."""
    return {key: value for key, value in options.items() if value}


def _to_milliseconds(seconds: float) -> int:
    return round(seconds * _MILLISECONDS) if 0 < seconds < _MAX_SECONDS else 0 if seconds <= 0 else int(_MAX_SECONDS)
