"""Arguments: a reader made once from a function's signature, which checks and converts the body of each call.

An object is named arguments, an array positional ones, null none, and anything else one positional argument. Besides:

- A sole parameter annotated `str` gets a text of UMQ as it is, numbers, `true`, `false` and `null` included, but for
  JSON that is a string, an array or an object. An empty text is no argument for a function without parameters.
- Null is the argument of a function whose one required parameter may be null.
- A function with positional-only parameters (before `/`) has no named arguments: an object is one positional argument.
- `*args` takes further positional arguments, `**kwargs` further named ones, each checked against its annotation.
- A parameter annotated `AsyncIterator[T]` gets the elements of a streamed request, or those of an array; all others
  need defaults then. Without such a parameter a streamed request is one array, and that is the one argument.
- A parameter annotated `Context` is no argument.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Annotated, Final, Literal, TypeAlias, get_args, get_origin

import msgspec
from msgspec.structs import astuple

from fiveways.app.answers import cut
from fiveways.app.context import Context
from fiveways.app.elements import Elements
from fiveways.app.signature import REQUIRED, Parameter, needs, read
from fiveways.app.typed import to_model
from fiveways.app.values import Budget
from fiveways.errors import FivewaysError, Unrepresentable
from fiveways.wire.payload import Json, Payload, Text, may_hold_markers

Given: TypeAlias = tuple[list[object], dict[str, object]]
"""Positional and named arguments, ready for the function."""

_NO_NAMES: Final[dict[str, object]] = {}
_BRACE: Final = ord("{")
_NO_PLAIN_TEXT: Final = frozenset('"[{')
"""How a text begins that has to be looked at: it may be JSON with arguments in it."""
_WHERE: Final = re.compile(r"(.*) - at `(?:key` in `)?\$(.*)`", re.DOTALL)


class BadArguments(FivewaysError):
    """The arguments of a call do not fit; the call fails with this sentence."""


class Arguments:
    """The reader for one function.

    Raises:
        TypeError: no call could be served by the function; the message says which parameter is wrong, and why.
    """

    def __init__(self, function: Callable[..., object], label: str) -> None:
        self._signature = found = read(function, label)
        self._positional = found.positional
        self._named = [*found.positional, *found.by_name]
        self._names = [each.name for each in self._named]
        self._room = len(found.positional)
        """How many positional arguments fit, without those for `*args`."""
        self._only_named = [each.name for each in found.by_name if each.default is REQUIRED]
        """What an array cannot give."""
        needed = needs(found)
        self._convert: Callable[..., object] = msgspec.convert
        self._fill: Callable[..., msgspec.Struct] = msgspec.convert
        if needed.bytes or needed.keys or needed.models:
            kept, hook = (bytes,) if needed.bytes else None, to_model if needed.models else None
            self._convert = partial(msgspec.convert, builtin_types=kept, str_keys=needed.keys, dec_hook=hook)
            self._fill = self._convert
        self._array = _struct(found.positional, array_like=True)
        self._object = _struct(self._named, array_like=False)
        alone = len(self._named) == self._room == 1 and found.rest is found.others is None
        self._takes_text = alone and _bare(found.positional[0].type) is str
        self._takes_nothing = not self._named and found.rest is None
        self._takes_null = self._admits_null()
        # In the order in which they are put between the arguments.
        wanted = [slot for slot in (found.context, found.stream) if slot is not None]
        self._slots = sorted(wanted, key=lambda slot: slot.position or 0)
        self.wants_context = found.context is not None
        self.wants_stream = found.stream is not None
        self.are_all = not wanted
        """Nothing else is given to the function."""
        # What comes as JSON is read and checked in one go, where that is the same as one after the other.
        plain = found.has_names and found.others is None and needed.is_json
        self._decode = msgspec.json.Decoder(self._object).decode if plain else None

    @property
    def is_empty(self) -> bool:
        """Whether a caller can give nothing at all."""
        return self._takes_nothing and self._signature.others is None and not self.wants_stream

    def read(self, body: Payload) -> Given:
        """Return the arguments of a call; BadArguments if they do not fit."""
        if type(body) is Json and self._decode is not None and body.raw[0] == _BRACE:
            given = self._from_json(body.raw, self._decode)
            if given is not None:
                return given
        if isinstance(body, Text):
            if self._takes_text and body.raw[:1] not in _NO_PLAIN_TEXT:
                return self._from_array([body.raw])
            if self._takes_nothing and not body.raw:
                return [], _NO_NAMES
        value = _value(body)
        if type(value) is list:
            return self._from_array(value)
        if type(value) is dict and self._signature.has_names:
            return self._from_object(value)
        if value is None and not self._takes_null:
            return self._from_array([])
        return self._from_array(value if isinstance(value, tuple) else [value])

    def read_gathered(self, elements: list[object]) -> Given:
        """Return the arguments of a streamed call, for a function that wants all elements at once."""
        return self._from_array([elements])

    def read_stream(self, body: Payload, budget: Budget, *, more: bool) -> tuple[Given, Elements]:
        """Return the arguments of a function that reads a stream: `body` is its first element, or without `more` all.

        The elements are checked when they are read.
        """
        if more:
            elements = Elements(self._element, budget)
            elements.put(body)
        else:
            value = _value(body)
            given = value if isinstance(value, list | tuple) else [] if value is None else [value]
            elements = Elements(self._element, budget, given)
            elements.end()
        return self._from_array([]), elements

    def placed(self, given: Given, context: Context | None, elements: Elements | None) -> Given:
        """Return the arguments with the context and the stream where the function wants them."""
        args, named = given
        for slot in self._slots:
            what = context if slot is self._signature.context else elements
            if slot.position is None:
                named = {**named, slot.name: what}
            else:
                args.insert(slot.position, what)
        return args, named

    def _from_array(self, values: Sequence[object]) -> Given:
        room = self._room
        rest: Sequence[object] = ()
        if len(values) > room:
            values, rest = values[:room], self._rest(values[room:])
        try:
            args = astuple(self._fill(values, self._array))
        except msgspec.ValidationError as exc:
            given = dict(zip(self._names, values, strict=False))
            raise self._explained(exc, given, self._positional) from None
        if self._only_named:
            raise BadArguments(f"missing argument {self._only_named[0]!r}, which must be given by name")
        return [*args, *rest], _NO_NAMES

    def _rest(self, values: Sequence[object]) -> Sequence[object]:
        """Return what goes to `*args`."""
        rest = self._signature.rest
        if rest is None:
            names = ", ".join(each.name for each in self._positional)
            plural = "" if self._room == 1 else "s"
            room = f"at most {self._room} positional argument{plural} ({names})" if names else "no positional arguments"
            raise BadArguments(f"takes {room}, got {self._room + len(values)}")
        return [self._one(value, f"{rest.name}[{index}]", rest.type) for index, value in enumerate(values)]

    def _from_object(self, values: Mapping[str, object]) -> Given:
        others: dict[str, object] = {}
        if (wanted := self._signature.others) is not None:
            unknown = values.keys() - set(self._names)
            others = {name: self._one(value, name, wanted.type) for name, value in values.items() if name in unknown}
            values = {name: value for name, value in values.items() if name not in unknown}
        try:
            given = astuple(self._fill(values, self._object))
        except msgspec.ValidationError as exc:
            raise self._explained(exc, values, self._named) from None
        args, named = self._sorted(given)
        return args, named | others if others else named

    def _from_json(self, raw: bytes, decode: Callable[[bytes], msgspec.Struct]) -> Given | None:
        """Return named arguments; None where something is wrong, or unusual, which the long way finds."""
        if may_hold_markers(raw):
            return None
        try:
            given = decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return self._sorted(astuple(given))

    def _sorted(self, given: tuple[object, ...]) -> Given:
        room = self._room
        if len(given) == room:
            return list(given), _NO_NAMES
        return list(given[:room]), dict(zip(self._names[room:], given[room:], strict=True))

    def _explained(
        self, error: msgspec.ValidationError, given: Mapping[str, object], wanted: Sequence[Parameter]
    ) -> BadArguments:
        """Say which argument is wrong. Only here is each of them looked at alone."""
        for name in given:
            if name not in self._names:
                known = f"the arguments are {', '.join(self._names)}" if self._names else "there are no arguments"
                return BadArguments(cut(f"unknown argument {name!r}; {known}"))
        for each in wanted:
            if each.name not in given and each.default is REQUIRED:
                return BadArguments(f"missing argument {each.name!r}")
        try:
            for each in wanted:
                if each.name in given:
                    self._one(given[each.name], each.name, each.type)
        except BadArguments as exc:
            return exc
        return BadArguments(cut(str(error)))

    def _one(self, value: object, name: str, annotation: object) -> object:
        try:
            return self._convert(value, annotation)
        except msgspec.ValidationError as exc:
            where, what = _sentence(exc, annotation)
            raise BadArguments(cut(f"argument {name + where!r}: {what}")) from None

    def _element(self, value: object) -> object:
        try:
            return self._convert(value, self._signature.element)
        except msgspec.ValidationError as exc:
            where, what = _sentence(exc, self._signature.element)
            raise BadArguments(cut(f"{where}: {what}" if where else what)) from None

    def _admits_null(self) -> bool:
        required = [each for each in self._named if each.default is REQUIRED]
        if len(required) != 1 or required[0] not in self._positional:
            return False
        try:
            self._convert(None, required[0].type)
        except msgspec.ValidationError:
            return False
        return True


def _value(body: Payload) -> object:
    try:
        return body.value()
    except Unrepresentable as exc:
        raise BadArguments(str(exc)) from exc


def _struct(parameters: Sequence[Parameter], *, array_like: bool) -> type[msgspec.Struct]:
    """Return a type that msgspec converts an array or an object of arguments to, all at once."""
    fields = [
        (f"field{index}", each.type)
        if each.default is REQUIRED
        # The same object for each call, as Python has it; msgspec would copy some and refuse others.
        else (f"field{index}", each.type, msgspec.field(default_factory=partial(_same, each.default)))
        for index, each in enumerate(parameters)
    ]
    names = {f"field{index}": each.name for index, each in enumerate(parameters)}
    return msgspec.defstruct(
        "Arguments",
        fields,
        rename=names,
        array_like=array_like,
        kw_only=not array_like,
        forbid_unknown_fields=True,
    )


def _same(default: object) -> object:
    return default


def _bare(annotation: object) -> object:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _sentence(error: msgspec.ValidationError, annotation: object) -> tuple[str, str]:
    """Return where in an argument something is wrong, and what."""
    text, where = str(error), ""
    if (found := _WHERE.fullmatch(text)) is not None:
        text, where = found[1], found[2]
    elif choices := _choices(_bare(annotation)):
        return "", f"expected one of {', '.join(map(repr, choices))}"
    quote = "" if text.startswith("Expected") else "'"
    return where, (text[:1].lower() + text[1:]).replace("`", quote)


def _choices(annotation: object) -> Sequence[object]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [each.value for each in annotation]
    return ()
