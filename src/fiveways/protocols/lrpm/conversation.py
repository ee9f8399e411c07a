"""One LRPM peer, in either encoding and at either end of the link."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import count
from typing import Any, ClassVar, Final

import msgspec

from fiveways.errors import Fault, LocalProtocolError, Malformed, RemoteProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model import names, topics
from fiveways.model.failures import Reason
from fiveways.model.names import BadName
from fiveways.model.topics import BadTopic, Topic
from fiveways.protocols import builtins
from fiveways.protocols.base import Role, Setup
from fiveways.protocols.lrpm import bridge
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.bridge import Held, Holding, Refused
from fiveways.protocols.lrpm.frames import MAX_U64, NO_META, Kind, application_kinds
from fiveways.protocols.lrpm.states import TRANSITIONS, State, advance
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Payload, Value

Words = Sequence[hub.Word]
NOTHING: Final[tuple[hub.Word, ...]] = ()
FIRST_ID: Final = 256
"""LRPM-a09: a decoder in use takes smaller numbers for another type."""
LAST_ID: Final = (1 << 53) - 1
"""LRPM-a09: JavaScript counts no further."""
MAX_ROUNDS: Final = 16
"""LRPM-a03: PROVE and PROOF may be repeated, but not for ever."""
CALL: Final = int(Kind.CALL)


class Asked(msgspec.Struct, gc=False):
    """A request of the peer that is not answered yet."""

    request_id: int
    kind: int = CALL
    plain: bool = True
    """A call to be answered by a bare RESULT."""
    word: type[hub.Word] = hub.Call
    subscription: str = ""
    stream: bool = False
    progress: bool = False
    parts: int = 0
    """How much of a streamed answer has been said."""
    cancelled: bool = False
    answered: bool = False
    """The answer is there, but waits for its attachments."""


class Asking(msgspec.Struct, gc=False):
    """A request of ours: whose it is (None: nobody waits for the answer), and which word it says."""

    hub_id: str | None
    kind: int
    word: type[hub.Word]
    following: "Following | None" = None
    cancelled: bool = False
    held: Held | None = None
    """Not on the wire yet: it waits for its attachments."""

    def leave(self) -> None:
        """It has gone out."""
        self.held = None


class Following(msgspec.Struct, frozen=True, gc=False):
    """A subscription of ours at the peer; `topic` is empty where a wildcard leaves it open."""

    subscription: str
    topic: Topic
    envelope: bool


class LrpmConversation:
    """Fulfils `base.Conversation`."""

    def __init__(self, setup: Setup, codec: lrpm.Codec) -> None:
        self.peer = setup.peer
        self.role = setup.role
        self.error: RemoteProtocolError | None = None
        self.closed = False
        self._limits = setup.limits
        self._encoding = codec.encoding
        self._decode = codec.decode
        self._encode = codec.encode
        self._outgoing: list[Packet] = []
        self._state: Enum = State.INIT
        self._turn: tuple[type, ...] = (lrpm.Hello,) if setup.role is Role.SERVER else ()
        self._rounds = 0
        self._asked: dict[str, Asked] = {}
        self._asking: dict[int, Asking] = {}
        self._numbers: dict[str, int] = {}
        self._next_id = FIRST_ID
        self._served: set[str] = set()
        self._next_subscription = count(FIRST_ID)
        self._following: dict[int, Following] = {}
        self._followed: dict[str, int | None] = {}
        self._attachment_names = map(str, count(1))
        self._holding = Holding(setup.limits, codec.encoding)
        self._kinds, self._kind_names = application_kinds((setup.options or {}).get("application_kinds"))
        self._applications: deque[lrpm.Application] = deque(maxlen=setup.limits.max_pending)
        self._styles = builtins.Styles(names.LRPM, topics.LRPM, self._topic_id)

    # What the runtime sees.

    def receive(self, packet: Packet, now: float) -> Words:
        """Take one frame of the peer."""
        if self.closed:
            return NOTHING
        try:
            message = self._decode(packet, self._limits, self._kind_names)
            kind = type(message)
            after = TRANSITIONS[self._state].get(kind) or advance(self._state, message)
            if self._state is not State.OKAY:
                self._check_turn(message)
            self._state = after
            return self.RECEIVERS[kind](self, message)
        except RemoteProtocolError as error:
            self.error = error
            self._end(lrpm.Goodbye(bridge.PROTOCOL_ERROR, {"text": str(error)}))
            return NOTHING

    def send(self, word: hub.Word, now: float) -> None:
        """Say a word to the peer."""
        sender = self.SENDERS.get(type(word))
        if sender is None:
            raise LocalProtocolError(f"LRPM has no way to say {type(word).__name__}")
        if self._state is not State.OKAY and (self.closed or type(word) not in self.HANDSHAKE):
            raise LocalProtocolError(f"{type(word).__name__} cannot be said in state {self._state.value}")
        try:
            sender(self, word)
        except (Malformed, BadName, BadTopic) as exc:
            raise Unrepresentable(str(exc)) from exc

    def outgoing(self) -> list[Packet]:
        """Hand over the frames to be written."""
        packets, self._outgoing = self._outgoing, []
        return packets

    def deadline(self) -> float | None:
        """LRPM has no timers of its own."""
        return None

    def wake(self, now: float) -> Words:
        """LRPM has no timers of its own."""
        return NOTHING

    def take_applications(self) -> list[lrpm.Application]:
        """Hand over the messages of registered application kinds; where nobody does, the oldest are forgotten."""
        taken = list(self._applications)
        self._applications.clear()
        return taken

    def send_application(self, kind: int, fields: Sequence[Payload]) -> None:
        """Say a message of a registered application kind."""
        if kind not in self._kinds or self._state is not State.OKAY:
            raise LocalProtocolError(f"kind {kind} is not registered, or the session not open")
        self._outgoing.append(self._encode(lrpm.Application(kind, tuple(fields))))

    # Saying, and parting.

    def _say(
        self, message: lrpm.Message, attachments: tuple[str, ...] = (), line: str = "", gone: Gone = None
    ) -> Held | None:
        """Put a message out, or hold it until its attachments, and all before it in its line, are there."""
        packet = self._encode(message)
        if attachments or line in self._holding:
            return self._holding.add(line, Held(message, attachments, len(packet.payload), gone))
        self._outgoing.append(packet)
        return None

    def _send_attachment(self, word: hub.Attachment) -> None:
        for held in self._holding.offer(word):
            self._outgoing.append(self._encode(held.message))
            if held.gone is not None:
                held.gone()

    def _end(self, farewell: lrpm.Goodbye) -> None:
        self._outgoing.append(self._encode(farewell))
        self._state = State.CLOSED
        self.closed = True

    def _send_goodbye(self, word: hub.Goodbye) -> None:
        self._end(bridge.goodbye_of(word))

    def _on_goodbye(self, message: lrpm.Goodbye) -> Words:
        # LRPM-a05: answered once. What we said ourselves closed the conversation, so an answer is never answered.
        self._end(lrpm.Goodbye(bridge.NORMAL))
        return (bridge.read_goodbye(message),)

    # The handshake: the table of states says what may come at all, `_turn` what may come now (LRPM-a03).

    def _check_turn(self, message: lrpm.Message) -> None:
        kind = type(message)
        if kind is lrpm.Prove:
            self._rounds += 1
        if kind is not lrpm.Goodbye and (kind not in self._turn or self._rounds > MAX_ROUNDS):
            raise RemoteProtocolError(Fault.UNEXPECTED, f"{kind.__name__.upper()} out of turn", "LRPM-a03")
        self._turn = ()

    def _shake(self, role: Role, message: lrpm.Message, *turn: type) -> None:
        begins = role is Role.CLIENT and type(message) is lrpm.Hello
        if self.role is not role or self._turn or self._state is not (State.INIT if begins else State.AUTH):
            raise LocalProtocolError(f"it is not our turn to say {type(message).__name__.upper()}")
        self._outgoing.append(self._encode(message))
        self._state = TRANSITIONS[self._state][type(message)]
        self._turn = turn

    def _send_hello(self, word: hub.Hello) -> None:
        self._shake(Role.CLIENT, _greeting(word), lrpm.Hello, lrpm.Prove)

    def _send_welcome(self, word: hub.Welcome) -> None:
        self._shake(Role.SERVER, _greeting(word))

    def _send_challenge(self, word: hub.Challenge) -> None:
        if self._rounds >= MAX_ROUNDS:
            raise LocalProtocolError(f"{MAX_ROUNDS} challenges are enough")
        self._shake(Role.SERVER, lrpm.Prove(word.body), lrpm.Proof)
        self._rounds += 1

    def _send_proof(self, word: hub.Proof) -> None:
        self._shake(Role.CLIENT, lrpm.Proof(word.body), lrpm.Hello, lrpm.Prove)

    def _on_hello(self, message: lrpm.Hello) -> Words:
        return ((hub.Hello if self.role is Role.SERVER else hub.Welcome)(message.body),)

    # Requests of the peer, and our answers.

    def _on_call(self, message: lrpm.Call) -> Words:
        """A plain call, as most are; whatever is not plain about it is left to `_on_request`."""
        asked, limits = self._asked, self._limits
        try:
            aim = bridge.target(message.procedure)
        except BadName:
            return self._on_request(message)
        hub_id = str(message.request_id)
        if message.meta or aim.builtin or hub_id in asked or len(asked) >= limits.max_pending:
            return self._on_request(message)
        asked[hub_id] = Asked(message.request_id)
        return (hub.Call(hub_id, aim.method, message.body, message.procedure, (), aim.callback),)

    def _on_request(self, message: Any) -> Words:
        kind, read = self.REQUESTS[type(message)]
        hub_id = str(message.request_id)
        if hub_id in self._asked:
            raise RemoteProtocolError(Fault.UNEXPECTED, f"request {hub_id} is open already", "LRPM-a15")
        try:
            if len(self._asked) >= self._limits.max_pending:
                raise Refused(Reason.BUSY, "too many requests are open")
            attachments = self._attachments(message, strict=True)
            word, asked = read(self, hub_id, message, tuple(each.name for each in attachments))
        except Refused as refusal:
            failure = hub.Failure(hub_id, refusal.reason, refusal.text)
            self._say(bridge.error_of(kind, message.request_id, failure))
            return NOTHING
        self._asked[hub_id] = asked
        return (word, *attachments) if getattr(word, "attachments", ()) else (word,)

    def _attachments(self, message: Any, *, strict: bool = False) -> Sequence[hub.Attachment]:
        if "attachments" not in message.meta:
            return ()
        return bridge.read_attachments(message.meta, self._encoding, self._limits, self._attachment_names, strict=strict)

    def _read_call(self, hub_id: str, message: lrpm.Call, attached: tuple[str, ...]) -> tuple[hub.Word, Asked]:
        number = message.request_id
        try:
            aim = bridge.target(message.procedure)
        except BadName as exc:
            raise Refused(Reason.NO_METHOD, str(exc)) from exc
        try:
            word = builtins.read(hub_id, aim.method, message.body, self._styles, attached) if aim.builtin else None
        except (builtins.BadArguments, Malformed) as exc:
            raise Refused(Reason.BAD_ARGUMENTS, str(exc)) from exc
        if word is None:
            call = bridge.read_call(hub_id, message, aim, attached)
            plain = not (call.stream or call.progress)
            return call, Asked(number, CALL, plain, stream=call.stream, progress=call.progress)
        bridge.check_offer(word)
        subscription: str = getattr(word, "subscription", "")
        if isinstance(word, hub.Subscribe):
            self._served.add(subscription)
        return word, Asked(number, CALL, False, type(word), subscription)

    def _read_publish(self, hub_id: str, message: lrpm.Publish, attached: tuple[str, ...]) -> tuple[hub.Word, Asked]:
        word = bridge.read_publish(hub_id, message, attached)
        return word, Asked(message.request_id, int(Kind.PUBLISH), False, hub.Publish)

    def _read_subscribe(self, hub_id: str, message: lrpm.Subscribe, _: tuple[str, ...]) -> tuple[hub.Word, Asked]:
        word = bridge.read_subscribe(hub_id, message, self._topic_id(None, message.topic))
        self._served.add(word.subscription)
        return word, Asked(message.request_id, int(Kind.SUBSCRIBE), False, hub.Subscribe, word.subscription)

    def _read_unsubscribe(self, hub_id: str, message: lrpm.Unsubscribe, _: tuple[str, ...]) -> tuple[hub.Word, Asked]:
        try:
            subscription = self._topic_id(message.subscription_id, "")
        except builtins.BadArguments as exc:
            raise Refused(Reason.BAD_ARGUMENTS, str(exc)) from exc
        asked = Asked(message.request_id, int(Kind.UNSUBSCRIBE), False, hub.Unsubscribe, subscription)
        return hub.Unsubscribe(hub_id, subscription), asked

    def _topic_id(self, given: object, written: str) -> str:
        """The number of a new subscription to the topic `written`, or of the one to be ended (LRPM-a18)."""
        if written:
            if given is not None:
                raise builtins.BadArguments("takes no id: the subscription's number is in the answer")
            if len(self._served) >= self._limits.max_subscriptions:
                raise Refused(Reason.BUSY, "too many subscriptions")
            return str(next(self._next_subscription))
        if str(given) not in self._served:
            raise builtins.BadArguments(f"there is no subscription {str(given)[:32]}")
        return str(given)

    def _on_cancel(self, message: lrpm.Cancel) -> Words:
        hub_id = str(message.request_id)
        asked = self._asked.get(hub_id)
        # LRPM-a06: a request that is unknown or finished gets no answer, nor is any cancelled twice.
        if asked is None or asked.answered or asked.cancelled:
            return NOTHING
        asked.cancelled = True
        return (hub.Cancel(hub_id),)

    def _open_request(self, hub_id: str) -> Asked:
        asked = self._asked.get(hub_id)
        if asked is None or asked.answered:
            raise LocalProtocolError(f"no request {hub_id} is open")
        return asked
