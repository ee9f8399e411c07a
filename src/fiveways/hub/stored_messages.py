"""Words as they are kept: read by nobody but the hub, perhaps a later one."""

from collections.abc import Mapping
from typing import Final

import msgspec

from fiveways.errors import ErrorText, Reason
from fiveways.model.messages import Call, Failure, Result
from fiveways.wire.payload import NULL, Json, Payload

_FORMER_REASONS: Final = {"NO_METHOD": "no_such_method", "NO_CALLBACK": "no_such_callback", "BUSY": "overloaded"}
"""Names of reasons in stores of the versions 1 to 4."""


class _StoredCall(msgspec.Struct, array_like=True):
    method: str
    spelling: str
    body: bytes
    traceparent: str
    extras: dict[str, bytes] | None


class _StoredResult(msgspec.Struct, array_like=True, tag="result"):
    body: bytes | None
    extras: dict[str, bytes] | None


class _StoredFailure(msgspec.Struct, array_like=True, tag="failure"):
    reason: str
    text: str
    data: bytes | None
    retry_after: float | None
    name: str
    code: int
    wording: ErrorText | None = None


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack_call: Final = msgspec.msgpack.Decoder(_StoredCall).decode
_unpack_answer: Final = msgspec.msgpack.Decoder(_StoredResult | _StoredFailure).decode


def encode_call(word: Call) -> bytes:
    """Return a call without its id, which is its key."""
    return _pack(_StoredCall(word.method, word.spelling, word.body.nq(), word.traceparent, _encode_extras(word.extras)))


def decode_call(call_id: str, raw: bytes) -> Call:
    """Return it again."""
    kept = _unpack_call(raw)
    extras = _decode_extras(kept.extras)
    return Call(call_id, kept.method, Json(kept.body), kept.spelling, traceparent=kept.traceparent, extras=extras)


def encode_result(word: Result) -> bytes:
    """Return an answer without its id."""
    return _pack(_StoredResult((word.body or NULL).nq(), _encode_extras(word.extras)))


def encode_failure(word: Failure) -> bytes:
    """Return why there is no answer, likewise."""
    data = None if word.data is None else word.data.nq()
    return _pack(
        _StoredFailure(word.reason.value, word.text, data, word.retry_after, word.name, word.code, word.wording)
    )


def decode_answer(call_id: str, raw: bytes) -> Result | Failure:
    """Return either of them again."""
    kept = _unpack_answer(raw)
    if isinstance(kept, _StoredResult):
        return Result(call_id, None if kept.body is None else Json(kept.body), extras=_decode_extras(kept.extras))
    data = None if kept.data is None else Json(kept.data)
    reason = Reason(_FORMER_REASONS.get(kept.reason) or kept.reason.lower())
    return Failure(call_id, reason, kept.text, data, kept.retry_after, kept.name, kept.code, kept.wording)


def _encode_extras(extras: Mapping[str, Payload] | None) -> dict[str, bytes] | None:
    return {name: body.nq() for name, body in extras.items()} if extras else None


def _decode_extras(extras: Mapping[str, bytes] | None) -> dict[str, Payload] | None:
    return {name: Json(raw) for name, raw in extras.items()} if extras else None
