"""Conversion between NQ messages and hub messages: targets, events, attachments and failures."""

import math
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from fiveways.errors import ErrorText, FivewaysError, LocalProtocolError, Malformed, Reason, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model import names, topics
from fiveways.model.names import BadName, fold, spell
from fiveways.model.topics import BadTopic, Topic
from fiveways.protocols import builtin_methods
from fiveways.protocols.builtin_methods import BadArguments, Styles
from fiveways.protocols.nq.errors import ErrorObject, escape_braces
from fiveways.protocols.nq.frames import FreeKeys, is_name
from fiveways.protocols.nq.messages import Answer, AnswerPart, Bad
from fiveways.wire import strict_json
from fiveways.wire.limits import Limits
from fiveways.wire.payload import NULL, Json, Payload, Value

CLOSED_TARGET: Final = "hub-closed"
"""The target of requests that tell a subscriber the end of its topic."""
CALLBACK_PREFIX: Final = "callback"
VERBOSE_KEY: Final = "v"
"""The key in the `extras` of a call for the verbosity that the caller requests (NQ-10)."""
JSON_NULL: Final = Json(b"null")
Extras = Mapping[str, Payload]
_HUB_KEYS: Final = frozenset({"attachments", "traceparent", "redelivered", "missed", "topic"})
"""Free keys that the hub uses."""
_NQ_KEYS: Final = frozenset("acdefiknoprstv")
_MAX_RETRY_AFTER: Final = 604800.0

# Error codes of failures. `app` errors have the callee's own code; None means that NQ cannot express the reason.
CODES: Final[dict[Reason, str | None]] = {
    Reason.NO_SUCH_METHOD: "notarget",
    Reason.NO_SUCH_CALLBACK: "nocallback",
    Reason.UNAVAILABLE: "unavailable",
    Reason.DENIED: "denied",
    Reason.BAD_ARGUMENTS: "badargs",
    Reason.OVERLOADED: "busy",
    Reason.TOO_LARGE: "toolarge",
    Reason.TIMEOUT: "expired",
    Reason.LOST: None,
    Reason.CANCELLED: "cancelled",
    Reason.RAISED: "",
}
REASONS: Final[dict[str, Reason]] = {code: reason for reason, code in CODES.items() if code} | dict.fromkeys(
    # Codes of a hub for a request that it could not parse.
    ("malformed", "version", "nokey"),
    Reason.BAD_ARGUMENTS,
)
PROGRESS_KINDS: Final = ("note", "warn", "tmp", "debug")
VERBOSE_KINDS: Final = frozenset({"tmp", "debug"})


RequestMessage = hub.Call | hub.Event | hub.TopicClosed | builtin_methods.Builtin
"""The hub messages that become requests of ours."""


class OwnSubscription(msgspec.Struct, frozen=True, gc=False):
    """Our subscription at the peer."""

    subscription: str
    envelope: bool


class RequestRefused(FivewaysError):
    """A request that is answered at once without involving the hub."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(reason, text)
        self.reason = reason
        self.text = text


# Failures.


def error_from_failure(failure: hub.Failure, *, accepted: bool = False) -> ErrorObject:
    """Return the error object of a failure; LocalProtocolError if NQ cannot express it."""
    code = CODES[failure.reason]
    if code is None or (accepted and failure.reason is Reason.UNAVAILABLE):
        raise LocalProtocolError(f"NQ redelivers an accepted request and cannot report '{failure.reason.text}'")
    wording = failure.wording
    if wording is not None:
        kind = "app" if failure.reason is Reason.RAISED else "local"
        err = wording.err if kind == "app" or REASONS.get(wording.err) is failure.reason else code
        return ErrorObject(kind, True, err, wording.warn, wording.note, wording.text, wording.args)
    if failure.reason is Reason.RAISED:
        text, args = escape_braces(failure.text)
        code = failure.name or (str(failure.code) if failure.code else "")
        return ErrorObject("app", True, code, text=text, args=args)
    args = ()
    if failure.reason is Reason.OVERLOADED and failure.retry_after is not None and not math.isnan(failure.retry_after):
        args = (str(round(min(max(0.0, failure.retry_after), _MAX_RETRY_AFTER) * 1000)),)
    elif failure.reason is Reason.OVERLOADED and "{" in failure.text:
        args = ("",)  # the first argument is reserved for the milliseconds
    text, args = escape_braces(failure.text, args)
    return ErrorObject.local(code, text, args)


def failure_from_error(hub_id: str, received: ErrorObject, data: Payload | None = None) -> hub.Failure:
    """Return the failure for a fatal error object, with the original wording if it would be lost."""
    failure = _build_failure(hub_id, received.as_received(), data)
    standard_error = None if CODES[failure.reason] is None else error_from_failure(failure)
    if standard_error and (standard_error.code, standard_error.args, standard_error.format()) == (
        received.code,
        received.args,
        failure.text,
    ):
        return failure
    return msgspec.structs.replace(failure, wording=received.wording)


def failure_wording(failure: hub.Failure) -> ErrorText:
    """Return the NQ wording of a failure."""
    if failure.wording is not None or CODES[failure.reason] is None:
        return failure.wording or ErrorText(*escape_braces(failure.text))
    return error_from_failure(failure).wording


def _build_failure(hub_id: str, error: ErrorObject, data: Payload | None) -> hub.Failure:
    if error.type == "remote":
        reason = REASONS.get(error.err, Reason.LOST)
        wait = error.args[0] if reason is Reason.OVERLOADED and error.args else ""
        retry_after = int(wait) / 1000 if wait.isascii() and wait.isdigit() and len(wait) <= len("604800000") else None
        return hub.Failure(hub_id, reason, error.format() or error.err, data, retry_after)
    code = error.code
    if code.isascii() and code.isdigit() and len(code) <= len("65535"):
        return hub.Failure(hub_id, Reason.RAISED, error.format(), data, code=int(code))
    return hub.Failure(hub_id, Reason.RAISED, error.format(), data, name=code)


def is_unknown_target(error: ErrorObject) -> bool:
    """Return whether NQ itself, not the application, reports an unknown target."""
    return error.type in ("local", "remote") and error.err == CODES[Reason.NO_SUCH_METHOD]


def error_for_bad_element(bad: Bad) -> ErrorObject:
    """Return the error for the sender of an invalid element."""
    text, args = escape_braces(f"{bad.text} [{bad.rule}]")
    return ErrorObject.local(bad.code, text, args)


def error_from_progress(message: hub.Progress) -> ErrorObject:
    """Return the error object for progress; the code goes under the key of its kind if there is one."""
    if message.kind not in PROGRESS_KINDS:
        raise LocalProtocolError(f"NQ has no side message of kind {message.kind!r}")
    warn = message.code if message.kind == "warn" else ""
    return ErrorObject(message.kind, False, "", warn, "" if warn else message.code, message.text, message.args)


def progress_from_error(hub_id: str, received: ErrorObject, data: Payload | None) -> hub.Progress:
    """Return the progress for an error object; errors that are not fatal are warnings."""
    kind = received.type if received.type in PROGRESS_KINDS else "warn"
    return hub.Progress(hub_id, NULL if data is None else data, kind, received.code, received.text, received.args)


# Requests.


def message_from_request(
    key: str,
    target: str,
    body: Payload,
    free: FreeKeys | None,
    attachments: tuple[str, ...] = (),
    *,
    more: bool = False,
    verbose: bool | str = False,
) -> hub.HubMessage:
    """Return the hub message of a request; RequestRefused if it is invalid."""
    try:
        method = fold(target, names.NQ)
    except BadName as exc:
        raise RequestRefused(Reason.NO_SUCH_METHOD, str(exc)) from exc
    traceparent, redelivered, extras = "", False, None
    if free is not None:
        traceparent, redelivered, extras = (
            _read_text(free, "traceparent"),
            free.get("redelivered") == "true",
            extras_from_free(free),
        )
    if verbose:
        extras = {**(extras or {}), VERBOSE_KEY: Json(strict_json.write(verbose))}
    if method.startswith("hub."):
        try:
            message = None if more else builtin_methods.message_from_call(key, method, body, STYLES, attachments)
        except BadArguments as exc:
            raise RequestRefused(Reason.BAD_ARGUMENTS, str(exc)) from exc
        if message is not None:
            return message
    spelling, callback = target, method.startswith("callback.")
    if callback:
        method, spelling = target[len(CALLBACK_PREFIX) + 1 :], ""
    return hub.Call(
        key,
        method,
        body,
        spelling,
        attachments,
        callback=callback,
        more=more,
        stream=True,
        progress=True,
        traceparent=traceparent,
        redelivered=redelivered,
        extras=extras,
    )


def request_from_message(message: RequestMessage, topic: str = "") -> tuple[str, Payload, FreeKeys | None]:
    """Return target, body and free keys of the request for a message; Unrepresentable if there is none.

    `topic` is the target of the events of our subscription.
    """
    free: FreeKeys | None = None
    body: Payload
    if isinstance(message, hub.Call):
        target = (
            f"{CALLBACK_PREFIX}-{message.method}"
            if message.callback
            else message.spelling or spell(message.method, names.NQ)
        )
        body = message.body
        if message.traceparent or message.redelivered or message.extras:
            free = free_from_extras(message.extras) or {}
            if message.traceparent:
                free["traceparent"] = strict_json.write(message.traceparent).decode()
            if message.redelivered:
                free["redelivered"] = "true"
    elif isinstance(message, hub.Event):
        target, free = message.subscription, _event_free_keys(message)
        body = builtin_methods.event_body(message, STYLES)
    elif isinstance(message, hub.TopicClosed):
        target, body = CLOSED_TARGET, Value({"id": message.subscription})
    else:
        if topic and isinstance(message, hub.Unsubscribe):
            message = hub.Unsubscribe(message.id, topic)
        method, body = builtin_methods.call_from_message(message, STYLES, topic or None)
        target = spell(method, names.NQ)
    if not is_name(target):
        raise Unrepresentable(f"NQ cannot write the target {target!r}")
    return target, body, free


def json_body(payload: Payload) -> Payload:
    """Return the payload as JSON for the wire, to detect errors before anything is sent."""
    return payload if type(payload) is Json else Json(payload.nq())


def extras_from_free(free: FreeKeys | None) -> Extras | None:
    """Return the keys of users and those not assigned yet, which are forwarded unchanged (NQ-a09)."""
    if free is None:
        return None
    return {key: Json(value.encode()) for key, value in free.items() if key not in _HUB_KEYS} or None


def free_from_extras(extras: Extras | None) -> FreeKeys | None:
    """Return the extras as free keys, without keys that NQ or the hub uses."""
    if not extras:
        return None
    return {key: body.nq().decode() for key, body in extras.items() if key not in _HUB_KEYS | _NQ_KEYS}


def request_key(target: str, r: str) -> str:
    """Return the unique key of a request: `t#r`, or another unambiguous form if t contains a `#`."""
    return f"{target}#{r}" if "#" not in target else f" {target} {r}"


def request_id_from_key(key: str) -> str:
    """Return the r of a request's key."""
    return key[1:].partition(" ")[2] if key.startswith(" ") else key.partition("#")[2]


def body_value(body: Payload) -> object:
    """Return the value of a body; RequestRefused if it contains an invalid marker."""
    try:
        return body.value()
    except Unrepresentable as exc:
        raise RequestRefused(Reason.BAD_ARGUMENTS, str(exc)) from exc


# Events: requests to the subscriber with its subscription as the target.


def event_from_request(
    subscription: OwnSubscription, body: Payload, free: FreeKeys | None, attachments: tuple[str, ...]
) -> hub.Event:
    """Return the event of a request to our subscription."""
    topic, missed = ((), 0) if free is None else (_read_topic(free), _read_missed(free))
    event = hub.Event(
        subscription.subscription, topic, body, attachments, missed=missed, envelope=subscription.envelope
    )
    return builtin_methods.unwrap_event(event, STYLES) if subscription.envelope else event


def _event_free_keys(message: hub.Event) -> FreeKeys | None:
    """Return the free keys with the topic and the number of missed events."""
    free: FreeKeys = {}
    if message.topic:
        try:
            free["topic"] = strict_json.write(topics.spell(message.topic, topics.NQ)).decode()
        except BadTopic as exc:
            raise Unrepresentable(str(exc)) from exc
    if message.missed:
        free["missed"] = str(message.missed)
    return free or None


def _read_topic(free: FreeKeys) -> Topic:
    try:
        return topics.parse(_read_text(free, "topic"), topics.NQ)
    except BadTopic:
        return ()


def _read_missed(free: FreeKeys) -> int:
    raw = free.get("missed", "0")
    return int(raw) if raw.isdigit() and len(raw) <= len("4294967296") else 0


def _read_text(free: FreeKeys, key: str) -> str:
    """Return the string in a free key, empty for other values."""
    raw = free.get(key)
    try:
        value = strict_json.parse_text(raw) if raw is not None else ""
    except Malformed:
        return ""
    return value if isinstance(value, str) else ""


# Answers to our requests.


AnswerAttachments = tuple[hub.Attachment, ...] | RequestRefused | None


def answer_attachments(answer: Answer, limits: Limits) -> AnswerAttachments:
    """Return the attachments of an answer or the error in them, read once for all requests that it answers."""
    try:
        attachments = read_attachments(answer.a, answer.extra, limits)
    except RequestRefused as refused:
        return refused
    if attachments and len(answer.i) > 1:
        return RequestRefused(Reason.BAD_ARGUMENTS, "they belong to several requests")
    return attachments


def messages_from_answer(
    hub_id: str,
    message_type: type[hub.HubMessage],
    answer: Answer,
    attachments: AnswerAttachments,
    extras: Extras | None,
) -> list[hub.HubMessage]:
    """Return the hub messages of a complete answer; an invalid one still means that the method ran."""
    if message_type is hub.Discover:
        description = builtin_methods.read_description(hub_id, answer.d)
        return [description or hub.Failure(hub_id, Reason.RAISED, "the answer is not a description")]
    if isinstance(attachments, RequestRefused):
        return [hub.Failure(hub_id, Reason.RAISED, f"the answer has bad attachments: {attachments.text}")]
    if not attachments:
        return [hub.Result(hub_id, answer.d, extras=extras)]
    return [
        hub.Result(hub_id, answer.d, tuple(attachment.name for attachment in attachments), False, True, extras),
        *attachments,
    ]


def messages_from_part(hub_id: str, part: AnswerPart, limits: Limits, *, last: bool) -> list[hub.HubMessage]:
    """Return the hub messages of a part of an answer."""
    if part.e is not None:
        return [failure_from_error(hub_id, part.e, part.d)]
    try:
        attachments = read_attachments(f"{part.a}.{part.n}", part.extra, limits)
    except RequestRefused as refused:
        attachments = (hub.Attachment(f"{part.a}.{part.n}/1", error=refused.text),)
    names_of = tuple(attachment.name for attachment in attachments)
    return [hub.Result(hub_id, part.d, names_of, True, last, extras_from_free(part.extra)), *attachments]


# Attachments: the free key `attachments`, a list of markers.


def read_attachments(owner: str, free: FreeKeys | None, limits: Limits) -> tuple[hub.Attachment, ...]:
    """Return the attachments of the message `owner`; RequestRefused if they are invalid."""
    raw = None if free is None else free.get("attachments")
    if raw is None:
        return ()
    try:
        value = Json(raw.encode()).value()
    except (Malformed, Unrepresentable) as exc:
        raise RequestRefused(Reason.BAD_ARGUMENTS, f"attachments: {exc}") from exc
    if not isinstance(value, list):
        raise RequestRefused(Reason.BAD_ARGUMENTS, "attachments is not an array")
    if len(value) > limits.max_attachments:
        raise RequestRefused(Reason.TOO_LARGE, f"{len(value)} attachments")
    return tuple(_read_attachment(f"{owner}/{number}", item) for number, item in enumerate(value, 1))


def _read_attachment(name: str, marker: object) -> hub.Attachment:
    match marker:
        case bytes():
            return hub.Attachment(name, marker)
        case {"$error": str(text)}:
            return hub.Attachment(name, error=text)
        case _:
            raise RequestRefused(Reason.BAD_ARGUMENTS, "an attachment must be $base91, $base64 or $error")


def write_attachments(attachments: Iterable[hub.Attachment]) -> str:
    """Return the value of the free key `attachments`."""
    markers = [
        attachment.data if attachment.error is None else {"$error": attachment.error} for attachment in attachments
    ]
    return Value(markers).nq().decode()


def topic_id(chosen: object, spelling: str) -> str:
    """Return the target of events: the subscriber's choice, else the topic in NQ's spelling."""
    chosen = chosen if chosen is not None else spelling.replace("*", "__2a")
    if isinstance(chosen, int) and not isinstance(chosen, bool):
        chosen = str(chosen)
    if not isinstance(chosen, str) or not is_name(chosen):
        raise BadArguments("needs id, the target of its events, as a string without blanks")
    return chosen


STYLES: Final = Styles(names.NQ, topics.NQ, topic_id)
