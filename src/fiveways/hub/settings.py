"""What an operator decides about the hub: who may come in, who may do what, how long, how much."""

from dataclasses import dataclass, field
from typing import Final

from fiveways.hub.shares import LimitShares

ANY_NAME: Final = ("*",)
ANONYMOUS_CHOICES: Final = ("loopback", "always", "never")


@dataclass(frozen=True, slots=True)
class Permissions:
    """What somebody may do: lists of globs in which `*` stands for any characters, dots included.

    Methods are matched as folded (`account.get_balance`), topics and patterns as UMQ writes them (`sensors.*.heat`).
    """

    call: tuple[str, ...] = ANY_NAME
    offer: tuple[str, ...] = ANY_NAME
    publish: tuple[str, ...] = ANY_NAME
    subscribe: tuple[str, ...] = ANY_NAME
    push: tuple[str, ...] = ANY_NAME
    """Work queues, by their names."""
    pull: tuple[str, ...] = ANY_NAME
    close: tuple[str, ...] = ()
    """Topics that others publish on and subscribe to."""


ALL_PERMISSIONS: Final = Permissions()
NO_PERMISSIONS: Final = Permissions((), (), (), (), (), ())


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody the hub knows: by a token, by the secret of an HMAC challenge, or by either."""

    name: str
    token: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    permissions: Permissions = ALL_PERMISSIONS


@dataclass(frozen=True, slots=True)
class HubSettings:
    """All that may be changed while the hub runs. Times are in seconds, sizes in bytes."""

    call_timeout: float = 30.0
    """For calls that name none themselves."""
    max_timeout: float = 3600.0
    login_timeout: float = 10.0
    """From the arrival of a link to the end of its handshake."""
    anonymous: str = "loopback"
    """Who is let in without an identity: loopback, always or never."""
    identities: tuple[Identity, ...] = ()
    max_failures: int = 10
    """Failed logins of one address before it has to wait, longer after each further one; 0 is no limit."""
    max_ban: float = 300.0
    """The longest of these waits."""
    name_grace: float = 60.0
    """How long after the last session of an identity its registered names are reserved for it."""
    anonymous_permissions: Permissions = ALL_PERMISSIONS
    """What they may do who came in without an identity."""
    topic_policies: tuple[tuple[str, str], ...] = ()
    """A glob over topics, and what happens to slow readers there, whatever they chose. The first that fits counts."""
    share: float = 0.5
    """The part of each limit for the whole hub that one identity, or one address of anonymous peers, may use."""
    anonymous_share: float = 0.75
    """The part that all anonymous peers together may use, if there are identities."""
    max_sessions: int = 100_000
    max_resumable: int = 40_000
    """Sessions that may outlive their connections, with or without one."""
    max_offers: int = 4096
    """Methods and routes that one session may offer."""
    max_subscription_bytes: int = 256 << 20
    """An estimate of the memory of all subscriptions."""
    max_match_steps: int = 1024
    """Lookups and comparisons by which the subscribers of one topic are found."""
    max_retained: int = 10_000
    max_retained_bytes: int = 64 << 20
    max_queues: int = 1000
    max_queue: int = 10_000
    """Items of one work queue, those that somebody works on included."""
    max_queue_bytes: int = 64 << 20
    """Of all work queues together."""
    max_tries: int = 5
    """How often an item is given out that nobody finishes, before it is put aside."""
    retry_delay: float = 1.0
    """Seconds before the second try of an item whose worker failed, twice as long before each further one."""
    max_retry_delay: float = 60.0
    rate: float = 0.0
    """Requests a second that one session may make, and as many at once; 0 is no limit."""
    max_owed: int = 1_000_000
    """Requests that were accepted and are not answered."""
    max_owed_bytes: int = 256 << 20
    """The size of these together."""
    max_given: int = 256
    """Of these, those that one callee works on at once; the others wait."""
    request_ttl: float = 7 * 24 * 3600.0
    """For requests that were accepted: after this they have failed."""
    answer_ttl: float = 24 * 3600.0
    """For answers that nobody acknowledges."""
    max_unacknowledged_bytes: int = 512 << 20
    """What all peers of NQ together make the hub hold until they react."""
    max_incomplete_bytes: int = 256 << 20
    """The size of messages that are held until their attachments have come."""
    duplicate_window: float = 3600.0
    """How long it is remembered that a request was answered."""
    max_methods: int = 200
    """Methods that are counted by name; all others are counted together."""
    max_topics: int = 200
    """Topics, likewise."""
    version: str = ""
    """What the hub calls itself when it welcomes somebody."""

    @property
    def shares(self) -> LimitShares:
        """The parts of each limit for the whole hub that owners may use."""
        return LimitShares(self.share, self.anonymous_share if self.identities else 1.0)

    def __post_init__(self) -> None:
        """Refuse what would silently let nobody in, or anybody."""
        if self.anonymous not in ANONYMOUS_CHOICES:
            raise ValueError(f"anonymous is one of {', '.join(ANONYMOUS_CHOICES)}, not {self.anonymous!r}")


DEFAULTS: Final = HubSettings()
