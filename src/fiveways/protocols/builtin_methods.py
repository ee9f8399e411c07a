"""The built-in methods that correspond to a hub message, parsed from calls and written as calls.

Protocols without a message for publishing, subscribing, registering and so on call `hub.publish`, `hub.subscribe` and
similar methods instead. Their bridges convert such calls to hub messages and back, so that names and topics are parsed
in the spelling of the protocol. The other built-in methods (`hub.ping`, `hub.echo` and so on) stay calls.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, assert_never

import msgspec

from fiveways.errors import FivewaysError, Malformed, Unrepresentable
from fiveways.model.messages import (
    CloseTopic,
    Description,
    Discover,
    Event,
    HubMessage,
    Publish,
    Register,
    SetVariable,
    Subscribe,
    Unregister,
    UnsetVariable,
    Unsubscribe,
)
from fiveways.model.names import BadName, NameStyle, fold_registration, spell_prefix
from fiveways.model.names import spell as spell_name
from fiveways.model.topics import BadTopic, TopicStyle, parse, parse_pattern, spell, spell_pattern
from fiveways.wire import strict_json
from fiveways.wire.payload import NULL, Json, Payload, Text, Value, may_hold_markers

STREAMING_KINDS: Final = ("unary", "server", "client", "both")
SHARE_STRATEGIES: Final = ("", "round_robin", "random", "first", "open")
OVERFLOW_POLICIES: Final = ("", "skip", "close", "unsubscribe", "block")
_MAX_SHOWN_LENGTH: Final = 40
_MAX_SHOWN_NAMES: Final = 3
_MAX_OMITTED_COUNT: Final = 1 << 53
"""Upper bound for the number of omitted names that a peer may report."""

_RAW_FIELDS_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])
_NULL: Final = msgspec.Raw(b"null")
PUBLISH: Final = "hub.publish"


class _Publication(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    topic: str
    data: msgspec.Raw = _NULL
    retain: bool = False


_decode_publication: Final = msgspec.json.Decoder(_Publication).decode


class BadArguments(FivewaysError):
    """Invalid arguments of a built-in method; the call fails with this text."""


class Styles(msgspec.Struct, frozen=True):
    """The spelling of names and topics in one protocol, and its identifiers of subscriptions."""

    names: NameStyle
    topics: TopicStyle
    topic_id: Callable[[object, str], str]
    """Returns a subscription's identifier from the argument `id` (None if absent) and the topic as spelled."""


class Arguments:
    """The arguments of a built-in method: an object, an array, a single value, or lines of text in UMQ."""

    def __init__(
        self, body: Payload, fields: tuple[str, ...], options: tuple[str, ...] = (), *, lines: bool = False
    ) -> None:
        self._body = body
        self._fields = fields
        self._lines: list[str] = []
        value = body.value()
        if lines and isinstance(value, str) and isinstance(body, Text):
            if body.raw[:1] in ("{", "["):
                raise BadArguments("arguments that begin with { or [ must be JSON")
            # Split into at most as many parts as there are fields: data may contain line feeds.
            value = self._lines = value.split("\n", len(fields) - 1)
        elif isinstance(value, str):
            value = [value]
        if isinstance(value, list):
            if len(value) > len(fields):
                raise BadArguments(f"takes at most {len(fields)} arguments: {', '.join(fields)}")
            value = dict(zip(fields, value, strict=False))
        elif value is None:
            value = {}
        if not isinstance(value, dict):
            raise BadArguments(f"takes an object with {', '.join(fields)}")
        unknown = [repr(name)[:_MAX_SHOWN_LENGTH] for name in value if name not in fields and name not in options]
        if unknown:
            raise BadArguments(f"takes {', '.join(fields + options)}, not {', '.join(unknown[:_MAX_SHOWN_NAMES])}")
        self._values: Mapping[str, object] = value

    def text(self, field: str, default: str | None = None) -> str:
        """Return a field that must be a string."""
        value = self._values.get(field, default)
        if not isinstance(value, str):
            raise BadArguments(f"needs {field} as a string")
        return value

    def choice(self, field: str, allowed: tuple[str, ...]) -> str:
        """Return a field that must be one of a few strings; the first is the default."""
        value = self.text(field, allowed[0])
        if value not in allowed:
            raise BadArguments(f"{field} must be one of {', '.join(filter(None, allowed))}")
        return value

    def boolean(self, field: str) -> bool:
        """Return a field that must be true or false."""
        value = self._values.get(field, False)
        if not isinstance(value, bool):
            raise BadArguments(f"{field} must be true or false")
        return value

    def value(self, field: str) -> object:
        """Return a field of any type, None if absent."""
        return self._values.get(field)

    def payload(self, field: str) -> Payload:
        """Return a field that is forwarded as a body."""
        value = self._values.get(field)
        if value is None:
            return NULL
        if self._lines:
            return Text(str(value))
        raw = self._raw_json(field)
        return Value(value) if raw is None else Json(raw)

    def _raw_json(self, field: str) -> bytes | None:
        """Return the JSON text of the field if the body is JSON."""
        if not isinstance(self._body, Json | Text):
            return None
        fields = _RAW_FIELDS_DECODER.decode(self._body.json())
        raw = fields.get(field) if isinstance(fields, dict) else fields[self._fields.index(field)]
        return None if raw is None else bytes(raw)


def message_from_call(
    call_id: str, method: str, body: Payload, styles: Styles, attachments: tuple[str, ...] = ()
) -> HubMessage | None:
    """Return the hub message for a call of the built-in `method` (folded); None if it stays a call.

    Raises:
        BadArguments: the arguments are invalid.
    """
    parser = _READERS.get(method)
    if parser is None:
        return None
    fields, options, parse = parser
    try:
        if method == PUBLISH and not attachments and (message := fastpath_publish(call_id, body, styles)) is not None:
            return message
        return parse(
            call_id, Arguments(body, fields, options, lines=method in _LINE_ARGUMENT_METHODS), styles, attachments
        )
    except (BadName, BadTopic, Unrepresentable) as exc:
        raise BadArguments(str(exc)) from exc


def fastpath_publish(call_id: str, body: Payload, styles: Styles) -> Publish | None:
    """Return the message for `hub.publish` in its common form; None for the general path.

    Raises:
        BadTopic: the topic is invalid.
    """
    if isinstance(body, Text):
        lines = _FIRST_LINE.match(body.raw)
        if lines is not None:
            return Publish(call_id, parse(lines[1], styles.topics), Text(body.raw[lines.end() :]))
    elif not isinstance(body, Json):
        return None
    try:
        raw = body.raw if isinstance(body, Json) else body.raw.encode()
        publication = _decode_publication(raw)
        strict_json.check_numbers_and_depth(raw)
    except (UnicodeEncodeError, msgspec.DecodeError, RecursionError, Malformed):
        return None
    if raw[:1] + raw[-1:] != b"{}" or may_hold_markers(raw):  # surrounding blanks are not part of the JSON
        return None
    data = NULL if publication.data == _NULL else Json(bytes(publication.data))
    return Publish(call_id, parse(publication.topic, styles.topics), data, retain=publication.retain)


def _read_publish(call_id: str, arguments: Arguments, styles: Styles, attachments: tuple[str, ...]) -> HubMessage:
    topic = parse(arguments.text("topic"), styles.topics)
    return Publish(call_id, topic, arguments.payload("data"), attachments, retain=arguments.boolean("retain"))


def _read_subscribe(call_id: str, arguments: Arguments, styles: Styles, _: tuple[str, ...]) -> HubMessage:
    spelling = arguments.text("topic")
    return Subscribe(
        call_id,
        parse_pattern(spelling, styles.topics),
        styles.topic_id(arguments.value("id"), spelling),
        envelope=arguments.boolean("envelope"),
        when_full=arguments.choice("when_full", OVERFLOW_POLICIES),
    )


def _read_unsubscribe(call_id: str, arguments: Arguments, styles: Styles, _: tuple[str, ...]) -> HubMessage:
    return Unsubscribe(call_id, styles.topic_id(arguments.value("id"), ""))


def _read_close(call_id: str, arguments: Arguments, styles: Styles, _: tuple[str, ...]) -> HubMessage:
    return CloseTopic(call_id, parse(arguments.text("topic"), styles.topics))


def _read_register(call_id: str, arguments: Arguments, styles: Styles, _: tuple[str, ...]) -> HubMessage:
    spelling = arguments.text("name")
    method, route = fold_registration(spelling, styles.names)
    kind, share = arguments.choice("kind", STREAMING_KINDS), arguments.choice("share", SHARE_STRATEGIES)
    doc = "" if arguments.value("doc") is None else arguments.text("doc")
    return Register(call_id, method, spelling, route, doc, kind, share)


def _read_unregister(call_id: str, arguments: Arguments, styles: Styles, _: tuple[str, ...]) -> HubMessage:
    spelling = arguments.text("name")
    method, route = fold_registration(spelling, styles.names)
    return Unregister(call_id, method, spelling, route)


def _read_set(call_id: str, arguments: Arguments, _: Styles, attachments: tuple[str, ...]) -> HubMessage:
    return SetVariable(call_id, arguments.text("name"), arguments.payload("value"), attachments)


def _read_unset(call_id: str, arguments: Arguments, _styles: Styles, _: tuple[str, ...]) -> HubMessage:
    return UnsetVariable(call_id, arguments.text("name"))


def _read_discover(call_id: str, arguments: Arguments, _styles: Styles, _: tuple[str, ...]) -> HubMessage:
    return Discover(call_id, arguments.text("name", ""))


_FIRST_LINE: Final = re.compile(r"([A-Za-z][^\n]*)\n")
"""A first line that proves that the next line is data: no JSON starts with a letter and a line feed."""

Reader = Callable[[str, Arguments, Styles, tuple[str, ...]], HubMessage]
_READERS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...], Reader]]] = {
    PUBLISH: (("topic", "data"), ("retain",), _read_publish),
    "hub.subscribe": (("topic", "id"), ("envelope", "when_full"), _read_subscribe),
    "hub.unsubscribe": (("id",), (), _read_unsubscribe),
    "hub.close": (("topic",), (), _read_close),
    "hub.register": (("name", "doc"), ("kind", "share"), _read_register),
    "hub.unregister": (("name",), (), _read_unregister),
    "hub.set": (("name", "value"), (), _read_set),
    "hub.unset": (("name",), (), _read_unset),
    "hub.discover": (("name",), (), _read_discover),
}
"""For each method its fields (also accepted by position), its options (only by name), and the parser."""
_LINE_ARGUMENT_METHODS: Final = frozenset({PUBLISH, "hub.subscribe", "hub.close"})
"""The methods whose arguments may be lines of text in UMQ."""

Builtin = (
    Publish | Subscribe | Unsubscribe | CloseTopic | Register | Unregister | SetVariable | UnsetVariable | Discover
)


def call_from_message(message: Builtin, styles: Styles, topic_id: str | None = None) -> tuple[str, Payload]:
    """Return the built-in method (folded) and the arguments that correspond to a message.

    `topic_id` is the protocol's identifier of a subscription, if it differs from the message's.
    """
    try:
        return _build_call(message, styles, topic_id)
    except BadTopic as exc:
        raise Unrepresentable(str(exc)) from exc


def _build_call(message: Builtin, styles: Styles, topic_id: str | None) -> tuple[str, Payload]:
    match message:
        case Publish():
            fields = {"topic": spell(message.topic, styles.topics), "data": message.body.value()}
            return PUBLISH, Value(fields | _non_default_options(retain=message.retain))
        case Subscribe():
            fields = {"topic": spell_pattern(message.pattern, styles.topics), "id": topic_id or message.subscription}
            options = _non_default_options(envelope=message.envelope, when_full=message.when_full)
            return "hub.subscribe", Value(fields | options)
        case Unsubscribe():
            return "hub.unsubscribe", Value({"id": message.subscription})
        case CloseTopic():
            return "hub.close", Value({"topic": spell(message.topic, styles.topics)})
        case Register():
            kind = message.kind if message.kind != "unary" else ""
            options = _non_default_options(doc=message.doc, kind=kind, share=message.share)
            return "hub.register", Value({"name": _registered_name(message, styles)} | options)
        case Unregister():
            return "hub.unregister", Value({"name": _registered_name(message, styles)})
        case SetVariable():
            return "hub.set", Value({"name": message.name, "value": message.body.value()})
        case UnsetVariable():
            return "hub.unset", Value({"name": message.name})
        case Discover():
            return "hub.discover", Value({"name": message.name} if message.name else {})
        case _:
            assert_never(message)


def _non_default_options(**options: str | bool) -> dict[str, object]:
    """Return the options that differ from their defaults, which are all empty or false."""
    return {name: value for name, value in options.items() if value}


def _registered_name(message: Register | Unregister, styles: Styles) -> str:
    if message.spelling:
        return message.spelling
    return spell_prefix(message.method, styles.names) if message.route else spell_name(message.method, styles.names)


def _value_or_none(body: Payload) -> object:
    """Return the value of a peer's body, None if it has none."""
    try:
        return body.value()
    except Unrepresentable:
        return None


def description_payload(message: Description) -> Payload:
    """Return the response to `hub.discover`."""
    if message.doc is not None:
        return Value({"doc": message.doc})
    lists: dict[str, object] = {"methods": list(message.methods), "routes": list(message.routes)}
    return Value(lists | {"more": message.more} if message.more else lists)


def read_description(call_id: str, body: Payload) -> Description | None:
    """Parse the response to `hub.discover`; None if it is not a description."""
    match _value_or_none(body):
        case {"doc": str(doc)}:
            return Description(call_id, doc=doc)
        case {"methods": list(methods), "routes": list(routes), **rest} if all(
            type(name) is str for name in methods + routes
        ):
            more = rest.get("more")
            if not isinstance(more, int) or isinstance(more, bool) or not 0 < more <= _MAX_OMITTED_COUNT:
                more = 0
            return Description(call_id, tuple(methods), tuple(routes), more=more)
        case _:
            return None


def event_body(event: Event, styles: Styles) -> Payload:
    """Return the body of an event, in an envelope with its topic if the subscriber asked for one."""
    if not event.envelope:
        return event.body
    try:
        topic = strict_json.write(spell(event.topic, styles.topics))
    except BadTopic as exc:
        raise Unrepresentable(str(exc)) from exc
    missed = b',"missed":%d' % event.missed if event.missed else b""
    raw = b'{"topic":%s,"data":%s%s}' % (topic, event.body.json(), missed)
    try:
        # The envelope adds a level to a body that may already have the maximum depth.
        strict_json.check_numbers_and_depth(raw)
    except Malformed as exc:
        raise Unrepresentable(str(exc)) from exc
    return Json(raw)


def unwrap_event(event: Event, styles: Styles) -> Event:
    """Remove the envelope of an event; an event without an envelope is returned unchanged."""
    match _value_or_none(event.body):
        case {"topic": str(spelling), "data": data, **rest}:
            missed = rest.get("missed")
            if type(missed) is not int or missed < 0:
                missed = 0
            try:
                topic = parse(spelling, styles.topics)
            except BadTopic:
                return event
            return msgspec.structs.replace(event, topic=topic, body=Value(data), missed=missed)
        case _:
            return event
