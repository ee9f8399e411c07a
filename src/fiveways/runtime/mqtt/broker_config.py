"""The configuration of the MQTT side: services, schemas, topics and attachments, validated before connecting."""

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
"""Wildcards, and the space, at which nats-server closes the connection."""


BYTES: Final = "bytes"
"""The value in `mqtt.services` for a method without a schema."""


class BadBrokerConfig(FivewaysError):
    """Settings of [mqtt] that contradict the schemas or each other."""


@dataclass(frozen=True, slots=True)
class ServiceMethod:
    """A method of a service behind the broker."""

    method: str
    spelling: str
    kind: str
    doc: str


class BrokerConfig:
    """The validated settings of [mqtt]."""

    def __init__(self, settings: MqttSettings, folder: Path = Path()) -> None:
        """Read files relative to `folder`. Raises BadBrokerConfig, SchemaError or BadFilters."""
        services = load_services([folder / each for each in settings.schemas])
        typed = {topic: name for topic, name in settings.services.items() if name != BYTES}
        self._services = {topic: _service(topic, name, services) for topic, name in typed.items()}
        schemas = {**_default_topics(services), **self._services}
        self._untyped_methods = [
            _untyped_method(spelling, schemas) for spelling, name in settings.services.items() if name == BYTES
        ]
        self.service_topics = frozenset({*self._services, *(topic for topic, _ in self._untyped_methods)})
        """The topics of services behind the broker."""
        self.served_topics = tuple(_check_served_topic(each) for each in settings.serve)
        """Topics on which the hub answers in addition to those of its methods."""
        self.codec, self.attachment_fields = _codec(schemas, settings.attachments)
        """The codec of bodies, and the lookup of attachment fields, if there are any."""
        self.topic_bridge = TopicBridge(settings.topics, settings.max_payload)
        self.max_payload, self.retry_after = settings.max_payload, settings.retry_after
        self.ssl_context = _load_certificates(folder / settings.ca_file) if settings.ca_file else None
        """Verifies the broker's certificate; None uses the system's certificates."""
        self.service_methods = tuple(self._list_methods())
        self.takes_stream = frozenset(
            method.method for method in self.service_methods if method.kind in {"client", "both"}
        )
        """Methods that take a stream as request."""
        self.gives_stream = frozenset(
            method.method for method in self.service_methods if method.kind in {"server", "both"}
        )
        """Methods that return a stream as response."""

    def _list_methods(self) -> Iterator[ServiceMethod]:
        for topic, service in self._services.items():
            for method in service.methods.values():
                yield _service_method(topic, method.name, method.kind, method.doc)
        for topic, kind in self._untyped_methods:
            yield _service_method(topic, kind)


def _service_method(topic: str, name: str, kind: str = "unary", doc: str = "") -> ServiceMethod:
    spelling = f"{topic}/{name}"
    try:
        return ServiceMethod(names.fold_mqtt(topic, name), spelling, kind, doc)
    except BadName as exc:
        raise BadBrokerConfig(f"mqtt.services: {spelling[:80]}: {exc}") from exc


def _check_served_topic(topic: str) -> str:
    if not is_safe_topic(topic):
        raise BadBrokerConfig(f"mqtt.serve: {topic[:80]!r} is not a valid topic for methods")
    return topic


def is_safe_topic(topic: str) -> bool:
    """Return whether every broker accepts a subscription to the topic without closing the connection."""
    return 0 < len(topic) <= _MAX_TOPIC and topic.isprintable() and not _NOT_IN_TOPICS & {*topic}


def _service(topic: str, name: str, services: Mapping[str, Service]) -> Service:
    if name not in services:
        available = ", ".join(sorted(services)) or "none, mqtt.schemas names no file"
        raise BadBrokerConfig(f"mqtt.services: {topic}: no schema defines {name}; available: {available}")
    if not is_safe_topic(topic):
        raise BadBrokerConfig(f"mqtt.services: {topic[:80]!r} is not a valid topic")
    return services[name]


def _untyped_method(spelling: str, schemas: Mapping[str, Service]) -> tuple[str, str]:
    """Return topic and request type of a method without a schema."""
    topic, _, kind = spelling.rpartition("/")
    if not (topic and kind and is_safe_topic(spelling)):
        raise BadBrokerConfig(
            f"mqtt.services: {spelling[:80]!r} is not a topic with a request type, such as /Meter/Read"
        )
    if topic in schemas:
        raise BadBrokerConfig(
            f"mqtt.services: {spelling} cannot be {BYTES}, because {topic} is {schemas[topic].full_name}"
        )
    return topic, kind


def _codec(topics: Mapping[str, Service], attachments: Mapping[str, str]) -> tuple[Codec, AttachmentFieldLookup | None]:
    try:
        codec = SchemaCodec(topics, RAW_BYTES_CODEC, attachments)
    except SchemaError as exc:
        raise BadBrokerConfig(f"mqtt.attachments: {exc}") from exc

    def find_attachment_field(topic: str, kind: str, direction: str) -> AttachmentField | None:
        field = codec.attachment_field(topic, kind, direction)
        return None if field is None else AttachmentField(*field)

    return codec, find_attachment_field if attachments else None


def _load_certificates(path: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(path))
    except (OSError, ssl.SSLError) as exc:
        reason = exc.strerror if isinstance(exc, FileNotFoundError | PermissionError) else "it contains no certificates"
        raise BadBrokerConfig(f"mqtt.ca_file: {path} cannot be used: {reason}") from exc


def _default_topics(services: Mapping[str, Service]) -> dict[str, Service]:
    """Return the services by their default topics: under their own name, and under the hub's folded name."""
    topics: dict[str, Service] = {}
    for service in services.values():
        topics.setdefault(f"/{service.name}", service)
        topics.setdefault(f"/{names.fold(service.name, names.LOCAL)}", service)
    return topics
