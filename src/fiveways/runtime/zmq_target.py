"""A method whose work is done by ZeroMQ programs that know nothing of the hub: one who takes part in their place."""

from collections.abc import Sequence
from typing import Final

from fiveways.errors import FivewaysError, Malformed, Reason, Unrepresentable
from fiveways.hub.delivery import Delivery, Subscriber
from fiveways.hub.traits import Credentials, ProtocolTraits
from fiveways.model import names, topics
from fiveways.model.messages import Call, Cancel, Event, Failure, Hello, HubMessage, Register, Result
from fiveways.model.names import BadName
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.outbox import FrameQueue
from fiveways.runtime.participant import Participant
from fiveways.transports.zmq_processor_pool import ProcessorPool, ProcessorsBusy
from fiveways.wire import strict_json
from fiveways.wire.payload import Json, Payload, Value

BIND_PREFIX: Final = "bind "
"""Before an endpoint to which processors connect; all others are connected to."""
_TRAITS: Final = ProtocolTraits("zmq", names.LOCAL, topics.UMQ, cancels=True)


class BadTarget(FivewaysError):
    """A target that cannot be offered as it was configured."""


class ZmqTarget(Participant):
    """One method, offered for as long as the hub runs: its requests wait for processors, if need be."""

    protocol = _TRAITS.protocol

    def __init__(self, method: str, processors: ProcessorPool, exchange: Exchange, peer: str) -> None:
        self.peer = peer
        self.outbox = FrameQueue()  # nothing waits in it
        self._method = method
        self._processors = processors
        self._exchange = exchange
        self._handles: dict[str, int] = {}
        self._tally = exchange.hub.traffic.protocol_stats(self.protocol)

    def start(self, endpoints: Sequence[str]) -> None:
        """Connect, and offer the method; BadTarget if that is impossible."""
        try:
            name = names.fold(self._method, names.LOCAL)
            for endpoint in endpoints:
                if endpoint.startswith(BIND_PREFIX):
                    self._processors.listen(endpoint.removeprefix(BIND_PREFIX))
                else:
                    self._processors.add(endpoint)
        except (BadName, ValueError, OSError) as exc:
            raise BadTarget(f"zmq.targets: {self._method}: {exc}") from exc
        exchange = self._exchange
        exchange.participants[self.peer] = self
        exchange.hub.arrive(self.peer, _TRAITS, Credentials(is_trusted=True), exchange.now())
        self._send(Hello())
        self._send(Register("1", name, doc="Answered by ZeroMQ programs."))

    def stop(self) -> None:
        """Let what is not answered be lost, or wait for the next hub."""
        self._processors.close()
        self._exchange.leave(self)

    def deliver(self, delivery: Delivery, _now: float) -> None:
        """Take a call, or that it is not wanted any more."""
        word = delivery.message
        if isinstance(word, Call):
            self._take(word)
        elif isinstance(word, Cancel):
            handle = self._handles.pop(word.id, None)
            if handle is not None:
                self._processors.cancel(handle)

    def deliver_event(self, event: Event, subscriber: Subscriber, _now: float) -> None:
        """Hear nothing: it has no subscriptions."""

    def close(self, _why: str) -> None:
        """Stay: it has no link that could be slow."""

    def _take(self, call: Call) -> None:
        if call.attachments:
            self._send(Failure(call.id, Reason.BAD_ARGUMENTS, f"{self._method} takes no attachments"))
            return

        def done(answer: bytes | None, why: str) -> None:
            self._handles.pop(call.id, None)
            if answer is None:
                self._send(Failure(call.id, Reason.RAISED, why))
            else:
                self._tally.count_received(len(answer))
                self._send(Result(call.id, _parse_answer(answer)))

        try:
            body = call.body.json()
            self._handles[call.id] = self._processors.submit(body, done)
            self._tally.count_sent(len(body))
        except ProcessorsBusy as exc:
            self._send(Failure(call.id, Reason.OVERLOADED, str(exc)))
        except Unrepresentable as exc:
            self._send(Failure(call.id, Reason.BAD_ARGUMENTS, str(exc)))

    def _send(self, word: HubMessage) -> None:
        exchange = self._exchange
        exchange.handle(self.peer, word, exchange.now())
        exchange.schedule()


def _parse_answer(answer: bytes) -> Payload:
    """Return what a processor answered: JSON as its value, anything else as the bytes that it is."""
    try:
        strict_json.check(answer)
    except Malformed:
        return Value(answer)
    return Json(answer)
