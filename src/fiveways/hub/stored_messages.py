"""Encoding of messages in the store; only this hub or a later version reads them."""

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


def encode_call(call: Call) -> bytes:
    """Encode a call without its id, which is its key."""
    return _pack(_StoredCall(call.method, call.spelling, call.body.nq(), call.traceparent, _encode_extras(call.extras)))


def decode_call(call_id: str, raw: bytes) -> Call:
    """Decode a stored call."""
    stored = _unpack_call(raw)
    extras = _decode_extras(stored.extras)
    return Call(
        call_id, stored.method, Json(stored.body), stored.spelling, traceparent=stored.traceparent, extras=extras
    )


def encode_result(result: Result) -> bytes:
    """Encode a result without its id."""
    return _pack(_StoredResult((result.body or NULL).nq(), _encode_extras(result.extras)))


def encode_failure(failure: Failure) -> bytes:
    """Encode a failure without its id."""
    data = None if failure.data is None else failure.data.nq()
    return _pack(
        _StoredFailure(
            failure.reason.value, failure.text, data, failure.retry_after, failure.name, failure.code, failure.wording
        )
    )


def decode_answer(call_id: str, raw: bytes) -> Result | Failure:
    """Decode a stored result or failure."""
    stored = _unpack_answer(raw)
    if isinstance(stored, _StoredResult):
        return Result(call_id, None if stored.body is None else Json(stored.body), extras=_decode_extras(stored.extras))
    data = None if stored.data is None else Json(stored.data)
    reason = Reason(_FORMER_REASONS.get(stored.reason) or stored.reason.lower())
    return Failure(call_id, reason, stored.text, data, stored.retry_after, stored.name, stored.code, stored.wording)


def _encode_extras(extras: Mapping[str, Payload] | None) -> dict[str, bytes] | None:
    return {name: body.nq() for name, body in extras.items()} if extras else None


def _decode_extras(extras: Mapping[str, bytes] | None) -> dict[str, Payload] | None:
    return {name: Json(raw) for name, raw in extras.items()} if extras else None
