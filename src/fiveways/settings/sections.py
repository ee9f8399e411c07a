"""Sections of the settings, with defaults and documentation.

The docstring of a field is the documentation of the setting, for `fiveways config show --docs` and the configuration
page.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from fiveways.settings.limits import LimitSettings
from fiveways.settings.operations import (
    AppSettings,
    DashboardSettings,
    JournalSettings,
    LogSettings,
    MetricsSettings,
    TracingSettings,
)

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
    """Text that is displayed as `***`."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the plain text."""
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
    """Address, port and connections of the hub."""

    host: str = "127.0.0.1"
    """Address to listen on; an empty text is all addresses.

    Only loopback is allowed without an identity in `[auth]`, except with `anonymous = "always"`.
    """
    port: Port = 7500
    """Port for WebSocket and HTTP; 0 is any free port."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may connect, such as `https://example.com`; local origins are always allowed."""
    hosts: tuple[str, ...] = ()
    """Host names by which clients reach the hub (HTTP `Host`), in addition to its own address and `localhost`."""
    ping_interval: Seconds = 20.0
    """Seconds of silence after which a keepalive is sent to a peer."""
    ping_timeout: Seconds = 20.0
    """Seconds for a peer to answer a keepalive."""
    drain_timeout: Seconds = 10.0
    """Seconds for open calls to end when the hub is stopped."""
    spool_directory: str = ""
    """Directory for large attachments; empty is the system's directory for temporary files."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Timeouts of calls."""

    timeout: Seconds = 30.0
    """Seconds until a call times out if its caller sets no timeout."""
    max_timeout: Seconds = 3600.0
    """Maximum seconds for the timeout of a call."""


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """Identity of peers, written `[[auth.identity]]`; it needs a token, a secret or both."""

    name: Annotated[str, Meta(min_length=1)]
    """Name in logs; a client that proves a secret logs in with it."""
    token: Secret = NO_SECRET
    """Token of the identity's clients (UMQ hello or variable `token`, HTTP `Authorization: Bearer`)."""
    token_file: str = ""
    """File with the token, instead of `token`; relative to the configuration file."""
    secret: Secret = NO_SECRET
    """Secret that an lrpm client proves to know (HMAC-SHA256) without sending it."""
    secret_file: str = ""
    """File with the secret, instead of `secret`; relative to the configuration file."""
    call: tuple[str, ...] = ("*",)
    """Methods that the identity may call; `*` matches any characters, as in `account.*`."""
    offer: tuple[str, ...] = ("*",)
    """Methods that the identity may register.

    Names that match a pattern other than `*` may be shared with other identities, or taken over from them.
    """
    publish: tuple[str, ...] = ("*",)
    """Topics on which the identity may publish."""
    subscribe: tuple[str, ...] = ("*",)
    """Topics and patterns to which the identity may subscribe."""
    push: tuple[str, ...] = ("*",)
    """Work queues to which the identity may push jobs."""
    pull: tuple[str, ...] = ("*",)
    """Work queues from which the identity may pull jobs. It may also list, redrive and drop their dead jobs."""
    close: tuple[str, ...] = ()
    """Topics that the identity may close (`hub.close`) although others subscribe to them and may publish on them."""


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Authentication of peers, and the permissions of anonymous peers."""

    anonymous: AnonymousAccess = "loopback"
    """Access without token and secret: `loopback` (from this machine only), `always` or `never`.

    Behind a reverse proxy on this machine all peers appear to be local: set `never`.
    """
    login_timeout: Seconds = 10.0
    """Seconds for a peer to authenticate."""
    allow_weak_tokens: bool = False
    """Whether `fiveways config check` accepts tokens and secrets of less than 128 bits."""
    max_failures: Annotated[int, Meta(ge=0)] = 10
    """Failed logins after which a network address must wait: 1 s, doubled after each further failure.

    0 is unlimited. Behind a proxy on this machine, the address is the last one in `X-Forwarded-For`.
    """
    max_ban: Seconds = 300.0
    """Maximum seconds that an address must wait after failed logins."""
    name_grace: Annotated[float, Meta(ge=0)] = 60.0
    """Seconds after the last session of an identity in which no other identity may register its methods."""
    call: tuple[str, ...] = ("*",)
    """Methods that anonymous peers may call."""
    offer: tuple[str, ...] = ("*",)
    """Methods that anonymous peers may register."""
    publish: tuple[str, ...] = ("*",)
    """Topics on which anonymous peers may publish."""
    subscribe: tuple[str, ...] = ("*",)
    """Topics and patterns to which anonymous peers may subscribe."""
    push: tuple[str, ...] = ("*",)
    """Work queues to which anonymous peers may push jobs."""
    pull: tuple[str, ...] = ("*",)
    """Work queues from which anonymous peers may pull jobs. They may also list, redrive and drop their dead jobs."""
    close: tuple[str, ...] = ()
    """Topics that anonymous peers may close although identities subscribe to them and may publish on them."""
    identity: tuple[IdentitySettings, ...] = ()
    """Identities that may log in."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Handling of slow consumers."""

    when_full: Mapping[str, OverflowPolicy] = field(default_factory=lambda: NO_POLICIES)
    """Overflow policies by topic pattern, such as `"alarms.*" = "block"`; the first matching pattern applies.

    `skip` drops events and reports their number, `close` closes the session, `unsubscribe` ends the subscription,
    `block` applies backpressure to publishers. These policies override those of subscribers.
    """


@dataclass(frozen=True, slots=True)
class Umq36Settings:
    """The UMQ36 protocol."""

    default_method: str = ""
    """Method for calls without a method name in their payload; empty rejects such calls."""


@dataclass(frozen=True, slots=True)
class NqSettings:
    """The NQ protocol: durable requests and their responses."""

    request_ttl: Seconds = 7 * 24 * 3600.0
    """Seconds until an accepted request without a response expires."""
    answer_ttl: Seconds = 24 * 3600.0
    """Seconds for which a response is stored that its peer does not acknowledge."""
    duplicate_window: Seconds = 3600.0
    """Deduplication window: seconds after a request is finished in which a late copy is not run again."""
    accept_within: Annotated[float, Meta(ge=0)] = 0.02
    """Seconds after which a request is confirmed as accepted; an earlier response confirms it, too."""
    peer_ttl: Seconds = 24 * 3600.0
    """Seconds of silence after which a peer's session is dropped, with all its requests and responses."""
    secure_cookie: bool = False
    """Whether browsers send the cookie of NQ peers over HTTPS only.

    By default the hub decides this by `X-Forwarded-Proto` or `Forwarded`. Set it if the proxy sends neither.
    """


@dataclass(frozen=True, slots=True)
class ZmqSettings:
    """ZeroMQ: a ROUTER socket for NQ peers, with one message per frame."""

    listen: bool = False
    """Whether the hub listens for ZeroMQ, on this machine only: ZeroMQ's routing ids prove nothing."""
    port: Port = 7555
    """ZeroMQ port, on the address of `[server]`; 0 is any free port."""
    targets: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NO_TARGETS)
    """Methods that are implemented by ZeroMQ programs without knowledge of the hub, and their endpoints.

    Each has a list of endpoints, such as `"image.scale" = ["tcp://127.0.0.1:5001", "tcp://127.0.0.1:5002"]`. REP,
    ROUTER or DEALER sockets there get the argument as JSON, in turn. With the prefix `bind `, the hub listens on the
    endpoint and the programs connect to it.
    """
    retry_after: Seconds = 30.0
    """Seconds after which an unanswered request is sent again, to the same or the next ZeroMQ program."""


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """MQTT: RPC with protobuf on the topics of a broker, and bridged topics."""

    enabled: bool = False
    """Whether the hub connects to a broker, or starts one."""
    url: str = ""
    """URL of an MQTT 3.1.1 broker: `mqtt://host:1883`, or with TLS `mqtts://host:8883`.

    Empty starts a broker for this machine only (nats-server), which stops with the hub.
    """
    user: str = ""
    """User name of the hub at the broker.

    At a broker started by a hub, only this user may publish the messages between hubs; if empty, only that hub may.
    """
    password: Secret = NO_SECRET
    """Password of `user`."""
    password_file: str = ""
    """File with the password, instead of `password`."""
    ca_file: str = ""
    """File with CA certificates for the broker's certificate; empty uses those of the system."""
    port: Port = 1883
    """Port of the broker that the hub starts; 0 is any free port."""
    identity: str = ""
    """Identity of `[[auth.identity]]` with the permissions of peers behind the broker; empty: they are anonymous."""
    schemas: tuple[str, ...] = ()
    """Files with descriptor sets, generated by `protoc --include_imports --descriptor_set_out=FILE`.

    On the topic of a service in them, such as `/Greeter`, protobuf is converted to JSON for peers of other protocols.
    """
    services: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)
    """Services at the broker that the hub registers as methods: topic and full name of the service in the schema.

    `"/Greeter" = "demo.Greeter"` registers `greeter.say_hello` for its `SayHello`. Without a schema,
    `"/Meter/Read" = "bytes"` registers `meter.read` for the type `Read` on `/Meter`; argument and result are bytes,
    and the argument may be empty.
    """
    attachments: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)
    """Fields for attachments: a message of a schema, and its field of type `bytes`: `"demo.Photo" = "files"`."""
    serve: tuple[str, ...] = ()
    """Further topics on which the hub answers, as other spellings of those of its methods.

    `"/Account"` answers for `account.get_balance`, which is on `/account` in any case.
    """
    max_payload: Annotated[int, Meta(ge=1)] = 1_000_000
    """Maximum bytes of a message to the broker. Above its own limit it closes the connection (nats-server: 1 MiB)."""
    retry_after: Seconds = 60.0
    """Seconds after which an unanswered NQ request is sent again to a service behind the broker."""
    topics: Mapping[str, BridgeDirection] = field(default_factory=lambda: NO_BRIDGED_TOPICS)
    """Bridged MQTT topics: a filter, and the direction `in` (to the hub), `out` or `both`.

    `"sensors/#" = "both"` bridges the topics `sensors.*` of UMQ. Filters must not overlap.
    """


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Store for data that survives a restart: durable requests (NQ), their responses, jobs and retained values."""

    path: str = ""
    """File of the store, created if it is missing; empty keeps everything in memory, so it is lost on a restart."""
    settle: Annotated[float, Meta(ge=0)] = 10.0
    """Seconds after a restart in which callees may return before their methods are treated as unknown."""
    clock_jump: Annotated[float, Meta(gt=0)] = 86_400.0
    """Difference in seconds between clock and last record above which nothing expires until it is confirmed."""


@dataclass(frozen=True, slots=True)
class SettingsOrigin:
    """Sources of settings, for a reload."""

    path: Path | None
    # The environment may contain credentials, so `repr` omits it.
    env: Mapping[str, str] = field(repr=False)
    flags: Mapping[str, object] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """All sections; created by `settings.load`."""

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
        """Return the options of protocols by protocol name."""
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
