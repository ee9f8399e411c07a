"""One-shot callbacks. They belong to a connection and are lost with it."""

from collections.abc import Sequence
from itertools import count
from typing import Protocol

from fiveways.app.attachments import Attachments
from fiveways.errors import NotExecuted, Reason
from fiveways.model.messages import Call, Failure, HubMessage


class CallbackChannel(Protocol):
    """The way to respond to a callback: a client's connection, or an application's place in the hub."""

    @property
    def is_over(self) -> bool:
        """Whether a response can no longer reach the hub."""

    def send(self, response: HubMessage) -> None:
        """Send a response."""

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return a place for the attachments of a call."""


class CallbackReceiver(Protocol):
    """Receiver of one callback."""

    def handle_call(self, channel: CallbackChannel, call: Call) -> None:
        """Handle the call and send its response."""

    def connection_lost(self) -> str:
        """Give up: the call will not arrive. Return a description of the loss for the user, or an empty string."""


class Callbacks:
    """Callbacks that can still be called, `max_waiting` at most."""

    def __init__(self, max_waiting: int) -> None:
        self._max_receivers = max_waiting
        self._receivers: dict[str, CallbackReceiver] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._receivers)

    def __contains__(self, name: str) -> bool:
        return name in self._receivers

    def add(self, receiver: CallbackReceiver) -> str:
        """Return the id of a new callback; NotExecuted if there are `max_waiting` already."""
        if len(self._receivers) >= self._max_receivers:
            raise NotExecuted(Reason.OVERLOADED, f"{self._max_receivers} callbacks are open, the limit of this peer")
        # Digits only, which every protocol can encode.
        name = str(next(self._numbers))
        self._receivers[name] = receiver
        return name

    def remove(self, name: str) -> None:
        """Remove a callback; calls to it are refused."""
        self._receivers.pop(name, None)

    def handle_call(self, channel: CallbackChannel, call: Call) -> None:
        """Pass a call to its receiver, which is removed."""
        receiver = self._receivers.pop(call.method, None)
        if receiver is None:
            channel.send(
                Failure(call.id, Reason.NO_SUCH_CALLBACK, "the callback was called already, or does not exist")
            )
        else:
            receiver.handle_call(channel, call)

    def drop_all(self) -> list[str]:
        """Remove all callbacks; return descriptions of the losses for the user."""
        losses = list(filter(None, [receiver.connection_lost() for receiver in self._receivers.values()]))
        self._receivers.clear()
        return losses
