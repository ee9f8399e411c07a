"""The upper half of a conversation: our requests, the peer's answers, and what we have subscribed to."""

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from fiveways.errors import Fault, LocalProtocolError, Malformed, RemoteProtocolError
from fiveways.model import messages as hub
from fiveways.model import topics
from fiveways.model.failures import Reason
from fiveways.model.names import BadName
from fiveways.model.topics import BadTopic
from fiveways.protocols import builtins
from fiveways.protocols.base import Role, Setup
from fiveways.protocols.lrpm import bridge
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.asking import WANTED, Asking, Following
from fiveways.protocols.lrpm.frames import Kind
from fiveways.protocols.lrpm.holding import Held, Names
from fiveways.protocols.lrpm.incoming import CALL, FIRST_ID, PUBLISH, STYLES, SUBSCRIBE, UNSUBSCRIBE, Asked, Incoming
from fiveways.protocols.lrpm.json_frames import EMPTY, SHORT_META, read_call, read_result, read_wait
from fiveways.protocols.lrpm.link import NOTHING, Receiver, Sender, Words
from fiveways.protocols.lrpm.states import State
from fiveways.wire.jsontext import check_trusted
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Json, Value

ODD: Final = (msgspec.DecodeError, ValueError, RecursionError, Malformed, BadName, BadTopic)
"""What tells that a frame needs a closer look."""
OKAY: Final = State.OKAY
"""To reach a member of an Enum through its class takes longer than to write a frame."""
LAST_ID: Final = (1 << 53) - 1
"""LRPM-a09: JavaScript counts no further."""


class LrpmConversation(Incoming):
    """One LRPM peer, in either encoding and at either end of the link. Fulfils `base.Conversation`."""

    def __init__(self, setup: Setup, codec: lrpm.Codec) -> None:
        super().__init__(setup, codec)
        self._asking: dict[int, str | Asking] = {}
        """By our own ids; of a plain call, as most are, no more than the hub's name for it."""
        self._asking_by_hub_id: dict[str, int] = {}
        self._next_id = FIRST_ID
        self._following: dict[int, Following] = {}
        self._followed: dict[str, int | None] = {}
        """Our subscriptions by the hub's name for them; None until the peer has numbered one."""

    # Our requests.

    def _new_id(self, hub_id: str | None) -> int:
        """Return the number of the next request; it is used up by `_ask` alone."""
        if hub_id in self._asking_by_hub_id:
            raise LocalProtocolError(f"request {hub_id} is open already")
        if len(self._asking) >= self._limits.max_pending or self._next_id > LAST_ID:
            raise LocalProtocolError("too many requests to this peer")
        return self._next_id

    def _ask(self, message: lrpm.Message, asking: Asking, attachments: Names = ()) -> None:
        number = self._next_id
        if attachments or asking.line is not None:
            asking.line = asking.line or ("request", number)
            asking.held = self._say_with(asking.line, message, attachments, asks=number)
        else:
            self.unsent.append(self._codec.encode(message))
        self._next_id += 1
        self._asking[number] = asking
        if asking.hub_id is not None:
            self._asking_by_hub_id[asking.hub_id] = number

    def _send_call(self, word: hub.Call) -> None:
        if word.more:
            raise LocalProtocolError("LRPM takes a streamed request as one array")
        number, hub_id = self._next_id, word.id
        if hub_id in self._asking_by_hub_id or len(self._asking) >= self._limits.max_pending or number > LAST_ID:
            self._new_id(hub_id)  # which says what is wrong
        uri = bridge.procedure(word.method, word.spelling, word.callback)
        if word.attachments or word.traceparent or word.redelivered:
            meta = bridge.call_meta(word)
            self._ask(lrpm.Call(number, uri, word.body, meta), Asking(hub_id, CALL, hub.Call, meta), word.attachments)
            return
        timeout, stream, progress, codec = word.timeout, word.stream, word.progress, self._codec
        wait = 0 if timeout is None else bridge.wait_of(timeout)
        write = codec.write_call
        packet = write(number, uri, word.body, wait, stream, progress)
        self.unsent.append(packet if len(packet.payload) <= codec.longest else codec.fitting(packet))
        self._next_id = number + 1
        is_plain = not (stream or progress)
        self._asking[number] = hub_id if is_plain else Asking(hub_id, CALL, hub.Call, WANTED[stream, progress])
        self._asking_by_hub_id[hub_id] = number

    def _send_builtin(self, word: builtins.Builtin) -> None:
        """Words that LRPM has no message for are calls of the hub's own methods (LRPM-a16)."""
        number = self._new_id(word.id)
        method, body = builtins.write(word, STYLES)
        attachments: Names = getattr(word, "attachments", ())
        self._ask(lrpm.Call(number, method, body), Asking(word.id, CALL, type(word)), attachments)

    def _send_publish(self, word: hub.Publish) -> None:
        number = self._new_id(word.id)
        uri = topics.spell(word.topic, topics.LRPM)
        message = lrpm.Publish(number, uri, word.body, bridge.publish_meta(word))
        self._ask(message, Asking(word.id, PUBLISH, hub.Publish, line=("publish", uri)), word.attachments)

    def _send_subscribe(self, word: hub.Subscribe) -> None:
        number = self._new_id(word.id)
        if word.subscription in self._followed or len(self._followed) >= self._limits.max_subscriptions:
            raise LocalProtocolError(f"subscription {word.subscription} is open already, or one too many")
        uri = topics.spell_pattern(word.pattern, topics.LRPM)
        topic = () if word.pattern.is_wildcard else topics.parse(uri, topics.LRPM)
        following = Following(word.subscription, topic, word.envelope)
        message = lrpm.Subscribe(number, uri, bridge.subscribe_meta(word))
        self._ask(message, Asking(word.id, SUBSCRIBE, hub.Subscribe, following=following))
        self._followed[word.subscription] = None

    def _send_unsubscribe(self, word: hub.Unsubscribe) -> None:
        number, subscription = self._new_id(word.id), self._followed.get(word.subscription)
        if subscription is None:
            raise LocalProtocolError(f"subscription {word.subscription} is not open")
        self._ask(lrpm.Unsubscribe(number, subscription), Asking(word.id, UNSUBSCRIBE, hub.Unsubscribe))
        self._unfollow(subscription)

    def _send_cancel(self, word: hub.Cancel) -> None:
        """Tell the peer (LRPM-a06) and forget the request: a peer that never answers must not hold its place for ever.

        One that still waits for its attachments the peer never hears of. A SUBSCRIBE is kept, since what comes of it
        must be undone.
        """
        number = self._asking_by_hub_id.get(word.id)
        if number is None:
            return  # the answer has come meanwhile
        asking = self._asking_of(number)
        if asking.held is not None:
            self._close(number)
            self._holding.drop(asking.held)
            self._let_go(asking.held.line)
        elif not asking.cancelled:
            self._say(lrpm.Cancel(number))
            if asking.following is None:
                self._close(number)
            else:
                asking.cancelled = True

    def _gone(self, held: Held) -> None:
        super()._gone(held)
        if held.asks:
            self._asking_of(held.asks).held = None

    def _give_up(self, held: Held) -> None:
        if not held.asks:
            super()._give_up(held)
            return
        hub_id = self._close(held.asks)
        if hub_id is not None:
            self._upward.append(hub.Failure(hub_id, Reason.TOO_LARGE, "the request is too large for LRPM"))

    # The peer's answers.

    def _answered(self, number: int, kind: int) -> Asking | None:
        """Return the request of ours that is answered; None, and the answer is ignored, if there is none (any more)."""
        if number not in self._asking:
            return None
        asking = self._asking_of(number)
        if asking.held is not None:
            return None
        if asking.kind != kind:
            text = f"an answer to {Kind(asking.kind).name} {number} as if it were another kind of request"
            raise RemoteProtocolError(Fault.UNEXPECTED, text, "LRPM-11")
        return asking

    def _asking_of(self, number: int) -> Asking:
        """Return what is known of an open request of ours, with room for more."""
        asking = self._asking[number]
        if isinstance(asking, str):
            asking = self._asking[number] = Asking(asking, CALL, hub.Call)
        return asking

    def _close(self, number: int) -> str | None:
        """Forget a request of ours; return whose it was."""
        asking = self._asking.pop(number)
        hub_id = asking if isinstance(asking, str) else asking.hub_id
        if hub_id is not None:
            del self._asking_by_hub_id[hub_id]
        return hub_id

    def _on_result(self, message: lrpm.Result) -> Words:
        number = message.request_id
        asking = self._answered(number, CALL)
        if asking is None:
            return NOTHING
        hub_id = asking.hub_id
        if not message.meta and asking.word is hub.Call and hub_id is not None:
            self._close(number)
            return (hub.Result(hub_id, message.body),)
        attachments = self._attachments(message)
        word = bridge.read_result(hub_id or "", message, tuple(each.name for each in attachments))
        if isinstance(word, hub.Progress):
            return (word,) if "progress" in asking.meta else NOTHING
        if isinstance(word, hub.Result) and word.stream:
            asking.parts += 1
            if "stream" not in asking.meta:
                return self._cut_off(number, "the answer came in parts, unasked")
            if asking.parts > self._limits.max_stream:
                return self._cut_off(number, "too many parts")
        if isinstance(word, hub.Result) and word.last:
            self._close(number)
            if asking.word is hub.Discover and (told := builtins.read_description(word.id, word.body or NULL)):
                return (told,)
        return NOTHING if hub_id is None else (word, *attachments)

    def _cut_off(self, number: int, text: str) -> Words:
        """Take no more parts of an answer; what comes after all is ignored (LRPM-04)."""
        self._say(lrpm.Cancel(number))
        hub_id = self._close(number)
        return NOTHING if hub_id is None else (hub.Failure(hub_id, Reason.RAISED, text),)

    def _on_error(self, message: lrpm.Error) -> Words:
        asking = self._answered(message.request_id, message.request_kind)
        if asking is None:
            return NOTHING
        self._close(message.request_id)
        if asking.following is not None:
            self._followed.pop(asking.following.subscription, None)
        if asking.hub_id is None:
            return NOTHING
        return (bridge.read_error(asking.hub_id, message, from_hub=self.role is Role.CLIENT),)

    def _on_published(self, message: lrpm.Published) -> Words:
        asking = self._answered(message.request_id, PUBLISH)
        if asking is None:
            return NOTHING
        self._close(message.request_id)
        return NOTHING if asking.hub_id is None else (hub.Result(asking.hub_id, Value(message.publication_id)),)

    def _on_subscribed(self, message: lrpm.Subscribed) -> Words:
        number, subscription = message.request_id, message.subscription_id
        asking = self._answered(number, SUBSCRIBE)
        if asking is None or asking.following is None or asking.hub_id is None:
            return NOTHING
        if subscription in self._following:
            raise RemoteProtocolError(Fault.UNEXPECTED, f"subscription {subscription} twice", "LRPM-a18")
        self._close(number)
        name = asking.following.subscription
        self._following[subscription] = asking.following
        self._followed[name] = subscription
        if asking.cancelled:  # nobody wants it any more
            self._send_unsubscribe(hub.Unsubscribe(None, name))
            return (hub.Failure(asking.hub_id, Reason.CANCELLED),)
        return (hub.Result(asking.hub_id, Value({"id": name})),)

    def _on_unsubscribed(self, message: lrpm.Unsubscribed) -> Words:
        asking = self._answered(message.request_id, UNSUBSCRIBE)
        if asking is None:
            return NOTHING
        self._close(message.request_id)
        return NOTHING if asking.hub_id is None else (hub.Result(asking.hub_id, NULL),)

    # What we have subscribed to.

    def _unfollow(self, subscription: int) -> None:
        del self._followed[self._following.pop(subscription).subscription]

    def _on_event(self, message: lrpm.Event) -> Words:
        following = self._following.get(message.subscription_id)
        if following is None:
            return NOTHING
        meta = message.meta
        if bridge.option(meta, "closed", False):
            self._unfollow(message.subscription_id)
            return (hub.TopicClosed(following.subscription),)
        attachments = self._attachments(message)
        event = hub.Event(
            following.subscription,
            bridge.read_topic(meta, following.topic),
            message.body,
            tuple(each.name for each in attachments),
            message.publication_id,
            bridge.option(meta, "missed", 0),
        )
        return (builtins.unwrapped(event, STYLES) if following.envelope else event, *attachments)

    def _drop(self, _word: hub.Word) -> None:
        """LRPM has no message for it, and nobody misses it."""

    RECEIVERS: ClassVar[Mapping[type, Receiver]] = {
        **Incoming.RECEIVERS,
        lrpm.Result: _on_result,
        lrpm.Error: _on_error,
        lrpm.Published: _on_published,
        lrpm.Subscribed: _on_subscribed,
        lrpm.Unsubscribed: _on_unsubscribed,
        lrpm.Event: _on_event,
    }

    SENDERS: ClassVar[Mapping[type[hub.Word], Sender]] = {
        **Incoming.SENDERS,
        hub.Call: _send_call,
        hub.Cancel: _send_cancel,
        hub.Publish: _send_publish,
        hub.Subscribe: _send_subscribe,
        hub.Unsubscribe: _send_unsubscribe,
        hub.CloseTopic: _send_builtin,
        hub.Register: _send_builtin,
        hub.Unregister: _send_builtin,
        hub.Discover: _send_builtin,
        hub.SetVariable: _send_builtin,
        hub.UnsetVariable: _send_builtin,
        hub.Accepted: _drop,
        hub.Acknowledged: _drop,
    }


class JsonConversation(LrpmConversation):
    """One LRPM peer in JSON: plain calls, results and publications, as most are, need not become messages.

    Whatever is not plain about a frame is left to the long way, as if nobody had looked at it.
    """

    def receive(self, packet: Packet, now: float) -> Words:
        """Take one frame of the peer."""
        payload = packet.payload
        if self._state is OKAY and packet.is_text and len(payload) <= self._limits.max_text and not self._upward:
            start, words = payload[:4], None
            try:
                if not payload.isascii():
                    payload.decode()
                if start == b"[41,":
                    words = self._hear_result(payload)
                elif start == b"[40,":
                    words = self._hear_call(payload)
                elif start == b"[61,":
                    words = self._hear_publish(payload)
            except ODD:
                words = None
            if words is not None:
                return words
        return super().receive(packet, now)

    def _hear_result(self, payload: bytes) -> Words | None:
        found = read_result(payload)
        number = found.number
        asking = self._asking.get(number)
        hub_id = asking if isinstance(asking, str) else None if asking is None else asking.plain_id()
        if hub_id is None or found.meta != EMPTY:
            return None
        raw = bytes(found.body)
        check_trusted(raw, self._limits.max_depth)
        del self._asking[number], self._asking_by_hub_id[hub_id]
        return (hub.Result(hub_id, Json(raw)),)

    def _hear_call(self, payload: bytes) -> Words | None:
        found, asked, limits = read_call(payload), self._asked, self._limits
        number, uri, meta, target = found.number, found.uri, found.meta, self._target
        hub_id, aim = str(number), target(uri)
        if aim.builtin or hub_id in asked or len(asked) >= limits.max_pending:
            return None
        timeout = None
        if meta != EMPTY:
            said = bytes(meta)
            if len(said) > SHORT_META:
                return None
            timeout = read_wait(said)
        raw = bytes(found.body)
        check_trusted(raw, limits.max_depth)
        asked[hub_id] = number
        return (hub.Call(hub_id, aim.method, Json(raw), uri, (), aim.callback, timeout),)

    def _hear_publish(self, payload: bytes) -> Words | None:
        found, asked, limits = read_call(payload), self._asked, self._limits  # its fields are those of a CALL
        number, uri = found.number, found.uri
        hub_id = str(number)
        if found.meta != EMPTY or hub_id in asked or len(asked) >= limits.max_pending or len(uri) > limits.max_name:
            return None
        topic = topics.parse(uri, topics.LRPM)
        raw = bytes(found.body)
        check_trusted(raw, limits.max_depth)
        asked[hub_id] = Asked(number, PUBLISH, hub.Publish)
        return (hub.Publish(hub_id, topic, Json(raw)),)
