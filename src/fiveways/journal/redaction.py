"""What is secret in a payload does not reach the disk: who somebody is, and values under names that tell of secrets.

Few payloads are looked at one by one: those of handshakes, known by their first bytes, and those in which one of the
names occurs at all. What cannot be taken out with care is left out as a whole.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import compute

from fiveways.errors import FivewaysError
from fiveways.journal.columns import flags, texts, where
from fiveways.journal.search import Search
from fiveways.wire import cbor, jsontext

STARS: Final = "***"
ATTACHMENT: Final = "attachment"
"""Stands for the protocol of what is nothing but bytes to the hub, and is left as it is."""
NAMES: Final = ("authorization", "password", "secret", "token")
_PEER: Final = '"peer"'
"""In NQ the hub tells a peer the name under which it may come back: `{"e": {"type": "sys", "note": "peer", ...}}`."""
_HANDSHAKE: Final = frozenset({2, 3, 4})
"""HELLO, PROVE and PROOF of LRPM."""
_UMQ: Final = re.compile(r"(?:A[^\n]*\n)?(.)([^\n]*)\n?(.*)", re.DOTALL)
_UMQ36: Final = re.compile(r"(?:A[^:]*:)?(.)([0-9A-Z]*):?(.*)", re.DOTALL)
_DIGITS: Final = np.zeros(256, bool)
_DIGITS[ord("0") : ord("9") + 1] = True
_LETTERS: Final = np.zeros(256, bool)
_LETTERS[list(b"HWA")] = True


class Redaction:
    """Takes out what stands under some names, and what is said at the door."""

    def __init__(self, names: Collection[str] = NAMES) -> None:
        self._names = frozenset(names)
        wanted = [*sorted(self._names), _PEER]
        self._any = "|".join(map(re.escape, wanted))
        self._search = Search([name.encode() for name in wanted])
        self._redact: dict[str, Callable[[bytes], bytes]] = {
            "umq": self._umq,
            "umq36": self._umq36,
            "lrpm-json": self._lrpm_json,
            "lrpm-cbor": self._lrpm_cbor,
            "nq": self._nq,
            ATTACHMENT: bytes,
        }

    def apply(self, payload: pa.Array, protocols: Sequence[str], codes: np.ndarray) -> pa.Array:
        """Return a column of payloads without secrets; `protocols[codes[n]]` is that of the n-th."""
        doubtful = self._doubtful(payload, protocols, codes)
        if not len(doubtful):
            return payload
        seen = {int(at): self.redacted(protocols[codes[at]], payload[int(at)].as_py()) for at in doubtful}
        mask = np.zeros(len(payload), bool)
        mask[doubtful] = True
        return compute.replace_with_mask(payload, flags(mask), texts(pa.binary(), list(seen.values())))

    def redacted(self, protocol: str, payload: bytes | None) -> bytes | None:
        """Return a payload without what is secret in it; None if it had better not be kept at all."""
        if payload is None:
            return None
        redact = self._redact.get(protocol)
        try:
            return redact(payload) if redact is not None else None
        except (FivewaysError, ValueError, msgspec.DecodeError, RecursionError, IndexError):
            return None

    def _doubtful(self, payload: pa.Array, protocols: Sequence[str], codes: np.ndarray) -> np.ndarray:
        """Return the places of payloads that may hold something secret."""
        found = _at_the_door(payload, protocols, codes)
        data = payload.buffers()[2]
        if data is not None and self._search.may_find(np.frombuffer(data, np.uint8)):
            found[where(compute.match_substring_regex(payload, self._any))] = True
        return np.flatnonzero(found)

    # One by one.

    def _umq(self, payload: bytes) -> bytes:
        before, kind, line, body = _parts(_UMQ, payload)
        if kind == "S":
            return (before + STARS).encode() if self._is_secret(line) else payload
        if kind in "MC":
            head, end, body = body.partition("\n")  # the method, or the callback
            before += head + end
        return self._said(before, kind, body)

    def _umq36(self, payload: bytes) -> bytes:
        before, kind, _, body = _parts(_UMQ36, payload)
        if kind == "S":
            name, equals, _ = body.partition("=")
            return (before + name + equals + STARS).encode() if self._is_secret(name) else payload
        return self._said(before, kind, body)

    def _said(self, before: str, kind: str, body: str) -> bytes:
        """Return a frame of UMQ, of which this much is known not to be secret."""
        if kind in "HW":
            return (before + STARS if body else before).encode()
        try:
            return before.encode() + self._text(body.encode())
        except (ValueError, FivewaysError, msgspec.DecodeError):
            return (before + STARS).encode()  # lines, or a text: nobody can say where the secret ends

    def _text(self, raw: bytes) -> bytes:
        return jsontext.write(self._walk(jsontext.parse(raw)))

    def _lrpm_json(self, payload: bytes) -> bytes:
        return jsontext.write(self._lrpm(jsontext.parse(payload.strip())))

    def _lrpm_cbor(self, payload: bytes) -> bytes:
        return cbor.write(self._lrpm(cbor.parse(payload)))

    def _lrpm(self, message: object) -> object:
        if not isinstance(message, list):
            raise ValueError("no message of LRPM")  # noqa: TRY004  the caller knows this one
        if message[0] in _HANDSHAKE:
            return [message[0], *([STARS] if len(message) > 1 else []), *message[2:]]
        return self._walk(message)

    def _nq(self, payload: bytes) -> bytes:
        return jsontext.write(self._walk(jsontext.parse(payload.strip())))

    def _walk(self, value: object) -> object:
        """Return a value in which no name of ours has anything but stars."""
        if isinstance(value, list):
            if value and isinstance(value[0], str) and self._is_secret(value[0]):  # positional: a name, and its value
                return [value[0], *([STARS] * (len(value) - 1))]
            return [self._walk(each) for each in value]
        if not isinstance(value, dict):
            return value
        named = self._is_secret(value.get("name")) or value.get("note") == "peer"
        kept = {key: STARS if self._is_secret(key) else self._walk(each) for key, each in value.items()}
        if named and "value" in kept:
            kept["value"] = STARS
        if named and "args" in kept:  # an array stays one, or the frame could not be read any more
            args = value["args"]
            kept["args"] = [STARS] * len(args) if isinstance(args, list) else STARS
        return kept

    def _is_secret(self, name: object) -> bool:
        return isinstance(name, str) and name in self._names


def _parts(shape: re.Pattern[str], payload: bytes) -> tuple[str, str, str, str]:
    """Return what stands before the body of a frame, its letter, what is behind that, and the body."""
    text = payload.decode()
    found = shape.fullmatch(text)
    if found is None:
        raise ValueError("no frame of UMQ")
    return text[: found.start(3)], found[1], found[2], found[3]


def _at_the_door(payload: pa.Array, protocols: Sequence[str], codes: np.ndarray) -> np.ndarray:
    """Return which payloads begin as those do that say who somebody is, or may: a closer look follows."""
    _, offsets_at, data_at = payload.buffers()
    found = np.zeros(len(payload), bool)
    if data_at is None or not len(data_at):
        return found
    data = np.frombuffer(data_at, np.uint8)
    offsets = np.frombuffer(offsets_at, np.int32)[payload.offset : payload.offset + len(payload) + 1]
    start, last = offsets[:-1], len(data) - 1
    for spoken, is_at_the_door in _DOORS:
        if not spoken.isdisjoint(protocols):
            is_spoken = np.array([each in spoken for each in protocols])[codes]
            found |= is_spoken & is_at_the_door(lambda at: data[np.minimum(start + at, last)])
    return found & (offsets[1:] > start)


# Of LRPM, whatever is no kind of two digits may be one of a single digit, written in an unusual way.
_DOORS: Final[Sequence[tuple[frozenset[str], Callable[[Callable[[int], np.ndarray]], np.ndarray]]]] = (
    (frozenset({"umq", "umq36"}), lambda byte: _LETTERS[byte(0)]),
    (frozenset({"lrpm-json"}), lambda byte: ~(_DIGITS[byte(1)] & _DIGITS[byte(2)])),
    (frozenset({"lrpm-cbor"}), lambda byte: byte(1) != 0x18),
)
"""Protocols, and how a payload of theirs begins that has to be looked at; `byte(n)` is the n-th of each."""
