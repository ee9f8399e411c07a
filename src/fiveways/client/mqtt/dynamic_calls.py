"""Calls by name: with JSON if the schema is known, otherwise with bytes."""

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

# ruff: noqa: ASYNC109  the timeout is sent to the service

_STREAMED_RESPONSE: Final = frozenset({"server", "both"})
_STREAMED_REQUEST: Final = frozenset({"client", "both"})


class SchemaMethod(NamedTuple):
    """A method with a schema."""

    target: MqttCallTarget
    method: Method
    codec: SchemaCodec

    def write(self, value: object) -> Payload:
        """Encode a value; NotExecuted if it does not match the schema."""
        body = NULL if value is None else Value(value)
        try:
            return Binary(self.codec.to_wire(self.target.topic, self.target.kind, body, REQUEST))
        except Unrepresentable as exc:
            raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc

    def read(self, data: bytes) -> object:
        """Decode a response; CallFailed if it does not match the schema."""
        try:
            return self.codec.from_wire(self.target.topic, self.target.kind, data, RESPONSE).value()
        except (Malformed, Unrepresentable) as exc:
            raise CallFailed(f"the response of {self.target.spelling} cannot be decoded: {exc}") from exc


class DynamicCalls:
    """Calls by name of one client."""

    def __init__(self, session: MqttSession) -> None:
        self._session = session
        self._service = session.settings.service
        self._schemas = dict(session.settings.schemas)
        self._codec_of = lru_cache(maxsize=256)(_make_codec)

    async def call(
        self, method: str, body: object, timeout: float | None, topic: str, schema: Service | None
    ) -> object:
        """Call a method and return its result; streamed requests and responses are lists."""
        target_method = self._resolve(method, topic, schema)
        session = self._session
        if isinstance(target_method, MqttCallTarget):
            return value_of_result(await session.call(target_method, _to_payload(body), timeout))
        target, kind = target_method.target, target_method.method.kind
        if kind in _STREAMED_RESPONSE:
            async with aclosing(self._stream_with_schema(target_method, body, timeout)) as parts:
                return [part async for part in parts]
        if kind in _STREAMED_REQUEST:
            return target_method.read(await upload(session, target, _request_bodies(target_method, body), timeout))
        response = (await session.call(target, target_method.write(body), timeout)).body
        return target_method.read(b"" if response is None else response.binary())

    async def stream(
        self, method: str, body: object, timeout: float | None, topic: str, schema: Service | None
    ) -> AsyncGenerator[object, None]:
        """Call a method and yield the parts of its response; a response that is not streamed is the only part."""
        target_method = self._resolve(method, topic, schema)
        if isinstance(target_method, MqttCallTarget):
            async with aclosing(stream(self._session, target_method, _to_payload(body), timeout)) as raw_parts:
                async for data in raw_parts:
                    yield data
        elif target_method.method.kind in _STREAMED_RESPONSE:
            async with aclosing(self._stream_with_schema(target_method, body, timeout)) as parts:
                async for part in parts:
                    yield part
        else:
            yield await self.call(method, body, timeout, topic, schema)

    async def _stream_with_schema(
        self, method: SchemaMethod, body: object, timeout: float | None
    ) -> AsyncGenerator[object, None]:
        request = _request_bodies(method, body) if method.method.kind in _STREAMED_REQUEST else method.write(body)
        async with aclosing(stream(self._session, method.target, request, timeout)) as parts:
            async for data in parts:
                yield method.read(data)

    def _resolve(self, name: str, topic: str, schema: Service | None) -> SchemaMethod | MqttCallTarget:
        """Return the method of a name; NotExecuted if there is none."""
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
        """Return topic and method of `Service/Method`, of `Method` in the default service, or of a hub method `a.b`."""
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
    """A service that is passed through a cache without being a part of its key; its name is a part."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _UncachedService) and other.service is self.service


def _make_codec(topic: str, _name: str, uncached: _UncachedService) -> SchemaCodec:
    return SchemaCodec({topic: uncached.service})


def service_topic(service: str) -> str:
    """Return the topic of a service name or topic: a name gets a leading slash."""
    return service if service.startswith("/") else f"/{service}"


def find_service(topic: str, schemas: Mapping[str, Service]) -> Service | None:
    """Return the service of a topic by its full name, its name, or either folded; None if there is none or several.

    `/fiveways` and `/hub` have no service.
    """
    name = topic.removeprefix("/")
    if name in schemas:
        return schemas[name]
    matches = [service for service in schemas.values() if service.name == name]
    if not matches:
        folded = names.fold(name, names.UMQ)
        matches = [
            service
            for service in schemas.values()
            if folded in {names.fold(service.name, names.UMQ), names.fold(service.full_name, names.UMQ)}
        ]
    return matches[0] if len(matches) == 1 else None


def _to_payload(body: object) -> Payload:
    if body is None:
        return NULL
    return Binary(body) if isinstance(body, bytes) else Value(body)


async def _request_bodies(method: SchemaMethod, body: object) -> AsyncIterator[tuple[Payload, bool]]:
    """Yield the elements of a list; any other value is the only element."""
    values: Iterable[object] = body if isinstance(body, list | tuple) else [body]
    previous: Payload | None = None
    for value in values:
        if previous is not None:
            yield previous, False
        previous = method.write(value)
    if previous is not None:
        yield previous, True
