"""What the settings say about a broker, read and checked before anybody goes there."""

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fiveways.errors import FivewaysError
from fiveways.model import names
from fiveways.model.names import BadName
from fiveways.protocols.mqtt_rpc.attachments import AttachmentField, AttachmentFieldLookup
from fiveways.protocols.mqtt_rpc.bridge import RAW_BYTES_CODEC, Codec
from fiveways.runtime.mqtt.topic_bridge import TopicBridge
from fiveways.schemas import SchemaCodec, SchemaError, Service, load_services
from fiveways.settings.sections import MqttSettings

_MAX_TOPIC: Final = 512
_NOT_IN_TOPICS: Final = frozenset("+# ")
"""Wildcards, and the blank, at which nats-server ends the link."""


BYTES: Final = "bytes"
"""What `mqtt.services` says of a method without a schema."""


class BadBrokerConfig(FivewaysError):
    """Settings of [mqtt] that contradict the schemas, or each other."""


@dataclass(frozen=True, slots=True)
class ServiceMethod:
    """A method of a service behind the broker."""

    method: str
    spelling: str
    kind: str
    doc: str


class BrokerConfig:
    """Services, schemas, topics, and how the broker is known."""

    def __init__(self, settings: MqttSettings, folder: Path = Path()) -> None:
        """Read it; BadPlan, SchemaError or BadFilters say what is wrong. Files lie in `folder`, if not elsewhere."""
        known = load_services([folder / each for each in settings.schemas])
        described = {topic: name for topic, name in settings.services.items() if name != BYTES}
        self._services = {topic: _service(topic, name, known) for topic, name in described.items()}
        schemas = {**_default_topics(known), **self._services}
        self._untyped_methods = [
            _untyped_method(written, schemas) for written, name in settings.services.items() if name == BYTES
        ]
        self.service_topics = frozenset({*self._services, *(topic for topic, _ in self._untyped_methods)})
        """The topics of those that are behind the broker."""
        self.served_topics = tuple(_checked(each) for each in settings.serve)
        """Topics on which the hub answers besides those that it finds itself."""
        self.codec, self.attachment_fields = _codec(schemas, settings.attachments)
        """How bodies are written, and which of their fields hold attachments, if any does."""
        self.topic_bridge = TopicBridge(settings.topics, settings.max_payload)
        self.max_payload, self.retry_after = settings.max_payload, settings.retry_after
        self.ssl_context = _load_certificates(folder / settings.ca_file) if settings.ca_file else None
        """How the broker's certificate is checked; None is as the system does."""
        self.service_methods = tuple(self._list_methods())
        self.takes_stream = frozenset(
            offer.method for offer in self.service_methods if offer.kind in {"client", "both"}
        )
        """Methods that take a stream."""
        self.gives_stream = frozenset(
            offer.method for offer in self.service_methods if offer.kind in {"server", "both"}
        )
        """Methods that give one."""

    def _list_methods(self) -> Iterator[ServiceMethod]:
        for topic, service in self._services.items():
            for method in service.methods.values():
                yield _offer(topic, method.name, method.kind, method.doc)
        for topic, kind in self._untyped_methods:
            yield _offer(topic, kind)


def _offer(topic: str, name: str, kind: str = "unary", doc: str = "") -> ServiceMethod:
    spelling = f"{topic}/{name}"
    try:
        return ServiceMethod(names.fold_mqtt(topic, name), spelling, kind, doc)
    except BadName as exc:
        raise BadBrokerConfig(f"mqtt.services: {spelling[:80]}: {exc}") from exc


def _checked(topic: str) -> str:
    if not is_safe_topic(topic):
        raise BadBrokerConfig(f"mqtt.serve: {topic[:80]!r} is no topic on which methods can be called")
    return topic


def is_safe_topic(topic: str) -> bool:
    """Say whether any broker takes a subscription to a topic, and its link survives that."""
    return 0 < len(topic) <= _MAX_TOPIC and topic.isprintable() and not _NOT_IN_TOPICS & {*topic}


def _service(topic: str, name: str, known: Mapping[str, Service]) -> Service:
    if name not in known:
        there = ", ".join(sorted(known)) or "none: mqtt.schemas names no file"
        raise BadBrokerConfig(f"mqtt.services: {topic} is to be {name}, which no schema has; there are {there}")
    if not is_safe_topic(topic):
        raise BadBrokerConfig(f"mqtt.services: {topic[:80]!r} is no topic")
    return known[name]


def _untyped_method(written: str, schemas: Mapping[str, Service]) -> tuple[str, str]:
    """Return topic and type of a method without a schema."""
    topic, _, kind = written.rpartition("/")
    if not (topic and kind and is_safe_topic(written)):
        raise BadBrokerConfig(
            f"mqtt.services: {written[:80]!r} is no topic and the type of a method, such as /Meter/Read"
        )
    if topic in schemas:
        raise BadBrokerConfig(f"mqtt.services: {written} is to be {BYTES}, but {topic} is {schemas[topic].full_name}")
    return topic, kind


def _codec(topics: Mapping[str, Service], attachments: Mapping[str, str]) -> tuple[Codec, AttachmentFieldLookup | None]:
    try:
        codec = SchemaCodec(topics, RAW_BYTES_CODEC, attachments)
    except SchemaError as exc:
        raise BadBrokerConfig(f"mqtt.attachments: {exc}") from exc

    def attached(topic: str, kind: str, direction: str) -> AttachmentField | None:
        found = codec.attachment_field(topic, kind, direction)
        return None if found is None else AttachmentField(*found)

    return codec, attached if attachments else None


def _load_certificates(path: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(path))
    except (OSError, ssl.SSLError) as exc:
        reason = exc.strerror if isinstance(exc, FileNotFoundError | PermissionError) else "it holds no certificates"
        raise BadBrokerConfig(f"mqtt.ca_file: {path} cannot be used: {reason}") from exc


def _default_topics(known: Mapping[str, Service]) -> dict[str, Service]:
    """Return where a service is looked for: under its own name, and under the hub's name for it."""
    topics: dict[str, Service] = {}
    for service in known.values():
        topics.setdefault(f"/{service.name}", service)
        topics.setdefault(f"/{names.fold(service.name, names.LOCAL)}", service)
    return topics
