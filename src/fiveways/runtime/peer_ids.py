"""Ids of resumable sessions, by which peers reconnect."""

from hashlib import blake2b
from hmac import compare_digest
from random import Random
from typing import Final

_ID_BITS: Final = 128
_ID_DIGITS: Final = _ID_BITS // 4
_TIME_DIGITS: Final = 8
_SEAL_BYTES: Final = 8
_RUN_BYTES: Final = 6
_LENGTH: Final = _ID_DIGITS + _TIME_DIGITS + 2 * _SEAL_BYTES


class PeerIds:
    """Creates peer ids, and recognizes recent ones without storing them.

    An empty session ends with its connection. Its id still proves the identity and time of its creation, so a new
    session with the same id can continue its numbering. An id holds 128 random bits, the time, and a keyed hash.
    """

    def __init__(self, random: Random, lifetime: float) -> None:
        """`lifetime` is the number of seconds for which an id is recognized."""
        self._random = random
        self._lifetime = lifetime
        self._key = random.getrandbits(256).to_bytes(32)
        self._retired: dict[str, float] = {}

    def mint(self, identity: str, now: float) -> str:
        """Return a new id for an identity."""
        stem = f"{self._random.getrandbits(_ID_BITS):0{_ID_DIGITS}x}{int(now):0{_TIME_DIGITS}x}"
        return stem + self._seal(stem, identity)

    def is_recent(self, peer: str, identity: str, now: float) -> bool:
        """Return whether the id was created recently for this identity and is not retired."""
        stem, seal = peer[: -2 * _SEAL_BYTES], peer[-2 * _SEAL_BYTES :]
        if len(peer) != _LENGTH or not peer.isascii() or not compare_digest(seal, self._seal(stem, identity)):
            return False
        return peer not in self._retired and now - int(stem[_ID_DIGITS:], 16) < self._lifetime

    def retire(self, peer: str, now: float) -> None:
        """Stop recognizing an id: its session ended with stored state, and cannot continue."""
        self._retired[peer] = now
        while (oldest := next(iter(self._retired))) and now - self._retired[oldest] > self._lifetime:
            del self._retired[oldest]

    def id_prefix(self, peer: str) -> str:
        """Return the prefix of the message ids that the hub creates for this peer: always the same for one peer id."""
        return blake2b(peer.encode(), key=self._key, digest_size=_RUN_BYTES, person=b"run").hexdigest()

    def _seal(self, stem: str, identity: str) -> str:
        text = f"{stem} {identity}".encode(errors="surrogatepass")
        return blake2b(text, key=self._key, digest_size=_SEAL_BYTES, person=b"seal").hexdigest()
