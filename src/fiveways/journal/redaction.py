"""Redaction: secrets of a payload do not reach the disk.

Few payloads are inspected one by one: possible handshakes and malformed payloads by their first and last bytes, and
payloads that contain the name or the marker of a secret. A frame that cannot be parsed is omitted; its size and a
digest are recorded.
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
"""Pseudo-protocol of attachments, which may contain anything."""
_LRPM_HANDSHAKE_KINDS: Final = frozenset({2, 3, 4})
"""HELLO, PROVE and PROOF of LRPM."""
_METHOD: Final = 2
"""Index of the method in a CALL of LRPM."""
_UMQ_FRAME: Final = re.compile(r"(?:A[^\n]*\n)?([MRTCSX?UZHWE!-])([^\n]*)\n?(.*)", re.DOTALL)
_UMQ36_FRAME: Final = re.compile(r"(?:A[^:]*:)?([CRBTSHWE!?DUXF-])([0-9A-Z]*):?(.*)", re.DOTALL)
_JSON: Final = frozenset({"lrpm-json", "nq"})
_TEXTUAL: Final = frozenset({"umq", "umq36", "lrpm-json", "nq"})
_SEPARATOR: Final = "[^a-z0-9]{0,4}"
_ESCAPED: Final = {rb"\u00": r"\\u00[2-7]"}
"""JSON may encode a letter of a name as an escape sequence."""
_PEER: Final = {b'"peer"': '"peer"'}
_DIGEST: Final = 6


class RedactedPayload(NamedTuple):
    """A payload without secrets; or None and the reason for its omission."""

    payload: bytes | None
    reason: str = ""


class Redactor:
    """Redacts values under the names of secrets, credentials in texts, and the bodies of handshakes."""

    def __init__(self, names: Iterable[str] = DEFAULT_SECRET_NAMES, patterns: Sequence[str] = ()) -> None:
        """Create a redactor; matches of `patterns`, regular expressions, in texts are redacted, too."""
        self._names = SecretNameMatcher(names)
        self._values = ValueRedactor(self._names, patterns)
        self._texts: TextRedactor = self._values.text_redactor
        self._key = os.urandom(16)
        longest_parts = {max(parts, key=len).encode() for parts in self._names.names}
        name_patterns = [_SEPARATOR.join(map(re.escape, parts)) for parts in self._names.names]
        self._secret_pattern = "(?i)" + "|".join(
            [*name_patterns, *CREDENTIAL_MARKERS.values(), *_ESCAPED.values(), *_PEER.values()]
        )
        self._secret_pattern += "".join(f"|(?-i:{pattern})" for pattern in patterns)
        # The prefilter supports only ASCII names, and patterns only as in RE2. Otherwise every payload is inspected.
        self._inspects_all = not (self._secret_pattern.isascii() and _is_valid_in_re2(self._secret_pattern))
        words = [*longest_parts, *(mark.encode() for mark in CREDENTIAL_MARKERS), *_ESCAPED, *_PEER]
        self._prefilter = None if patterns else WordPrefilter(words)
        """Finds the few payloads to match against the pattern; None with custom patterns, which may match anywhere."""
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
        """Return a column of payloads without secrets, and the reasons for omitted payloads by index.

        The protocol of the n-th payload is `protocols[codes[n]]`. `unrouted` payloads came from peers and belong to no
        operation: all malformed payloads are among them.
        """
        suspects = self._find_suspects(payload, protocols, codes, unrouted)
        if not len(suspects):
            return payload, {}
        redacted = {int(index): self.redact(protocols[codes[index]], payload[int(index)].as_py()) for index in suspects}
        mask = np.zeros(len(payload), bool)
        mask[suspects] = True
        column = text_column(pa.binary(), [result.payload for result in redacted.values()])
        reasons = {index: result.reason for index, result in redacted.items() if result.reason}
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
        except Exception:  # noqa: BLE001  one bad frame must not lose its whole batch
            # A keyed digest: a short secret could be guessed from an unkeyed one.
            digest = blake2b(payload, digest_size=_DIGEST, key=self._key).hexdigest()
            return RedactedPayload(None, f"malformed: {len(payload)} bytes, digest {digest}")

    def _find_suspects(
        self, payload: pa.Array, protocols: Sequence[str], codes: np.ndarray, unrouted: np.ndarray
    ) -> np.ndarray:
        """Return the indices of payloads that may contain secrets."""
        _, offsets_at, data_at = payload.buffers()
        if data_at is None or not len(data_at):
            return np.zeros(0, np.int64)
        data = np.frombuffer(data_at, np.uint8)
        offsets = np.frombuffer(offsets_at, np.int32)[payload.offset : payload.offset + len(payload) + 1]
        is_suspect = needs_inspection(data, offsets, protocols, codes)
        if self._inspects_all:
            return np.flatnonzero(offsets[1:] > offsets[:-1])
        is_suspect[_invalid_utf8_rows(payload, np.array([protocol in _TEXTUAL for protocol in protocols])[codes])] = (
            True
        )
        rows = np.flatnonzero(~is_suspect)
        if self._prefilter is not None:
            indices = np.searchsorted(offsets, self._prefilter.find_candidates(data), side="right") - 1
            rows = np.unique(indices[(indices >= 0) & (indices < len(payload))])
        if len(rows):
            is_suspect[
                rows[
                    true_indices(compute.match_substring_regex(payload.take(number_column(rows)), self._secret_pattern))
                ]
            ] = True
        rows = np.flatnonzero(unrouted & ~is_suspect)
        payloads = payload.take(number_column(rows)).to_pylist()
        is_sound = [
            _is_well_formed(protocols[codes[row]], protocol) for row, protocol in zip(rows, payloads, strict=True)
        ]
        is_suspect[rows[~np.array(is_sound, bool)]] = True
        return np.flatnonzero(is_suspect)

    # Redaction of single payloads.

    def _redact_umq(self, payload: bytes) -> bytes:
        head, kind, line, body = _split_umq_frame(_UMQ_FRAME, payload)
        if kind == "S":
            return (
                (head + REDACTED).encode()
                if self._names.is_secret(line)
                else self._redact_umq_body(payload, head, kind, body)
            )
        if kind in "MC":
            method, newline, body = body.partition("\n")  # the method, or the callback
            head += method + newline
        return self._redact_umq_body(payload, head, kind, body)

    def _redact_umq36(self, payload: bytes) -> bytes:
        head, kind, _, body = _split_umq_frame(_UMQ36_FRAME, payload)
        if kind == "S":
            name, equals, body = body.partition("=")
            head += name + equals
            return (
                (head + REDACTED).encode()
                if self._names.is_secret(name)
                else self._redact_umq_body(payload, head, kind, body)
            )
        return self._redact_umq_body(payload, head, kind, body, is_call=kind == "C")

    def _redact_umq_body(self, payload: bytes, head: str, kind: str, body: str, *, is_call: bool = False) -> bytes:
        """Return a redacted frame of UMQ; `head` is the text before its body."""
        if kind in "HW":
            return (head + REDACTED if body else head).encode()
        if self._texts.redact(head) != head:
            raise ValueError("a secret in place of an id or a method")
        raw = body.encode()
        try:
            value = strict_json.parse(raw)
        except FivewaysError:
            # In plain text with the name of a secret, the end of the secret is unknown.
            cleaned = REDACTED if kind != "S" and self._names.occurs_in(body) else self._texts.redact(body)
            return payload if cleaned == body else (head + cleaned).encode()
        values = self._values
        cleaned_value = (
            values.redact_call_array(value, 0) if is_call and isinstance(value, list) else values.redact(value)
        )
        redacted = redacted_json(raw, value, cleaned_value)
        return payload if redacted is None else head.encode() + redacted

    def _redact_lrpm_json(self, payload: bytes) -> bytes:
        return self._redact_json(payload, self._redact_lrpm_message)

    def _redact_lrpm_cbor(self, payload: bytes) -> bytes:
        value = cbor.parse(payload)
        cleaned = self._redact_lrpm_message(value)
        return payload if cleaned == value else cbor.write(cleaned)

    def _redact_lrpm_message(self, message: object) -> object:
        if not isinstance(message, list) or not isinstance(message[0], int | float):
            raise ValueError("not a message of LRPM")  # noqa: TRY004  the caller expects ValueError
        if message[0] in _LRPM_HANDSHAKE_KINDS:
            return [message[0], *([REDACTED] if len(message) > 1 else []), *map(self._values.redact, message[2:])]
        return self._values.redact_call_array(message, method_index=_METHOD)

    def _redact_nq(self, payload: bytes) -> bytes:
        return self._redact_json(payload, self._redact_nq_message)

    def _redact_nq_message(self, message: object) -> object:
        if not isinstance(message, list | dict):
            raise ValueError("not a message of NQ")  # noqa: TRY004  the caller expects ValueError
        return self._values.redact(message)

    def _redact_json(self, payload: bytes, clean: Callable[[object], object]) -> bytes:
        raw = payload.strip()
        value = strict_json.parse(raw)
        redacted = redacted_json(raw, value, clean(value))
        return payload if redacted is None else redacted

    def _redact_mqtt(self, payload: bytes) -> bytes:
        """Return the redacted payload of a topic: a text, or an RPC message, which is kept or omitted as a whole."""
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
    """The payload contains a secret that cannot be removed; the payload is omitted."""


_WHITESPACE: Final = dict.fromkeys(map(ord, "\t\r\n"), " ")


def _invalid_utf8_rows(payload: pa.Array, is_text: np.ndarray) -> np.ndarray:
    """Return the indices of texts that are not valid UTF-8."""
    rows = np.flatnonzero(is_text)
    if len(rows):
        texts = payload if len(rows) == len(payload) else payload.take(number_column(rows))
        try:
            texts.cast(pa.string())
        except ArrowInvalid:
            invalid: np.ndarray = rows[[text is not None and not _is_utf8(text) for text in texts.to_pylist()]]
            return invalid
    return np.zeros(0, np.int64)


def _is_well_formed(protocol: str, payload: bytes | None) -> bool:
    """Return whether a payload is valid JSON or CBOR, if its protocol requires that."""
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
    """Return whether RE2 supports a pattern of Python."""
    try:
        compute.match_substring_regex(text_column(pa.binary(), [b""]), pattern)
    except ArrowInvalid:
        return False
    return True


def _split_umq_frame(pattern: re.Pattern[str], payload: bytes) -> tuple[str, str, str, str]:
    """Return the text before the body of a frame, its letter, the text between both, and the body."""
    text = payload.decode()
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError("not a frame of UMQ")
    return text[: match.start(3)], match[1], match[2], match[3]
