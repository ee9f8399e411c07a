"""One-shot callbacks that we wait for. They belong to a connection, and are lost with it."""

from itertools import count
from typing import Protocol

from fiveways.client.session import Session
from fiveways.errors import NotExecuted
from fiveways.model.failures import Reason
from fiveways.model.messages import Call, Failure


class Waiting(Protocol):
    """Who waits for a callback to be called."""

    def called(self, session: Session, call: Call) -> None:
        """Take the call, and see to its answer."""

    def lost(self) -> str:
        """Know that it will not be called; say what is lost for the user, if that is anything."""


class Callbacks:
    """Those that may still be called, `max_waiting` at most."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._waiting: dict[str, Waiting] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._waiting)

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

    def called(self, session: Session, call: Call) -> None:
        """Give a call to whoever waits for it: the first one is also the last."""
        waiting = self._waiting.pop(call.method, None)
        if waiting is None:
            session.say(Failure(call.id, Reason.NO_CALLBACK, "it was called before, or never given out"))
        else:
            waiting.called(session, call)

    def lose_all(self) -> list[str]:
        """Give up all of them; return what is lost for the user."""
        lost = list(filter(None, [waiting.lost() for waiting in self._waiting.values()]))
        self._waiting.clear()
        return lost
