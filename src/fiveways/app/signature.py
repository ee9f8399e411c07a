"""What a function takes, read once, when it is decorated."""

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Final, get_args, get_origin, get_type_hints

from msgspec import inspect as shapes

from fiveways.app.context import Context
from fiveways.app.conversion import is_model

REQUIRED: Final = inspect.Parameter.empty

_STREAM_ANNOTATIONS: Final = (AsyncIterator, AsyncIterable)
_BYTES_TYPES: Final = (shapes.BytesType, shapes.ByteArrayType, shapes.MemoryViewType)
_JSON_TYPES: Final = (
    *(shapes.AnyType, shapes.CustomType, shapes.NoneType, shapes.BoolType, shapes.IntType, shapes.FloatType),
    *(shapes.StrType, shapes.ListType, shapes.DictType, shapes.UnionType),
)
"""A CustomType is `object` here, or a pydantic model, which is looked for by itself."""


class ExecutionMode(Enum):
    """How a function is run."""

    ASYNC = "as a task"
    STREAM = "as a task, its answer in parts"
    THREAD = "in a thread"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One that a caller can give an argument for."""

    name: str
    type: object
    default: object = REQUIRED


@dataclass(frozen=True, slots=True)
class InjectedParameter:
    """Where a function wants something that is no argument: by position, or where that is None, by name."""

    name: str
    position: int | None


@dataclass(slots=True)
class Signature:
    """The parameters of one function, sorted by who fills them."""

    positional: list[Parameter]
    keyword_only: list[Parameter]
    """Those that can be given by name only."""
    var_positional: Parameter | None = None
    """`*args`."""
    var_keyword: Parameter | None = None
    """`**kwargs`."""
    accepts_names: bool = True
    """Whether arguments can be given by name."""
    context: InjectedParameter | None = None
    stream: InjectedParameter | None = None
    element_type: object = None
    """What the elements of the stream are."""

    def checked_parameters(self) -> Iterator[Parameter]:
        """Give every parameter with a type to check."""
        yield from self.positional
        yield from self.keyword_only
        yield from filter(None, (self.var_positional, self.var_keyword))


def execution_mode(function: Callable[..., object], label: str) -> ExecutionMode:
    """Return how a function is run; TypeError for what cannot be."""
    if not callable(function):
        raise TypeError(f"{label}: {function!r} is no function")
    definition = _underlying_function(function)
    if inspect.isgeneratorfunction(definition):
        raise TypeError(f"{label}: a generator must be async; `async def` makes it so, or return a list")
    if inspect.isasyncgenfunction(definition):
        return ExecutionMode.STREAM
    return ExecutionMode.ASYNC if inspect.iscoroutinefunction(definition) else ExecutionMode.THREAD


def read_signature(function: Callable[..., object], label: str, unchecked: tuple[type, ...] = ()) -> Signature:
    """Return what a function takes. A parameter annotated with one of `unchecked` is not for values of a caller.

    Raises:
        TypeError: no call could be served by it; the message says which parameter is wrong, and why.
    """
    try:
        signature = inspect.signature(function)
    except ValueError as exc:
        raise TypeError(f"{label}: {exc}") from exc
    types = _annotations(function, signature, label)
    found = Signature([], [])
    position = 0
    for parameter in signature.parameters.values():
        _classify(found, parameter, types.get(parameter.name, object), position)
        position += parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    _check_signature(found, label, unchecked)
    return found


def _annotations(function: Callable[..., object], signature: inspect.Signature, label: str) -> dict[str, object]:
    """Return the annotations of the parameters, those written as texts evaluated. What it returns does not matter."""
    written = {
        each.name: each.annotation for each in signature.parameters.values() if each.annotation is not each.empty
    }
    home = getattr(inspect.unwrap(_underlying_function(function)), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__=written), home, include_extras=True)
    except Exception as exc:
        raise TypeError(f"{label}: its annotations cannot be read: {exc}") from exc


def _underlying_function(function: Callable[..., object]) -> Callable[..., object]:
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _classify(found: Signature, parameter: inspect.Parameter, annotation: object, position: int) -> None:
    is_positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    slot = InjectedParameter(parameter.name, position if is_positional else None)
    wanted = Parameter(parameter.name, annotation, parameter.default)
    if annotation is Context or Context in get_args(annotation):
        found.context = slot
    elif (get_origin(annotation) or annotation) in _STREAM_ANNOTATIONS:
        found.stream = slot
        found.element_type = next(iter(get_args(annotation)), object)
    elif parameter.kind is parameter.VAR_POSITIONAL:
        found.var_positional = wanted
    elif parameter.kind is parameter.VAR_KEYWORD:
        found.var_keyword = wanted
    elif is_positional:
        found.positional.append(wanted)
        found.accepts_names &= parameter.kind is not parameter.POSITIONAL_ONLY
    else:
        found.keyword_only.append(wanted)


def _check_signature(found: Signature, label: str, unchecked: tuple[type, ...]) -> None:
    for each in found.checked_parameters():
        if not any(each.type is kind for kind in unchecked):
            check_type(each.type, f"{label}: parameter {each.name!r}")
    required = [each.name for each in (*found.positional, *found.keyword_only) if each.default is REQUIRED]
    if found.stream is not None:
        check_type(found.element_type, f"{label}: an element of {found.stream.name!r}")
        if required:
            raise TypeError(f"{label}: parameter {required[0]!r} needs a default, since the call is a stream")
    unreachable = [each.name for each in found.keyword_only if each.default is REQUIRED]
    if unreachable and (found.positional and not found.accepts_names):
        raise TypeError(f"{label}: parameter {unreachable[0]!r} is for names only, and others for positions only")


def check_type(annotation: object, what: str) -> None:
    """Refuse a type that no caller can send."""
    try:
        info = shapes.type_info(annotation)
    except Exception as exc:
        raise TypeError(f"{what} has a type that cannot be checked: {exc}") from exc
    for shape in _iter_types(info, set()):
        kind = getattr(shape, "cls", None)
        # Whatever comes is an object.
        is_foreign = isinstance(shape, shapes.CustomType) and kind is not object and not is_model(kind)
        if isinstance(shape, shapes.RawType) or is_foreign:
            raise TypeError(f"{what} is or holds a {getattr(kind, '__name__', 'Raw')}, which no caller can send")


@dataclass(frozen=True, slots=True)
class ConversionNeeds:
    """What msgspec has to be told to convert to a function's types. It costs time, so only where it is needed."""

    has_bytes: bool
    """Bytes are bytes here; a text would be taken for base64."""
    has_non_str_keys: bool
    """The keys of all our maps are texts; these want other ones."""
    has_models: bool
    """Pydantic models, which validate themselves."""
    is_json_only: bool
    """They are what JSON has, and nothing that is written in a text."""


def conversion_needs(signature: Signature) -> ConversionNeeds:
    """Return what the types of all parameters need."""
    types = [each.type for each in signature.checked_parameters()] + [signature.element_type or object]
    found = list(_iter_types([shapes.type_info(each) for each in types], set()))
    maps = [each for each in found if isinstance(each, shapes.DictType)]
    models = any(isinstance(each, shapes.CustomType) and is_model(each.cls) for each in found)
    return ConversionNeeds(
        has_bytes=any(isinstance(each, _BYTES_TYPES) for each in found),
        has_non_str_keys=any(not isinstance(each.key_type, shapes.StrType | shapes.AnyType) for each in maps),
        has_models=models,
        is_json_only=all(isinstance(each, _JSON_TYPES) for each in found) and not models,
    )


def _iter_types(shape: object, seen: set[int]) -> Iterator[shapes.Type]:
    """Give a type, and all that it is made of."""
    if isinstance(shape, tuple | list):
        for each in shape:
            yield from _iter_types(each, seen)
    elif isinstance(shape, shapes.Type | shapes.Field) and id(shape) not in seen:
        seen.add(id(shape))
        if isinstance(shape, shapes.Type):
            yield shape
        for name in shape.__struct_fields__:
            yield from _iter_types(getattr(shape, name), seen)
