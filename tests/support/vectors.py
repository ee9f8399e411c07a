"""Reads the vectors: packets, messages and words written as JSON, as VECTORS.md describes."""

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
    """One entry of a protocol's vectors."""

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
    """Every vector of a protocol."""
    for path in sorted(folder_of(spec).glob(spec.vectors)):
        for entry in json.loads(path.read_text(encoding="utf-8")):
            yield Vector(spec, path.stem, entry)


def all_vectors(*, dialogues: bool) -> list[Vector]:
    """The codec entries, or the dialogues, of all protocols."""
    return [each for spec in registry.all_specs() for each in load(spec) if each.is_dialogue is dialogues]


def packet(written: object) -> Packet:
    """A packet as the vectors write it."""
    if isinstance(written, str):
        return Packet(written.encode())
    if not isinstance(written, dict):
        raise TypeError(f"not a packet: {written!r}")
    fields = dict(written)
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
            raise TypeError(f"not a packet: {written!r}")


def packet_fits(expected: object, actual: Packet) -> bool:
    """Whether `actual` is what `sent` asks for."""
    if isinstance(expected, dict) and "starts" in expected:
        return actual.is_text and actual.payload.startswith(expected["starts"].encode())
    if isinstance(expected, dict) and "starts_hex" in expected:
        return not actual.is_text and actual.payload.startswith(bytes.fromhex(expected["starts_hex"]))
    return packet(expected) == actual


def message(written: dict[str, typing.Any], spec: ProtocolSpec) -> object:
    """A protocol's message as the vectors write it."""
    return _struct(written, dict(spec.messages))


def hub_message(written: dict[str, typing.Any]) -> hub.HubMessage:
    """A word of the hub as the vectors write it."""
    made = _struct(written, HUB_MESSAGES)
    if not isinstance(made, hub.HubMessage):
        raise TypeError(f"not a word: {written!r}")
    return made


def _struct(written: dict[str, typing.Any], kinds: dict[str, type]) -> object:
    ((name, fields),) = written.items()
    kind = kinds[name]
    hints = typing.get_type_hints(kind)
    return kind(**{field: _value(given, hints[field]) for field, given in fields.items()})


def _value(given: typing.Any, hint: typing.Any) -> object:  # noqa: ANN401  JSON in, anything out
    if typing.get_origin(hint) in (typing.Union, UnionType):
        if given is None and NoneType in typing.get_args(hint):
            return None
        options = [option for option in typing.get_args(hint) if option is not NoneType]
        return _value(given, options[0]) if len(options) == 1 else _first_that_fits(given, options)
    if isinstance(hint, type):
        return _plain(given, hint)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_value(each, inner) for each in given)
    if typing.get_origin(hint) is Mapping:
        return {key: _value(each, typing.get_args(hint)[1]) for key, each in given.items()}
    if typing.get_origin(hint) is list:
        return [_value(each, typing.get_args(hint)[0]) for each in given]
    return given


def _first_that_fits(given: object, options: list[typing.Any]) -> object:
    for option in options:
        made = _value(given, option)
        if isinstance(option, type) and isinstance(made, option):
            return made
    raise TypeError(f"{given!r} is none of {options}")


def _plain(given: typing.Any, hint: type) -> object:  # noqa: ANN401  JSON in, anything out
    if issubclass(hint, payloads.Payload):
        ((form, content),) = given.items()
        return PAYLOADS[form](content)
    if issubclass(hint, topics.Pattern):
        style = topics.MQTT if "+" in given or "#" in given else topics.UMQ
        return topics.parse_pattern(given, style)
    if issubclass(hint, bytes):
        return bytes.fromhex(given["hex"]) if isinstance(given, dict) else given.encode()
    if issubclass(hint, Enum):
        return hint[given]
    if (issubclass(hint, msgspec.Struct) or is_dataclass(hint)) and isinstance(given, dict):
        hints = typing.get_type_hints(hint)
        return hint(**{field: _value(each, hints[field]) for field, each in given.items()})
    if issubclass(hint, float) and isinstance(given, int):
        return float(given)
    return given
