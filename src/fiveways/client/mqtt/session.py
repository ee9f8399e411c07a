"""Our side of all that is said to one broker: calls of ours and their answers, calls of others and ours."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from fiveways.app.values import MemoryBudget
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
"""Calls whose callers stopped waiting, and whose answers are yet counted when they come."""
_LOG_INTERVAL: Final = 10.0
"""Seconds between two lines in the log about what nobody waits for."""
_log = logging.getLogger("fiveways.client.mqtt")


class MqttCallTarget(NamedTuple):
    """A method, as it is called."""

    topic: str
    kind: str
    method: str
    """Folded."""
    spelling: str


class CallHandler(Protocol):
    """Who serves methods of ours. None of these may raise."""

    def streaming_kind(self, topic: str, kind: str) -> str | None:
        """Return who streams in a method; None if the topic is not served here."""

    def handle_call(self, word: Call) -> None:
        """Run a method."""

    def handle_part(self, word: Part) -> None:
        """Take one more element of a streamed request."""

    def handle_cancel(self, word: Cancel) -> None:
        """Know that a call is over, and was answered."""

    def link_lost(self) -> None:
        """Know that the link is gone, and with it parts of what was streaming."""


class MqttSession(BrokerConnection):
    """One client of a broker: its calls, and those of others. Fulfils `keeper.Owner`."""

    def __init__(self, broker: Broker, settings: MqttSettings) -> None:
        if settings.timeout <= 0:
            raise ValueError(BAD_TIMEOUT)
        super().__init__(broker, settings, self._streaming_kind)
        self.reconnector = BrokerReconnector(broker, settings, self)
        self.topics = TopicSubscriptions(self.reconnector, self._topics_in_use)
        self.call_handler: CallHandler | None = None
        self.dropped = 0
        """Answers that came after their callers had stopped waiting."""
        self._sent_timeout = None if settings.timeout == HUB_TIMEOUT else settings.timeout
        self._numbers = count(1)
        self._requests = self._new_requests()
        self._budget = MemoryBudget()
        self._part_buffers: dict[str, PartBuffer] = {}
        """Where the parts of streamed answers go."""
        self._abandoned: dict[str, PendingRequest] = {}
        self._last_sent = 0
        """The number of the last request that was handed to a link."""
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

    # Our calls.

    def is_ready(self, topic: str) -> bool:
        """Whether a call on a topic can leave at once."""
        link, live = self.reconnector.link, self.topics.subscribed
        if link is None or link.is_full or topic not in live:
            return False
        live[topic] = self._loop.time()
        return True

    async def wait_ready(self, topic: str, timeout: float | None) -> float:  # noqa: ASYNC109  it is told what is left of it
        """Wait until a call on a topic can leave; return what is left of the time.

        Raises:
            NotExecuted: that is not so in time, or the broker refuses the topic.
            ConnectionLost: there will be no link any more.
        """
        left = self.settings.timeout if timeout is None else timeout
        if left <= 0:
            raise ValueError(BAD_TIMEOUT)
        while not self.is_ready(topic):
            left = await self.topics.ensure_subscribed(topic, left)
            left = await self.reconnector.wait_ready(left)
        return left

    async def call(self, target: MqttCallTarget, body: Payload, timeout: float | None) -> Result:  # noqa: ASYNC109  see above
        """Call a method whose request and answer are one message each."""
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
        """Return what to tell of the time that is left: nothing, if nobody asked for a timeout."""
        return None if timeout is None else left

    def start_call(
        self,
        target: MqttCallTarget,
        body: Payload,
        timeout: float | None,
        inflow: PartBuffer | None = None,
        *,
        more: bool = False,
    ) -> PendingRequest:
        """Make a call; an answer in parts goes to `inflow`. NotExecuted if it cannot be said.

        Without a timeout the service's own holds, and ours for the time that we wait.
        """
        now = self._loop.time()
        if timeout is None:
            told, wait = self._sent_timeout, self.settings.timeout
        elif timeout > 0:
            told = wait = timeout
        else:
            raise ValueError(BAD_TIMEOUT)
        if target.topic in self.topics.served:
            # We know our own requests by their ids, and would not hear this one.
            text = f"{target.topic} is served by this very peer: call it from another one"
            raise NotExecuted(Reason.UNAVAILABLE, text)
        pending = self._requests.open(wait, now)
        name = pending.id
        pending.method, pending.timeout = target.spelling, told
        word = Call(name, target.method, body, target.spelling, (), False, told, more, inflow is not None)
        try:
            self.conversation.send(word, now)
        except LocalProtocolError as exc:
            self._requests.close(name)
            raise unsendable_request_error(exc) from exc
        if inflow is not None:
            self._part_buffers[name] = inflow
        self._schedule_flush()
        return pending

    def new_part_buffer(self) -> PartBuffer:
        """Return a place for the parts of a stream."""
        return PartBuffer(self.settings.max_waiting, self._budget)

    def send_part(self, pending: PendingRequest, body: Payload | None, *, last: bool) -> None:
        """Send one more element of a streamed request; LocalProtocolError if that cannot be said."""
        self.conversation.send(Part(pending.id, body, last), self._loop.time())
        self._schedule_flush()

    def abandon(self, pending: PendingRequest) -> None:
        """Nobody waits for an answer any more. If one comes it is dropped, and counted."""
        name = pending.id
        inflow = self._part_buffers.pop(name, None)
        if inflow is not None:
            inflow.drop()
        pending.future.cancel()
        if self._requests.get(name) is not pending:
            return
        forsaken = self._abandoned
        forsaken[name] = pending
        if len(forsaken) > MAX_ABANDONED:
            oldest = next(iter(forsaken))
            del forsaken[oldest]
            self._requests.close(oldest)
            self._send_cancel(oldest)

    def _send_cancel(self, name: str) -> None:
        with suppress(LocalProtocolError):  # the conversation may be over
            self.conversation.send(Cancel(name), self._loop.time())

    def _on_timeout(self, pending: PendingRequest) -> None:
        if pending.timeout is None:
            # The conversation was told of no timeout, and would wait for ever.
            self._send_cancel(pending.id)
        seconds = self.settings.timeout if pending.timeout is None else pending.timeout
        self._fail_request(pending, CallTimeout(f"{pending.method} did not answer within {round(seconds, 3):g} s"))

    def _fail_request(self, pending: PendingRequest, error: Exception) -> None:
        """Let whoever waits for an answer know that none will come."""
        self._abandoned.pop(pending.id, None)
        inflow = self._part_buffers.pop(pending.id, None)
        if pending.future.done():
            return
        if inflow is not None:
            inflow.end(error)
            pending.future.cancel()
        else:
            pending.future.set_exception(error)

    # What the broker delivers.

    def message_received(self, message: MqttMessage) -> None:
        """Let it be heard."""
        packet = Packet(message.payload, False, message.topic, message.retained)
        for word in self.conversation.receive(packet, self._loop.time()):
            # Most are calls, and answers in one piece.
            if type(word) is Result and not word.stream:
                pending = self._requests.close(word.id)
                if pending is not None:
                    self._complete(pending, word)
            elif type(word) is Call and self.call_handler is not None:
                self.call_handler.handle_call(word)
            else:
                self._handle_message(word)
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._loop.call_soon, self._flush)  # a task that was begun or woken speaks before that

    def _complete(self, pending: PendingRequest, word: Result) -> None:
        future = pending.future
        if future.done():
            self.dropped += 1
            self._abandoned.pop(pending.id, None)
        else:
            future.set_result(word)

    def _handle_message(self, word: HubMessage) -> None:
        handler = self._HANDLERS.get(type(word))
        if handler is not None:
            handler(self, word)

    def _on_response_part(self, word: Result) -> None:
        pending = self._requests.get(word.id)
        if pending is None:
            return
        inflow = self._part_buffers.get(word.id)
        if word.body is not None:
            if inflow is None:
                self.dropped += 1
            elif not inflow.put(word.body.binary()):
                text = f"too much of the answer of {pending.method} waited to be taken: it was given up"
                inflow.end(Cancelled(text))
                del self._part_buffers[word.id]
                self.abandon(pending)
        if word.last:
            self._requests.close(word.id)
            self._abandoned.pop(word.id, None)
            inflow = self._part_buffers.pop(word.id, None)
            if inflow is not None:
                inflow.end()
                pending.future.set_result(word)

    def _on_failure(self, word: Failure) -> None:
        pending = self._requests.close(word.id)
        if pending is None:
            return
        if pending.future.done():
            self.dropped += word.reason is not Reason.TIMEOUT  # that may be our own word
        if word.reason is Reason.TIMEOUT:
            word = msgspec.structs.replace(word, text=f"{pending.method}: {word.text}")
        self._fail_request(pending, error_from_failure(word))

    def _on_request_part(self, word: Part) -> None:
        if self.call_handler is not None:
            self.call_handler.handle_part(word)

    def _on_cancel(self, word: Cancel) -> None:
        if self.call_handler is not None:
            self.call_handler.handle_cancel(word)

    def _on_stray(self, word: Stray) -> None:
        """Say it in the log: an answer from nowhere is somebody's mistake, as two services on one topic are."""
        now = self._loop.time()
        if now < self._next_log_at:
            self._suppressed += 1
            return
        more = f", and {self._suppressed} more since the last such line" if self._suppressed else ""
        _log.warning("%s: %s%s", word.id, word.text, more)
        self._next_log_at, self._suppressed = now + _LOG_INTERVAL, 0

    _HANDLERS: Final[dict[type[HubMessage], Callable[[Any, Any], None]]] = {
        Result: _on_response_part,
        Failure: _on_failure,
        Part: _on_request_part,
        Cancel: _on_cancel,
        Stray: _on_stray,
    }

    # What the keeper tells.

    def filters(self) -> list[str]:
        """Return the topics that a new link must be subscribed to."""
        return list(self.topics.subscribed)

    def subscription_refused(self, topic_filter: str, error: SubscriptionRefused) -> None:
        """Know that a topic is not granted any more."""
        _log.error("%s", error)
        self.topics.subscription_refused(topic_filter)

    def link_opened(self, link: MqttLink) -> None:
        """Say what waited for a link."""
        self._send_held(link)

    def link_lost(self, error: ConnectionLost) -> None:
        """Let all calls fail that are open, by what is known of each; answers wait for the next link."""
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
        """Stop: there will be no link any more."""
        self.topics.close()
        self.conversation.send(Goodbye(), self._loop.time())
        self._stop_timer()

    async def close(self) -> None:
        """Say what is to be said, then part from the broker."""
        self._write_packets()
        await self.reconnector.close()
