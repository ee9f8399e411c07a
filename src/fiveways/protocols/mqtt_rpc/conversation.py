"""One broker's link, and the requests in both directions that share it.

The peer is the broker's side as a whole: many callers and many services, none of which can end the link for the others.
So what breaks the protocol is refused one by one, counted and reported, and the conversation goes on.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from math import inf
from typing import Any, ClassVar

from fiveways.errors import Fault, LocalProtocolError, Malformed, RemoteProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model.failures import Reason
from fiveways.model.names import BadName
from fiveways.protocols import builtins
from fiveways.protocols.base import Setup
from fiveways.protocols.mqtt_rpc import bridge
from fiveways.protocols.mqtt_rpc.attaching import AttachingMqtt
from fiveways.protocols.mqtt_rpc.bridge import JSON_TEXT, REQUEST, RESPONSE, Codec, Method, codec_of, failed
from fiveways.protocols.mqtt_rpc.frames import BARE, outline, parse_frame
from fiveways.protocols.mqtt_rpc.messages import ErrorResponse, Message, Request, Response, packed, read
from fiveways.protocols.mqtt_rpc.plain import NOTHING, Words
from fiveways.protocols.mqtt_rpc.states import State
from fiveways.protocols.mqtt_rpc.streams import EXPIRED, LATE, UNWANTED, Asking, Key, Served
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload, Value


class MqttConversation(AttachingMqtt):
    """All that passes between us and one broker. Fulfils `base.Conversation`."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.peer = setup.peer
        self.error: RemoteProtocolError | None = None
        """Never set: see above."""
        self.refused = 0
        """Messages that broke the protocol."""
        self.strays = 0
        """Responses that nobody waited for (MQRPC-06)."""
        self.odd_units = 0
        """Requests with a unit of time that we do not know (MQRPC-a03)."""
        self._state: Enum = State.OPEN

    def hear(self, packet: Packet, now: float) -> Words:
        """Take one MQTT message that is none of ours."""
        try:
            frame = parse_frame(packet, self._limits)
            message = read(frame, pending=frame.shape is BARE and self._requests.is_pending(frame))
        except RemoteProtocolError as error:
            return self._refuse(packet, error, now)
        # As long as a conversation is open every message may come, so the table of states need not be asked.
        return self.RECEIVERS[type(message)](self, message, now)

    def say(self, word: hub.Word, now: float) -> None:
        """Say a word to whom it may concern on the broker."""
        sender = self.SENDERS.get(type(word))
        if sender is None:
            raise LocalProtocolError(f"RPC over MQTT has no way to say {type(word).__name__}")
        if self.closed:
            raise LocalProtocolError("the conversation is over")
        sender(self, word, now)

    def outgoing(self) -> list[Packet]:
        """Hand over the messages to be published."""
        packets, self.unsent = self.unsent, []
        return packets

    def deadline(self) -> float | None:
        """When the next request may run out of time."""
        return None if self.closed or self._wake_at == inf else self._wake_at

    def wake(self, now: float) -> Words:
        """End what took too long, in both directions (MQRPC-a10)."""
        if self.closed or now < self._wake_at:
            return NOTHING
        words, self._unheard = self._unheard, []
        for request in list(self._requests.open.values()):
            if request.expires_at > now:
                continue
            if isinstance(request, Served):
                words += self._break(request, Reason.TIMEOUT, "not done in time [MQRPC-a10]", now)
            else:
                self._requests.end_asking(request, EXPIRED, now)
                words.append(hub.Failure(request.hub_id, Reason.TIMEOUT, "no answer in time"))
        self._wake_at = self._requests.next_expiry()
        return words

    # Requests that come in.

    def _on_request(self, message: Request, now: float) -> Words:
        topic, requests = message.topic, self._requests
        key = message.correlation_id, topic
        request = requests.open.get(key)
        if request is not None:
            # MQRPC-a01: a broker sends back to us what we say on a topic that we listen to.
            return self._on_part(request, message, now) if type(request) is Served else NOTHING
        note = requests.recent.get(key, now)
        if note is not None:
            # An echo, a repeat (MQRPC-a11), or more of a stream that was cut short; remembered as long as it comes.
            requests.recent.note(key, note, now)
            return NOTHING
        try:
            method = bridge.method_of(topic, message.type_url)
        except BadName as exc:
            is_served = self._serve(topic, bridge.kind_of(message.type_url)) is not None
            return self._decline(key, Reason.NO_METHOD, str(exc), now) if is_served else NOTHING
        streaming = self._serve(topic, method.kind)
        if streaming is None:
            requests.recent.note(key, UNWANTED, now)  # it is somebody else's, and so is its answer
            return NOTHING
        if len(method.folded) > self._limits.max_name:
            return self._decline(key, Reason.NO_METHOD, "a name that is too long", now)
        if len(requests.served) >= self._limits.max_pending:
            return self._decline(key, Reason.BUSY, "too many calls are open", now)
        return self._on_call(message, key, method, streaming, now)

    def _on_call(self, message: Request, key: Key, method: Method, streaming: str, now: float) -> Words:
        number, topic = key
        timeout = self._timeout(message) if message.timeout else self._default_timeout
        expires_at = inf if timeout is None else now + timeout
        codec = self._codec if method.is_usual else codec_of(method.folded, self._codec)
        streams, more = False, False
        if streaming != "unary":
            streams = streaming in {"server", "both"}
            # MQRPC-a05: for a method that takes no stream every Request is complete.
            more = not message.eos and streaming in {"client", "both"}
        served = Served(f"{number}@{topic}", topic, number, method, codec, streams, more, expires_at)
        try:
            word = served.read(message.value or b"", timeout)
            words = (word,) if streaming != "unary" else self._taken(word, topic, method.kind, REQUEST)
        except (Malformed, builtins.BadArguments) as exc:
            return self._decline(key, Reason.BAD_ARGUMENTS, str(exc), now)
        if self._shares is not None:
            served.share = self._shares.admit(number, topic)
            if type(served.share) is str:
                return self._decline(key, Reason.BUSY, served.share, now)
        if timeout is not None:
            self._wake_at = min(self._wake_at, expires_at)
        self._requests.serve(key, served)
        return words

    def _timeout(self, message: Request) -> float:
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
            # Not "too large", which would say that nothing was run.
            return self._break(served, Reason.CANCELLED, "too many parts", now)
        if message.type_url and bridge.kind_of(message.type_url) != served.method.kind:
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
        """Report what could not be read, and tell who certainly waits for it: its sender, or whom it answers."""
        number, is_request = (None, False) if packet.is_text else outline(packet.payload)
        topic, requests = packet.channel, self._requests
        longest = self._limits.max_name
        if number is None or len(topic) > longest:
            self.refused += 1
            return (hub.Stray(f"@{topic[:longest]}", str(error)),)
        key = number, topic
        request = requests.open.get(key)
        if not is_request and type(request) is not Asking and requests.expects(key, now):
            # A failure of ours may be longer than what we take, see `_failed`.
            return NOTHING
        self.refused += 1
        words: list[hub.Word] = [hub.Stray(f"{number}@{topic}", str(error))]
        reason = Reason.TOO_LARGE if error.fault is Fault.TOO_LARGE else Reason.BAD_ARGUMENTS
        if not is_request:
            if type(request) is Asking:
                requests.end_asking(request, UNWANTED, now)
                words.append(hub.Failure(request.hub_id, Reason.LOST, f"the answer cannot be read: {error}"))
        elif request is not None:
            # A stream with a hole in it is none; but a request that is complete is not harmed by what comes after it.
            if type(request) is Served and request.more:
                words += self._break(request, reason, str(error), now)
        elif requests.recent.get(key, now) is None and self._serve(topic, "") is not None:
            self._decline(key, reason, str(error), now)
        return words

    # Our answers to them.

    def _break(self, served: Served, reason: Reason, text: str, now: float) -> Words:
        """End a request that the hub is busy with."""
        self._send_failure(hub.Failure(served.hub_id, reason, text), now)
        return (hub.Cancel(served.hub_id),)

    def _answer(self, served: Served, packet: Packet, last: bool, now: float) -> None:
        self._say(packet, (served.correlation_id, served.topic))
        served.echoes += 1
        if last:
            self._requests.end_served(served, now)

    def _open_request(self, hub_id: str) -> Served:
        served = self._requests.served.get(hub_id)
        if served is None:
            raise LocalProtocolError(f"no request {hub_id} is open")
        return served

    def _send_result(self, word: hub.Result, now: float) -> None:
        served = self._open_request(word.id)
        if word.attachments:
            self._hold_result(word, served)
            return
        if word.stream and not served.streams:
            raise LocalProtocolError(f"{served.method.spelling} gives no stream")
        if served.streams and not word.stream and self._send_elements(served, word.body, now):
            return
        last = word.last or not word.stream
        if word.body is None and not (word.stream and last):
            raise LocalProtocolError("only the end of a stream may lack a body")
        value = served.write(word.body)
        packet = packed(Response(served.topic, served.correlation_id, "", value, last), self._limits)
        self._answer(served, packet, last, now)

    def _send_elements(self, served: Served, body: Payload | None, now: float) -> bool:
        """Say an array as the stream that its caller waits for, as who cannot stream gives all elements at once.

        All of them can be said, before the first is. False, and nothing has happened, if it is no array.
        """
        elements = None if body is None else body.value()
        if not isinstance(elements, list):
            return False
        values = [served.write(Value(each)) for each in elements] or [None]
        ends = [*[False] * (len(values) - 1), True]
        said = [
            packed(Response(served.topic, served.correlation_id, "", value, last), self._limits)
            for value, last in zip(values, ends, strict=True)
        ]
        for packet, last in zip(said, ends, strict=True):
            self._answer(served, packet, last, now)
        return True

    def _send_failure(self, word: hub.Failure, now: float) -> None:
        served = self._open_request(word.id)
        self._waiting.drop(word.id)
        self._answer(served, failed(word, (served.correlation_id, served.topic), self._limits), True, now)

    def _send_description(self, word: hub.Description, now: float) -> None:
        served = self._open_request(word.id)
        if served.method.folded != "hub.discover":
            raise LocalProtocolError(f"{served.method.spelling} does not ask for a description")
        self._send_result(hub.Result(word.id, builtins.described(word)), now)

    # Requests of ours.

    def _send_call(self, word: hub.Call, now: float) -> None:
        topic, kind = self._target(word)
        codec: Codec = JSON_TEXT if word.callback else codec_of(word.method, self._codec)
        if word.attachments:
            self._hold_call(word, topic, kind, codec)
            return
        number = self._new_number(word.id, topic)
        asking = Asking(word.id, topic, number, kind, codec, hub.Call, word.stream, word.more)
        self._ask(asking, word.body, word.timeout, now)

    def _target(self, word: hub.Call) -> tuple[str, str]:
        return bridge.callback_of(word) if word.callback else bridge.target_of(word.method, word.spelling)

    def _send_builtin(self, word: hub.Discover | hub.Register | hub.Unregister, now: float) -> None:
        """Say by a call of the hub's own method what RPC over MQTT has no message for."""
        method, body = builtins.write(word, bridge.STYLES)
        topic, kind = bridge.target_of(method, "")
        number = self._new_number(word.id, topic)
        self._ask(Asking(word.id, topic, number, kind, JSON_TEXT, type(word)), body, self._default_timeout, now)

    def _new_number(self, hub_id: str, topic: str) -> int:
        requests = self._requests
        if len(topic) > self._limits.max_name:
            raise Unrepresentable(f"a topic of {len(topic)} characters [MQRPC-a08]")
        if hub_id in requests.asking:
            raise LocalProtocolError(f"request {hub_id} is open already")
        if len(requests.asking) >= self._limits.max_pending:
            raise LocalProtocolError("too many requests on this broker are open")
        if self._asked_on.get(topic, 0) >= self._most_on_topic:
            raise LocalProtocolError(f"too many requests on {topic} are open")
        return requests.new_number(topic)

    def _ask(self, asking: Asking, body: Payload, timeout: float | None, now: float) -> None:
        milliseconds = unit = 0
        if timeout is not None and (milliseconds := bridge.milliseconds(timeout)):
            unit = bridge.MILLISECOND
            # We wait as long as we tell the other side to.
            asking.expires_at = now + milliseconds / 1000
        number, kind, value = asking.correlation_id, asking.kind, asking.write(body)
        message = Request(asking.topic, number, kind, value, not asking.more, milliseconds, unit)
        self._say(packed(message, self._limits))
        self._requests.ask(asking)
        if unit:
            self._wake_at = min(self._wake_at, asking.expires_at)

    def _send_part(self, word: hub.Part, _now: float) -> None:
        asking = self._requests.asking.get(word.id)
        if asking is None or not asking.more:
            raise LocalProtocolError(f"no stream {word.id} is open")
        if word.body is None and not word.last:
            raise LocalProtocolError("only the end of a stream may lack a body")
        value = asking.write(word.body)
        kind = "" if value is None else asking.kind
        self._say(packed(Request(asking.topic, asking.correlation_id, kind, value, word.last), self._limits))
        asking.more = not word.last

    def _send_cancel(self, word: hub.Cancel, now: float) -> None:
        """MQTT cannot say it: the late answer will find nobody."""
        asking = self._requests.asking.get(word.id)
        if asking is not None:
            self._requests.end_asking(asking, UNWANTED, now)
        else:
            self._waiting.drop(word.id)

    # The answers to them.

    def _on_response(self, message: Response, now: float) -> Words:
        key, requests = (message.correlation_id, message.topic), self._requests
        asking = requests.open.get(key)
        if type(asking) is not Asking:
            return self._on_stray(key, now)
        asking.parts += 1
        if asking.parts > self._limits.max_stream:
            requests.end_asking(asking, UNWANTED, now)
            return (hub.Failure(asking.hub_id, Reason.RAISED, "too many parts"),)
        last = message.eos or not asking.streams
        if message.value is None and not last:
            return NOTHING
        try:
            word = asking.read(message.value, last)
            words = (word,) if asking.streams else self._taken(word, asking.topic, asking.kind, RESPONSE)
        except Malformed as exc:
            requests.end_asking(asking, UNWANTED, now)
            return (hub.Failure(asking.hub_id, Reason.RAISED, f"the result cannot be read: {exc}"),)
        if last:
            requests.end_asking(asking, LATE, now)
        return words

    def _on_error(self, message: ErrorResponse, now: float) -> Words:
        key = message.correlation_id, message.topic
        asking = self._requests.open.get(key)
        if type(asking) is not Asking:
            is_timeout = message.code == bridge.ERRORS[Reason.TIMEOUT][0]
            return NOTHING if is_timeout and self._requests.expects_timeout(key, now) else self._on_stray(key, now)
        self._requests.end_asking(asking, LATE, now)
        return (bridge.failure_to_hub(message, asking.hub_id),)

    def _on_stray(self, key: Key, now: float) -> Words:
        """MQRPC-06: an answer that is not ours to hear."""
        if self._requests.expects(key, now):
            return NOTHING
        self.strays += 1
        return (hub.Stray(f"{key[0]}@{key[1]}", "nobody waits for this answer [MQRPC-06]"),)

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
        hub.Attachment: AttachingMqtt.send_attachment,
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
