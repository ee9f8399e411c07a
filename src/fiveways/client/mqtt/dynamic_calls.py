"""Calls by name: with JSON where a schema is known, else with bytes."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from functools import lru_cache
from typing import Final, NamedTuple

from fiveways.client.mqtt.session import MqttCallTarget, MqttSession
from fiveways.client.mqtt.streaming import stream, upload
from fiveways.client.mqtt.stub import make_target
from fiveways.errors import CallFailed, Malformed, NotExecuted, Reason, Unrepresentable
from fiveways.model import names
from fiveways.model.outcomes import value_of_result
from fiveways.protocols.mqtt_rpc.bridge import REQUEST, RESPONSE
from fiveways.schemas import Method, SchemaCodec, Service
from fiveways.wire.payload import NULL, Binary, Payload, Value

# ruff: noqa: ASYNC109  a timeout is told to the service

_STREAMED_ANSWER: Final = frozenset({"server", "both"})
_STREAMED_REQUEST: Final = frozenset({"client", "both"})


class SchemaMethod(NamedTuple):
    """A method that a schema describes."""

    target: MqttCallTarget
    method: Method
    codec: SchemaCodec

    def write(self, value: object) -> Payload:
        """Return a value as a body; NotExecuted if the schema has no place for it."""
        body = NULL if value is None else Value(value)
        try:
            return Binary(self.codec.to_wire(self.target.topic, self.target.kind, body, REQUEST))
        except Unrepresentable as exc:
            raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc

    def read(self, data: bytes) -> object:
        """Return what a body says; CallFailed if it is not what the schema says."""
        try:
            return self.codec.from_wire(self.target.topic, self.target.kind, data, RESPONSE).value()
        except (Malformed, Unrepresentable) as exc:
            raise CallFailed(f"the answer of {self.target.spelling} cannot be read: {exc}") from exc


class DynamicCalls:
    """How names become calls."""

    def __init__(self, session: MqttSession) -> None:
        self._session = session
        self._service = session.settings.service
        self._schemas = dict(session.settings.schemas)
        self._codec_of = lru_cache(maxsize=256)(_make_codec)

    async def call(
        self, method: str, body: object, timeout: float | None, topic: str, schema: Service | None
    ) -> object:
        """Call a method and return its value; a streamed answer is one list, a streamed request takes one."""
        found = self._resolve(method, topic, schema)
        session = self._session
        if isinstance(found, MqttCallTarget):
            return value_of_result(await session.call(found, _to_payload(body), timeout))
        target, kind = found.target, found.method.kind
        if kind in _STREAMED_ANSWER:
            async with aclosing(self._stream_with_schema(found, body, timeout)) as parts:
                return [part async for part in parts]
        if kind in _STREAMED_REQUEST:
            return found.read(await upload(session, target, _request_bodies(found, body), timeout))
        answer = (await session.call(target, found.write(body), timeout)).body
        return found.read(b"" if answer is None else answer.binary())

    async def stream(
        self, method: str, body: object, timeout: float | None, topic: str, schema: Service | None
    ) -> AsyncGenerator[object, None]:
        """Call a method and give the parts of its answer; any other answer is the only part."""
        found = self._resolve(method, topic, schema)
        if isinstance(found, MqttCallTarget):
            async with aclosing(stream(self._session, found, _to_payload(body), timeout)) as plain:
                async for data in plain:
                    yield data
        elif found.method.kind in _STREAMED_ANSWER:
            async with aclosing(self._stream_with_schema(found, body, timeout)) as parts:
                async for part in parts:
                    yield part
        else:
            yield await self.call(method, body, timeout, topic, schema)

    async def _stream_with_schema(
        self, known: SchemaMethod, body: object, timeout: float | None
    ) -> AsyncGenerator[object, None]:
        request = _request_bodies(known, body) if known.method.kind in _STREAMED_REQUEST else known.write(body)
        async with aclosing(stream(self._session, known.target, request, timeout)) as parts:
            async for data in parts:
                yield known.read(data)

    def _resolve(self, name: str, topic: str, schema: Service | None) -> SchemaMethod | MqttCallTarget:
        """Say what a name means; NotExecuted if it means nothing."""
        try:
            topic, kind = self._split_name(name, topic)
            service = schema or find_service(topic, self._schemas)
            if service is None:
                return make_target(topic, kind)
            method = service.find(kind)
            if method is None:
                raise NotExecuted(Reason.NO_SUCH_METHOD, f"{service.full_name} has no method {kind}")
            return SchemaMethod(
                make_target(topic, method.name),
                method,
                self._codec_of(topic, service.full_name, _UncachedService(service)),
            )
        except (names.BadName, ValueError) as exc:
            raise NotExecuted(Reason.NO_SUCH_METHOD, str(exc)) from exc

    def _split_name(self, name: str, topic: str) -> tuple[str, str]:
        """Return topic and type of `Service/Method`, of a method of our usual service, or of a hub's name `a.b`."""
        if topic:
            return topic, name
        if "/" in name:
            topic, _, kind = name.rpartition("/")
            return service_topic(topic), kind
        if self._service and "." not in name and ":" not in name:
            return service_topic(self._service), name
        topic, kind = names.spell_mqtt(names.fold(name, names.UMQ))
        service = find_service(topic, self._schemas)
        return (topic if service is None else service_topic(service.name)), kind


class _UncachedService:
    """A service as an argument that does not count for the cache; its name does."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _UncachedService) and other.service is self.service


def _make_codec(topic: str, _name: str, same: _UncachedService) -> SchemaCodec:
    return SchemaCodec({topic: same.service})


def service_topic(service: str) -> str:
    """Return the topic of a service: a name gets a slash before it, a topic has one."""
    return service if service.startswith("/") else f"/{service}"


def find_service(topic: str, schemas: Mapping[str, Service]) -> Service | None:
    """Return the service of a topic, by its full name, by its name, or by either folded; None if there is none, or two.

    On `/fiveways` and `/hub` there is none.
    """
    name = topic.removeprefix("/")
    if name in schemas:
        return schemas[name]
    found = [service for service in schemas.values() if service.name == name]
    if not found:
        folded = names.fold(name, names.UMQ)
        found = [
            service
            for service in schemas.values()
            if folded in {names.fold(service.name, names.UMQ), names.fold(service.full_name, names.UMQ)}
        ]
    return found[0] if len(found) == 1 else None


def _to_payload(body: object) -> Payload:
    if body is None:
        return NULL
    return Binary(body) if isinstance(body, bytes) else Value(body)


async def _request_bodies(known: SchemaMethod, body: object) -> AsyncIterator[tuple[Payload, bool]]:
    """Give the elements of a list; anything else is the only element."""
    values: Iterable[object] = body if isinstance(body, list | tuple) else [body]
    ahead: Payload | None = None
    for value in values:
        if ahead is not None:
            yield ahead, False
        ahead = known.write(value)
    if ahead is not None:
        yield ahead, True
