"""Our side of all that is said to one broker: calls of ours and their answers, calls of others and ours."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from fiveways.app.values import Budget
from fiveways.client.mqtt.inflow import Inflow
from fiveways.client.mqtt.keeper import Keeper
from fiveways.client.mqtt.line import Line
from fiveways.client.mqtt.retry import NotSent
from fiveways.client.mqtt.settings import MqttSettings
from fiveways.client.mqtt.topics import Topics
from fiveways.client.requests import Pending, Requests
from fiveways.client.settings import HUB_TIMEOUT, NO_TIME
from fiveways.errors import CallLost, CallTimeout, Cancelled, ConnectionLost, LocalProtocolError, NotExecuted
from fiveways.model.failures import Reason
from fiveways.model.messages import Call, Cancel, Failure, Goodbye, Part, Result, Stray, Word
from fiveways.model.outcomes import error_of, unsaid
from fiveways.transports.mqtt_link import Broker, BrokerRefused, Delivered, MqttLink
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload

MAX_FORSAKEN: Final = 1024
"""Calls whose callers stopped waiting, and whose answers are yet counted when they come."""
_QUIET: Final = 10.0
"""Seconds between two lines in the log about what nobody waits for."""
_log = logging.getLogger("fiveways.client.mqtt")


class Target(NamedTuple):
    """A method, as it is called."""

    topic: str
    kind: str
    method: str
    """Folded."""
    spelling: str


class Servant(Protocol):
    """Who serves methods of ours. None of these may raise."""

    def kind_of(self, topic: str, kind: str) -> str | None:
        """Return who streams in a method; None if the topic is not served here."""

    def called(self, word: Call) -> None:
        """Run a method."""

    def part(self, word: Part) -> None:
        """Take one more element of a streamed request."""

    def cancelled(self, word: Cancel) -> None:
        """Know that a call is over, and was answered."""

    def lost(self) -> None:
        """Know that the link is gone, and with it parts of what was streaming."""


class MqttSession(Line):
    """One client of a broker: its calls, and those of others. Fulfils `keeper.Owner`."""

    def __init__(self, broker: Broker, settings: MqttSettings) -> None:
        if settings.timeout <= 0:
            raise ValueError(NO_TIME)
        super().__init__(broker, settings, self._kind_of)
        self.keeper = Keeper(broker, settings, self)
        self.topics = Topics(self.keeper, self._topics_in_use)
        self.servant: Servant | None = None
        self.dropped = 0
        """Answers that came after their callers had stopped waiting."""
        self._told_timeout = None if settings.timeout == HUB_TIMEOUT else settings.timeout
        self._numbers = count(1)
        self._requests = self._new_requests()
        self._budget = Budget()
        self._streams: dict[str, Inflow] = {}
        """Where the parts of streamed answers go."""
        self._forsaken: dict[str, Pending] = {}
        self._left = 0
        """The number of the last request that was handed to a link."""
        self._quiet_until = 0.0
        self._unlogged = 0

    @property
    def _link(self) -> MqttLink | None:
        return self.keeper.link

    def _written(self) -> None:
        self._left = self._requests.last

    def _new_requests(self) -> Requests:
        return Requests(self._numbers, self.settings.limits.max_pending, self._overdue, self.settings.timeout)

    def _kind_of(self, topic: str, kind: str) -> str | None:
        return None if self.servant is None else self.servant.kind_of(topic, kind)

    def _topics_in_use(self) -> set[str]:
        pendings = (self._requests.get(name) for name in self._requests.names())
        return {pending.method.rpartition("/")[0] for pending in pendings if pending is not None}

    # Our calls.

    def is_ready(self, topic: str) -> bool:
        """Whether a call on a topic can leave at once."""
        link, live = self.keeper.link, self.topics.live
        if link is None or link.is_full or topic not in live:
            return False
        live[topic] = self._loop.time()
        return True

    async def ready(self, topic: str, timeout: float | None) -> float:  # noqa: ASYNC109  it is told what is left of it
        """Wait until a call on a topic can leave; return what is left of the time.

        Raises:
            NotExecuted: that is not so in time, or the broker refuses the topic.
            ConnectionLost: there will be no link any more.
        """
        left = self.settings.timeout if timeout is None else timeout
        if left <= 0:
            raise ValueError(NO_TIME)
        while not self.is_ready(topic):
            left = await self.topics.open(topic, left)
            left = await self.keeper.ready(left)
        return left

    async def call(self, target: Target, body: Payload, timeout: float | None) -> Result:  # noqa: ASYNC109  see above
        """Call a method whose request and answer are one message each."""
        if not self.is_ready(target.topic):
            timeout = self.remaining(timeout, await self.ready(target.topic, timeout))
        pending = self.begin(target, body, timeout)
        try:
            return await pending.future
        except asyncio.CancelledError:
            self.forsake(pending)
            raise

    @staticmethod
    def remaining(timeout: float | None, left: float) -> float | None:
        """Return what to tell of the time that is left: nothing, if nobody asked for a timeout."""
        return None if timeout is None else left

    def begin(
        self,
        target: Target,
        body: Payload,
        timeout: float | None,
        inflow: Inflow | None = None,
        *,
        more: bool = False,
    ) -> Pending:
        """Make a call; an answer in parts goes to `inflow`. NotExecuted if it cannot be said.

        Without a timeout the service's own holds, and ours for the time that we wait.
        """
        now = self._loop.time()
        if timeout is None:
            told, wait = self._told_timeout, self.settings.timeout
        elif timeout > 0:
            told = wait = timeout
        else:
            raise ValueError(NO_TIME)
        if target.topic in self.topics.held:
            # We know our own requests by their ids, and would not hear this one.
            text = f"{target.topic} is served by this very peer: call it from another one"
            raise NotExecuted(Reason.UNAVAILABLE, text)
        pending = self._requests.open(wait, now)
        name = pending.id
        pending.method, pending.seconds = target.spelling, told
        word = Call(name, target.method, body, target.spelling, (), False, told, more, inflow is not None)
        try:
            self.talk.send(word, now)
        except LocalProtocolError as exc:
            self._requests.close(name)
            raise unsaid(exc) from exc
        if inflow is not None:
            self._streams[name] = inflow
        self._said()
        return pending

    def new_inflow(self) -> Inflow:
        """Return a place for the parts of a stream."""
        return Inflow(self.settings.max_waiting, self._budget)

    def add(self, pending: Pending, body: Payload | None, *, last: bool) -> None:
        """Send one more element of a streamed request; LocalProtocolError if that cannot be said."""
        self.talk.send(Part(pending.id, body, last), self._loop.time())
        self._said()

    def forsake(self, pending: Pending) -> None:
        """Nobody waits for an answer any more. If one comes it is dropped, and counted."""
        name = pending.id
        inflow = self._streams.pop(name, None)
        if inflow is not None:
            inflow.drop()
        pending.future.cancel()
        if self._requests.get(name) is not pending:
            return
        forsaken = self._forsaken
        forsaken[name] = pending
        if len(forsaken) > MAX_FORSAKEN:
            oldest = next(iter(forsaken))
            del forsaken[oldest]
            self._requests.close(oldest)
            self._cancel(oldest)

    def _cancel(self, name: str) -> None:
        with suppress(LocalProtocolError):  # the conversation may be over
            self.talk.send(Cancel(name), self._loop.time())

    def _overdue(self, pending: Pending) -> None:
        if pending.seconds is None:
            # The conversation was told of no timeout, and would wait for ever.
            self._cancel(pending.id)
        seconds = self.settings.timeout if pending.seconds is None else pending.seconds
        self._fail(pending, CallTimeout(f"{pending.method} did not answer within {round(seconds, 3):g} s"))

    def _fail(self, pending: Pending, error: Exception) -> None:
        """Let whoever waits for an answer know that none will come."""
        self._forsaken.pop(pending.id, None)
        inflow = self._streams.pop(pending.id, None)
        if pending.future.done():
            return
        if inflow is not None:
            inflow.end(error)
            pending.future.cancel()
        else:
            pending.future.set_exception(error)

    # What the broker delivers.

    def received(self, message: Delivered) -> None:
        """Let it be heard."""
        packet = Packet(message.payload, False, message.topic, message.retained)
        for word in self.talk.receive(packet, self._loop.time()):
            # Most are calls, and answers in one piece.
            if type(word) is Result and not word.stream:
                pending = self._requests.close(word.id)
                if pending is not None:
                    self._end(pending, word)
            elif type(word) is Call and self.servant is not None:
                self.servant.called(word)
            else:
                self._hear(word)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._loop.call_soon, self._flush)  # a task that was begun or woken speaks before that

    def _end(self, pending: Pending, word: Result) -> None:
        future = pending.future
        if future.done():
            self.dropped += 1
            self._forsaken.pop(pending.id, None)
        else:
            future.set_result(word)

    def _hear(self, word: Word) -> None:
        handler = self._HANDLERS.get(type(word))
        if handler is not None:
            handler(self, word)

    def _on_part_of_answer(self, word: Result) -> None:
        pending = self._requests.get(word.id)
        if pending is None:
            return
        inflow = self._streams.get(word.id)
        if word.body is not None:
            if inflow is None:
                self.dropped += 1
            elif not inflow.put(word.body.binary()):
                text = f"too much of the answer of {pending.method} waited to be taken: it was given up"
                inflow.end(Cancelled(text))
                del self._streams[word.id]
                self.forsake(pending)
        if word.last:
            self._requests.close(word.id)
            self._forsaken.pop(word.id, None)
            inflow = self._streams.pop(word.id, None)
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
        self._fail(pending, error_of(word))

    def _on_request_part(self, word: Part) -> None:
        if self.servant is not None:
            self.servant.part(word)

    def _on_cancel(self, word: Cancel) -> None:
        if self.servant is not None:
            self.servant.cancelled(word)

    def _on_stray(self, word: Stray) -> None:
        """Say it in the log: an answer from nowhere is somebody's mistake, as two services on one topic are."""
        now = self._loop.time()
        if now < self._quiet_until:
            self._unlogged += 1
            return
        more = f", and {self._unlogged} more since the last such line" if self._unlogged else ""
        _log.warning("%s: %s%s", word.id, word.text, more)
        self._quiet_until, self._unlogged = now + _QUIET, 0

    _HANDLERS: Final[dict[type[Word], Callable[[Any, Any], None]]] = {
        Result: _on_part_of_answer,
        Failure: _on_failure,
        Part: _on_request_part,
        Cancel: _on_cancel,
        Stray: _on_stray,
    }

    # What the keeper tells.

    def filters(self) -> list[str]:
        """Return the topics that a new link must be subscribed to."""
        return list(self.topics.live)

    def refused(self, topic_filter: str, error: BrokerRefused) -> None:
        """Know that a topic is not granted any more."""
        _log.error("%s", error)
        self.topics.refused(topic_filter)

    def opened(self, link: MqttLink) -> None:
        """Say what waited for a link."""
        self._release(link)

    def lost(self, error: ConnectionLost) -> None:
        """Let all calls fail that are open, by what is known of each; answers wait for the next link."""
        self._hold(self.talk.outgoing())
        requests, self._requests = self._requests, self._new_requests()
        for pending in requests.close_all():
            self._cancel(pending.id)
            if pending.number <= self._left:
                self._fail(pending, CallLost(f"{error}; it may have run"))
            else:
                self._fail(pending, NotSent(Reason.UNAVAILABLE, f"{error}; it was not sent"))
        if self.servant is not None:
            self.servant.lost()

    def finished(self, _error: ConnectionLost) -> None:
        """Stop: there will be no link any more."""
        self.topics.close()
        self.talk.send(Goodbye(), self._loop.time())
        self._stop_timer()

    async def close(self) -> None:
        """Say what is to be said, then part from the broker."""
        self._write()
        await self.keeper.close()
