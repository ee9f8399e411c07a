"""What the settings say about a broker, read and checked before anybody goes there."""

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fiveways.errors import FivewaysError
from fiveways.model import names
from fiveways.model.names import BadName
from fiveways.protocols.mqtt_rpc.attaching import Attached, Field
from fiveways.protocols.mqtt_rpc.bridge import PLAIN_BYTES, Codec
from fiveways.runtime.mqtt.topics import Bridge
from fiveways.schemas import SchemaCodec, SchemaError, Service, load
from fiveways.settings.sections import MqttSettings

_LONGEST_TOPIC: Final = 512
_NOT_IN_TOPICS: Final = frozenset("+# ")
"""Wildcards, and the blank, at which nats-server ends the link."""


BYTES: Final = "bytes"
"""What `mqtt.services` says of a method without a schema."""


class BadPlan(FivewaysError):
    """Settings of [mqtt] that contradict the schemas, or each other."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A method of a service behind the broker."""

    method: str
    spelling: str
    kind: str
    doc: str


class Plan:
    """Services, schemas, topics, and how the broker is known."""

    def __init__(self, settings: MqttSettings, folder: Path = Path()) -> None:
        """Read it; BadPlan, SchemaError or BadFilters say what is wrong. Files lie in `folder`, if not elsewhere."""
        known = load([folder / each for each in settings.schemas])
        described = {topic: name for topic, name in settings.services.items() if name != BYTES}
        self._services = {topic: _service(topic, name, known) for topic, name in described.items()}
        schemas = {**_usual_topics(known), **self._services}
        self._plain = [_plain(written, schemas) for written, name in settings.services.items() if name == BYTES]
        self.services = frozenset({*self._services, *(topic for topic, _ in self._plain)})
        """The topics of those that are behind the broker."""
        self.served = tuple(_checked(each) for each in settings.serve)
        """Topics on which the hub answers besides those that it finds itself."""
        self.codec, self.attached = _codec(schemas, settings.attachments)
        """How bodies are written, and which of their fields hold attachments, if any does."""
        self.bridge = Bridge(settings.topics, settings.max_payload)
        self.max_payload, self.retry_after = settings.max_payload, settings.retry_after
        self.trust = _trust(folder / settings.ca_file) if settings.ca_file else None
        """How the broker's certificate is checked; None is as the system does."""
        self.offers = tuple(self._offers())
        self.streamed = frozenset(offer.method for offer in self.offers if offer.kind in {"client", "both"})
        """Methods that take a stream."""
        self.streaming = frozenset(offer.method for offer in self.offers if offer.kind in {"server", "both"})
        """Methods that give one."""

    def _offers(self) -> Iterator[Offer]:
        for topic, service in self._services.items():
            for method in service.methods.values():
                yield _offer(topic, method.name, method.kind, method.doc)
        for topic, kind in self._plain:
            yield _offer(topic, kind)


def _offer(topic: str, name: str, kind: str = "unary", doc: str = "") -> Offer:
    spelling = f"{topic}/{name}"
    try:
        return Offer(names.fold_mqtt(topic, name), spelling, kind, doc)
    except BadName as exc:
        raise BadPlan(f"mqtt.services: {spelling[:80]}: {exc}") from exc


def _checked(topic: str) -> str:
    if not can_listen(topic):
        raise BadPlan(f"mqtt.serve: {topic[:80]!r} is no topic on which methods can be called")
    return topic


def can_listen(topic: str) -> bool:
    """Say whether any broker takes a subscription to a topic, and its link survives that."""
    return 0 < len(topic) <= _LONGEST_TOPIC and topic.isprintable() and not _NOT_IN_TOPICS & {*topic}


def _service(topic: str, name: str, known: Mapping[str, Service]) -> Service:
    if name not in known:
        there = ", ".join(sorted(known)) or "none: mqtt.schemas names no file"
        raise BadPlan(f"mqtt.services: {topic} is to be {name}, which no schema has; there are {there}")
    if not can_listen(topic):
        raise BadPlan(f"mqtt.services: {topic[:80]!r} is no topic")
    return known[name]


def _plain(written: str, schemas: Mapping[str, Service]) -> tuple[str, str]:
    """Return topic and type of a method without a schema."""
    topic, _, kind = written.rpartition("/")
    if not (topic and kind and can_listen(written)):
        raise BadPlan(f"mqtt.services: {written[:80]!r} is no topic and the type of a method, such as /Meter/Read")
    if topic in schemas:
        raise BadPlan(f"mqtt.services: {written} is to be {BYTES}, but {topic} is {schemas[topic].full_name}")
    return topic, kind


def _codec(topics: Mapping[str, Service], attachments: Mapping[str, str]) -> tuple[Codec, Attached | None]:
    try:
        codec = SchemaCodec(topics, PLAIN_BYTES, attachments)
    except SchemaError as exc:
        raise BadPlan(f"mqtt.attachments: {exc}") from exc

    def attached(topic: str, kind: str, direction: str) -> Field | None:
        found = codec.attached(topic, kind, direction)
        return None if found is None else Field(*found)

    return codec, attached if attachments else None


def _trust(path: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(path))
    except (OSError, ssl.SSLError) as exc:
        reason = exc.strerror if isinstance(exc, FileNotFoundError | PermissionError) else "it holds no certificates"
        raise BadPlan(f"mqtt.ca_file: {path} cannot be used: {reason}") from exc


def _usual_topics(known: Mapping[str, Service]) -> dict[str, Service]:
    """Return where a service is looked for: under its own name, and under the hub's name for it."""
    topics: dict[str, Service] = {}
    for service in known.values():
        topics.setdefault(f"/{service.name}", service)
        topics.setdefault(f"/{names.fold(service.name, names.LOCAL)}", service)
    return topics
