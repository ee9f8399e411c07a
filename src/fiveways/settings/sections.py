"""Everything an operator can set, with what it means and what it is by default.

The text below a key is its documentation: `fiveways config show --docs` and the page on configuration are made from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from fiveways.settings.dashboard import DashboardSettings
from fiveways.settings.limits import LimitSettings
from fiveways.settings.operations import AppSettings, JournalSettings, LogSettings, MetricsSettings, TracingSettings

Port: TypeAlias = Annotated[int, Meta(ge=0, le=65535)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
AnonymousAccess: TypeAlias = Literal["loopback", "always", "never"]
OverflowPolicy: TypeAlias = Literal["skip", "close", "unsubscribe", "block"]

NO_POLICIES: Mapping[str, OverflowPolicy] = MappingProxyType({})
BridgeDirection: TypeAlias = Literal["in", "out", "both"]
NO_TEXTS: Mapping[str, str] = MappingProxyType({})
NO_BRIDGED_TOPICS: Mapping[str, BridgeDirection] = MappingProxyType({})
NO_TARGETS: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class Secret:
    """A text that is shown as `***`, wherever it is printed."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "***" if self._text else "''"


NO_SECRET = Secret()


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the hub listens, and how it treats its connections."""

    host: str = "127.0.0.1"
    """The address to listen on; an empty text is every address.

    Only loopback is allowed before `[auth]` says who may come in.
    """
    port: Port = 7500
    """The port for WebSocket and HTTP; 0 takes a free one."""
    origins: tuple[str, ...] = ()
    """Web pages that may connect, such as `https://example.com`; those from this machine always may."""
    hosts: tuple[str, ...] = ()
    """Names under which clients may reach the hub (HTTP `Host`), besides its own address and `localhost`."""
    ping_interval: Seconds = 20.0
    """Seconds of silence after which a peer is asked whether it is still there."""
    ping_timeout: Seconds = 20.0
    """Seconds it has for its answer."""
    drain_timeout: Seconds = 10.0
    """Seconds that open calls have to end when the hub is told to stop."""
    spool_directory: str = ""
    """Where large attachments wait; empty is the system's directory for temporary files."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """How long calls may take."""

    timeout: Seconds = 30.0
    """Seconds a call may take whose caller names no time."""
    max_timeout: Seconds = 3600.0
    """Seconds a call may take at most, whatever its caller says."""


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """One who may come in, written `[[auth.identity]]`; it needs a token, a secret or both."""

    name: Annotated[str, Meta(min_length=1)]
    """What it is called in logs, and by clients that prove a secret."""
    token: Secret = NO_SECRET
    """What a client shows to be let in (UMQ hello or variable `token`, HTTP `Authorization: Bearer`)."""
    token_file: str = ""
    """A file that holds the token instead, beside this one unless its path is absolute."""
    secret: Secret = NO_SECRET
    """What an lrpm client proves to know (HMAC-SHA256), without sending it."""
    secret_file: str = ""
    """A file that holds the secret instead."""
    call: tuple[str, ...] = ("*",)
    """Methods it may call; `*` stands for any characters, as in `account.*`."""
    offer: tuple[str, ...] = ("*",)
    """Methods it may offer to others.

    Names that a pattern other than `*` allows may be shared with other identities, or taken over from them.
    """
    publish: tuple[str, ...] = ("*",)
    """Topics it may publish on."""
    subscribe: tuple[str, ...] = ("*",)
    """Topics and patterns it may subscribe to."""
    push: tuple[str, ...] = ("*",)
    """Work queues it may push jobs to."""
    pull: tuple[str, ...] = ("*",)
    """Work queues it may pull jobs from, and whose dead jobs it may list, redrive and drop."""
    close: tuple[str, ...] = ()
    """Topics it may close (`hub.close`) that others subscribe to and may publish on."""


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who may come in, and what they may do."""

    anonymous: AnonymousAccess = "loopback"
    """Who may come in without a token or secret: `loopback` (from this machine), `always` or `never`.

    A reverse proxy on this machine makes everybody look local: say `never` behind one.
    """
    login_timeout: Seconds = 10.0
    """Seconds a peer has to say who it is."""
    allow_weak_tokens: bool = False
    """Whether `fiveways config check` accepts tokens and secrets of less than 128 bits."""
    max_failures: Annotated[int, Meta(ge=0)] = 10
    """Failed logins of one network address before it has to wait: 1 s, twice as long after each further one.

    0 is no limit. Behind a proxy on this machine the address is the last one in `X-Forwarded-For`.
    """
    max_ban: Seconds = 300.0
    """The longest of these waits, in seconds."""
    name_grace: Annotated[float, Meta(ge=0)] = 60.0
    """Seconds after the last session of an identity ended in which no other may register its methods."""
    call: tuple[str, ...] = ("*",)
    """Methods the anonymous may call."""
    offer: tuple[str, ...] = ("*",)
    """Methods the anonymous may offer."""
    publish: tuple[str, ...] = ("*",)
    """Topics the anonymous may publish on."""
    subscribe: tuple[str, ...] = ("*",)
    """Topics and patterns the anonymous may subscribe to."""
    push: tuple[str, ...] = ("*",)
    """Work queues the anonymous may push jobs to."""
    pull: tuple[str, ...] = ("*",)
    """Work queues the anonymous may pull jobs from, and whose dead jobs they may list, redrive and drop."""
    close: tuple[str, ...] = ()
    """Topics the anonymous may close that identities subscribe to and may publish on."""
    identity: tuple[IdentitySettings, ...] = ()
    """Those who may come in by name."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What happens to subscribers who read too slowly."""

    when_full: Mapping[str, OverflowPolicy] = field(default_factory=lambda: NO_POLICIES)
    """A policy for each pattern of topics, such as `"alarms.*" = "block"`; the first pattern that fits counts.

    `skip` leaves some out and says how many, `close` ends the session, `unsubscribe` the subscription, `block` stops
    reading from the publishers. It overrides what subscribers ask for.
    """


@dataclass(frozen=True, slots=True)
class Umq36Settings:
    """The UMQ36 protocol."""

    default_method: str = ""
    """The method that gets calls whose payload names none; empty refuses them."""


@dataclass(frozen=True, slots=True)
class NqSettings:
    """The NQ protocol: how long the hub stands by what it has promised."""

    request_ttl: Seconds = 7 * 24 * 3600.0
    """Seconds for which an accepted request waits for its answer, whoever comes and goes meanwhile."""
    answer_ttl: Seconds = 24 * 3600.0
    """Seconds for which an answer is kept that its peer does not acknowledge."""
    duplicate_window: Seconds = 3600.0
    """Seconds for which a finished request is remembered, so that a late copy of it is not run again."""
    accept_within: Annotated[float, Meta(ge=0)] = 0.02
    """Seconds after which a peer hears that its request is accepted; an answer that comes sooner says so too."""
    peer_ttl: Seconds = 24 * 3600.0
    """Seconds of silence after which a peer is forgotten, with all that was kept for it."""
    secure_cookie: bool = False
    """Whether browsers send the cookie of NQ peers over HTTPS alone.

    Without it the hub decides by `X-Forwarded-Proto` or `Forwarded`: set it if the proxy sends neither.
    """


@dataclass(frozen=True, slots=True)
class ZmqSettings:
    """ZeroMQ: a ROUTER for peers that speak NQ, each message in one frame."""

    listen: bool = False
    """Whether there is one. It is for this machine alone, as ZeroMQ's routing ids prove nothing."""
    port: Port = 7555
    """Its port, on the address of `[server]`; 0 takes a free one."""
    targets: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NO_TARGETS)
    """Methods whose work ZeroMQ programs do that know nothing of the hub, and where these are.

    Each has a list of endpoints, such as `"image.scale" = ["tcp://127.0.0.1:5001", "tcp://127.0.0.1:5002"]`: REP,
    ROUTER or DEALER sockets there get the argument as JSON, in turns. With `bind ` before it, the programs connect to
    the endpoint.
    """
    retry_after: Seconds = 30.0
    """Seconds after which such a program gets a request again that it did not answer, or the next one does."""


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """MQTT: RPC with protobuf on the topics of a broker, and topics that are shared with it."""

    enabled: bool = False
    """Whether the hub has a broker."""
    url: str = ""
    """Any broker that speaks MQTT 3.1.1: `mqtt://host:1883`, or with TLS `mqtts://host:8883`.

    Empty starts one for this machine alone (nats-server); it ends with the hub.
    """
    user: str = ""
    """As whom the hub comes to that broker.

    The broker that the hub starts lets only this user publish what hubs tell each other; without it, only this hub.
    """
    password: Secret = NO_SECRET
    """Belongs to `user`."""
    password_file: str = ""
    """A file that holds the password instead."""
    ca_file: str = ""
    """A file with the certificates by which the broker's is checked; empty takes those of the system."""
    port: Port = 1883
    """The port of the broker that the hub starts; 0 takes a free one."""
    identity: str = ""
    """The `[[auth.identity]]` whose rights those have who come by way of the broker; empty are the anonymous."""
    schemas: tuple[str, ...] = ()
    """Files with descriptor sets, made by `protoc --include_imports --descriptor_set_out=FILE`.

    On the topic of a service that they know, such as `/Greeter`, protobuf is JSON for all others.
    """
    services: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)
    """Services on the broker that the hub offers to all: a topic and, for its schema, the service's full name.

    `"/Greeter" = "demo.Greeter"` makes `greeter.say_hello` of its `SayHello`. Without a schema,
    `"/Meter/Read" = "bytes"` makes `meter.read` of the type `Read` on `/Meter`: it takes bytes or nothing, and gives
    bytes.
    """
    attachments: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)
    """Where attachments go: a message of a schema, and its field of `bytes`: `"demo.Photo" = "files"`."""
    serve: tuple[str, ...] = ()
    """Topics on which the hub answers, besides those of the methods that it has: other ways to write them.

    `"/Account"` answers for `account.get_balance`, which is on `/account` in any case.
    """
    max_payload: Annotated[int, Meta(ge=1)] = 1_000_000
    """Bytes of a message that the broker takes. Most that are given more end the link, and nats-server takes 1 MiB."""
    retry_after: Seconds = 60.0
    """Seconds after which a service behind the broker gets a request of NQ again that it did not answer."""
    topics: Mapping[str, BridgeDirection] = field(default_factory=lambda: NO_BRIDGED_TOPICS)
    """MQTT topics that are topics of the hub too: a filter, and `in` (to the hub), `out` or `both`.

    `"sensors/#" = "both"` is what `sensors.*` is in UMQ. Filters must not overlap.
    """


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where that is kept which must outlive the hub: accepted requests of NQ, and their answers."""

    path: str = ""
    """A file, made if it is not there; empty keeps everything in memory, where it ends with the hub."""
    settle: Annotated[float, Meta(ge=0)] = 10.0
    """Seconds after a restart in which those who offered methods may come back before these are unknown."""
    clock_jump: Annotated[float, Meta(gt=0)] = 86_400.0
    """Seconds that the clock may differ from the last record; beyond that, nothing expires until it is confirmed."""


@dataclass(frozen=True, slots=True)
class SettingsOrigin:
    """What settings were made from, so that they can be read again."""

    path: Path | None
    # The environment may hold anything, so it is not shown.
    env: Mapping[str, str] = field(repr=False)
    flags: Mapping[str, object] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """All sections; `settings.load` makes them."""

    server: ServerSettings = ServerSettings()
    limits: LimitSettings = field(default_factory=LimitSettings)
    calls: CallSettings = CallSettings()
    auth: AuthSettings = AuthSettings()
    topics: TopicSettings = field(default_factory=TopicSettings)
    umq36: Umq36Settings = Umq36Settings()
    nq: NqSettings = NqSettings()
    zmq: ZmqSettings = field(default_factory=ZmqSettings)
    mqtt: MqttSettings = field(default_factory=MqttSettings)
    store: StoreSettings = StoreSettings()
    journal: JournalSettings = field(default_factory=JournalSettings)
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    app: AppSettings = field(default_factory=AppSettings)
    log: LogSettings = field(default_factory=LogSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    tracing: TracingSettings = field(default_factory=TracingSettings)
    origin: SettingsOrigin | None = field(default=None, compare=False, repr=False)

    def protocol_options(self) -> dict[str, dict[str, object]]:
        """Return the sections of protocols, by the name of the protocol."""
        default, nq = self.umq36.default_method, self.nq
        return {
            "umq36": {"default_method": default} if default else {},
            "nq": {
                "request_ttl": nq.request_ttl,
                "answer_ttl": nq.answer_ttl,
                "duplicate_window": nq.duplicate_window,
                "accept_within": nq.accept_within,
            },
        }
