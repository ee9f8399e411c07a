"""The client of an MQTT broker: typed calls, services, calls by name, and plain topics."""

import ssl
import weakref
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from pathlib import Path
from typing import Self

from fiveways.client.connection_state import ConnectionState, ConnectionStatus
from fiveways.client.mqtt.dynamic_calls import DynamicCalls, service_topic
from fiveways.client.mqtt.retry import Retry
from fiveways.client.mqtt.services import ServedService, ServiceRegistry
from fiveways.client.mqtt.session import MqttSession
from fiveways.client.mqtt.settings import MqttSettings
from fiveways.client.mqtt.stub import CallDefaults, Stub
from fiveways.client.mqtt.subscriptions import MqttSubscription, SubscriptionConnection, encode_payload
from fiveways.client.settings import HUB_TIMEOUT
from fiveways.errors import NotExecuted, Reason
from fiveways.schemas import Service, load_services
from fiveways.transports.mqtt_link import Broker
from fiveways.wire.limits import Limits

# ruff: noqa: ASYNC109  one timeout for the service, the wait for a link and the wait for the response


class MqttPeer:
    """A client of one MQTT broker, opened by `connect_mqtt`. It reconnects automatically unless told otherwise.

    A call raises these exceptions:

    Raises:
        NotExecuted: the method certainly did not run: a name or value is invalid, permission is denied, or there was no
            link to the broker in time. `reason` says which.
        CallFailed: the method ran and failed, or its response cannot be decoded; `code`, `name` (the tag of the error)
            and `retry_after` are those of the error response.
        CallTimeout: no response within the timeout; the method may have run.
        CallLost: the link to the broker was lost before the response; the method may have run.
        Cancelled: too many parts of a streamed response waited for the reader, or an element of a streamed request
            could not be sent; the method may have run.
        ConnectionLost: the connection to the broker is closed for good.
        ValueError: the timeout is not positive.

    Cancelling the task that waits for a call does not reach the service: its response is dropped and counted in
    `dropped`.
    """

    protocol = "mqtt-rpc"

    def __init__(self, broker: Broker, settings: MqttSettings | None = None) -> None:
        """Create a client that is not connected; `async with` or `open()` connects it."""
        self._broker = broker
        self._settings = settings or MqttSettings()
        self._session = MqttSession(broker, self._settings)
        self._services = ServiceRegistry(self._session)
        self._session.call_handler = self._services
        self._dynamic_calls = DynamicCalls(self._session)
        self._subscriptions: weakref.WeakSet[SubscriptionConnection] = weakref.WeakSet()
        self._is_open = False

    def __repr__(self) -> str:
        return f"<MqttPeer {self.url} {self.state.value}>"

    # State.

    @property
    def url(self) -> str:
        """URL of the broker, without the password."""
        return f"mqtt-rpc+{self._broker}"

    @property
    def state(self) -> ConnectionState:
        """Current state of the link to the broker."""
        return self._session.reconnector.states.current.state

    def states(self) -> AsyncGenerator[ConnectionStatus, None]:
        """Yield the current state of the link, then each change: `async for status in peer.states():`."""
        return self._session.reconnector.states.follow()

    @property
    def strays(self) -> int:
        """Number of responses with an unknown or expired id, for example from two services on one topic."""
        return self._session.conversation.stray_responses

    @property
    def malformed(self) -> int:
        """Number of messages on RPC topics that could not be decoded."""
        return self._session.conversation.refused_messages

    @property
    def dropped(self) -> int:
        """Number of responses whose callers had stopped waiting."""
        return self._session.dropped

    # Typed calls.

    def stub(
        self, service: object, *, topic: str = "", timeout: float | None = None, retry: Retry | None = None
    ) -> Stub:
        """Return a typed stub of a service: `await peer.stub(greeter_pb2).SayHello(HelloRequest(name="Bob"))`.

        Args:
            service: a generated module with one service, a service descriptor, or a `Service` from a descriptor set.
            topic: topic of the service; by default its name with a leading slash.
            timeout: default timeout of calls, in seconds; by default that of the service applies.
            retry: retry policy; by default there are no retries.

        Raises:
            SchemaError: `service` is not a service.
            ValueError: the topic is invalid, or the timeout is not positive.
        """
        schema = Service.of(service)
        return Stub(CallDefaults(self._session, timeout, retry), schema, topic or service_topic(schema.name))

    def serve(
        self, service: object, implementation: object, *, topic: str = "", timeout: float = HUB_TIMEOUT
    ) -> ServedService:
        """Serve a service: `async with peer.serve(greeter_pb2, MyGreeter()):`, or `served = await peer.serve(...)`.

        The implementation has a function for each method, under its name in the schema or folded (`SayHello`,
        `say_hello`). Missing methods are answered with error 404. Async functions run as tasks, other functions in
        threads. A method with a streamed response is an async generator. A function gets the request, or an async
        iterator of requests, and as an optional second argument an `MqttContext`. It raises `fiveways.Fail` to send an
        error to the caller. Any other exception is logged and sent as error 500 with a reference to the log.

        Args:
            service: as for `stub`.
            implementation: an object with these functions, or a mapping of names to functions.
            topic: as for `stub`. A topic must have only one service: two services would both respond.
            timeout: seconds for calls without a timeout. A call that takes longer is cancelled and answered with error
                504.

        Raises:
            SchemaError: `service` is not a service.
            TypeError: a function cannot serve its method.
            BadName: the topic is invalid.
            ValueError: the timeout is not positive.
            NotExecuted: on entry or `await`: the broker refuses the topic, or there is no link in time.
        """
        schema = Service.of(service)
        return self._services.create(schema, implementation, topic or service_topic(schema.name), timeout)

    # Calls by name.

    async def call(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        topic: str = "",
        schema: object = None,
    ) -> object:
        """Call a method by name and return its result: `await peer.call("Greeter/SayHello", {"name": "Bob"})`.

        `Service/Method` is a method on the topic `/Service`, `Method` alone one of the service in the URL, and
        `account.get_balance` a method of a hub at this broker. With a schema, body and result are JSON in protobuf's
        own mapping, otherwise bytes; a hub's own methods take any JSON. A streamed request is a list, and so is a
        streamed response.

        Args:
            method: name of the method.
            body: the request.
            timeout: seconds for the call; by default the timeout of `connect_mqtt`.
            topic: topic of the service; `method` is then the name of the method alone.
            schema: the service, as for `stub`; by default it is looked up in the schemas of `connect_mqtt`.

        Raises:
            SchemaError: `schema` is not a service.
        """
        parsed_schema = None if schema is None else Service.of(schema)
        return await self._dynamic_calls.call(method, body, timeout, topic, parsed_schema)

    def stream(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        topic: str = "",
        schema: object = None,
    ) -> AsyncGenerator[object, None]:
        """Call a method by name and yield the parts of its response: `async for part in peer.stream("Greeter/Count"):`.

        The arguments are those of `call`. A response that is not streamed is the only part.

        Raises:
            SchemaError: `schema` is not a service.
        """
        parsed_schema = None if schema is None else Service.of(schema)
        return self._dynamic_calls.stream(method, body, timeout, topic, parsed_schema)

    # Plain topics.

    async def publish(
        self, topic: str, data: object = None, *, retain: bool = False, timeout: float | None = None
    ) -> None:
        """Publish bytes, a string, or any other value as JSON, with QoS 1: `await peer.publish("sensors/roof", 21.5)`.

        It returns when the link has accepted the message, without waiting for the broker's acknowledgement.

        Raises:
            NotExecuted: there is no link in time, or the topic or value is invalid.
            ConnectionLost: the connection to the broker is closed for good.
            ValueError: the timeout is not positive.
        """
        payload = encode_payload(data)
        reconnector = self._session.reconnector
        await reconnector.wait_ready(self._settings.timeout if timeout is None else timeout)
        if reconnector.link is None:
            raise NotExecuted(Reason.UNAVAILABLE, "the link to the broker is gone")
        try:
            reconnector.link.publish(topic, payload, retain=retain)
        except ValueError as exc:
            raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc

    def subscribe(self, topic_filter: str) -> MqttSubscription:
        """Subscribe to a topic or a topic filter: `async with peer.subscribe("sensors/+/temperature") as events:`.

        `+` matches one level, `#` all remaining levels. Each subscription has a connection of its own.
        """
        connection = SubscriptionConnection(self._broker, self._settings, topic_filter)
        self._subscriptions.add(connection)
        return MqttSubscription(connection)

    # Lifecycle.

    async def open(self) -> None:
        """Connect to the broker. `connect_mqtt` does this.

        Raises:
            Refused: the broker rejects the credentials.
            ConnectionLost: the broker cannot be reached.
        """
        await self._session.reconnector.start()

    async def close(self) -> None:
        """Stop services and subscriptions, and close the connection; open calls fail."""
        await self._services.close()
        for connection in list(self._subscriptions):
            await connection.close()
        await self._session.close()

    async def wait_closed(self) -> ConnectionStatus:
        """Wait until the connection is closed for good, and return the last status with the reason."""
        async for status in self.states():
            last = status
        return last

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class MqttConnector:
    """Result of `connect_mqtt`: `peer = await connect_mqtt(url)`, or `async with connect_mqtt(url) as peer:`."""

    def __init__(self, broker: Broker, settings: MqttSettings) -> None:
        self._broker = broker
        self._settings = settings
        self._peer: MqttPeer | None = None

    def __await__(self) -> Generator[object, None, MqttPeer]:
        return self._open().__await__()

    async def _open(self) -> MqttPeer:
        peer = MqttPeer(self._broker, self._settings)
        try:
            await peer.open()
        except BaseException:
            await peer.close()
            raise
        return peer

    async def __aenter__(self) -> MqttPeer:
        self._peer = await self._open()
        return self._peer

    async def __aexit__(self, *_: object) -> None:
        if self._peer is not None:
            await self._peer.close()


def connect_mqtt(  # noqa: PLR0913  all but the first have a default
    broker: Broker | str,
    *,
    service: str = "",
    schema: Iterable[Path | str] | Mapping[str, Service] = (),
    timeout: float = HUB_TIMEOUT,
    reconnect: bool = True,
    wait: float = 0.0,
    backoff: tuple[float, float] = (0.1, 1.0),
    keepalive: float = 20.0,
    client_id: str = "",
    ssl_context: ssl.SSLContext | None = None,
    limits: Limits = Limits(),
    show_errors: bool = False,
) -> MqttConnector:
    """Open a connection to an MQTT broker; `async with` closes it after use.

    Args:
        broker: URL of the broker, `mqtt://[user[:password]@]host[:1883]` or `mqtts://`, or a `Broker`.
        service: default service of `peer.call("Method")`, as a name or a topic.
        schema: descriptor set files, or services from `load_services`; calls by name to these services take and return
            JSON.
        timeout: default timeout of calls, in seconds. The default of 30 is not sent to services, which have their own.
        reconnect: open a new connection when one is lost, with the same subscriptions. Open calls fail.
        wait: seconds for which the first connection is retried; 0 tries once.
        backoff: limits of the wait before a reconnect, in seconds: the first, which doubles with each attempt, and the
            last. The actual wait is random, from half of the limit.
        keepalive: seconds; a broker that is silent for one and a half of these is considered lost.
        client_id: MQTT client id; by default a random one.
        ssl_context: TLS settings for `mqtts://`; by default those of the system.
        limits: size and time limits of this client.
        show_errors: send callers of served methods the class and text of an exception. Otherwise they get the text of a
            `Fail`, and for any other exception a reference to the traceback in this client's log.

    Raises:
        ValueError: the URL is invalid, or the timeout is not positive.
        SchemaError: a schema cannot be used.
        Refused: the broker rejects the credentials.
        ConnectionLost: the broker cannot be reached.
    """
    first_wait, longest_wait = backoff
    settings = MqttSettings(
        timeout=timeout,
        service=service,
        schemas=schema if isinstance(schema, Mapping) else load_services(schema),
        reconnect=reconnect,
        wait=wait,
        first_wait=first_wait,
        longest_wait=longest_wait,
        keepalive=keepalive,
        client_id=client_id,
        ssl_context=ssl_context,
        limits=limits,
        show_errors=show_errors,
    )
    return MqttConnector(Broker.parse(broker) if isinstance(broker, str) else broker, settings)
