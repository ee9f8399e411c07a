"""Ids of resumable sessions, by which their peers come back."""

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
    """Mints ids, and recognizes those that it minted lately, without remembering them.

    A session that nothing is kept for ends with its connection. Its id still shows for whom and when it was minted, so
    that a session under the same id can begin where that one ended. Ids hold 128 random bits, the time, and a seal.
    """

    def __init__(self, random: Random, lifetime: float) -> None:
        """Make it; an id is recognized for so many seconds."""
        self._random = random
        self._lifetime = lifetime
        self._key = random.getrandbits(256).to_bytes(32)
        self._retired: dict[str, float] = {}

    def mint(self, identity: str, now: float) -> str:
        """Return a new id for an identity."""
        stem = f"{self._random.getrandbits(_ID_BITS):0{_ID_DIGITS}x}{int(now):0{_TIME_DIGITS}x}"
        return stem + self._seal(stem, identity)

    def is_recent(self, peer: str, identity: str, now: float) -> bool:
        """Return whether this is an id that was minted lately for this identity and was not retired."""
        stem, seal = peer[: -2 * _SEAL_BYTES], peer[-2 * _SEAL_BYTES :]
        if len(peer) != _LENGTH or not peer.isascii() or not compare_digest(seal, self._seal(stem, identity)):
            return False
        return peer not in self._retired and now - int(stem[_ID_DIGITS:], 16) < self._lifetime

    def retire(self, peer: str, now: float) -> None:
        """Recognize an id no longer: its session ended although something was kept for it, and cannot be continued."""
        self._retired[peer] = now
        while (oldest := next(iter(self._retired))) and now - self._retired[oldest] > self._lifetime:
            del self._retired[oldest]

    def id_prefix(self, peer: str) -> str:
        """Return what identifiers that the hub mints for this peer begin with: always the same for the same id."""
        return blake2b(peer.encode(), key=self._key, digest_size=_RUN_BYTES, person=b"run").hexdigest()

    def _seal(self, stem: str, identity: str) -> str:
        text = f"{stem} {identity}".encode(errors="surrogatepass")
        return blake2b(text, key=self._key, digest_size=_SEAL_BYTES, person=b"seal").hexdigest()
