"""Words as they are kept: read by nobody but the hub, perhaps a later one."""

from collections.abc import Mapping
from typing import Final

import msgspec

from fiveways.errors import Wording
from fiveways.model.failures import Reason
from fiveways.model.messages import Call, Failure, Result
from fiveways.wire.payload import NULL, Json, Payload


class _Call(msgspec.Struct, array_like=True):
    method: str
    spelling: str
    body: bytes
    traceparent: str
    extras: dict[str, bytes] | None


class _Result(msgspec.Struct, array_like=True, tag="result"):
    body: bytes | None
    extras: dict[str, bytes] | None


class _Failure(msgspec.Struct, array_like=True, tag="failure"):
    reason: str
    text: str
    data: bytes | None
    retry_after: float | None
    name: str
    code: int
    wording: Wording | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_call: Final = msgspec.msgpack.Decoder(_Call).decode
_decode_answer: Final = msgspec.msgpack.Decoder(_Result | _Failure).decode


def write_call(word: Call) -> bytes:
    """Return a call without its id, which is its key."""
    return _encode(_Call(word.method, word.spelling, word.body.nq(), word.traceparent, _written(word.extras)))


def read_call(call_id: str, raw: bytes) -> Call:
    """Return it again."""
    kept = _decode_call(raw)
    extras = _read(kept.extras)
    return Call(call_id, kept.method, Json(kept.body), kept.spelling, traceparent=kept.traceparent, extras=extras)


def write_result(word: Result) -> bytes:
    """Return an answer without its id."""
    return _encode(_Result((word.body or NULL).nq(), _written(word.extras)))


def write_failure(word: Failure) -> bytes:
    """Return why there is no answer, likewise."""
    data = None if word.data is None else word.data.nq()
    return _encode(_Failure(word.reason.name, word.text, data, word.retry_after, word.name, word.code, word.wording))


def read_answer(call_id: str, raw: bytes) -> Result | Failure:
    """Return either of them again."""
    kept = _decode_answer(raw)
    if isinstance(kept, _Result):
        return Result(call_id, None if kept.body is None else Json(kept.body), extras=_read(kept.extras))
    data = None if kept.data is None else Json(kept.data)
    reason = Reason[kept.reason]
    return Failure(call_id, reason, kept.text, data, kept.retry_after, kept.name, kept.code, kept.wording)


def _written(extras: Mapping[str, Payload] | None) -> dict[str, bytes] | None:
    return {name: body.nq() for name, body in extras.items()} if extras else None


def _read(extras: Mapping[str, bytes] | None) -> dict[str, Payload] | None:
    return {name: Json(raw) for name, raw in extras.items()} if extras else None
