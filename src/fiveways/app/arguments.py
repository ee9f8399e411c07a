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

from fiveways.app.context import Context
from fiveways.app.conversion import to_model
from fiveways.app.request_elements import ElementStream
from fiveways.app.responses import truncate
from fiveways.app.signature import REQUIRED, Parameter, conversion_needs, read_signature
from fiveways.app.values import MemoryBudget
from fiveways.errors import FivewaysError, Unrepresentable
from fiveways.wire.payload import Json, Payload, Text, may_hold_markers

BoundArguments: TypeAlias = tuple[list[object], dict[str, object]]
"""Positional and named arguments, ready for the function."""

_NO_NAMED_ARGUMENTS: Final[dict[str, object]] = {}
_BRACE: Final = ord("{")
_JSON_FIRST_CHARACTERS: Final = frozenset('"[{')
"""How a text begins that has to be looked at: it may be JSON with arguments in it."""
_ERROR_PATH: Final = re.compile(r"(.*) - at `(?:key` in `)?\$(.*)`", re.DOTALL)


class BadArguments(FivewaysError):
    """The arguments of a call do not fit; the call fails with this sentence."""


class ArgumentReader:
    """The reader for one function.

    Raises:
        TypeError: no call could be served by the function; the message says which parameter is wrong, and why.
    """

    def __init__(self, function: Callable[..., object], label: str) -> None:
        self._signature = found = read_signature(function, label)
        self._positional = found.positional
        self._named = [*found.positional, *found.keyword_only]
        self._names = [each.name for each in self._named]
        self._max_positional = len(found.positional)
        """How many positional arguments fit, without those for `*args`."""
        self._required_keyword_only = [each.name for each in found.keyword_only if each.default is REQUIRED]
        """What an array cannot give."""
        needed = conversion_needs(found)
        self._convert: Callable[..., object] = msgspec.convert
        self._convert_struct: Callable[..., msgspec.Struct] = msgspec.convert
        if needed.has_bytes or needed.has_non_str_keys or needed.has_models:
            kept, hook = (bytes,) if needed.has_bytes else None, to_model if needed.has_models else None
            self._convert = partial(
                msgspec.convert, builtin_types=kept, str_keys=needed.has_non_str_keys, dec_hook=hook
            )
            self._convert_struct = self._convert
        self._array_struct = _make_struct(found.positional, array_like=True)
        self._object_struct = _make_struct(self._named, array_like=False)
        alone = len(self._named) == self._max_positional == 1 and found.var_positional is found.var_keyword is None
        self._takes_text = alone and _strip_annotated(found.positional[0].type) is str
        self._takes_nothing = not self._named and found.var_positional is None
        self._takes_null = self._accepts_null()
        # In the order in which they are put between the arguments.
        wanted = [slot for slot in (found.context, found.stream) if slot is not None]
        self._injected = sorted(wanted, key=lambda slot: slot.position or 0)
        self.wants_context = found.context is not None
        self.wants_stream = found.stream is not None
        self.has_no_injected = not wanted
        """Nothing else is given to the function."""
        # What comes as JSON is read and checked in one go, where that is the same as one after the other.
        plain = found.accepts_names and found.var_keyword is None and needed.is_json_only
        self._decode = msgspec.json.Decoder(self._object_struct).decode if plain else None

    @property
    def is_empty(self) -> bool:
        """Whether a caller can give nothing at all."""
        return self._takes_nothing and self._signature.var_keyword is None and not self.wants_stream

    def read(self, body: Payload) -> BoundArguments:
        """Return the arguments of a call; BadArguments if they do not fit."""
        if type(body) is Json and self._decode is not None and body.raw[0] == _BRACE:
            given = self._from_json(body.raw, self._decode)
            if given is not None:
                return given
        if isinstance(body, Text):
            if self._takes_text and body.raw[:1] not in _JSON_FIRST_CHARACTERS:
                return self._from_array([body.raw])
            if self._takes_nothing and not body.raw:
                return [], _NO_NAMED_ARGUMENTS
        value = _decode_body(body)
        if type(value) is list:
            return self._from_array(value)
        if type(value) is dict and self._signature.accepts_names:
            return self._from_object(value)
        if value is None and not self._takes_null:
            return self._from_array([])
        return self._from_array(value if isinstance(value, tuple) else [value])

    def read_collected(self, elements: list[object]) -> BoundArguments:
        """Return the arguments of a streamed call, for a function that wants all elements at once."""
        return self._from_array([elements])

    def read_stream(self, body: Payload, budget: MemoryBudget, *, more: bool) -> tuple[BoundArguments, ElementStream]:
        """Return the arguments of a function that reads a stream: `body` is its first element, or without `more` all.

        The elements are checked when they are read.
        """
        if more:
            elements = ElementStream(self._convert_element, budget)
            elements.put(body)
        else:
            value = _decode_body(body)
            given = value if isinstance(value, list | tuple) else [] if value is None else [value]
            elements = ElementStream(self._convert_element, budget, given)
            elements.end()
        return self._from_array([]), elements

    def inject(self, given: BoundArguments, context: Context | None, elements: ElementStream | None) -> BoundArguments:
        """Return the arguments with the context and the stream where the function wants them."""
        args, named = given
        for slot in self._injected:
            what = context if slot is self._signature.context else elements
            if slot.position is None:
                named = {**named, slot.name: what}
            else:
                args.insert(slot.position, what)
        return args, named

    def _from_array(self, values: Sequence[object]) -> BoundArguments:
        room = self._max_positional
        rest: Sequence[object] = ()
        if len(values) > room:
            values, rest = values[:room], self._convert_rest(values[room:])
        try:
            args = astuple(self._convert_struct(values, self._array_struct))
        except msgspec.ValidationError as exc:
            given = dict(zip(self._names, values, strict=False))
            raise self._explain(exc, given, self._positional) from None
        if self._required_keyword_only:
            raise BadArguments(f"missing argument {self._required_keyword_only[0]!r}, which must be given by name")
        return [*args, *rest], _NO_NAMED_ARGUMENTS

    def _convert_rest(self, values: Sequence[object]) -> Sequence[object]:
        """Return what goes to `*args`."""
        rest = self._signature.var_positional
        if rest is None:
            names = ", ".join(each.name for each in self._positional)
            plural = "" if self._max_positional == 1 else "s"
            room = (
                f"at most {self._max_positional} positional argument{plural} ({names})"
                if names
                else "no positional arguments"
            )
            raise BadArguments(f"takes {room}, got {self._max_positional + len(values)}")
        return [self._convert_one(value, f"{rest.name}[{index}]", rest.type) for index, value in enumerate(values)]

    def _from_object(self, values: Mapping[str, object]) -> BoundArguments:
        others: dict[str, object] = {}
        if (wanted := self._signature.var_keyword) is not None:
            unknown = values.keys() - set(self._names)
            others = {
                name: self._convert_one(value, name, wanted.type) for name, value in values.items() if name in unknown
            }
            values = {name: value for name, value in values.items() if name not in unknown}
        try:
            given = astuple(self._convert_struct(values, self._object_struct))
        except msgspec.ValidationError as exc:
            raise self._explain(exc, values, self._named) from None
        args, named = self._split_named(given)
        return args, named | others if others else named

    def _from_json(self, raw: bytes, decode: Callable[[bytes], msgspec.Struct]) -> BoundArguments | None:
        """Return named arguments; None where something is wrong, or unusual, which the long way finds."""
        if may_hold_markers(raw):
            return None
        try:
            given = decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return self._split_named(astuple(given))

    def _split_named(self, given: tuple[object, ...]) -> BoundArguments:
        room = self._max_positional
        if len(given) == room:
            return list(given), _NO_NAMED_ARGUMENTS
        return list(given[:room]), dict(zip(self._names[room:], given[room:], strict=True))

    def _explain(
        self, error: msgspec.ValidationError, given: Mapping[str, object], wanted: Sequence[Parameter]
    ) -> BadArguments:
        """Say which argument is wrong. Only here is each of them looked at alone."""
        for name in given:
            if name not in self._names:
                known = f"the arguments are {', '.join(self._names)}" if self._names else "there are no arguments"
                return BadArguments(truncate(f"unknown argument {name!r}; {known}"))
        for each in wanted:
            if each.name not in given and each.default is REQUIRED:
                return BadArguments(f"missing argument {each.name!r}")
        try:
            for each in wanted:
                if each.name in given:
                    self._convert_one(given[each.name], each.name, each.type)
        except BadArguments as exc:
            return exc
        return BadArguments(truncate(str(error)))

    def _convert_one(self, value: object, name: str, annotation: object) -> object:
        try:
            return self._convert(value, annotation)
        except msgspec.ValidationError as exc:
            where, what = _explain_error(exc, annotation)
            raise BadArguments(truncate(f"argument {name + where!r}: {what}")) from None

    def _convert_element(self, value: object) -> object:
        try:
            return self._convert(value, self._signature.element_type)
        except msgspec.ValidationError as exc:
            where, what = _explain_error(exc, self._signature.element_type)
            raise BadArguments(truncate(f"{where}: {what}" if where else what)) from None

    def _accepts_null(self) -> bool:
        required = [each for each in self._named if each.default is REQUIRED]
        if len(required) != 1 or required[0] not in self._positional:
            return False
        try:
            self._convert(None, required[0].type)
        except msgspec.ValidationError:
            return False
        return True


def _decode_body(body: Payload) -> object:
    try:
        return body.value()
    except Unrepresentable as exc:
        raise BadArguments(str(exc)) from exc


def _make_struct(parameters: Sequence[Parameter], *, array_like: bool) -> type[msgspec.Struct]:
    """Return a type that msgspec converts an array or an object of arguments to, all at once."""
    fields = [
        (f"field{index}", each.type)
        if each.default is REQUIRED
        # The same object for each call, as Python has it; msgspec would copy some and refuse others.
        else (f"field{index}", each.type, msgspec.field(default_factory=partial(_return_default, each.default)))
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


def _return_default(default: object) -> object:
    return default


def _strip_annotated(annotation: object) -> object:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _explain_error(error: msgspec.ValidationError, annotation: object) -> tuple[str, str]:
    """Return where in an argument something is wrong, and what."""
    text, where = str(error), ""
    if (found := _ERROR_PATH.fullmatch(text)) is not None:
        text, where = found[1], found[2]
    elif choices := _choices(_strip_annotated(annotation)):
        return "", f"expected one of {', '.join(map(repr, choices))}"
    quote = "" if text.startswith("Expected") else "'"
    return where, (text[:1].lower() + text[1:]).replace("`", quote)


def _choices(annotation: object) -> Sequence[object]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [each.value for each in annotation]
    return ()
