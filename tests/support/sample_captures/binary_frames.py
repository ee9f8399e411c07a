"""Encoders of frames of LRPM-CBOR and of RPC over MQTT (protobuf)."""

import json
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.errors import Reason
from fiveways.wire import cbor
from tests.support.sample_captures.byte_columns import cbor_uint, choose_rows, concat_rows, ragged, varint
from tests.support.sample_captures.encoder_input import ProtocolLines, correlation, written_topics
from tests.support.sample_captures.script import Column, LineKind
from tests.support.sample_captures.text_frames import CALL_META, PROGRESS_TEXT, Writer, choose_variant
from tests.support.sample_captures.vocabulary import (
    BODIES,
    FAILURES,
    METHODS,
    MQTT_CODES,
    NUMBER_PLACEHOLDER,
    OWN_NUMBER,
    FailureCase,
    lrpm_uri,
    mqtt_tag,
)

# CBOR. The number in a body always takes five bytes.

_NUMBER: Final = 987654
_CBOR_BODIES: Final = [
    cbor.write(json.loads(body.replace(NUMBER_PLACEHOLDER, str(_NUMBER)))).partition(cbor.write(_NUMBER))
    for body in BODIES
]


def _body(lines: ProtocolLines) -> pa.BinaryArray:
    before, number, after = zip(*_CBOR_BODIES, strict=True)
    lengths = np.array([len(digits) for digits in number])[lines["body"]]
    matrix = np.full((len(lines), 5), 0x1A, np.uint8)
    matrix[:, 1:] = lines["number"].astype(">u4").view(np.uint8).reshape(-1, 4)
    return concat_rows(choose_rows(before, lines["body"]), ragged(matrix, lengths), choose_rows(after, lines["body"]))


def _id(lines: ProtocolLines) -> pa.BinaryArray:
    return cbor_uint(lines["num"] + 256)


def _call(lines: ProtocolLines) -> pa.BinaryArray:
    names = choose_rows([cbor.write(method.lrpm) for method in METHODS], lines["method"])
    meta = choose_rows([cbor.write(CALL_META.get(flags, {})) for flags in range(8)], lines["detail"])
    number, rest = _id(lines), concat_rows(names, _body(lines), meta)
    canonical = concat_rows(b"\x85\x18\x28", number, rest)
    if not lines["odd"].any():
        return canonical
    indefinite_length = concat_rows(b"\x9f\x18\x28", number, rest, b"\xff")
    long_integer = concat_rows(b"\x85\x18\x28\x1b\x00\x00\x00\x00", _four_bytes(lines["num"] + 256), rest)
    named_kind = concat_rows(b"\x85\x64CALL", number, rest)
    return choose_variant(lines, canonical, indefinite_length, long_integer, named_kind)


def _four_bytes(numbers: Column) -> pa.BinaryArray:
    return ragged(numbers.astype(">u4").view(np.uint8).reshape(-1, 4), np.full(len(numbers), 4))


def _failure(lines: ProtocolLines) -> pa.BinaryArray:
    ends = []
    for failure in FAILURES:
        meta = {"retry_after": 1000} if failure.reason is Reason.OVERLOADED else {}
        ends.append(cbor.write(lrpm_uri(failure)) + cbor.write(failure.text) + cbor.write(meta))
    return concat_rows(b"\x86\x14\x18\x28", _id(lines), choose_rows(ends, lines["detail"]))


def _result(lines: ProtocolLines, **more: bool) -> pa.BinaryArray:
    metas = [cbor.write({"part": nth, **more}) for nth in range(24)]
    body = b"\xf6" if "empty" in more else _body(lines)
    return concat_rows(b"\x84\x18\x29", _id(lines), body, choose_rows(metas, lines["nth"]))


def _topic(lines: ProtocolLines) -> pa.BinaryArray:
    return choose_rows([cbor.write(topic) for topic in written_topics(lines.protocol)], lines["detail"])


LRPM_CBOR: Final[dict[LineKind, Writer]] = {
    LineKind.CALL: _call,
    LineKind.RESULT: lambda lines: concat_rows(b"\x84\x18\x29", _id(lines), _body(lines), b"\xa0"),
    LineKind.FAILURE: _failure,
    LineKind.NOTE: lambda lines: concat_rows(
        b"\x84\x18\x29", _id(lines), _body(lines), cbor.write({"progress": True, "text": PROGRESS_TEXT})
    ),
    LineKind.PART: _result,
    LineKind.LAST: lambda lines: _result(lines, last=True),
    LineKind.END: lambda lines: _result(lines, last=True, empty=True),
    LineKind.CANCEL: lambda lines: concat_rows(b"\x83\x15", _id(lines), b"\xa0"),
    LineKind.PUBLISH: lambda lines: concat_rows(b"\x85\x18\x3d", _id(lines), _topic(lines), _body(lines), b"\xa0"),
    LineKind.PUBLISHED: lambda lines: concat_rows(b"\x84\x18\x3e", _id(lines), cbor_uint(lines["number"]), b"\xa0"),
    LineKind.EVENT: lambda lines: concat_rows(
        b"\x85\x18\x3c",
        cbor_uint(lines["number"]),
        cbor_uint(lines["detail"].astype(np.int64) + 300),
        _body(lines),
        b"\xa1\x65topic",
        _topic(lines),
    ),
    LineKind.HELLO: lambda lines: concat_rows(
        b"\x83\x02\x63***\xa0", choose_rows([b""], np.zeros(len(lines), np.int8))
    ),
    LineKind.WELCOME: lambda lines: concat_rows(
        b"\x83\x02\xa2\x67session", cbor_uint(lines["number"]), b"\x67version\x01\xa0"
    ),
}


# Protobuf. All bodies of one kind have the same length, so the length prefixes of their fields are constants.


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _size(len(content)) + content


def _size(size: int) -> bytes:
    return bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])


def _content(kind: str, body: str) -> tuple[bytes, bytes]:
    """Return the bytes before and after the number in a body that is wrapped in an `Any`."""
    name = _field(1, kind.encode()) if kind else b""
    whole = _field(2, name + _field(2, body.encode()))
    before, _, after = whole.partition(NUMBER_PLACEHOLDER.encode())
    return before, after


def _contents(
    lines: ProtocolLines, kinds: list[str], kind_index: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> pa.BinaryArray:
    before, after = zip(*(_content(kind, body) for kind in kinds for body in BODIES), strict=True)
    index = kind_index * len(BODIES) + lines["body"]
    return concat_rows(choose_rows(before, index), lines.digits, choose_rows(after, index))


def _request(lines: ProtocolLines) -> pa.BinaryArray:
    body = _contents(lines, [method.kind for method in METHODS], lines["method"].astype(np.int64))
    ends = [b"\x18\x01\x28\x88\x27\x30\x04" if flags & 4 else b"\x18\x01" for flags in range(8)]
    start, end = concat_rows(b"\x08", varint(correlation(lines["num"]))), choose_rows(ends, lines["detail"])
    canonical = concat_rows(start, body, end)
    if not lines["odd"].any():
        return canonical
    other_type_url = _contents(
        lines, [f"type.example.org/a/{method.kind}" for method in METHODS], lines["method"].astype(np.int64)
    )
    unknown = concat_rows(canonical, b"\x78\x01")  # a field that the schema does not have
    return choose_variant(lines, canonical, concat_rows(start, other_type_url, end), concat_rows(start, body), unknown)


def _response(end: bytes) -> Writer:
    def write(lines: ProtocolLines) -> pa.BinaryArray:
        body = _contents(lines, [""], np.zeros(len(lines), np.int64))
        return concat_rows(b"\x08", varint(correlation(lines["num"])), body, end)

    return write


def _error(failed: FailureCase) -> bytes:
    code = OWN_NUMBER if failed.is_application_error else MQTT_CODES[failed.reason]
    wait = b"\x20\xe8\x07" if failed.reason is Reason.OVERLOADED else b""
    tag = mqtt_tag(failed)
    encoded_tag = _field(2, tag.encode()) if tag else b""
    return _field(3, b"\x08" + _size(code) + encoded_tag + _field(3, failed.text.encode()) + wait) + b"\x20\x01"


MQTT: Final[dict[LineKind, Writer]] = {
    LineKind.CALL: _request,
    LineKind.RESULT: _response(b"\x20\x01"),
    LineKind.FAILURE: lambda lines: concat_rows(
        b"\x08",
        varint(correlation(lines["num"])),
        choose_rows([_error(failure) for failure in FAILURES], lines["detail"]),
    ),
    LineKind.PART: _response(b"\x20\x00"),
    LineKind.LAST: _response(b"\x20\x01"),
    LineKind.END: lambda lines: concat_rows(b"\x08", varint(correlation(lines["num"])), b"\x20\x01"),
    LineKind.PUBLISH: lambda lines: lines.body,
    LineKind.EVENT: lambda lines: lines.body,
}
