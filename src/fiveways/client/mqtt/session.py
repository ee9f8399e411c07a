"""A client's session at a broker: its own calls, and calls of its services."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from fiveways.app.memory_budget import MemoryBudget
from fiveways.client.mqtt.broker_connection import BrokerConnection
from fiveways.client.mqtt.part_buffer import PartBuffer
from fiveways.client.mqtt.reconnector import BrokerReconnector
from fiveways.client.mqtt.retry import NotSent
from fiveways.client.mqtt.settings import MqttSettings
from fiveways.client.mqtt.topic_subscriptions import TopicSubscriptions
from fiveways.client.pending_requests import PendingRequest, PendingRequests
from fiveways.client.settings import BAD_TIMEOUT, HUB_TIMEOUT
from fiveways.errors import CallLost, CallTimeout, Cancelled, ConnectionLost, LocalProtocolError, NotExecuted, Reason
from fiveways.model.messages import Call, Cancel, Failure, Goodbye, HubMessage, Part, Result, Stray
from fiveways.model.outcomes import error_from_failure, unsendable_request_error
from fiveways.transports.mqtt_link import Broker, MqttLink, MqttMessage, SubscriptionRefused
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload

MAX_ABANDONED: Final = 1024
"""Cancelled calls whose responses are still counted when they arrive."""
_LOG_INTERVAL: Final = 10.0
"""Seconds between log lines about stray responses."""
_log = logging.getLogger("fiveways.client.mqtt")


class MqttCallTarget(NamedTuple):
    """Target of a call."""

    topic: str
    kind: str
    method: str
    """Folded method name."""
    spelling: str


class CallHandler(Protocol):
    """Serves methods of this client. None of its methods may raise."""

    def streaming_kind(self, topic: str, kind: str) -> str | None:
        """Return the streaming kind of a method; None if the topic is not served here."""

    def handle_call(self, message: Call) -> None:
        """Run a method."""

    def handle_part(self, message: Part) -> None:
        """Add an element to a streamed request."""

    def handle_cancel(self, message: Cancel) -> None:
        """Cancel a call that has its response already."""

    def link_lost(self) -> None:
        """Handle the loss of the link, and of parts of streams."""


class MqttSession(BrokerConnection):
    """One client of a broker: its calls, and calls of its services. Implements `reconnector.LinkOwner`."""

    def __init__(self, broker: Broker, settings: MqttSettings) -> None:
        if settings.timeout <= 0:
            raise ValueError(BAD_TIMEOUT)
        super().__init__(broker, settings, self._streaming_kind)
        self.reconnector = BrokerReconnector(broker, settings, self)
        self.topics = TopicSubscriptions(self.reconnector, self._topics_in_use)
        self.call_handler: CallHandler | None = None
        self.dropped = 0
        """Responses that arrived after their callers stopped waiting."""
        self._sent_timeout = None if settings.timeout == HUB_TIMEOUT else settings.timeout
        self._numbers = count(1)
        self._requests = self._new_requests()
        self._budget = MemoryBudget()
        self._part_buffers: dict[str, PartBuffer] = {}
        """Buffers of streamed responses."""
        self._abandoned: dict[str, PendingRequest] = {}
        self._last_sent = 0
        """Number of the last request that was written to a link."""
        self._next_log_at = 0.0
        self._suppressed = 0

    @property
    def _link(self) -> MqttLink | None:
        return self.reconnector.link

    def _on_flushed(self) -> None:
        self._last_sent = self._requests.last_number

    def _new_requests(self) -> PendingRequests:
        return PendingRequests(self._numbers, self.settings.limits.max_pending, self._on_timeout, self.settings.timeout)

    def _streaming_kind(self, topic: str, kind: str) -> str | None:
        return None if self.call_handler is None else self.call_handler.streaming_kind(topic, kind)

    def _topics_in_use(self) -> set[str]:
        pendings = (self._requests.get(name) for name in self._requests.ids())
        return {pending.method.rpartition("/")[0] for pending in pendings if pending is not None}

    # Calls.

    def is_ready(self, topic: str) -> bool:
        """Return whether a call on a topic can be sent now."""
        link, live = self.reconnector.link, self.topics.subscribed
        if link is None or link.is_full or topic not in live:
            return False
        live[topic] = self._loop.time()
        return True

    async def wait_ready(self, topic: str, timeout: float | None) -> float:  # noqa: ASYNC109  it returns the rest
        """Wait until a call on a topic can be sent; return the remaining seconds.

        Raises:
            NotExecuted: it cannot be sent in time, or the broker refuses the topic.
            ConnectionLost: the connection is closed for good.
            ValueError: the timeout is not positive.
        """
        left = self.settings.timeout if timeout is None else timeout
        if left <= 0:
            raise ValueError(BAD_TIMEOUT)
        while not self.is_ready(topic):
            left = await self.topics.ensure_subscribed(topic, left)
            left = await self.reconnector.wait_ready(left)
        return left

    async def call(self, target: MqttCallTarget, body: Payload, timeout: float | None) -> Result:  # noqa: ASYNC109  see above
        """Call a method with one request and one response."""
        if not self.is_ready(target.topic):
            timeout = self.remaining(timeout, await self.wait_ready(target.topic, timeout))
        pending = self.start_call(target, body, timeout)
        try:
            return await pending.future
        except asyncio.CancelledError:
            self.abandon(pending)
            raise

    @staticmethod
    def remaining(timeout: float | None, left: float) -> float | None:
        """Return the timeout to send: the remaining time, or None if the call has no timeout."""
        return None if timeout is None else left

    def start_call(
        self,
        target: MqttCallTarget,
        body: Payload,
        timeout: float | None,
        buffer: PartBuffer | None = None,
        *,
        more: bool = False,
    ) -> PendingRequest:
        """Send a call; the parts of a streamed response go to `buffer`. NotExecuted if it cannot be encoded.

        Without a timeout the service uses its own, and this client waits for its default.
        """
        now = self._loop.time()
        if timeout is None:
            sent_timeout, wait = self._sent_timeout, self.settings.timeout
        elif timeout > 0:
            sent_timeout = wait = timeout
        else:
            raise ValueError(BAD_TIMEOUT)
        if target.topic in self.topics.served:
            # The session recognizes its own requests by their ids and ignores them.
            text = f"{target.topic} is served by this client itself: call it from another client"
            raise NotExecuted(Reason.UNAVAILABLE, text)
        pending = self._requests.open(wait, now)
        name = pending.id
        pending.method, pending.timeout = target.spelling, sent_timeout
        call = Call(
            name,
            target.method,
            body,
            target.spelling,
            timeout=sent_timeout,
            more=more,
            stream=buffer is not None,
        )
        try:
            self.conversation.send(call, now)
        except LocalProtocolError as exc:
            self._requests.close(name)
            raise unsendable_request_error(exc) from exc
        if buffer is not None:
            self._part_buffers[name] = buffer
        self._schedule_flush()
        return pending

    def new_part_buffer(self) -> PartBuffer:
        """Return a buffer for the parts of a stream."""
        return PartBuffer(self.settings.max_waiting, self._budget)

    def send_part(self, pending: PendingRequest, body: Payload | None, *, last: bool) -> None:
        """Send one element of a streamed request; LocalProtocolError if it cannot be encoded."""
        self.conversation.send(Part(pending.id, body, last), self._loop.time())
        self._schedule_flush()

    def abandon(self, pending: PendingRequest) -> None:
        """Stop waiting for a response. If it arrives, it is dropped and counted."""
        name = pending.id
        buffer = self._part_buffers.pop(name, None)
        if buffer is not None:
            buffer.drop()
        pending.future.cancel()
        if self._requests.get(name) is not pending:
            return
        abandoned = self._abandoned
        abandoned[name] = pending
        if len(abandoned) > MAX_ABANDONED:
            oldest = next(iter(abandoned))
            del abandoned[oldest]
            self._requests.close(oldest)
            self._send_cancel(oldest)

    def _send_cancel(self, name: str) -> None:
        with suppress(LocalProtocolError):  # the conversation may be closed
            self.conversation.send(Cancel(name), self._loop.time())

    def _on_timeout(self, pending: PendingRequest) -> None:
        if pending.timeout is None:
            # The call was sent without a timeout: the conversation would wait for ever.
            self._send_cancel(pending.id)
        seconds = self.settings.timeout if pending.timeout is None else pending.timeout
        self._fail_request(pending, CallTimeout(f"{pending.method} did not answer within {round(seconds, 3):g} s"))

    def _fail_request(self, pending: PendingRequest, error: Exception) -> None:
        """Raise an exception in the task that waits for a response."""
        self._abandoned.pop(pending.id, None)
        buffer = self._part_buffers.pop(pending.id, None)
        if pending.future.done():
            return
        if buffer is not None:
            buffer.end(error)
            pending.future.cancel()
        else:
            pending.future.set_exception(error)

    # Messages of the broker.

    def message_received(self, publication: MqttMessage) -> None:
        """Decode and handle a message."""
        packet = Packet(publication.payload, False, publication.topic, publication.retained)
        for message in self.conversation.receive(packet, self._loop.time()):
            # Fast path: calls, and results without streams.
            if type(message) is Result and not message.stream:
                pending = self._requests.close(message.id)
                if pending is not None:
                    self._complete(pending, message)
            elif type(message) is Call and self.call_handler is not None:
                self.call_handler.handle_call(message)
            else:
                self._handle_message(message)
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._loop.call_soon, self._flush)  # after tasks that this iteration started or woke

    def _complete(self, pending: PendingRequest, message: Result) -> None:
        future = pending.future
        if future.done():
            self.dropped += 1
            self._abandoned.pop(pending.id, None)
        else:
            future.set_result(message)

    def _handle_message(self, message: HubMessage) -> None:
        handler = self._HANDLERS.get(type(message))
        if handler is not None:
            handler(self, message)

    def _on_response_part(self, message: Result) -> None:
        pending = self._requests.get(message.id)
        if pending is None:
            return
        buffer = self._part_buffers.get(message.id)
        if message.body is not None:
            if buffer is None:
                self.dropped += 1
            elif not buffer.put(message.body.binary()):
                text = (
                    f"cancelled by the client: too many parts of the response of {pending.method} wait for the reader"
                )
                buffer.end(Cancelled(text))
                del self._part_buffers[message.id]
                self.abandon(pending)
        if message.last:
            self._requests.close(message.id)
            self._abandoned.pop(message.id, None)
            buffer = self._part_buffers.pop(message.id, None)
            if buffer is not None:
                buffer.end()
                pending.future.set_result(message)

    def _on_failure(self, message: Failure) -> None:
        pending = self._requests.close(message.id)
        if pending is None:
            return
        if pending.future.done():
            self.dropped += message.reason is not Reason.TIMEOUT  # a timeout may be local
        if message.reason is Reason.TIMEOUT:
            message = msgspec.structs.replace(message, text=f"{pending.method}: {message.text}")
        self._fail_request(pending, error_from_failure(message))

    def _on_request_part(self, message: Part) -> None:
        if self.call_handler is not None:
            self.call_handler.handle_part(message)

    def _on_cancel(self, message: Cancel) -> None:
        if self.call_handler is not None:
            self.call_handler.handle_cancel(message)

    def _on_stray(self, message: Stray) -> None:
        """Log a stray response: it shows a mistake, such as two services on one topic."""
        now = self._loop.time()
        if now < self._next_log_at:
            self._suppressed += 1
            return
        _log.warning("stray response topic=%s error=%s suppressed=%d", message.id, message.text, self._suppressed)
        self._next_log_at, self._suppressed = now + _LOG_INTERVAL, 0

    _HANDLERS: Final[dict[type[HubMessage], Callable[[Any, Any], None]]] = {
        Result: _on_response_part,
        Failure: _on_failure,
        Part: _on_request_part,
        Cancel: _on_cancel,
        Stray: _on_stray,
    }

    # Calls by the reconnector.

    def filters(self) -> list[str]:
        """Return the topics that a new link must subscribe to."""
        return list(self.topics.subscribed)

    def subscription_refused(self, topic_filter: str, error: SubscriptionRefused) -> None:
        """Handle that the broker refuses a topic on a new link."""
        _log.error("%s", error)
        self.topics.subscription_refused(topic_filter)

    def link_opened(self, link: MqttLink) -> None:
        """Send the responses that wait for a link."""
        self._send_held(link)

    def link_lost(self, error: ConnectionLost) -> None:
        """Fail open calls, as lost or never sent; responses wait for the next link."""
        self._hold_responses(self.conversation.take_packets())
        requests, self._requests = self._requests, self._new_requests()
        for pending in requests.close_all():
            self._send_cancel(pending.id)
            if pending.number <= self._last_sent:
                self._fail_request(pending, CallLost(f"{error}; it may have run"))
            else:
                self._fail_request(pending, NotSent(Reason.UNAVAILABLE, f"{error}; it was not sent"))
        if self.call_handler is not None:
            self.call_handler.link_lost()

    def connection_closed(self, _error: ConnectionLost) -> None:
        """Stop: there will be no new link."""
        self.topics.close()
        self.conversation.send(Goodbye(), self._loop.time())
        self._stop_timer()

    async def close(self) -> None:
        """Send queued messages, then close the connection."""
        self._write_packets()
        await self.reconnector.close()
