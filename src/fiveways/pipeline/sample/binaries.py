"""The frames of LRPM in CBOR and of RPC over MQTT."""

import json
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.model.failures import Reason
from fiveways.pipeline.sample.joining import cbor_uint, chosen, joined, ragged, varint
from fiveways.pipeline.sample.script import Column, What
from fiveways.pipeline.sample.spoken import Spoken, correlation, written_topics
from fiveways.pipeline.sample.texts import HALF_WAY, SHARE, Writer, by_oddity
from fiveways.pipeline.sample.words import (
    BODIES,
    FAILURES,
    METHODS,
    MQTT_CODES,
    OWN_NUMBER,
    SLOT,
    Failed,
    tag_of,
    uri_of,
)
from fiveways.wire import cbor

# CBOR. The number in a body is written with five bytes, whichever it is.

_NUMBER: Final = 987654
_IN_CBOR: Final = [
    cbor.write(json.loads(each.replace(SLOT, str(_NUMBER)))).partition(cbor.write(_NUMBER)) for each in BODIES
]


def _body(lines: Spoken) -> pa.BinaryArray:
    before, slot, after = zip(*_IN_CBOR, strict=True)
    lengths = np.array([len(each) for each in slot])[lines["body"]]
    matrix = np.full((len(lines), 5), 0x1A, np.uint8)
    matrix[:, 1:] = lines["number"].astype(">u4").view(np.uint8).reshape(-1, 4)
    return joined(chosen(before, lines["body"]), ragged(matrix, lengths), chosen(after, lines["body"]))


def _id(lines: Spoken) -> pa.BinaryArray:
    return cbor_uint(lines["num"] + 256)


def _call(lines: Spoken) -> pa.BinaryArray:
    names = chosen([cbor.write(method.lrpm) for method in METHODS], lines["method"])
    meta = chosen([cbor.write(SHARE.get(wanted, {})) for wanted in range(8)], lines["detail"])
    number, rest = _id(lines), joined(names, _body(lines), meta)
    plain = joined(b"\x85\x18\x28", number, rest)
    if not lines["odd"].any():
        return plain
    endless = joined(b"\x9f\x18\x28", number, rest, b"\xff")
    wide = joined(b"\x85\x18\x28\x1b\x00\x00\x00\x00", _four_bytes(lines["num"] + 256), rest)
    named = joined(b"\x85\x64CALL", number, rest)
    return by_oddity(lines, plain, endless, wide, named)


def _four_bytes(numbers: Column) -> pa.BinaryArray:
    return ragged(numbers.astype(">u4").view(np.uint8).reshape(-1, 4), np.full(len(numbers), 4))


def _failure(lines: Spoken) -> pa.BinaryArray:
    ends = []
    for each in FAILURES:
        meta = {"retry_after": 1000} if each.reason is Reason.BUSY else {}
        ends.append(cbor.write(uri_of(each)) + cbor.write(each.text) + cbor.write(meta))
    return joined(b"\x86\x14\x18\x28", _id(lines), chosen(ends, lines["detail"]))


def _result(lines: Spoken, **more: bool) -> pa.BinaryArray:
    metas = [cbor.write({"part": nth, **more}) for nth in range(24)]
    body = b"\xf6" if "empty" in more else _body(lines)
    return joined(b"\x84\x18\x29", _id(lines), body, chosen(metas, lines["nth"]))


def _topic(lines: Spoken) -> pa.BinaryArray:
    return chosen([cbor.write(each) for each in written_topics(lines.protocol)], lines["detail"])


LRPM_CBOR: Final[dict[What, Writer]] = {
    What.CALL: _call,
    What.RESULT: lambda lines: joined(b"\x84\x18\x29", _id(lines), _body(lines), b"\xa0"),
    What.FAILURE: _failure,
    What.NOTE: lambda lines: joined(
        b"\x84\x18\x29", _id(lines), _body(lines), cbor.write({"progress": True, "text": HALF_WAY})
    ),
    What.PART: _result,
    What.LAST: lambda lines: _result(lines, last=True),
    What.END: lambda lines: _result(lines, last=True, empty=True),
    What.CANCEL: lambda lines: joined(b"\x83\x15", _id(lines), b"\xa0"),
    What.PUBLISH: lambda lines: joined(b"\x85\x18\x3d", _id(lines), _topic(lines), _body(lines), b"\xa0"),
    What.PUBLISHED: lambda lines: joined(b"\x84\x18\x3e", _id(lines), cbor_uint(lines["number"]), b"\xa0"),
    What.EVENT: lambda lines: joined(
        b"\x85\x18\x3c",
        cbor_uint(lines["number"]),
        cbor_uint(lines["detail"].astype(np.int64) + 300),
        _body(lines),
        b"\xa1\x65topic",
        _topic(lines),
    ),
    What.HELLO: lambda lines: joined(b"\x83\x02\x63***\xa0", chosen([b""], np.zeros(len(lines), np.int8))),
    What.WELCOME: lambda lines: joined(b"\x83\x02\xa2\x67session", cbor_uint(lines["number"]), b"\x67version\x01\xa0"),
}


# Protobuf. As all bodies of one kind are equally long, so are the fields around them.


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _size(len(content)) + content


def _size(size: int) -> bytes:
    return bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])


def _content(kind: str, body: str) -> tuple[bytes, bytes]:
    """Return an Any around a body, as what stands before the number in it and what stands behind."""
    name = _field(1, kind.encode()) if kind else b""
    whole = _field(2, name + _field(2, body.encode()))
    before, _, after = whole.partition(SLOT.encode())
    return before, after


def _contents(lines: Spoken, kinds: list[str], which: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.BinaryArray:
    before, after = zip(*(_content(kind, body) for kind in kinds for body in BODIES), strict=True)
    index = which * len(BODIES) + lines["body"]
    return joined(chosen(before, index), lines.digits, chosen(after, index))


def _request(lines: Spoken) -> pa.BinaryArray:
    body = _contents(lines, [method.kind for method in METHODS], lines["method"].astype(np.int64))
    ends = [b"\x18\x01\x28\x88\x27\x30\x04" if wanted & 4 else b"\x18\x01" for wanted in range(8)]
    start, end = joined(b"\x08", varint(correlation(lines["num"]))), chosen(ends, lines["detail"])
    plain = joined(start, body, end)
    if not lines["odd"].any():
        return plain
    far = _contents(
        lines, [f"type.example.org/a/{method.kind}" for method in METHODS], lines["method"].astype(np.int64)
    )
    unknown = joined(plain, b"\x78\x01")  # a field that nobody knows
    return by_oddity(lines, plain, joined(start, far, end), joined(start, body), unknown)


def _response(end: bytes) -> Writer:
    def write(lines: Spoken) -> pa.BinaryArray:
        body = _contents(lines, [""], np.zeros(len(lines), np.int64))
        return joined(b"\x08", varint(correlation(lines["num"])), body, end)

    return write


def _error(failed: Failed) -> bytes:
    code = OWN_NUMBER if failed.own else MQTT_CODES[failed.reason]
    wait = b"\x20\xe8\x07" if failed.reason is Reason.BUSY else b""
    tag = tag_of(failed)
    told = _field(2, tag.encode()) if tag else b""
    return _field(3, b"\x08" + _size(code) + told + _field(3, failed.text.encode()) + wait) + b"\x20\x01"


MQTT: Final[dict[What, Writer]] = {
    What.CALL: _request,
    What.RESULT: _response(b"\x20\x01"),
    What.FAILURE: lambda lines: joined(
        b"\x08", varint(correlation(lines["num"])), chosen([_error(each) for each in FAILURES], lines["detail"])
    ),
    What.PART: _response(b"\x20\x00"),
    What.LAST: _response(b"\x20\x01"),
    What.END: lambda lines: joined(b"\x08", varint(correlation(lines["num"])), b"\x20\x01"),
    What.PUBLISH: lambda lines: lines.body,
    What.EVENT: lambda lines: lines.body,
}
