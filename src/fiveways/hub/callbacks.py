"""One-shot callbacks: tokens that peers of any protocol can call, and their owners."""

from random import Random
from typing import Final

import msgspec

from fiveways.errors import Reason
from fiveways.hub.refusal import Refusal, overloaded
from fiveways.hub.session import Session
from fiveways.wire import base36

_MIN_TOKEN: Final = 36**11
_MAX_TOKEN: Final = 36**12 - 1
"""Twelve digits, the first is not 0."""


class Callback(msgspec.Struct, frozen=True):
    """A callback of `owner` under its own `id`."""

    owner: Session
    id: str


class Callbacks:
    """All unused tokens."""

    def __init__(self, random: Random, max_per_peer: int) -> None:
        self._random = random
        self._max_per_peer = max_per_peer
        self._callbacks: dict[str, Callback] = {}
        self._by_peer: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._callbacks)

    def count_of(self, peer: str) -> int:
        """Return the number of tokens of a peer."""
        return len(self._by_peer.get(peer, ()))

    def create(self, owner: Session, callback_id: str) -> str:
        """Return a new token for a callback; raise Refusal if its owner has too many."""
        tokens = self._by_peer.get(owner.peer, {})
        if len(tokens) >= self._max_per_peer:
            raise overloaded(f"more than {self._max_per_peer} callbacks")
        token = self._new_token()
        while token in self._callbacks:
            token = self._new_token()
        self._callbacks[token] = Callback(owner, callback_id)
        self._by_peer.setdefault(owner.peer, tokens)[token] = None
        return token

    def get(self, token: str) -> Callback:
        """Return the callback of a token; raise Refusal if the token is unknown or used."""
        callback = self._callbacks.get(token)
        if callback is None:
            raise Refusal(Reason.NO_SUCH_CALLBACK, "there is no such callback, or it was called before")
        return callback

    def find(self, token: str) -> Callback | None:
        """Return the callback of a token, if there is one."""
        return self._callbacks.get(token)

    def consume(self, token: str) -> None:
        """Delete a token, which is good for one call."""
        owner = self._callbacks.pop(token).owner.peer
        del self._by_peer[owner][token]
        if not self._by_peer[owner]:
            del self._by_peer[owner]

    def leave(self, owner: Session) -> None:
        """Delete all tokens of a peer."""
        for token in self._by_peer.pop(owner.peer, {}):
            del self._callbacks[token]

    def _new_token(self) -> str:
        return base36.write(self._random.randint(_MIN_TOKEN, _MAX_TOKEN)).lower()
