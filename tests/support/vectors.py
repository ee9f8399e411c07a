"""A reader of the vectors: packets, messages and hub messages in JSON, as specified in VECTORS.md."""

import json
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType

import cbor2
import msgspec

import fiveways.protocols
from fiveways.model import messages as hub
from fiveways.model import topics
from fiveways.protocols import registry
from fiveways.protocols.base import ProtocolSpec
from fiveways.wire import payload as payloads
from fiveways.wire.packet import Packet

HUB_MESSAGES: dict[str, type] = {
    name: kind for name, kind in vars(hub).items() if isinstance(kind, type) and issubclass(kind, hub.HubMessage)
}
PAYLOADS: dict[str, Callable[[typing.Any], payloads.Payload]] = {
    "text": payloads.Text,
    "json": lambda given: payloads.Json(given.encode()),
    "cbor": lambda given: payloads.Cbor(bytes.fromhex(given)),
    "binary": lambda given: payloads.Binary(bytes.fromhex(given)),
    "value": lambda given: payloads.NULL if given is None else payloads.Value(given),
}


@dataclass(frozen=True)
class Vector:
    """An entry of a protocol's vectors."""

    spec: ProtocolSpec
    file: str
    entry: dict[str, typing.Any]

    def __str__(self) -> str:
        return f"{self.spec.name}/{self.file}: {self.entry['rule']} {self.entry['name']}"

    @property
    def is_dialogue(self) -> bool:
        return "steps" in self.entry


def folder_of(spec: ProtocolSpec) -> Path:
    module = registry.PROTOCOLS[spec.name].partition(":")[0].rpartition(".")[2]
    return Path(fiveways.protocols.__path__[0]) / module / "vectors"


def load(spec: ProtocolSpec) -> Iterator[Vector]:
    """Yield the vectors of a protocol."""
    for path in sorted(folder_of(spec).glob(spec.vectors)):
        for entry in json.loads(path.read_text(encoding="utf-8")):
            yield Vector(spec, path.stem, entry)


def all_vectors(*, dialogues: bool) -> list[Vector]:
    """Return the dialogues, or the codec entries, of all protocols."""
    return [vector for spec in registry.all_specs() for vector in load(spec) if vector.is_dialogue is dialogues]


def packet(description: object) -> Packet:
    """Return a packet from its JSON form."""
    if isinstance(description, str):
        return Packet(description.encode())
    if not isinstance(description, dict):
        raise TypeError(f"not a packet: {description!r}")
    fields = dict(description)
    channel, retained = fields.pop("channel", ""), fields.pop("retained", False)
    ((form, content),) = fields.items()
    match form:
        case "text":
            return Packet(content.encode(), is_text=True, channel=channel, retained=retained)
        case "hex":
            return Packet(bytes.fromhex(content), is_text=False, channel=channel, retained=retained)
        case "texthex":
            return Packet(bytes.fromhex(content), is_text=True, channel=channel, retained=retained)
        case "cbor":
            return Packet(cbor2.dumps(content), is_text=False, channel=channel, retained=retained)
        case _:
            raise TypeError(f"not a packet: {description!r}")


def packet_fits(expected: object, actual: Packet) -> bool:
    """Return whether a packet matches an entry of `sent`."""
    if isinstance(expected, dict) and "starts" in expected:
        return actual.is_text and actual.payload.startswith(expected["starts"].encode())
    if isinstance(expected, dict) and "starts_hex" in expected:
        return not actual.is_text and actual.payload.startswith(bytes.fromhex(expected["starts_hex"]))
    return packet(expected) == actual


def message(description: dict[str, typing.Any], spec: ProtocolSpec) -> object:
    """Return a protocol message from its JSON form."""
    return _struct(description, dict(spec.messages))


def hub_message(description: dict[str, typing.Any]) -> hub.HubMessage:
    """Return a hub message from its JSON form."""
    result = _struct(description, HUB_MESSAGES)
    if not isinstance(result, hub.HubMessage):
        raise TypeError(f"not a hub message: {description!r}")
    return result


def _struct(description: dict[str, typing.Any], kinds: dict[str, type]) -> object:
    ((name, fields),) = description.items()
    kind = kinds[name]
    hints = typing.get_type_hints(kind)
    return kind(**{field: _value(value, hints[field]) for field, value in fields.items()})


def _value(value: typing.Any, hint: typing.Any) -> object:  # noqa: ANN401  JSON in, anything out
    if typing.get_origin(hint) in (typing.Union, UnionType):
        if value is None and NoneType in typing.get_args(hint):
            return None
        options = [option for option in typing.get_args(hint) if option is not NoneType]
        return _value(value, options[0]) if len(options) == 1 else _first_that_fits(value, options)
    if isinstance(hint, type):
        return _plain(value, hint)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_value(item, inner) for item in value)
    if typing.get_origin(hint) is Mapping:
        return {key: _value(item, typing.get_args(hint)[1]) for key, item in value.items()}
    if typing.get_origin(hint) is list:
        return [_value(item, typing.get_args(hint)[0]) for item in value]
    return value


def _first_that_fits(value: object, options: list[typing.Any]) -> object:
    for option in options:
        result = _value(value, option)
        if isinstance(option, type) and isinstance(result, option):
            return result
    raise TypeError(f"{value!r} is none of {options}")


def _plain(value: typing.Any, hint: type) -> object:  # noqa: ANN401  JSON in, anything out
    if issubclass(hint, payloads.Payload):
        ((form, content),) = value.items()
        return PAYLOADS[form](content)
    if issubclass(hint, topics.Pattern):
        style = topics.MQTT if "+" in value or "#" in value else topics.UMQ
        return topics.parse_pattern(value, style)
    if issubclass(hint, bytes):
        return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value.encode()
    if issubclass(hint, Enum):
        return hint[value]
    if (issubclass(hint, msgspec.Struct) or is_dataclass(hint)) and isinstance(value, dict):
        hints = typing.get_type_hints(hint)
        return hint(**{field: _value(item, hints[field]) for field, item in value.items()})
    if issubclass(hint, float) and isinstance(value, int):
        return float(value)
    return value
