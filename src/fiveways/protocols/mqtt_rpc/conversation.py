"""One broker's link, and the requests in both directions that share it.

The peer is the broker's side as a whole: many callers and many services, none of which can end the link for the others.
So what breaks the protocol is refused one by one, counted and reported, and the conversation goes on.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from math import inf
from typing import Any, ClassVar

from fiveways.errors import Fault, LocalProtocolError, Malformed, Reason, RemoteProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model.names import BadName
from fiveways.protocols import builtin_methods
from fiveways.protocols.base import ConversationSetup
from fiveways.protocols.mqtt_rpc import bridge
from fiveways.protocols.mqtt_rpc.attachments import MqttAttachments
from fiveways.protocols.mqtt_rpc.bridge import (
    JSON_CODEC,
    REQUEST,
    RESPONSE,
    CalledMethod,
    Codec,
    codec_for_method,
    encode_failure,
)
from fiveways.protocols.mqtt_rpc.fastpath import NO_MESSAGES, HubMessages
from fiveways.protocols.mqtt_rpc.frames import BARE, parse_frame, scan_undecodable
from fiveways.protocols.mqtt_rpc.messages import (
    ErrorResponse,
    Message,
    Request,
    Response,
    encode_within_limit,
    message_from_frame,
)
from fiveways.protocols.mqtt_rpc.requests import (
    EXPIRED,
    LATE_RESPONSE,
    UNWANTED_RESPONSE,
    IncomingRequest,
    OutgoingRequest,
    RequestKey,
)
from fiveways.protocols.mqtt_rpc.states import State
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload, Value


class MqttConversation(MqttAttachments):
    """All that passes between us and one broker. Fulfils `base.Conversation`."""

    def __init__(self, setup: ConversationSetup) -> None:
        super().__init__(setup)
        self.peer = setup.peer
        self.error: RemoteProtocolError | None = None
        """Never set: see above."""
        self.refused_messages = 0
        """Messages that broke the protocol."""
        self.stray_responses = 0
        """Responses that nobody waited for (MQRPC-06)."""
        self.unknown_time_units = 0
        """Requests with a unit of time that we do not know (MQRPC-a03)."""
        self._state: Enum = State.OPEN

    def receive_general(self, packet: Packet, now: float) -> HubMessages:
        """Take one MQTT message that is none of ours."""
        try:
            frame = parse_frame(packet, self._limits)
            message = message_from_frame(frame, pending=frame.shape is BARE and self._requests.is_pending(frame))
        except RemoteProtocolError as error:
            return self._on_unreadable(packet, error, now)
        # As long as a conversation is open every message may come, so the table of states need not be asked.
        return self.RECEIVERS[type(message)](self, message, now)

    def send_general(self, message: hub.HubMessage, now: float) -> None:
        """Say a word to whom it may concern on the broker."""
        sender = self.SENDERS.get(type(message))
        if sender is None:
            raise LocalProtocolError(f"RPC over MQTT has no way to say {type(message).__name__}")
        if self.closed:
            raise LocalProtocolError("the conversation is over")
        sender(self, message, now)

    def take_packets(self) -> list[Packet]:
        """Hand over the messages to be published."""
        packets, self.unsent = self.unsent, []
        return packets

    def deadline(self) -> float | None:
        """When the next request may run out of time."""
        return None if self.closed or self._wake_at == inf else self._wake_at

    def wake(self, now: float) -> HubMessages:
        """End what took too long, in both directions (MQRPC-a10)."""
        if self.closed or now < self._wake_at:
            return NO_MESSAGES
        messages, self._pending_failures = self._pending_failures, []
        for request in list(self._requests.open.values()):
            if request.expires_at > now:
                continue
            if isinstance(request, IncomingRequest):
                messages += self._abort_request(request, Reason.TIMEOUT, "not done in time [MQRPC-a10]", now)
            else:
                self._requests.close_outgoing(request, EXPIRED, now)
                messages.append(hub.Failure(request.hub_id, Reason.TIMEOUT, "no answer in time"))
        self._wake_at = self._requests.next_expiry()
        return messages

    # Requests that come in.

    def _on_request(self, message: Request, now: float) -> HubMessages:
        topic, requests = message.topic, self._requests
        key = message.correlation_id, topic
        request = requests.open.get(key)
        if request is not None:
            # MQRPC-a01: a broker sends back to us what we say on a topic that we listen to.
            return self._on_part(request, message, now) if type(request) is IncomingRequest else NO_MESSAGES
        note = requests.recent.get(key, now)
        if note is not None:
            # An echo, a repeat (MQRPC-a11), or more of a stream that was cut short; remembered as long as it comes.
            requests.recent.add(key, note, now)
            return NO_MESSAGES
        try:
            method = bridge.parse_method(topic, message.type_url)
        except BadName as exc:
            is_served = self._served_topic_kind(topic, bridge.type_name(message.type_url)) is not None
            return self._refuse_request(key, Reason.NO_SUCH_METHOD, str(exc), now) if is_served else NO_MESSAGES
        streaming = self._served_topic_kind(topic, method.kind)
        if streaming is None:
            requests.recent.add(key, UNWANTED_RESPONSE, now)  # it is somebody else's, and so is its answer
            return NO_MESSAGES
        if len(method.folded) > self._limits.max_name:
            return self._refuse_request(key, Reason.NO_SUCH_METHOD, "a name that is too long", now)
        if len(requests.incoming) >= self._limits.max_pending:
            return self._refuse_request(key, Reason.OVERLOADED, "too many calls are open", now)
        return self._on_call(message, key, method, streaming, now)

    def _on_call(
        self, message: Request, key: RequestKey, method: CalledMethod, streaming: str, now: float
    ) -> HubMessages:
        number, topic = key
        timeout = self._timeout(message) if message.timeout else self._default_timeout
        expires_at = inf if timeout is None else now + timeout
        codec = self._codec if method.is_application_method else codec_for_method(method.folded, self._codec)
        streams, more = False, False
        if streaming != "unary":
            streams = streaming in {"server", "both"}
            # MQRPC-a05: for a method that takes no stream every Request is complete.
            more = not message.eos and streaming in {"client", "both"}
        served = IncomingRequest(f"{number}@{topic}", topic, number, method, codec, streams, more, expires_at)
        try:
            hub_message = served.parse_request(message.value or b"", timeout)
            messages = (
                (hub_message,)
                if streaming != "unary"
                else self._with_extracted_attachments(hub_message, topic, method.kind, REQUEST)
            )
        except (Malformed, builtin_methods.BadArguments) as exc:
            return self._refuse_request(key, Reason.BAD_ARGUMENTS, str(exc), now)
        if self._quota is not None:
            served.quota_share = self._quota.admit(number, topic)
            if type(served.quota_share) is str:
                return self._refuse_request(key, Reason.OVERLOADED, served.quota_share, now)
        if timeout is not None:
            self._wake_at = min(self._wake_at, expires_at)
        self._requests.add_incoming(key, served)
        return messages

    def _timeout(self, message: Request) -> float:
        unit = bridge.UNIT_SECONDS.get(message.timeout_unit)
        if unit is None:
            self.unknown_time_units += 1
            unit = bridge.UNIT_SECONDS[bridge.MILLISECOND]
        return message.timeout * unit

    def _on_part(self, served: IncomingRequest, message: Request, now: float) -> HubMessages:
        if not served.expects_parts:
            return NO_MESSAGES
        served.parts += 1
        if served.parts > self._limits.max_stream:
            # Not "too large", which would say that nothing was run.
            return self._abort_request(served, Reason.CANCELLED, "too many parts", now)
        if message.type_url and bridge.type_name(message.type_url) != served.method.kind:
            return self._abort_request(served, Reason.BAD_ARGUMENTS, "a part of another type [MQRPC-04]", now)
        served.expects_parts = not message.eos
        if message.value is None:
            # MQRPC-a06: a bare end marker; without `eos` it is nothing at all.
            return (hub.Part(served.hub_id, None, True),) if message.eos else NO_MESSAGES
        try:
            return (served.parse_part(message.value, message.eos),)
        except Malformed as exc:
            return self._abort_request(served, Reason.BAD_ARGUMENTS, str(exc), now)

    def _on_unreadable(self, packet: Packet, error: RemoteProtocolError, now: float) -> HubMessages:
        """Report what could not be read, and tell who certainly waits for it: its sender, or whom it answers."""
        number, is_request = (None, False) if packet.is_text else scan_undecodable(packet.payload)
        topic, requests = packet.channel, self._requests
        longest = self._limits.max_name
        if number is None or len(topic) > longest:
            self.refused_messages += 1
            return (hub.Stray(f"@{topic[:longest]}", str(error)),)
        key = number, topic
        request = requests.open.get(key)
        if not is_request and type(request) is not OutgoingRequest and requests.is_expected_response(key, now):
            # A failure of ours may be longer than what we take, see `_failed`.
            return NO_MESSAGES
        self.refused_messages += 1
        messages: list[hub.HubMessage] = [hub.Stray(f"{number}@{topic}", str(error))]
        reason = Reason.TOO_LARGE if error.fault is Fault.TOO_LARGE else Reason.BAD_ARGUMENTS
        if not is_request:
            if type(request) is OutgoingRequest:
                requests.close_outgoing(request, UNWANTED_RESPONSE, now)
                messages.append(hub.Failure(request.hub_id, Reason.LOST, f"the answer cannot be read: {error}"))
        elif request is not None:
            # A stream with a hole in it is none; but a request that is complete is not harmed by what comes after it.
            if type(request) is IncomingRequest and request.expects_parts:
                messages += self._abort_request(request, reason, str(error), now)
        elif requests.recent.get(key, now) is None and self._served_topic_kind(topic, "") is not None:
            self._refuse_request(key, reason, str(error), now)
        return messages

    # Our answers to them.

    def _abort_request(self, served: IncomingRequest, reason: Reason, text: str, now: float) -> HubMessages:
        """End a request that the hub is busy with."""
        self._send_failure(hub.Failure(served.hub_id, reason, text), now)
        return (hub.Cancel(served.hub_id),)

    def _write_response(self, served: IncomingRequest, packet: Packet, last: bool, now: float) -> None:
        self._write_packet(packet, (served.correlation_id, served.topic))
        served.expected_echoes += 1
        if last:
            self._requests.close_incoming(served, now)

    def _find_incoming(self, hub_id: str) -> IncomingRequest:
        served = self._requests.incoming.get(hub_id)
        if served is None:
            raise LocalProtocolError(f"no request {hub_id} is open")
        return served

    def _send_result(self, message: hub.Result, now: float) -> None:
        served = self._find_incoming(message.id)
        if message.attachments:
            self._defer_result(message, served)
            return
        if message.stream and not served.is_streamed_response:
            raise LocalProtocolError(f"{served.method.spelling} gives no stream")
        if served.is_streamed_response and not message.stream and self._send_elements(served, message.body, now):
            return
        last = message.last or not message.stream
        if message.body is None and not (message.stream and last):
            raise LocalProtocolError("only the end of a stream may lack a body")
        value = served.serialize_result(message.body)
        packet = encode_within_limit(Response(served.topic, served.correlation_id, "", value, last), self._limits)
        self._write_response(served, packet, last, now)

    def _send_elements(self, served: IncomingRequest, body: Payload | None, now: float) -> bool:
        """Say an array as the stream that its caller waits for, as who cannot stream gives all elements at once.

        All of them can be said, before the first is. False, and nothing has happened, if it is no array.
        """
        elements = None if body is None else body.value()
        if not isinstance(elements, list):
            return False
        values = [served.serialize_result(Value(each)) for each in elements] or [None]
        ends = [*[False] * (len(values) - 1), True]
        said = [
            encode_within_limit(Response(served.topic, served.correlation_id, "", value, last), self._limits)
            for value, last in zip(values, ends, strict=True)
        ]
        for packet, last in zip(said, ends, strict=True):
            self._write_response(served, packet, last, now)
        return True

    def _send_failure(self, message: hub.Failure, now: float) -> None:
        served = self._find_incoming(message.id)
        self._deferred.drop(message.id)
        self._write_response(
            served, encode_failure(message, (served.correlation_id, served.topic), self._limits), True, now
        )

    def _send_description(self, message: hub.Description, now: float) -> None:
        served = self._find_incoming(message.id)
        if served.method.folded != "hub.discover":
            raise LocalProtocolError(f"{served.method.spelling} does not ask for a description")
        self._send_result(hub.Result(message.id, builtin_methods.description_payload(message)), now)

    # Requests of ours.

    def _send_call(self, message: hub.Call, now: float) -> None:
        topic, kind = self._call_target(message)
        codec: Codec = JSON_CODEC if message.callback else codec_for_method(message.method, self._codec)
        if message.attachments:
            self._defer_call(message, topic, kind, codec)
            return
        number = self._new_number(message.id, topic)
        asking = OutgoingRequest(message.id, topic, number, kind, codec, hub.Call, message.stream, message.more)
        self._write_request(asking, message.body, message.timeout, now)

    def _call_target(self, message: hub.Call) -> tuple[str, str]:
        return (
            bridge.callback_target(message)
            if message.callback
            else bridge.call_target(message.method, message.spelling)
        )

    def _send_builtin(self, message: hub.Discover | hub.Register | hub.Unregister, now: float) -> None:
        """Say by a call of the hub's own method what RPC over MQTT has no message for."""
        method, body = builtin_methods.call_from_message(message, bridge.STYLES)
        topic, kind = bridge.call_target(method, "")
        number = self._new_number(message.id, topic)
        self._write_request(
            OutgoingRequest(message.id, topic, number, kind, JSON_CODEC, type(message)),
            body,
            self._default_timeout,
            now,
        )

    def _new_number(self, hub_id: str, topic: str) -> int:
        requests = self._requests
        if len(topic) > self._limits.max_name:
            raise Unrepresentable(f"a topic of {len(topic)} characters [MQRPC-a08]")
        if hub_id in requests.outgoing:
            raise LocalProtocolError(f"request {hub_id} is open already")
        if len(requests.outgoing) >= self._limits.max_pending:
            raise LocalProtocolError("too many requests on this broker are open")
        if self._outgoing_per_topic.get(topic, 0) >= self._max_pending_per_topic:
            raise LocalProtocolError(f"too many requests on {topic} are open")
        return requests.new_number(topic)

    def _write_request(self, asking: OutgoingRequest, body: Payload, timeout: float | None, now: float) -> None:
        milliseconds = unit = 0
        if timeout is not None and (milliseconds := bridge.to_milliseconds(timeout)):
            unit = bridge.MILLISECOND
            # We wait as long as we tell the other side to.
            asking.expires_at = now + milliseconds / 1000
        number, kind, value = asking.correlation_id, asking.kind, asking.serialize_arguments(body)
        message = Request(asking.topic, number, kind, value, not asking.expects_parts, milliseconds, unit)
        self._write_packet(encode_within_limit(message, self._limits))
        self._requests.add_outgoing(asking)
        if unit:
            self._wake_at = min(self._wake_at, asking.expires_at)

    def _send_part(self, message: hub.Part, _now: float) -> None:
        asking = self._requests.outgoing.get(message.id)
        if asking is None or not asking.expects_parts:
            raise LocalProtocolError(f"no stream {message.id} is open")
        if message.body is None and not message.last:
            raise LocalProtocolError("only the end of a stream may lack a body")
        value = asking.serialize_arguments(message.body)
        kind = "" if value is None else asking.kind
        self._write_packet(
            encode_within_limit(Request(asking.topic, asking.correlation_id, kind, value, message.last), self._limits)
        )
        asking.expects_parts = not message.last

    def _send_cancel(self, message: hub.Cancel, now: float) -> None:
        """MQTT cannot say it: the late answer will find nobody."""
        asking = self._requests.outgoing.get(message.id)
        if asking is not None:
            self._requests.close_outgoing(asking, UNWANTED_RESPONSE, now)
        else:
            self._deferred.drop(message.id)

    # The answers to them.

    def _on_response(self, message: Response, now: float) -> HubMessages:
        key, requests = (message.correlation_id, message.topic), self._requests
        asking = requests.open.get(key)
        if type(asking) is not OutgoingRequest:
            return self._on_stray_response(key, now)
        asking.parts += 1
        if asking.parts > self._limits.max_stream:
            requests.close_outgoing(asking, UNWANTED_RESPONSE, now)
            return (hub.Failure(asking.hub_id, Reason.RAISED, "too many parts"),)
        last = message.eos or not asking.is_streamed_response
        if message.value is None and not last:
            return NO_MESSAGES
        try:
            hub_message = asking.parse_response(message.value, last)
            messages = (
                (hub_message,)
                if asking.is_streamed_response
                else self._with_extracted_attachments(hub_message, asking.topic, asking.kind, RESPONSE)
            )
        except Malformed as exc:
            requests.close_outgoing(asking, UNWANTED_RESPONSE, now)
            return (hub.Failure(asking.hub_id, Reason.RAISED, f"the result cannot be read: {exc}"),)
        if last:
            requests.close_outgoing(asking, LATE_RESPONSE, now)
        return messages

    def _on_error(self, message: ErrorResponse, now: float) -> HubMessages:
        key = message.correlation_id, message.topic
        asking = self._requests.open.get(key)
        if type(asking) is not OutgoingRequest:
            is_timeout = message.code == bridge.ERRORS[Reason.TIMEOUT][0]
            return (
                NO_MESSAGES
                if is_timeout and self._requests.is_expected_timeout(key, now)
                else self._on_stray_response(key, now)
            )
        self._requests.close_outgoing(asking, LATE_RESPONSE, now)
        return (bridge.parse_error_response(message, asking.hub_id),)

    def _on_stray_response(self, key: RequestKey, now: float) -> HubMessages:
        """MQRPC-06: an answer that is not ours to hear."""
        if self._requests.is_expected_response(key, now):
            return NO_MESSAGES
        self.stray_responses += 1
        return (hub.Stray(f"{key[0]}@{key[1]}", "nobody waits for this answer [MQRPC-06]"),)

    def _send_goodbye(self, _word: hub.Goodbye, _now: float) -> None:
        """Nobody in particular is on the other side to hear it."""
        self._state = State.CLOSED
        self.closed = True

    def _ignore(self, _word: hub.HubMessage, _now: float) -> None:
        """RPC over MQTT has no message for it, and nobody misses it."""

    RECEIVERS: ClassVar[Mapping[type[Message], Callable[[Any, Any, float], HubMessages]]] = {
        Request: _on_request,
        Response: _on_response,
        ErrorResponse: _on_error,
    }

    SENDERS: ClassVar[Mapping[type[hub.HubMessage], Callable[[Any, Any, float], None]]] = {
        hub.Call: _send_call,
        hub.Result: _send_result,
        hub.Failure: _send_failure,
        hub.Part: _send_part,
        hub.Attachment: MqttAttachments.send_attachment,
        hub.Cancel: _send_cancel,
        hub.Discover: _send_builtin,
        hub.Description: _send_description,
        hub.Register: _send_builtin,
        hub.Unregister: _send_builtin,
        hub.Goodbye: _send_goodbye,
        hub.Accepted: _ignore,
        hub.Progress: _ignore,
        hub.Acknowledged: _ignore,
    }
