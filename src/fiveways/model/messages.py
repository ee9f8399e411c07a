"""The hub's own words. No protocol's words occur here, and every protocol's bridge speaks these.

Identifiers are texts chosen by whoever sent the request, unique among the open requests of that conversation. Method
names are folded (`names.fold`); `spelling` is how the sender wrote them, or how the receiver wants them written.
Attachments are named by whoever sends the message, and follow it one by one, whenever they are there, as `Attachment`.
A name means something within one conversation and one direction only: who relays a message renames its attachments.
"""

from collections.abc import Mapping

import msgspec

from fiveways.errors import ErrorText, Reason
from fiveways.model.topics import Pattern, Topic
from fiveways.wire.blob import Blob
from fiveways.wire.payload import NULL, Payload


class HubMessage(msgspec.Struct, frozen=True, gc=False):
    """The root of all of them."""


# Opening and closing a session. Who may come in is decided above the conversation.


class Hello(HubMessage, frozen=True):
    """A client introduces itself; answered by `Welcome`, `Challenge` or `Goodbye`."""

    body: Payload = NULL
    attachments: tuple[str, ...] = ()


class Challenge(HubMessage, frozen=True):
    """Prove who you are; answered by `Proof`. There may be several rounds."""

    body: Payload = NULL


class Proof(HubMessage, frozen=True):
    """The answer to a `Challenge`."""

    body: Payload = NULL


class Welcome(HubMessage, frozen=True):
    """The session is open."""

    body: Payload = NULL
    attachments: tuple[str, ...] = ()


class Goodbye(HubMessage, frozen=True):
    """The sender ends the session. `denied` tells a refusal at the door from a parting."""

    text: str = ""
    denied: bool = False


# Calls and their answers.


class Call(HubMessage, frozen=True):
    """Run a method, or the one-shot callback whose token is `method`."""

    id: str
    method: str
    body: Payload = NULL
    spelling: str = ""
    attachments: tuple[str, ...] = ()
    callback: bool = False
    timeout: float | None = None
    """Seconds the caller will wait; None leaves it to the hub."""
    more: bool = False
    """The request is a stream: `body` is its first element, `Part`s follow."""
    stream: bool = False
    """The caller can take the answer in parts."""
    progress: bool = False
    """The caller wants `Progress`."""
    traceparent: str = ""
    redelivered: bool = False
    """It was given to somebody before, who may have run it."""
    extras: Mapping[str, Payload] | None = None
    """Keys of the caller's own, for callees whose protocol has room for them."""


class Part(HubMessage, frozen=True):
    """One more element of a streamed request; the last one may carry no body."""

    id: str
    body: Payload | None = None
    last: bool = False


class Accepted(HubMessage, frozen=True):
    """The request is safe: it will be answered, whatever happens."""

    id: str


class Progress(HubMessage, frozen=True):
    """A side message while a call runs; never part of its result."""

    id: str
    body: Payload = NULL
    kind: str = "note"
    """note, warn, tmp or debug."""
    code: str = ""
    text: str = ""
    args: tuple[str, ...] = ()


class Result(HubMessage, frozen=True):
    """The answer, or with `stream` one element of it. The end of a stream may carry an element or, as None, none."""

    id: str
    body: Payload | None = NULL
    attachments: tuple[str, ...] = ()
    stream: bool = False
    last: bool = True
    extras: Mapping[str, Payload] | None = None
    """Keys of the callee's own, for callers whose protocol has room for them."""


class Failure(HubMessage, frozen=True):
    """The call ended without a result. `name` and `code` are the callee's own, where its protocol has them."""

    id: str
    reason: Reason
    text: str = ""
    data: Payload | None = None
    retry_after: float | None = None
    name: str = ""
    code: int = 0
    wording: ErrorText | None = None
    """How the callee said it, where its protocol has more than a text, and more than what is said above."""


class Cancel(HubMessage, frozen=True):
    """The caller no longer wants the answer to `id`."""

    id: str


class Acknowledged(HubMessage, frozen=True):
    """The caller has the whole answer to `id`; what was kept for it may go."""

    id: str


class Stray(HubMessage, frozen=True):
    """An answer came that nobody waits for; it was discarded, and somebody should know."""

    id: str
    text: str = ""


# Topics.


class Publish(HubMessage, frozen=True):
    """Give `body` to all who subscribed. Without an id no answer is wanted."""

    id: str | None
    topic: Topic
    body: Payload = NULL
    attachments: tuple[str, ...] = ()
    retain: bool = False
    exclude_me: bool = False


class Subscribe(HubMessage, frozen=True):
    """Send me what is published on `pattern`, as `Event`s named `subscription`."""

    id: str
    pattern: Pattern
    subscription: str
    envelope: bool = False
    when_full: str = ""


class Unsubscribe(HubMessage, frozen=True):
    """No more of `subscription`. Without an id no answer is wanted."""

    id: str | None
    subscription: str


class Event(HubMessage, frozen=True):
    """One publication for one subscription. `missed` counts those that a full queue skipped before it."""

    subscription: str
    topic: Topic
    body: Payload = NULL
    attachments: tuple[str, ...] = ()
    publication: int = 0
    missed: int = 0
    envelope: bool = False


class TopicClosed(HubMessage, frozen=True):
    """The publisher's side ended `subscription`: no further `Event` comes."""

    subscription: str


class Update(HubMessage, frozen=True):
    """News on a topic id that sender and receiver agreed upon, without a topic of the hub."""

    name: str
    """The topic id."""
    body: Payload = NULL
    attachments: tuple[str, ...] = ()
    peer: str = ""
    """Whose it is, where the hub passes it on."""
    missed: int = 0


class UpdatesClosed(HubMessage, frozen=True):
    """No further `Update` on a topic id comes."""

    name: str
    peer: str = ""


class StopUpdates(HubMessage, frozen=True):
    """No further `Update` on a topic id is wanted."""

    name: str


class CloseTopic(HubMessage, frozen=True):
    """End a topic for all its subscribers."""

    id: str | None
    topic: Topic


# Methods on offer, and what is known of them.


class Register(HubMessage, frozen=True):
    """The sender offers a method, or with `route` all names below `method`."""

    id: str
    method: str
    spelling: str = ""
    route: bool = False
    doc: str = ""
    kind: str = "unary"
    """unary, server, client or both: which side streams."""
    share: str = ""
    """round_robin, random, first or open, among several who offer it."""


class Unregister(HubMessage, frozen=True):
    """The sender no longer offers it."""

    id: str
    method: str
    spelling: str = ""
    route: bool = False


class Discover(HubMessage, frozen=True):
    """What do you offer? `name` is empty for all, a route for what is below it, a method for its documentation.

    `name` stands as the asker wrote it: the lists of a route belong to the peer behind it.
    """

    id: str
    name: str = ""


class Description(HubMessage, frozen=True):
    """The answer to `Discover`: lists, or the documentation of one method. Names are in the reader's spelling."""

    id: str
    methods: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    doc: str | None = None
    more: int = 0
    """So many names were left out, as all of them are too much for one message."""
    namespaces: tuple[str, ...] = ()
    """Routes that nobody registered, but that lead to the methods of the list; UMQ lists them (UMQ1-x09)."""


# Variables of a session, and attachments.


class SetVariable(HubMessage, frozen=True):
    """The sender's variable `name` is now `body`, readable by the other side. Without an id no answer is wanted."""

    id: str | None
    name: str
    body: Payload = NULL
    attachments: tuple[str, ...] = ()


class UnsetVariable(HubMessage, frozen=True):
    """The sender's variable `name` is gone."""

    id: str | None
    name: str


class Attachment(HubMessage, frozen=True):
    """One attachment that an earlier message named, whole or, with `error`, failed."""

    name: str
    data: bytes | Blob = b""
    error: str | None = None


class Hurry(HubMessage, frozen=True):
    """An attachment delays messages or attachments of others, which are complete.

    A conversation tells the hub so of one that its peer waits for; the hub tells the conversation of the peer that
    announced it, which is told nothing.
    """

    name: str
    at: float = 0.0
    """When that began, by the hub's clock; told by the hub alone."""
