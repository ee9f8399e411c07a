"""One broker's link, and the requests in both directions that share it.

The peer is the broker's side as a whole: many callers and many services, none of which can end the link for the others.
So what breaks the protocol is refused one by one, counted and reported, and the conversation goes on.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from math import inf
from typing import Any, ClassVar, Final

import msgspec

from fiveways.errors import Fault, LocalProtocolError, Malformed, RemoteProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model.failures import Reason
from fiveways.model.names import MQTT, BadName, fold, spell_mqtt
from fiveways.protocols import builtins
from fiveways.protocols.base import Role, Setup
from fiveways.protocols.mqtt_rpc import bridge
from fiveways.protocols.mqtt_rpc.bridge import JSON_TEXT, REQUEST, RESPONSE, Codec, Options
from fiveways.protocols.mqtt_rpc.frames import Shape, outline, parse_frame
from fiveways.protocols.mqtt_rpc.messages import ErrorResponse, Message, Request, Response, encode, read
from fiveways.protocols.mqtt_rpc.states import State, advance
from fiveways.protocols.mqtt_rpc.streams import Asking, OpenRequest, Pending, Recent, Served, expiry
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload

Words = Sequence[hub.Word]
NOTHING: Final[tuple[hub.Word, ...]] = ()

# What is noted of a request of ours that is over: whether an answer that comes yet is worth a word.
_LATE: Final = 0
_UNWANTED: Final = 1


class MqttConversation:
    """All that passes between us and one broker. Fulfils `base.Conversation`."""

    def __init__(self, setup: Setup) -> None:
        limits = setup.limits
        options = msgspec.convert(setup.options or {}, Options)
        self.peer = setup.peer
        self.error: RemoteProtocolError | None = None
        """Never set: see above."""
        self.closed = False
        self.refused = 0
        """Messages that broke the protocol."""
        self.strays = 0
        """Responses that nobody waited for (MQRPC-06)."""
        self.odd_units = 0
        """Requests with a unit of time that we do not know (MQRPC-a03)."""
        self._state: Enum = State.OPEN
        self._limits = limits
        self._random = setup.random
        # Two ends that are made from the same seed must not choose the same ids, or take each other for echoes.
        self._twist = 0 if setup.role is Role.CLIENT else 0xFFFFFFFFFFFFFFFF
        # A hub listens to the topics that it serves; a client hears a topic because it calls somebody there.
        self._serve = options.server(setup.role is Role.SERVER)
        self._codec: Codec = options.codec
        self._default_timeout = options.default_timeout
        self._outgoing: list[Packet] = []
        self._served: dict[str, Served] = {}
        self._pending = Pending(limits.max_pending)
        most = options.max_remembered or 2 * limits.max_pending
        self._answered: Recent[str] = Recent(options.duplicate_window, most)
        """Requests that were answered, and how many of the Responses may yet be echoed."""
        self._asked: Recent[int] = Recent(options.duplicate_window, most)
        """Requests of ours that are over."""
        self._wake_at = inf
        """No request expires before; it may lie earlier than need be, as those that were answered leave it as it is."""

    def receive(self, packet: Packet, now: float) -> Words:
        """Take one MQTT message."""
        # MQRPC-a11: what a broker kept for newcomers was meant for others.
        if self.closed or packet.retained:
            return NOTHING
        try:
            frame = parse_frame(packet, self._limits)
            pending = False
            if frame.shape is Shape.BARE:
                pending = self._pending.answered_by(frame.content.correlation_id, frame.topic) is not None
            message = read(frame, pending=pending)
            self._state = advance(self._state, message)
        except RemoteProtocolError as error:
            return self._refuse(packet, error, now)
        return self.RECEIVERS[type(message)](self, message, now)

    def send(self, word: hub.Word, now: float) -> None:
        """Say a word to whom it may concern on the broker."""
        sender = self.SENDERS.get(type(word))
        if sender is None:
            raise LocalProtocolError(f"RPC over MQTT has no way to say {type(word).__name__}")
        if self.closed:
            raise LocalProtocolError("the conversation is over")
        sender(self, word, now)

    def outgoing(self) -> list[Packet]:
        """Hand over the messages to be published."""
        packets, self._outgoing = self._outgoing, []
        return packets

    def deadline(self) -> float | None:
        """When the next request may run out of time."""
        return None if self.closed or self._wake_at == inf else self._wake_at

    def wake(self, now: float) -> Words:
        """End what took too long, in both directions (MQRPC-a10)."""
        if self.closed or now < self._wake_at:
            return NOTHING
        words: list[hub.Word] = []
        for served in [each for each in self._served.values() if each.expires_at <= now]:
            words += self._break(served, Reason.TIMEOUT, "not done in time [MQRPC-a10]", now)
        for asking in self._pending.all():
            if asking.expires_at <= now:
                self._end_asking(asking, _LATE, now)
                words.append(hub.Failure(asking.hub_id, Reason.TIMEOUT, "no answer in time"))
        open_requests: list[OpenRequest] = [*self._served.values(), *self._pending.all()]
        self._wake_at = min((each.expires_at for each in open_requests), default=inf)
        return words

    # Requests that come in.

    def _on_request(self, message: Request, now: float) -> Words:
        number, topic = message.correlation_id, message.topic
        # MQRPC-a01: a broker sends back to us what we say on a topic that we listen to.
        if number in self._pending or self._asked.get(number, now) is not None:
            return NOTHING
        hub_id = f"{number}@{topic}"
        served = self._served.get(hub_id)
        if served is not None:
            return self._on_part(served, message, now)
        echoes = self._answered.get(hub_id, now)
        if echoes is not None:
            # A repeat (MQRPC-a11), or more of a stream that was cut short: as long as it comes, it is remembered.
            self._answered.note(hub_id, echoes, now)
            return NOTHING
        kind = bridge.method_of(message.type_url)
        streaming = self._serve(topic, kind)
        if streaming is None:
            return NOTHING
        if not kind:
            return self._decline(message, hub_id, Reason.NO_METHOD, "a request without a type [MQRPC-03]", now)
        spelling = f"{topic}/{kind}"
        try:
            method = fold(spelling, MQTT)
        except BadName as exc:
            return self._decline(message, hub_id, Reason.NO_METHOD, str(exc), now)
        if len(method) > self._limits.max_name or method in bridge.NOT_HERE:
            return self._decline(message, hub_id, Reason.NO_METHOD, "no such method on MQTT", now)
        if len(self._served) >= self._limits.max_pending:
            return self._decline(message, hub_id, Reason.BUSY, "too many calls are open", now)
        codec = JSON_TEXT if method.startswith("hub.") else self._codec
        timeout = self._timeout(message)
        expires_at = expiry(timeout, now)
        streams = streaming in {"server", "both"}
        # MQRPC-a05: for a method that takes no stream every Request is complete.
        more = not message.eos and streaming in {"client", "both"}
        served = Served(hub_id, topic, number, kind, codec, streams, more, expires_at)
        try:
            word = served.read(method, spelling, message.value or b"", timeout)
        except (Malformed, builtins.BadArguments) as exc:
            return self._decline(message, hub_id, Reason.BAD_ARGUMENTS, str(exc), now)
        if expires_at < self._wake_at:  # noqa: PLR1730  a call of min() takes three times as long
            self._wake_at = expires_at
        self._served[hub_id] = served
        return (word,)

    def _timeout(self, message: Request) -> float | None:
        if not message.timeout:
            return self._default_timeout
        unit = bridge.SECONDS.get(message.timeout_unit)
        if unit is None:
            self.odd_units += 1
            unit = bridge.SECONDS[bridge.MILLISECOND]
        return message.timeout * unit

    def _on_part(self, served: Served, message: Request, now: float) -> Words:
        if not served.more:
            return NOTHING
        served.parts += 1
        if served.parts > self._limits.max_stream:
            return self._break(served, Reason.TOO_LARGE, "too many parts", now)
        if message.type_url and bridge.method_of(message.type_url) != served.kind:
            return self._break(served, Reason.BAD_ARGUMENTS, "a part of another type [MQRPC-04]", now)
        served.more = not message.eos
        if message.value is None:
            # MQRPC-a06: a bare end marker; without `eos` it is nothing at all.
            return (hub.Part(served.hub_id, None, True),) if message.eos else NOTHING
        try:
            return (served.read_part(message.value, message.eos),)
        except Malformed as exc:
            return self._break(served, Reason.BAD_ARGUMENTS, str(exc), now)

    def _refuse(self, packet: Packet, error: RemoteProtocolError, now: float) -> Words:
        """Answer what could not be read, if its sender certainly waits for that, and report it."""
        self.refused += 1
        number, is_request = (None, False) if packet.is_text else outline(packet.payload)
        topic = packet.channel
        hub_id = f"@{topic}" if number is None else f"{number}@{topic}"
        words: list[hub.Word] = [hub.Stray(hub_id, str(error))]
        if number is None or not is_request or number in self._pending:
            return words
        reason = Reason.TOO_LARGE if error.fault is Fault.TOO_LARGE else Reason.BAD_ARGUMENTS
        served = self._served.get(hub_id)
        if served is not None:
            # A stream with a hole in it is none; but a request that is complete is not harmed by what comes after it.
            return [*words, *self._break(served, reason, str(error), now)] if served.more else words
        if self._serve(topic, "") is not None and self._answered.get(hub_id, now) is None:
            self._decline(Request(topic, number), hub_id, reason, str(error), now)
        return words

    # Our answers to them.

    def _decline(self, message: Request, hub_id: str, reason: Reason, text: str, now: float) -> Words:
        """Answer a request without bothering the hub."""
        failure = hub.Failure(hub_id, reason, text)
        self._outgoing.append(encode(bridge.failure_from_hub(failure, message.topic, message.correlation_id)))
        self._answered.note(hub_id, 1, now)
        return NOTHING

    def _break(self, served: Served, reason: Reason, text: str, now: float) -> Words:
        """End a request that the hub is busy with."""
        self._send_failure(hub.Failure(served.hub_id, reason, text), now)
        return (hub.Cancel(served.hub_id),)

    def _answer(self, served: Served, message: Response | ErrorResponse, now: float) -> None:
        self._outgoing.append(encode(message))
        served.echoes += 1
        if message.eos:
            del self._served[served.hub_id]
            self._answered.note(served.hub_id, served.echoes, now)

    def _open_request(self, hub_id: str) -> Served:
        served = self._served.get(hub_id)
        if served is None:
            raise LocalProtocolError(f"no request {hub_id} is open")
        return served

    def _send_result(self, word: hub.Result, now: float) -> None:
        served = self._open_request(word.id)
        if word.attachments:
            raise Unrepresentable("attachments without a schema to write them in")
        if word.stream and not served.streams:
            raise LocalProtocolError(f"{served.kind} on {served.topic} gives no stream")
        last = word.last or not word.stream
        if word.body is None and not (word.stream and last):
            raise LocalProtocolError("only the end of a stream may lack a body")
        value = served.write(word.body, RESPONSE)
        self._answer(served, Response(served.topic, served.correlation_id, "", value, last), now)

    def _send_failure(self, word: hub.Failure, now: float) -> None:
        served = self._open_request(word.id)
        self._answer(served, bridge.failure_from_hub(word, served.topic, served.correlation_id), now)

    def _send_description(self, word: hub.Description, now: float) -> None:
        served = self._open_request(word.id)
        value = served.write(builtins.described(word), RESPONSE)
        self._answer(served, Response(served.topic, served.correlation_id, "", value, True), now)

    # Requests of ours.

    def _send_call(self, word: hub.Call, now: float) -> None:
        if word.attachments:
            raise Unrepresentable("attachments without a schema to write them in")
        topic, kind = bridge.target(word)
        codec = JSON_TEXT if word.method.startswith("hub.") and not word.callback else self._codec
        number, expires_at = self._new_number(word.id), expiry(word.timeout, now)
        asking = Asking(word.id, topic, number, kind, codec, word.stream, word.more, expires_at, hub.Call)
        self._ask(asking, word.body, word.timeout)

    def _send_builtin(self, word: hub.Discover | hub.Register | hub.Unregister, now: float) -> None:
        """Say by a call of the hub's own method what RPC over MQTT has no message for."""
        method, body = builtins.write(word, bridge.STYLES)
        topic, kind = spell_mqtt(method)
        timeout = self._default_timeout
        number, expires_at = self._new_number(word.id), expiry(timeout, now)
        asking = Asking(word.id, topic, number, kind, JSON_TEXT, False, False, expires_at, type(word))
        self._ask(asking, body, timeout)

    def _new_number(self, hub_id: str) -> int:
        """MQRPC-a02: 64 random bits, never 0, and unique among what is open."""
        self._pending.check_room(hub_id)
        number = 0
        while not number or number in self._pending:
            number = self._random.getrandbits(64) ^ self._twist
        return number

    def _ask(self, asking: Asking, body: Payload, timeout: float | None) -> None:
        value = asking.write(body, REQUEST)
        number, kind, final = asking.correlation_id, asking.kind, not asking.more
        unit = 0 if timeout is None else bridge.MILLISECOND
        self._publish(Request(asking.topic, number, kind, value, final, bridge.milliseconds(timeout), unit))
        self._pending.open(asking)
        self._wake_at = min(self._wake_at, asking.expires_at)

    def _publish(self, message: Request) -> None:
        try:
            self._outgoing.append(encode(message))
        except UnicodeEncodeError as exc:
            raise Unrepresentable(f"the type {message.type_url!r} holds half of a surrogate pair") from exc

    def _send_part(self, word: hub.Part, _now: float) -> None:
        asking = self._pending.named(word.id)
        if asking is None or not asking.more:
            raise LocalProtocolError(f"no stream {word.id} is open")
        if word.body is None and not word.last:
            raise LocalProtocolError("only the end of a stream may lack a body")
        value = asking.write(word.body, REQUEST)
        kind = "" if value is None else asking.kind
        self._publish(Request(asking.topic, asking.correlation_id, kind, value, word.last))
        asking.more = not word.last

    def _send_cancel(self, word: hub.Cancel, now: float) -> None:
        """MQTT cannot say it: the late answer will find nobody."""
        asking = self._pending.named(word.id)
        if asking is not None:
            self._end_asking(asking, _UNWANTED, now)

    def _end_asking(self, asking: Asking, note: int, now: float) -> None:
        self._pending.close(asking)
        self._asked.note(asking.correlation_id, note, now)

    # The answers to them.

    def _on_response(self, message: Response, now: float) -> Words:
        asking = self._pending.answered_by(message.correlation_id, message.topic)
        if asking is None:
            return self._on_stray(message, now)
        asking.parts += 1
        if asking.parts > self._limits.max_stream:
            self._end_asking(asking, _UNWANTED, now)
            return (hub.Failure(asking.hub_id, Reason.TOO_LARGE, "too many parts"),)
        last = message.eos or not asking.streams
        if message.value is None and not last:
            return NOTHING
        try:
            word = asking.read(message.value, last)
        except Malformed as exc:
            self._end_asking(asking, _UNWANTED, now)
            return (hub.Failure(asking.hub_id, Reason.RAISED, f"the result cannot be read: {exc}"),)
        if last:
            self._end_asking(asking, _LATE, now)
        return (word,)

    def _on_error(self, message: ErrorResponse, now: float) -> Words:
        asking = self._pending.answered_by(message.correlation_id, message.topic)
        if asking is None:
            return self._on_stray(message, now)
        self._end_asking(asking, _LATE, now)
        return (bridge.failure_to_hub(message, asking.hub_id),)

    def _on_stray(self, message: Response | ErrorResponse, now: float) -> Words:
        """MQRPC-06: an answer that is not ours to hear, unless we said it ourselves and the broker sent it back."""
        number = message.correlation_id
        hub_id = f"{number}@{message.topic}"
        served = self._served.get(hub_id)
        if served is not None and served.echoes:
            served.echoes -= 1
            return NOTHING
        echoes = self._answered.get(hub_id, now)
        if echoes:
            self._answered.note(hub_id, echoes - 1, now)
            return NOTHING
        if self._asked.get(number, now) == _UNWANTED:
            return NOTHING
        self.strays += 1
        return (hub.Stray(hub_id, "nobody waits for this answer [MQRPC-06]"),)

    def _send_goodbye(self, _word: hub.Goodbye, _now: float) -> None:
        """Nobody in particular is on the other side to hear it."""
        self._state = State.CLOSED
        self.closed = True

    def _drop(self, _word: hub.Word, _now: float) -> None:
        """RPC over MQTT has no message for it, and nobody misses it."""

    RECEIVERS: ClassVar[Mapping[type[Message], Callable[[Any, Any, float], Words]]] = {
        Request: _on_request,
        Response: _on_response,
        ErrorResponse: _on_error,
    }

    SENDERS: ClassVar[Mapping[type[hub.Word], Callable[[Any, Any, float], None]]] = {
        hub.Call: _send_call,
        hub.Result: _send_result,
        hub.Failure: _send_failure,
        hub.Part: _send_part,
        hub.Cancel: _send_cancel,
        hub.Discover: _send_builtin,
        hub.Description: _send_description,
        hub.Register: _send_builtin,
        hub.Unregister: _send_builtin,
        hub.Goodbye: _send_goodbye,
        hub.Accepted: _drop,
        hub.Progress: _drop,
        hub.Acknowledged: _drop,
    }
