"""Signatures of functions, read once, when a function is declared."""

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Final, get_args, get_origin, get_type_hints

from msgspec import inspect as type_info

from fiveways.app.context import Context
from fiveways.app.conversion import is_model

REQUIRED: Final = inspect.Parameter.empty

_STREAM_ANNOTATIONS: Final = (AsyncIterator, AsyncIterable)
_BYTES_TYPES: Final = (type_info.BytesType, type_info.ByteArrayType, type_info.MemoryViewType)
_JSON_TYPES: Final = (
    *(
        type_info.AnyType,
        type_info.CustomType,
        type_info.NoneType,
        type_info.BoolType,
        type_info.IntType,
        type_info.FloatType,
    ),
    *(type_info.StrType, type_info.ListType, type_info.DictType, type_info.UnionType),
)
"""Types that JSON has. A CustomType is `object` or a pydantic model, for which there is a separate check."""


class ExecutionMode(Enum):
    """How a function runs."""

    ASYNC = "as a task"
    STREAM = "as a task, its answer in parts"
    THREAD = "in a thread"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter for an argument of the caller."""

    name: str
    type: object
    default: object = REQUIRED


@dataclass(frozen=True, slots=True)
class InjectedParameter:
    """A parameter for a context or stream: its position, or None if it is keyword-only."""

    name: str
    position: int | None


@dataclass(slots=True)
class Signature:
    """Parameters of one function, grouped by the source of their arguments."""

    positional: list[Parameter]
    keyword_only: list[Parameter]
    """Parameters that can be passed only by name."""
    var_positional: Parameter | None = None
    """`*args`."""
    var_keyword: Parameter | None = None
    """`**kwargs`."""
    accepts_names: bool = True
    """Whether positional parameters can be passed by name."""
    context: InjectedParameter | None = None
    stream: InjectedParameter | None = None
    element_type: object = None
    """Type of the elements of the stream."""

    def checked_parameters(self) -> Iterator[Parameter]:
        """Yield every parameter with a type to check."""
        yield from self.positional
        yield from self.keyword_only
        yield from filter(None, (self.var_positional, self.var_keyword))


def execution_mode(function: Callable[..., object], label: str) -> ExecutionMode:
    """Return how a function runs; TypeError if it cannot be run."""
    if not callable(function):
        raise TypeError(f"{label}: {function!r} is not a function")
    definition = _underlying_function(function)
    if inspect.isgeneratorfunction(definition):
        raise TypeError(f"{label}: a generator must be async: use `async def`, or return a list")
    if inspect.isasyncgenfunction(definition):
        return ExecutionMode.STREAM
    return ExecutionMode.ASYNC if inspect.iscoroutinefunction(definition) else ExecutionMode.THREAD


def read_signature(function: Callable[..., object], label: str, unchecked: tuple[type, ...] = ()) -> Signature:
    """Return the signature of a function. A parameter annotated with a type in `unchecked` is not type-checked.

    Raises:
        TypeError: no call could match the signature; the message names the parameter and the reason.
    """
    try:
        signature = inspect.signature(function)
    except ValueError as exc:
        raise TypeError(f"{label}: {exc}") from exc
    types = _annotations(function, signature, label)
    result = Signature([], [])
    position = 0
    for parameter in signature.parameters.values():
        _classify(result, parameter, types.get(parameter.name, object), position)
        position += parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    _check_signature(result, label, unchecked)
    return result


def _annotations(function: Callable[..., object], signature: inspect.Signature, label: str) -> dict[str, object]:
    """Return the annotations of the parameters, with strings evaluated; the return annotation is ignored."""
    annotations = {
        parameter.name: parameter.annotation
        for parameter in signature.parameters.values()
        if parameter.annotation is not parameter.empty
    }
    namespace = getattr(inspect.unwrap(_underlying_function(function)), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__=annotations), namespace, include_extras=True)
    except Exception as exc:
        raise TypeError(f"{label}: its annotations cannot be evaluated: {exc}") from exc


def _underlying_function(function: Callable[..., object]) -> Callable[..., object]:
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _classify(signature: Signature, parameter: inspect.Parameter, annotation: object, position: int) -> None:
    is_positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    slot = InjectedParameter(parameter.name, position if is_positional else None)
    regular = Parameter(parameter.name, annotation, parameter.default)
    if annotation is Context or Context in get_args(annotation):
        signature.context = slot
    elif (get_origin(annotation) or annotation) in _STREAM_ANNOTATIONS:
        signature.stream = slot
        signature.element_type = next(iter(get_args(annotation)), object)
    elif parameter.kind is parameter.VAR_POSITIONAL:
        signature.var_positional = regular
    elif parameter.kind is parameter.VAR_KEYWORD:
        signature.var_keyword = regular
    elif is_positional:
        signature.positional.append(regular)
        signature.accepts_names &= parameter.kind is not parameter.POSITIONAL_ONLY
    else:
        signature.keyword_only.append(regular)


def _check_signature(signature: Signature, label: str, unchecked: tuple[type, ...]) -> None:
    for parameter in signature.checked_parameters():
        if not any(parameter.type is kind for kind in unchecked):
            check_type(parameter.type, f"{label}: parameter {parameter.name!r}")
    parameters = (*signature.positional, *signature.keyword_only)
    required = [parameter.name for parameter in parameters if parameter.default is REQUIRED]
    if signature.stream is not None:
        check_type(signature.element_type, f"{label}: an element of {signature.stream.name!r}")
        if required:
            raise TypeError(f"{label}: parameter {required[0]!r} needs a default, because the request is streamed")
    keyword_only = [parameter.name for parameter in signature.keyword_only if parameter.default is REQUIRED]
    if keyword_only and signature.positional and not signature.accepts_names:
        text = f"parameter {keyword_only[0]!r} is keyword-only and others are positional-only: no call can pass both"
        raise TypeError(f"{label}: {text}")


def check_type(annotation: object, label: str) -> None:
    """Raise TypeError for a type that no caller can send."""
    try:
        described_type = type_info.type_info(annotation)
    except Exception as exc:
        raise TypeError(f"{label} has a type that cannot be checked: {exc}") from exc
    for item in _iter_types(described_type, set()):
        kind = getattr(item, "cls", None)
        # Any value is an `object`.
        is_foreign = isinstance(item, type_info.CustomType) and kind is not object and not is_model(kind)
        if isinstance(item, type_info.RawType) or is_foreign:
            raise TypeError(f"{label} is or contains {getattr(kind, '__name__', 'Raw')}, which no caller can send")


@dataclass(frozen=True, slots=True)
class ConversionNeeds:
    """Options that msgspec needs to convert to a function's types; each option costs time."""

    has_bytes: bool
    """Bytes are passed as bytes; msgspec would decode a string as base64."""
    has_non_str_keys: bool
    """Decoded maps have string keys; these types have others."""
    has_models: bool
    """Pydantic models, which validate themselves."""
    is_json_only: bool
    """All types are those of JSON, without types that are encoded as strings."""


def conversion_needs(signature: Signature) -> ConversionNeeds:
    """Return the conversion options for all parameters."""
    types = [parameter.type for parameter in signature.checked_parameters()] + [signature.element_type or object]
    nested = list(_iter_types([type_info.type_info(kind) for kind in types], set()))
    maps = [item for item in nested if isinstance(item, type_info.DictType)]
    has_models = any(isinstance(item, type_info.CustomType) and is_model(item.cls) for item in nested)
    return ConversionNeeds(
        has_bytes=any(isinstance(item, _BYTES_TYPES) for item in nested),
        has_non_str_keys=any(not isinstance(item.key_type, type_info.StrType | type_info.AnyType) for item in maps),
        has_models=has_models,
        is_json_only=all(isinstance(item, _JSON_TYPES) for item in nested) and not has_models,
    )


def _iter_types(node: object, seen: set[int]) -> Iterator[type_info.Type]:
    """Yield a type and all types that it contains."""
    if isinstance(node, tuple | list):
        for item in node:
            yield from _iter_types(item, seen)
    elif isinstance(node, type_info.Type | type_info.Field) and id(node) not in seen:
        seen.add(id(node))
        if isinstance(node, type_info.Type):
            yield node
        for name in node.__struct_fields__:
            yield from _iter_types(getattr(node, name), seen)
