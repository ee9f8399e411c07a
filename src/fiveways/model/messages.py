"""Messages of the hub, independent of any protocol. The bridge of each protocol translates to and from them.

Request ids are chosen by the sender and unique among the open requests of a conversation. Method names are folded
(`names.fold`); `spelling` is the sender's form of the name, or the form that the receiver wants. A message names its
attachments; they follow as `Attachment` when they are available. Attachment names are valid within one conversation and
direction only: relaying a message renames its attachments.
"""

from collections.abc import Mapping

import msgspec

from fiveways.errors import ErrorText, Reason
from fiveways.model.topics import Pattern, Topic
from fiveways.wire.blob import Blob
from fiveways.wire.payload import NULL, Payload


class HubMessage(msgspec.Struct, frozen=True, gc=False):
    """Base class of all messages."""


# Session messages. Admission is decided outside of the conversation.


class Hello(HubMessage, frozen=True):
    """Login of a client; answered by `Welcome`, `Challenge` or `Goodbye`."""

    body: Payload = NULL
    attachments: tuple[str, ...] = ()


class Challenge(HubMessage, frozen=True):
    """Request to prove the identity; answered by `Proof`. There may be several rounds."""

    body: Payload = NULL


class Proof(HubMessage, frozen=True):
    """Response to a `Challenge`."""

    body: Payload = NULL


class Welcome(HubMessage, frozen=True):
    """Confirmation that the session is open."""

    body: Payload = NULL
    attachments: tuple[str, ...] = ()


class Goodbye(HubMessage, frozen=True):
    """End of the session by the sender; `denied` if it is a refused login."""

    text: str = ""
    denied: bool = False


# Calls and responses.


class Call(HubMessage, frozen=True):
    """Call of a method, or of the one-shot callback with the token `method`."""

    id: str
    method: str
    body: Payload = NULL
    spelling: str = ""
    attachments: tuple[str, ...] = ()
    callback: bool = False
    timeout: float | None = None
    """Seconds that the caller waits; None: the hub's default."""
    more: bool = False
    """The request is a stream: `body` is its first element, `Part`s follow."""
    stream: bool = False
    """The caller accepts a streamed response."""
    progress: bool = False
    """The caller accepts `Progress`."""
    traceparent: str = ""
    redelivered: bool = False
    """The call was delivered before, and may have run."""
    extras: Mapping[str, Payload] | None = None
    """Additional keys of the caller, for callees with support for them in their protocol."""


class Part(HubMessage, frozen=True):
    """Further element of a streamed request; the last one may have no body."""

    id: str
    body: Payload | None = None
    last: bool = False


class Accepted(HubMessage, frozen=True):
    """Confirmation that a durable request was accepted: it will be answered (at-least-once)."""

    id: str


class Progress(HubMessage, frozen=True):
    """Progress message of a running call; never part of its result."""

    id: str
    body: Payload = NULL
    kind: str = "note"
    """`note`, `warn`, `tmp` or `debug`."""
    code: str = ""
    text: str = ""
    args: tuple[str, ...] = ()


class Result(HubMessage, frozen=True):
    """Response of a call or, with `stream`, one element of it. The last element may be absent (body None)."""

    id: str
    body: Payload | None = NULL
    attachments: tuple[str, ...] = ()
    stream: bool = False
    last: bool = True
    extras: Mapping[str, Payload] | None = None
    """Additional keys of the callee, for callers with support for them in their protocol."""


class Failure(HubMessage, frozen=True):
    """End of a call without a result. `name` and `code` are set by the callee, if its protocol has them."""

    id: str
    reason: Reason
    text: str = ""
    data: Payload | None = None
    retry_after: float | None = None
    name: str = ""
    code: int = 0
    wording: ErrorText | None = None
    """Original wording of the callee, if its protocol has more fields than those above."""


class Cancel(HubMessage, frozen=True):
    """The caller no longer needs the response to `id`."""

    id: str


class Acknowledged(HubMessage, frozen=True):
    """The caller has the complete response to `id`, so the hub may drop it."""

    id: str


class Stray(HubMessage, frozen=True):
    """Report of a discarded response without a pending call."""

    id: str
    text: str = ""


# Topics.


class Publish(HubMessage, frozen=True):
    """Publication to all subscribers. Without an id no response is wanted."""

    id: str | None
    topic: Topic
    body: Payload = NULL
    attachments: tuple[str, ...] = ()
    retain: bool = False
    exclude_me: bool = False


class Subscribe(HubMessage, frozen=True):
    """Subscription to `pattern`; its `Event`s are named `subscription`."""

    id: str
    pattern: Pattern
    subscription: str
    envelope: bool = False
    when_full: str = ""


class Unsubscribe(HubMessage, frozen=True):
    """End of a subscription by the subscriber. Without an id no response is wanted."""

    id: str | None
    subscription: str


class Event(HubMessage, frozen=True):
    """Publication for one subscription. `missed` counts publications that a full outbox skipped before it."""

    subscription: str
    topic: Topic
    body: Payload = NULL
    attachments: tuple[str, ...] = ()
    publication: int = 0
    missed: int = 0
    envelope: bool = False


class TopicClosed(HubMessage, frozen=True):
    """End of a subscription by the publisher's side: no further `Event` follows."""

    subscription: str


class Update(HubMessage, frozen=True):
    """Update on a topic id that sender and receiver agreed on, without a topic of the hub."""

    name: str
    """Topic id."""
    body: Payload = NULL
    attachments: tuple[str, ...] = ()
    peer: str = ""
    """Peer that it belongs to, if the hub relays it."""
    missed: int = 0


class UpdatesClosed(HubMessage, frozen=True):
    """No further `Update` on a topic id follows."""

    name: str
    peer: str = ""


class StopUpdates(HubMessage, frozen=True):
    """No further `Update` on a topic id is wanted."""

    name: str


class CloseTopic(HubMessage, frozen=True):
    """Request to end a topic for all its subscribers."""

    id: str | None
    topic: Topic


# Registrations and their descriptions.


class Register(HubMessage, frozen=True):
    """Registration of a method or, with `route`, of all names below `method`."""

    id: str
    method: str
    spelling: str = ""
    route: bool = False
    doc: str = ""
    kind: str = "unary"
    """Which side streams: `unary`, `server`, `client` or `both`."""
    share: str = ""
    """Sharing among several callees: `round_robin`, `random`, `first` or `open`."""


class Unregister(HubMessage, frozen=True):
    """End of a registration."""

    id: str
    method: str
    spelling: str = ""
    route: bool = False


class Discover(HubMessage, frozen=True):
    """Request for registered names. `name` is empty for all, a route for the names below it, a method for its docs.

    `name` has the spelling of the sender: the lists of a route are kept by the peer that registered it.
    """

    id: str
    name: str = ""


class Description(HubMessage, frozen=True):
    """Response to `Discover`: lists, or the documentation of one method. Names are in the reader's spelling."""

    id: str
    methods: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    doc: str | None = None
    more: int = 0
    """Number of names left out because they do not fit into one message."""
    namespaces: tuple[str, ...] = ()
    """Unregistered prefixes of the listed methods; UMQ lists them as routes (UMQ1-x09)."""


# Variables of a session, and attachments.


class SetVariable(HubMessage, frozen=True):
    """New value of the sender's variable `name`, which the other side can read. Without an id no response is wanted."""

    id: str | None
    name: str
    body: Payload = NULL
    attachments: tuple[str, ...] = ()


class UnsetVariable(HubMessage, frozen=True):
    """Removal of the sender's variable `name`."""

    id: str | None
    name: str


class Attachment(HubMessage, frozen=True):
    """Attachment that an earlier message named: complete, or failed with `error`."""

    name: str
    data: bytes | Blob = b""
    error: str | None = None


class Hurry(HubMessage, frozen=True):
    """Notice that an attachment delays complete messages or attachments of others.

    A conversation sends it to the hub for an attachment that its peer waits for. The hub sends it to the conversation
    of the peer that announced the attachment; that peer itself is not notified.
    """

    name: str
    at: float = 0.0
    """Start of the delay by the hub's clock; set by the hub only."""
