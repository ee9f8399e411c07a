"""One-shot callbacks that somebody waits for. They belong to a connection, and are lost with it."""

from collections.abc import Sequence
from itertools import count
from typing import Protocol

from fiveways.app.attachments import Attachments
from fiveways.errors import NotExecuted, Reason
from fiveways.model.messages import Call, Failure, HubMessage


class CallbackChannel(Protocol):
    """Where a callback is answered: a client's connection, or an application's place in the hub."""

    @property
    def is_over(self) -> bool:
        """Whether an answer does not reach the hub any more."""

    def send(self, word: HubMessage) -> None:
        """Answer a call."""

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return the place for the attachments of a call."""


class CallbackReceiver(Protocol):
    """A receiver of one callback."""

    def handle_call(self, line: CallbackChannel, call: Call) -> None:
        """Take the call, and see to its answer."""

    def connection_lost(self) -> str:
        """Give up: no call comes any more. Return what is lost for the user, if that is anything."""


class Callbacks:
    """Callbacks that may still be called, `max_waiting` at most."""

    def __init__(self, max_waiting: int) -> None:
        self._max_receivers = max_waiting
        self._receivers: dict[str, CallbackReceiver] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._receivers)

    def __contains__(self, name: str) -> bool:
        return name in self._receivers

    def add(self, waiting: CallbackReceiver) -> str:
        """Return the id of a new callback."""
        if len(self._receivers) >= self._max_receivers:
            raise NotExecuted(Reason.OVERLOADED, f"{self._max_receivers} callbacks are waited for")
        # Digits alone, which every protocol can write.
        name = str(next(self._numbers))
        self._receivers[name] = waiting
        return name

    def remove(self, name: str) -> None:
        """Wait no longer; who calls it is told that there is none."""
        self._receivers.pop(name, None)

    def handle_call(self, line: CallbackChannel, call: Call) -> None:
        """Give a call to its receiver: the first one is also the last."""
        waiting = self._receivers.pop(call.method, None)
        if waiting is None:
            line.send(Failure(call.id, Reason.NO_SUCH_CALLBACK, "it was called before, or never given out"))
        else:
            waiting.handle_call(line, call)

    def drop_all(self) -> list[str]:
        """Give up all of them; return what is lost for the user."""
        lost = list(filter(None, [waiting.connection_lost() for waiting in self._receivers.values()]))
        self._receivers.clear()
        return lost
