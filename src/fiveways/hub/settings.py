"""Settings of the hub: admission, permissions, timeouts and limits."""

from dataclasses import dataclass, field
from typing import Final

from fiveways.hub.shares import LimitShares

ANY_NAME: Final = ("*",)
ANONYMOUS_CHOICES: Final = ("loopback", "always", "never")


@dataclass(frozen=True, slots=True)
class Permissions:
    """Lists of globs, in which `*` stands for any characters, dots included.

    Methods are matched in folded form (`account.get_balance`), topics and patterns in UMQ style (`sensors.*.heat`).
    """

    call: tuple[str, ...] = ANY_NAME
    offer: tuple[str, ...] = ANY_NAME
    publish: tuple[str, ...] = ANY_NAME
    subscribe: tuple[str, ...] = ANY_NAME
    push: tuple[str, ...] = ANY_NAME
    """Names of work queues."""
    pull: tuple[str, ...] = ANY_NAME
    close: tuple[str, ...] = ()
    """Topics with subscribers or publishers of other identities."""


ALL_PERMISSIONS: Final = Permissions()
NO_PERMISSIONS: Final = Permissions((), (), (), (), (), ())


@dataclass(frozen=True, slots=True)
class Identity:
    """A configured identity: authenticated by a token, by the secret of an HMAC challenge, or by either."""

    name: str
    token: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    permissions: Permissions = ALL_PERMISSIONS


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Settings that may change while the hub runs. Times are in seconds, sizes in bytes."""

    call_timeout: float = 30.0
    """Default timeout of calls."""
    max_timeout: float = 3600.0
    login_timeout: float = 10.0
    """From the first connection to the end of the handshake."""
    anonymous: str = "loopback"
    """Admission of peers without an identity: loopback, always or never."""
    identities: tuple[Identity, ...] = ()
    max_failures: int = 10
    """Failed logins of one address before it has to wait, longer after each further one; 0 is no limit."""
    max_ban: float = 300.0
    """Maximum wait after failed logins."""
    name_grace: float = 60.0
    """Seconds after the last session of an identity for which its registered names are reserved."""
    anonymous_permissions: Permissions = ALL_PERMISSIONS
    """Permissions of anonymous peers."""
    topic_policies: tuple[tuple[str, str], ...] = ()
    """Globs over topics with their overflow policies; the first match wins over the subscriber's choice."""
    share: float = 0.5
    """The part of each hub-wide limit that one identity, or one address of anonymous peers, may use."""
    anonymous_share: float = 0.75
    """The part that all anonymous peers together may use, if identities are configured."""
    max_sessions: int = 100_000
    max_resumable: int = 40_000
    """Sessions that may outlive their connections, connected or not."""
    max_offers: int = 4096
    """Methods and routes of one session."""
    max_subscription_bytes: int = 256 << 20
    """Estimated memory of all subscriptions."""
    max_match_steps: int = 1024
    """Lookups and comparisons to find the subscribers of one topic."""
    max_retained: int = 10_000
    max_retained_bytes: int = 64 << 20
    max_queues: int = 1000
    max_queue: int = 10_000
    """Jobs of one work queue, assigned ones included."""
    max_queue_bytes: int = 64 << 20
    """Bytes of all work queues together."""
    max_tries: int = 5
    """Tries of a job before it goes to the dead-letter queue."""
    retry_delay: float = 1.0
    """Delay before the second try of a failed job; it doubles with each further try."""
    max_retry_delay: float = 60.0
    rate: float = 0.0
    """Requests per second of one session, and the size of a burst; 0 is no limit."""
    max_owed: int = 1_000_000
    """Durable requests without an answer."""
    max_owed_bytes: int = 256 << 20
    """Bytes of these requests."""
    max_given: int = 256
    """Durable requests at one callee at a time; others wait."""
    request_ttl: float = 7 * 24 * 3600.0
    """Durable requests fail after this time."""
    answer_ttl: float = 24 * 3600.0
    """Stored answers without acknowledgement are deleted after this time."""
    max_unacknowledged_bytes: int = 512 << 20
    """Bytes that the hub holds for all NQ peers together until they acknowledge them."""
    max_incomplete_bytes: int = 256 << 20
    """Bytes of messages that are held until their attachments have come."""
    duplicate_window: float = 3600.0
    """Deduplication window: how long the hub remembers a finished request."""
    max_methods: int = 200
    """Methods with counters of their own; all others share one."""
    max_topics: int = 200
    """Topics with counters of their own; all others share one."""
    version: str = ""
    """The version in the hub's welcome message."""

    @property
    def shares(self) -> LimitShares:
        """The parts of each hub-wide limit that owners may use."""
        return LimitShares(self.share, self.anonymous_share if self.identities else 1.0)

    def __post_init__(self) -> None:
        """Reject a value that would silently admit no peer, or every peer."""
        if self.anonymous not in ANONYMOUS_CHOICES:
            raise ValueError(f"anonymous is one of {', '.join(ANONYMOUS_CHOICES)}, not {self.anonymous!r}")


DEFAULTS: Final = HubSettings()
