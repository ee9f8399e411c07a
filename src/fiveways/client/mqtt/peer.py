"""A client of a broker, as a program sees it: typed calls, services, calls by name, and plain topics."""

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

# ruff: noqa: ASYNC109  a timeout is told to the service, and divided between waiting for a link and for an answer


class MqttPeer:
    """One client of a broker. It reconnects by itself, unless it was told not to.

    Every call raises a `CallError` if it fails: `NotExecuted`, if nothing was done for certain, `CallFailed` (with
    `code`, `name`, which is the tag, and `retry_after`), `CallTimeout` or `CallLost`; and `ConnectionLost` once there
    is no link to the broker any more. Who stops waiting has cancelled his call: the service does not hear of that, and
    its answer is dropped, and counted in `dropped`.
    """

    protocol = "mqtt-rpc"

    def __init__(self, broker: Broker, settings: MqttSettings | None = None) -> None:
        """Make one; `async with` opens it."""
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

    # How it is.

    @property
    def url(self) -> str:
        """Where it is connected to, without the password."""
        return f"mqtt-rpc+{self._broker}"

    @property
    def state(self) -> ConnectionState:
        """How the link to the broker is."""
        return self._session.reconnector.states.current.state

    def states(self) -> AsyncGenerator[ConnectionStatus, None]:
        """Follow the link: `async for status in peer.states(): print(status)`, the present state first."""
        return self._session.reconnector.states.follow()

    @property
    def strays(self) -> int:
        """Answers with an id that nobody here asked with, or too late; two services on one topic make such."""
        return self._session.conversation.stray_responses

    @property
    def malformed(self) -> int:
        """Messages on our topics that could not be read."""
        return self._session.conversation.refused_messages

    @property
    def dropped(self) -> int:
        """Answers that came after their callers had stopped waiting."""
        return self._session.dropped

    # Typed calls.

    def stub(
        self, service: object, *, topic: str = "", timeout: float | None = None, retry: Retry | None = None
    ) -> Stub:
        """Return the methods of a service: `await peer.stub(greeter_pb2).SayHello(HelloRequest(name="Bob"))`.

        Args:
            service: a generated module with one service, a service's descriptor, or a `Service` of a descriptor set.
            topic: where it is served; its name with a slash before it, if left out.
            timeout: seconds for every call that names none itself; left out, the service's own holds.
            retry: whether, and when, a call that failed is made again; left out, it is not.

        Raises:
            SchemaError: that is no service.
            ValueError: nothing can be called on such a topic.
        """
        known = Service.of(service)
        return Stub(CallDefaults(self._session, timeout, retry), known, topic or service_topic(known.name))

    def serve(
        self, service: object, implementation: object, *, topic: str = "", timeout: float = HUB_TIMEOUT
    ) -> ServedService:
        """Serve a service: `async with peer.serve(greeter_pb2, MyGreeter()):`, or `served = await peer.serve(...)`.

        The implementation has a function for each method, under its name in the schema or folded (`SayHello`,
        `say_hello`); what it lacks is answered 404. Async functions run as tasks, plain ones in threads; a method that
        answers in parts is an async generator. Each gets the request, or an async iterator of them, and as a second
        argument, if it takes one, a context. What it raises as `fiveways.Fail` the caller gets to know; anything else
        is logged, and 500 for the caller, with a reference to the log.

        Args:
            service: as with `stub`.
            implementation: an object with these functions, or a mapping of them by name.
            topic: as with `stub`. One topic has one service: two would both answer.
            timeout: seconds for calls that name none. Whoever takes longer is cancelled, and answered 504.

        Raises:
            SchemaError: that is no service.
            TypeError: a function cannot serve its method.
            BadName: nothing can be served on such a topic.
        """
        known = Service.of(service)
        return self._services.create(known, implementation, topic or service_topic(known.name), timeout)

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
        """Call a method by name and return its value: `await peer.call("Greeter/SayHello", {"name": "Bob"})`.

        `Service/Method` is a type on the topic `/Service`; `Method` alone is one of the service in the URL, and
        `account.get_balance` what a hub offers under that name. Where a schema is known the body is JSON by
        protobuf's own mapping, else bytes; the hub's own methods take any JSON. A method that streams takes, or gives,
        a list.
        """
        known = None if schema is None else Service.of(schema)
        return await self._dynamic_calls.call(method, body, timeout, topic, known)

    def stream(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        topic: str = "",
        schema: object = None,
    ) -> AsyncGenerator[object, None]:
        """Call a method by name and give the parts of its answer: `async for part in peer.stream("Greeter/Count"):`."""
        known = None if schema is None else Service.of(schema)
        return self._dynamic_calls.stream(method, body, timeout, topic, known)

    # Plain topics.

    async def publish(
        self, topic: str, data: object = None, *, retain: bool = False, timeout: float | None = None
    ) -> None:
        """Publish bytes, a text, or anything else as JSON, with QoS 1: `await peer.publish("sensors/roof", 21.5)`.

        It returns when the link has taken it, and does not wait for the broker's word.

        Raises:
            NotExecuted: there is no link in time, or it cannot be published.
        """
        payload = encode_payload(data)
        keeper = self._session.reconnector
        await keeper.wait_ready(self._settings.timeout if timeout is None else timeout)
        if keeper.link is None:
            raise NotExecuted(Reason.UNAVAILABLE, "the link to the broker is gone")
        try:
            keeper.link.publish(topic, payload, retain=retain)
        except ValueError as exc:
            raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc

    def subscribe(self, topic_filter: str) -> MqttSubscription:
        """Follow a topic, or all that fit: `async with peer.subscribe("sensors/+/temperature") as events:`.

        `+` stands for one level, `#` for all that follow. Each subscription has a connection of its own.
        """
        feed = SubscriptionConnection(self._broker, self._settings, topic_filter)
        self._subscriptions.add(feed)
        return MqttSubscription(feed)

    # The beginning and the end.

    async def open(self) -> None:
        """Connect; Refused or ConnectionLost if that fails."""
        await self._session.reconnector.start()

    async def close(self) -> None:
        """Part from the broker; services stop, and calls that are open fail."""
        await self._services.close()
        for feed in list(self._subscriptions):
            await feed.close()
        await self._session.close()

    async def wait_closed(self) -> ConnectionStatus:
        """Wait until the link is over for good, and return why."""
        async for status in self.states():
            last = status
        return last

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class MqttConnector:
    """What `connect_mqtt` returns: `peer = await connect_mqtt(url)`, or `async with connect_mqtt(url) as peer:`."""

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
    """Open a connection to a broker; `async with` closes it after use.

    Args:
        broker: its URL, `mqtt://[user[:password]@]host[:1883]` or `mqtts://`, or what `Broker.parse` made of it.
        service: whose methods `peer.call("Method")` means.
        schema: descriptor set files, or what `load` made of them: calls by name of these services take and give JSON.
        timeout: seconds for every call that names none itself; the usual 30 are not told to services, which have their
            own.
        reconnect: open a new link when one is lost, with the same subscriptions. Calls that are open fail.
        wait: seconds for which the first link is tried again; 0 tries once.
        backoff: seconds to wait before a new try, at most: at first, and at last, after twice as many each time.
        keepalive: seconds; a broker that is silent for one and a half of these is lost.
        client_id: as whom the broker knows us; a random one if left out.
        ssl_context: how to check the broker's certificate, and show ours; as the system does if left out.
        limits: what this side bears.
        show_errors: tell callers of our services the class and text of what these raise. Otherwise they get the text of
            a `Fail` only, and of all else a reference, under which our log has the traceback.

    Raises:
        ValueError: it is no URL of a broker, or a time is not above 0.
        SchemaError: a schema cannot be used.
        Refused: the broker does not let us in.
        ConnectionLost: it cannot be reached.
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
