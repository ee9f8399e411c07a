"""One-shot callbacks that somebody waits for. They belong to a connection, and are lost with it."""

from collections.abc import Sequence
from itertools import count
from typing import Protocol

from fiveways.app.attached import Attachments
from fiveways.errors import NotExecuted
from fiveways.model.failures import Reason
from fiveways.model.messages import Call, Failure, Word


class Line(Protocol):
    """Where a callback is answered: a client's connection, or an application's place in the hub."""

    @property
    def is_over(self) -> bool:
        """Whether an answer does not reach the hub any more."""

    def say(self, word: Word) -> None:
        """Answer a call."""

    def expect(self, names: Sequence[str]) -> Attachments:
        """Return the place for the attachments of a call."""


class Waiting(Protocol):
    """A receiver of one callback."""

    def called(self, line: Line, call: Call) -> None:
        """Take the call, and see to its answer."""

    def lost(self) -> str:
        """Give up: no call comes any more. Return what is lost for the user, if that is anything."""


class Callbacks:
    """Callbacks that may still be called, `max_waiting` at most."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._waiting: dict[str, Waiting] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def add(self, waiting: Waiting) -> str:
        """Return the id of a new callback."""
        if len(self._waiting) >= self._max_waiting:
            raise NotExecuted(Reason.BUSY, f"{self._max_waiting} callbacks are waited for")
        # Digits alone, which every protocol can write.
        name = str(next(self._numbers))
        self._waiting[name] = waiting
        return name

    def remove(self, name: str) -> None:
        """Wait no longer; who calls it is told that there is none."""
        self._waiting.pop(name, None)

    def called(self, line: Line, call: Call) -> None:
        """Give a call to its receiver: the first one is also the last."""
        waiting = self._waiting.pop(call.method, None)
        if waiting is None:
            line.say(Failure(call.id, Reason.NO_CALLBACK, "it was called before, or never given out"))
        else:
            waiting.called(line, call)

    def lose_all(self) -> list[str]:
        """Give up all of them; return what is lost for the user."""
        lost = list(filter(None, [waiting.lost() for waiting in self._waiting.values()]))
        self._waiting.clear()
        return lost
