"""The participant for a method that ZeroMQ programs answer, which know nothing of the hub."""

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
"""The prefix of an endpoint to bind; the hub connects to all other endpoints."""
_TRAITS: Final = ProtocolTraits("zmq", names.LOCAL, topics.UMQ, cancels=True)


class BadTarget(FivewaysError):
    """The configuration of a target is invalid."""


class ZmqTarget(Participant):
    """One method, registered while the hub runs; its requests queue until a processor is free."""

    protocol = _TRAITS.protocol

    def __init__(self, method: str, processors: ProcessorPool, exchange: Exchange, peer: str) -> None:
        self.peer = peer
        self.outbox = FrameQueue()  # always empty
        self._method = method
        self._processors = processors
        self._exchange = exchange
        self._handles: dict[str, int] = {}
        self._tally = exchange.hub.traffic.protocol_stats(self.protocol)

    def start(self, endpoints: Sequence[str]) -> None:
        """Connect, and register the method; BadTarget if that is impossible."""
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
        """Close the processors, and leave the hub."""
        self._processors.close()
        self._exchange.leave(self)

    def deliver(self, delivery: Delivery, _now: float) -> None:
        """Handle a call or a cancellation."""
        message = delivery.message
        if isinstance(message, Call):
            self._submit(message)
        elif isinstance(message, Cancel):
            handle = self._handles.pop(message.id, None)
            if handle is not None:
                self._processors.cancel(handle)

    def deliver_event(self, event: Event, subscriber: Subscriber, _now: float) -> None:
        """Do nothing: it has no subscriptions."""

    def close(self, _why: str) -> None:
        """Do nothing: it is never a slow consumer."""

    def _submit(self, call: Call) -> None:
        if call.attachments:
            self._send(Failure(call.id, Reason.BAD_ARGUMENTS, f"{self._method} takes no attachments"))
            return

        def done(response: bytes | None, reason: str) -> None:
            self._handles.pop(call.id, None)
            if response is None:
                self._send(Failure(call.id, Reason.RAISED, reason))
            else:
                self._tally.count_received(len(response))
                self._send(Result(call.id, _parse_answer(response)))

        try:
            body = call.body.json()
            self._handles[call.id] = self._processors.submit(body, done)
            self._tally.count_sent(len(body))
        except ProcessorsBusy as exc:
            self._send(Failure(call.id, Reason.OVERLOADED, str(exc)))
        except Unrepresentable as exc:
            self._send(Failure(call.id, Reason.BAD_ARGUMENTS, str(exc)))

    def _send(self, message: HubMessage) -> None:
        exchange = self._exchange
        exchange.handle(self.peer, message, exchange.now())
        exchange.schedule()


def _parse_answer(response: bytes) -> Payload:
    """Return a processor's response: JSON if it is valid, else bytes."""
    try:
        strict_json.check(response)
    except Malformed:
        return Value(response)
    return Json(response)
