"""Redaction: secrets of a payload do not reach the disk.

Few payloads are looked at one by one: those that may be handshakes or malformed by their first and last bytes, and
those in which a name or a mark of a secret occurs. A frame that cannot be parsed is left out; its size and a digest
of it are recorded.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import ArrowInvalid, compute

from fiveways.errors import FivewaysError
from fiveways.journal.arrow_columns import boolean_column, number_column, text_column, true_indices
from fiveways.journal.payload_inspection import needs_inspection
from fiveways.journal.word_prefilter import WordPrefilter
from fiveways.model.secret_names import DEFAULT_SECRET_NAMES, SecretNameMatcher
from fiveways.model.text_redaction import CREDENTIAL_MARKERS, REDACTED, TextRedactor, redacted_json
from fiveways.model.value_redaction import ValueRedactor
from fiveways.wire import cbor, strict_json

ATTACHMENT: Final = "attachment"
"""Stands for the protocol of an attachment, which may hold anything."""
_LRPM_HANDSHAKE_KINDS: Final = frozenset({2, 3, 4})
"""HELLO, PROVE and PROOF of LRPM."""
_METHOD: Final = 2
"""The place of the method in a CALL of LRPM."""
_UMQ_FRAME: Final = re.compile(r"(?:A[^\n]*\n)?([MRTCSX?UZHWE!-])([^\n]*)\n?(.*)", re.DOTALL)
_UMQ36_FRAME: Final = re.compile(r"(?:A[^:]*:)?([CRBTSHWE!?DUXF-])([0-9A-Z]*):?(.*)", re.DOTALL)
_JSON: Final = frozenset({"lrpm-json", "nq"})
_TEXTUAL: Final = frozenset({"umq", "umq36", "lrpm-json", "nq"})
_SEPARATOR: Final = "[^a-z0-9]{0,4}"
_ESCAPED: Final = {rb"\u00": r"\\u00[2-7]"}
"""JSON may spell a letter of a name as an escape."""
_PEER: Final = {b'"peer"': '"peer"'}
_DIGEST: Final = 6


class RedactedPayload(NamedTuple):
    """A payload without secrets; or None, and why it was left out."""

    payload: bytes | None
    reason: str = ""


class Redactor:
    """Takes out values under the names of secrets, credentials in texts, and the bodies of handshakes."""

    def __init__(self, names: Iterable[str] = DEFAULT_SECRET_NAMES, patterns: Sequence[str] = ()) -> None:
        """Make it; what a pattern, a regular expression, matches in a text is taken out, too."""
        self._names = SecretNameMatcher(names)
        self._values = ValueRedactor(self._names, patterns)
        self._texts: TextRedactor = self._values.text_redactor
        self._key = os.urandom(16)
        longest = {max(parts, key=len).encode() for parts in self._names.names}
        by_name = [_SEPARATOR.join(map(re.escape, parts)) for parts in self._names.names]
        self._secret_pattern = "(?i)" + "|".join(
            [*by_name, *CREDENTIAL_MARKERS.values(), *_ESCAPED.values(), *_PEER.values()]
        )
        self._secret_pattern += "".join(f"|(?-i:{pattern})" for pattern in patterns)
        # The prefilter knows ASCII names, and the patterns that RE2 knows. With others, every payload is looked at.
        self._inspects_all = not (self._secret_pattern.isascii() and _is_valid_in_re2(self._secret_pattern))
        words = [*longest, *(mark.encode() for mark in CREDENTIAL_MARKERS), *_ESCAPED, *_PEER]
        self._prefilter = None if patterns else WordPrefilter(words)
        """Finds the few payloads to compare with all that; patterns may be anywhere."""
        self._redactors: dict[str, Callable[[bytes], bytes]] = {
            "umq": self._redact_umq,
            "umq36": self._redact_umq36,
            "lrpm-json": self._redact_lrpm_json,
            "lrpm-cbor": self._redact_lrpm_cbor,
            "nq": self._redact_nq,
            "mqtt-rpc": self._redact_mqtt,
            ATTACHMENT: self._redact_attachment,
        }
        self.clean_text: Final[Callable[[str], str]] = lru_cache(1024)(self._texts.redact)
        """Return a text without secrets, such as the path of a request."""

    def apply(
        self, payload: pa.Array, protocols: Sequence[str], codes: np.ndarray, unrouted: np.ndarray
    ) -> tuple[pa.Array, dict[int, str]]:
        """Return a column of payloads without secrets, and why some were left out.

        The protocol of the n-th is `protocols[codes[n]]`. Those are `unrouted` that came from peers and belong to no
        operation: among them are all malformed ones.
        """
        places = self._find_suspects(payload, protocols, codes, unrouted)
        if not len(places):
            return payload, {}
        seen = {int(at): self.redact(protocols[codes[at]], payload[int(at)].as_py()) for at in places}
        mask = np.zeros(len(payload), bool)
        mask[places] = True
        column = text_column(pa.binary(), [each.payload for each in seen.values()])
        reasons = {at: each.reason for at, each in seen.items() if each.reason}
        return compute.replace_with_mask(payload, boolean_column(mask), column), reasons

    def redact(self, protocol: str, payload: bytes | None) -> RedactedPayload:
        """Return one payload without secrets."""
        if payload is None:
            return RedactedPayload(None)
        redact = self._redactors.get(protocol)
        try:
            return (
                RedactedPayload(None, "left out: unknown protocol")
                if redact is None
                else RedactedPayload(redact(payload))
            )
        except _NotRedactable:
            return RedactedPayload(None, f"left out: {len(payload)} bytes with a secret that cannot be taken out")
        except Exception:  # noqa: BLE001  one frame must not cost the batch that it is in
            # Keyed: without the key, a short secret could be guessed from its digest.
            digest = blake2b(payload, digest_size=_DIGEST, key=self._key).hexdigest()
            return RedactedPayload(None, f"malformed: {len(payload)} bytes, digest {digest}")

    def _find_suspects(
        self, payload: pa.Array, protocols: Sequence[str], codes: np.ndarray, unrouted: np.ndarray
    ) -> np.ndarray:
        """Return the places of payloads that may hold something secret."""
        _, offsets_at, data_at = payload.buffers()
        if data_at is None or not len(data_at):
            return np.zeros(0, np.int64)
        data = np.frombuffer(data_at, np.uint8)
        offsets = np.frombuffer(offsets_at, np.int32)[payload.offset : payload.offset + len(payload) + 1]
        found = needs_inspection(data, offsets, protocols, codes)
        if self._inspects_all:
            return np.flatnonzero(offsets[1:] > offsets[:-1])
        found[_invalid_utf8_rows(payload, np.array([each in _TEXTUAL for each in protocols])[codes])] = True
        rows = np.flatnonzero(~found)
        if self._prefilter is not None:
            places = np.searchsorted(offsets, self._prefilter.find_candidates(data), side="right") - 1
            rows = np.unique(places[(places >= 0) & (places < len(payload))])
        if len(rows):
            found[
                rows[
                    true_indices(compute.match_substring_regex(payload.take(number_column(rows)), self._secret_pattern))
                ]
            ] = True
        rows = np.flatnonzero(unrouted & ~found)
        some = payload.take(number_column(rows)).to_pylist()
        sound = [_is_well_formed(protocols[codes[at]], each) for at, each in zip(rows, some, strict=True)]
        found[rows[~np.array(sound, bool)]] = True
        return np.flatnonzero(found)

    # One by one.

    def _redact_umq(self, payload: bytes) -> bytes:
        before, kind, line, body = _split_umq_frame(_UMQ_FRAME, payload)
        if kind == "S":
            return (
                (before + REDACTED).encode()
                if self._names.is_secret(line)
                else self._redact_umq_body(payload, before, kind, body)
            )
        if kind in "MC":
            head, end, body = body.partition("\n")  # the method, or the callback
            before += head + end
        return self._redact_umq_body(payload, before, kind, body)

    def _redact_umq36(self, payload: bytes) -> bytes:
        before, kind, _, body = _split_umq_frame(_UMQ36_FRAME, payload)
        if kind == "S":
            name, equals, body = body.partition("=")
            before += name + equals
            return (
                (before + REDACTED).encode()
                if self._names.is_secret(name)
                else self._redact_umq_body(payload, before, kind, body)
            )
        return self._redact_umq_body(payload, before, kind, body, is_call=kind == "C")

    def _redact_umq_body(self, payload: bytes, before: str, kind: str, body: str, *, is_call: bool = False) -> bytes:
        """Return a frame of UMQ; `before` is what stands before its body."""
        if kind in "HW":
            return (before + REDACTED if body else before).encode()
        if self._texts.redact(before) != before:
            raise ValueError("a secret where an id or a method should be")
        raw = body.encode()
        try:
            value = strict_json.parse(raw)
        except FivewaysError:
            # Of lines and texts with the name of a secret, nobody can say where the secret ends.
            cleaned = REDACTED if kind != "S" and self._names.occurs_in(body) else self._texts.redact(body)
            return payload if cleaned == body else (before + cleaned).encode()
        values = self._values
        cleaned_value = (
            values.redact_call_array(value, 0) if is_call and isinstance(value, list) else values.redact(value)
        )
        written = redacted_json(raw, value, cleaned_value)
        return payload if written is None else before.encode() + written

    def _redact_lrpm_json(self, payload: bytes) -> bytes:
        return self._redact_json(payload, self._redact_lrpm_message)

    def _redact_lrpm_cbor(self, payload: bytes) -> bytes:
        value = cbor.parse(payload)
        cleaned = self._redact_lrpm_message(value)
        return payload if cleaned == value else cbor.write(cleaned)

    def _redact_lrpm_message(self, message: object) -> object:
        if not isinstance(message, list) or not isinstance(message[0], int | float):
            raise ValueError("no message of LRPM")  # noqa: TRY004  the caller knows this one
        if message[0] in _LRPM_HANDSHAKE_KINDS:
            return [message[0], *([REDACTED] if len(message) > 1 else []), *map(self._values.redact, message[2:])]
        return self._values.redact_call_array(message, method_index=_METHOD)

    def _redact_nq(self, payload: bytes) -> bytes:
        return self._redact_json(payload, self._redact_nq_message)

    def _redact_nq_message(self, message: object) -> object:
        if not isinstance(message, list | dict):
            raise ValueError("no message of NQ")  # noqa: TRY004  the caller knows this one
        return self._values.redact(message)

    def _redact_json(self, payload: bytes, clean: Callable[[object], object]) -> bytes:
        raw = payload.strip()
        value = strict_json.parse(raw)
        written = redacted_json(raw, value, clean(value))
        return payload if written is None else written

    def _redact_mqtt(self, payload: bytes) -> bytes:
        """Return a payload of a topic: a text, or an RPC, of which no part can be taken out."""
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            text = ""
        if text and text.translate(_WHITESPACE).isprintable():
            cleaned = self._texts.redact(text)
            return payload if cleaned == text else cleaned.encode()
        text = payload.decode("latin-1")
        if self._names.occurs_in(text) or self._texts.redact(text) != text:
            raise _NotRedactable
        return payload

    def _redact_attachment(self, payload: bytes) -> bytes:
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            return payload
        cleaned = self._texts.redact(text)
        return payload if cleaned == text else cleaned.encode()


class _NotRedactable(Exception):
    """A payload that holds a secret, and is left out as a whole."""


_WHITESPACE: Final = dict.fromkeys(map(ord, "\t\r\n"), " ")


def _invalid_utf8_rows(payload: pa.Array, is_text: np.ndarray) -> np.ndarray:
    """Return the places of texts that are no valid UTF-8."""
    rows = np.flatnonzero(is_text)
    if len(rows):
        some = payload if len(rows) == len(payload) else payload.take(number_column(rows))
        try:
            some.cast(pa.string())
        except ArrowInvalid:
            found: np.ndarray = rows[[each is not None and not _is_utf8(each) for each in some.to_pylist()]]
            return found
    return np.zeros(0, np.int64)


def _is_well_formed(protocol: str, payload: bytes | None) -> bool:
    """Say whether a payload is JSON or CBOR, where it should be."""
    if not payload:
        return True
    try:
        if protocol in _JSON:
            strict_json.check(payload.strip())
        elif protocol == "lrpm-cbor":
            return cbor.skip(payload, 0) == len(payload)
    except FivewaysError:
        return False
    return True


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_valid_in_re2(pattern: str) -> bool:
    """Say whether RE2 knows what Python knows."""
    try:
        compute.match_substring_regex(text_column(pa.binary(), [b""]), pattern)
    except ArrowInvalid:
        return False
    return True


def _split_umq_frame(shape: re.Pattern[str], payload: bytes) -> tuple[str, str, str, str]:
    """Return what stands before the body of a frame, its letter, what is behind that, and the body."""
    text = payload.decode()
    found = shape.fullmatch(text)
    if found is None:
        raise ValueError("no frame of UMQ")
    return text[: found.start(3)], found[1], found[2], found[3]
