"""Binds the body of a call to the arguments of a function.

A reader is created once per function; it checks and converts each body. An object holds named arguments, an array
positional ones, null none; any other value is the only positional argument. Further rules:

- A sole parameter annotated `str` gets a text of UMQ unchanged, including numbers, `true`, `false` and `null`, except
JSON strings, arrays and objects. An empty text is no argument for a function without parameters.
- Null is passed to a function whose one required parameter accepts it.
- A function with positional-only parameters (before `/`) has no named arguments: an object is one positional argument.
- `*args` takes further positional arguments, `**kwargs` further named ones, each checked against its annotation.
- A parameter annotated `AsyncIterator[T]` gets the elements of a streamed request, or of an array; all other parameters
then need defaults. Without such a parameter a streamed request is one array, the only argument.
- A parameter annotated `Context` is not an argument.
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
from fiveways.app.memory_budget import MemoryBudget
from fiveways.app.request_elements import ElementStream
from fiveways.app.responses import truncate
from fiveways.app.signature import REQUIRED, Parameter, conversion_needs, read_signature
from fiveways.errors import FivewaysError, Unrepresentable
from fiveways.wire.payload import Json, Payload, Text, may_hold_markers

BoundArguments: TypeAlias = tuple[list[object], dict[str, object]]
"""Positional and keyword arguments for the function."""

_NO_NAMED_ARGUMENTS: Final[dict[str, object]] = {}
_BRACE: Final = ord("{")
_JSON_FIRST_CHARACTERS: Final = frozenset('"[{')
"""First characters of a text that may be JSON with arguments."""
_ERROR_PATH: Final = re.compile(r"(.*) - at `(?:key` in `)?\$(.*)`", re.DOTALL)


class BadArguments(FivewaysError):
    """The arguments of a call do not match the function; the call fails with this text."""


class ArgumentReader:
    """Reads the arguments of one function.

    Raises:
        TypeError: no call could match the signature; the message names the parameter and the reason.
    """

    def __init__(self, function: Callable[..., object], label: str) -> None:
        self._signature = signature = read_signature(function, label)
        self._positional = signature.positional
        self._named = [*signature.positional, *signature.keyword_only]
        self._names = [parameter.name for parameter in self._named]
        self._max_positional = len(signature.positional)
        """Number of positional arguments, without those of `*args`."""
        self._required_keyword_only = [item.name for item in signature.keyword_only if item.default is REQUIRED]
        """Required parameters that an array cannot pass."""
        needs = conversion_needs(signature)
        self._convert: Callable[..., object] = msgspec.convert
        self._convert_struct: Callable[..., msgspec.Struct] = msgspec.convert
        if needs.has_bytes or needs.has_non_str_keys or needs.has_models:
            builtin_types, hook = (bytes,) if needs.has_bytes else None, to_model if needs.has_models else None
            self._convert = partial(
                msgspec.convert, builtin_types=builtin_types, str_keys=needs.has_non_str_keys, dec_hook=hook
            )
            self._convert_struct = self._convert
        self._array_struct = _make_struct(signature.positional, array_like=True)
        self._object_struct = _make_struct(self._named, array_like=False)
        has_one_parameter = (
            len(self._named) == self._max_positional == 1 and signature.var_positional is signature.var_keyword is None
        )
        self._takes_text = has_one_parameter and _strip_annotated(signature.positional[0].type) is str
        self._takes_nothing = not self._named and signature.var_positional is None
        self._takes_null = self._accepts_null()
        # In the order of insertion between the arguments.
        injected = [slot for slot in (signature.context, signature.stream) if slot is not None]
        self._injected = sorted(injected, key=lambda slot: slot.position or 0)
        self.wants_context = signature.context is not None
        self.wants_stream = signature.stream is not None
        self.has_no_injected = not injected
        """Whether the function gets only arguments of the caller."""
        # JSON is decoded and checked in one step if the result is the same as in two.
        is_simple = signature.accepts_names and signature.var_keyword is None and needs.is_json_only
        self._decode = msgspec.json.Decoder(self._object_struct).decode if is_simple else None

    @property
    def is_empty(self) -> bool:
        """Whether a caller cannot pass any argument."""
        return self._takes_nothing and self._signature.var_keyword is None and not self.wants_stream

    def read(self, body: Payload) -> BoundArguments:
        """Return the arguments of a call; BadArguments if they do not match."""
        if type(body) is Json and self._decode is not None and body.raw[0] == _BRACE:
            bound = self._from_json(body.raw, self._decode)
            if bound is not None:
                return bound
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
        """Return the arguments of a streamed request, for a function that takes all elements as one list."""
        return self._from_array([elements])

    def read_stream(self, body: Payload, budget: MemoryBudget, *, more: bool) -> tuple[BoundArguments, ElementStream]:
        """Return the arguments of a function that reads a stream.

        `body` is the first element, or without `more` all of them. Elements are checked when they are read.
        """
        if more:
            elements = ElementStream(self._convert_element, budget)
            elements.put(body)
        else:
            value = _decode_body(body)
            initial = value if isinstance(value, list | tuple) else [] if value is None else [value]
            elements = ElementStream(self._convert_element, budget, initial)
            elements.end()
        return self._from_array([]), elements

    def inject(self, bound: BoundArguments, context: Context | None, elements: ElementStream | None) -> BoundArguments:
        """Return the arguments with context and stream at the positions of their parameters."""
        args, keywords = bound
        for slot in self._injected:
            value = context if slot is self._signature.context else elements
            if slot.position is None:
                keywords = {**keywords, slot.name: value}
            else:
                args.insert(slot.position, value)
        return args, keywords

    def _from_array(self, values: Sequence[object]) -> BoundArguments:
        max_positional = self._max_positional
        rest: Sequence[object] = ()
        if len(values) > max_positional:
            values, rest = values[:max_positional], self._convert_rest(values[max_positional:])
        try:
            args = astuple(self._convert_struct(values, self._array_struct))
        except msgspec.ValidationError as exc:
            by_name = dict(zip(self._names, values, strict=False))
            raise self._explain(exc, by_name, self._positional) from None
        if self._required_keyword_only:
            raise BadArguments(f"missing argument {self._required_keyword_only[0]!r}, which must be passed by name")
        return [*args, *rest], _NO_NAMED_ARGUMENTS

    def _convert_rest(self, values: Sequence[object]) -> Sequence[object]:
        """Return the arguments for `*args`."""
        rest = self._signature.var_positional
        if rest is None:
            names = ", ".join(parameter.name for parameter in self._positional)
            plural = "" if self._max_positional == 1 else "s"
            accepted = (
                f"at most {self._max_positional} positional argument{plural} ({names})"
                if names
                else "no positional arguments"
            )
            raise BadArguments(f"takes {accepted}, got {self._max_positional + len(values)}")
        return [self._convert_one(value, f"{rest.name}[{index}]", rest.type) for index, value in enumerate(values)]

    def _from_object(self, values: Mapping[str, object]) -> BoundArguments:
        others: dict[str, object] = {}
        if (var_keyword := self._signature.var_keyword) is not None:
            unknown = values.keys() - set(self._names)
            others = {
                name: self._convert_one(value, name, var_keyword.type)
                for name, value in values.items()
                if name in unknown
            }
            values = {name: value for name, value in values.items() if name not in unknown}
        try:
            fields = astuple(self._convert_struct(values, self._object_struct))
        except msgspec.ValidationError as exc:
            raise self._explain(exc, values, self._named) from None
        args, keywords = self._split_named(fields)
        return args, keywords | others if others else keywords

    def _from_json(self, raw: bytes, decode: Callable[[bytes], msgspec.Struct]) -> BoundArguments | None:
        """Return named arguments, or None if something is wrong or unusual, for the general path."""
        if may_hold_markers(raw):
            return None
        try:
            arguments = decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return self._split_named(astuple(arguments))

    def _split_named(self, fields: tuple[object, ...]) -> BoundArguments:
        max_positional = self._max_positional
        if len(fields) == max_positional:
            return list(fields), _NO_NAMED_ARGUMENTS
        return list(fields[:max_positional]), dict(
            zip(self._names[max_positional:], fields[max_positional:], strict=True)
        )

    def _explain(
        self, error: msgspec.ValidationError, arguments: Mapping[str, object], parameters: Sequence[Parameter]
    ) -> BadArguments:
        """Return an error that names the wrong argument; only here arguments are converted one by one."""
        for name in arguments:
            if name not in self._names:
                hint = f"the arguments are {', '.join(self._names)}" if self._names else "there are no arguments"
                return BadArguments(truncate(f"unknown argument {name!r}; {hint}"))
        for parameter in parameters:
            if parameter.name not in arguments and parameter.default is REQUIRED:
                return BadArguments(f"missing argument {parameter.name!r}")
        try:
            for parameter in parameters:
                if parameter.name in arguments:
                    self._convert_one(arguments[parameter.name], parameter.name, parameter.type)
        except BadArguments as exc:
            return exc
        return BadArguments(truncate(str(error)))

    def _convert_one(self, value: object, name: str, annotation: object) -> object:
        try:
            return self._convert(value, annotation)
        except msgspec.ValidationError as exc:
            path, text = _explain_error(exc, annotation)
            raise BadArguments(truncate(f"argument {name + path!r}: {text}")) from None

    def _convert_element(self, value: object) -> object:
        try:
            return self._convert(value, self._signature.element_type)
        except msgspec.ValidationError as exc:
            path, text = _explain_error(exc, self._signature.element_type)
            raise BadArguments(truncate(f"{path}: {text}" if path else text)) from None

    def _accepts_null(self) -> bool:
        required = [parameter for parameter in self._named if parameter.default is REQUIRED]
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
    """Return a type to which msgspec converts an array or an object of arguments in one step."""
    fields = [
        (f"field{index}", parameter.type)
        if parameter.default is REQUIRED
        # Python shares defaults between calls; msgspec would copy some and refuse others.
        else (
            f"field{index}",
            parameter.type,
            msgspec.field(default_factory=partial(_return_default, parameter.default)),
        )
        for index, parameter in enumerate(parameters)
    ]
    names = {f"field{index}": parameter.name for index, parameter in enumerate(parameters)}
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
    """Return the path in an argument and the error there."""
    text, path = str(error), ""
    if (match := _ERROR_PATH.fullmatch(text)) is not None:
        text, path = match[1], match[2]
    elif choices := _choices(_strip_annotated(annotation)):
        return "", f"expected one of {', '.join(map(repr, choices))}"
    quote = "" if text.startswith("Expected") else "'"
    return path, (text[:1].lower() + text[1:]).replace("`", quote)


def _choices(annotation: object) -> Sequence[object]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [member.value for member in annotation]
    return ()
