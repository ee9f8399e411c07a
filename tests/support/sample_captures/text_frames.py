"""Encoders of frames of UMQ, UMQ36 and LRPM-JSON."""

import json
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.errors import Execution, Reason
from tests.support.sample_captures.byte_columns import choose_rows, concat_rows
from tests.support.sample_captures.encoder_input import ProtocolLines
from tests.support.sample_captures.script import LineKind
from tests.support.sample_captures.vocabulary import (
    BODIES,
    FAILURES,
    NUMBER_PLACEHOLDER,
    UMQ36_CODES,
    UMQ_CODES,
    FailureCase,
    lrpm_uri,
)

Writer = Callable[[ProtocolLines], pa.BinaryArray]
PROGRESS_TEXT: Final = "half way"
CALL_META: Final = {0: {}, 1: {"stream": True}, 2: {"progress": True}, 4: {"timeout": 5000}}
"""The meta of an LRPM call, by the requested features."""


def choose_variant(lines: ProtocolLines, *variants: pa.BinaryArray) -> pa.BinaryArray:
    """Return the variant that `odd` selects in each row; 0 is the first one."""
    return pc.choose(pa.array(lines["odd"].astype(np.int64)), *variants) if lines["odd"].any() else variants[0]


# UMQ


def _umq_call(lines: ProtocolLines) -> pa.BinaryArray:
    canonical = concat_rows(b"M", lines.id, b"\n", lines.method, b"\n", lines.body)
    if not lines["odd"].any():
        return canonical
    short = concat_rows(b"M", lines.id, b"\n", lines.method)
    long = concat_rows(b"M", lines.id, b"\n", lines.method, b"\nfirst: line\n\nlast line\n", lines.digits)
    return choose_variant(lines, canonical, short, concat_rows(b"A0\n", canonical), long)


def _umq_failed(failed: FailureCase) -> str:
    return "!" if failed.reason.execution is Execution.NO else "E"


def _umq_text(failed: FailureCase, codes: dict[Reason, int]) -> str:
    return failed.text if failed.is_application_error else f"{codes[failed.reason]} {failed.text}"


def _umq_failure(lines: ProtocolLines) -> pa.BinaryArray:
    letters = choose_rows([_umq_failed(failure) for failure in FAILURES], lines["detail"])
    texts = choose_rows([_umq_text(failure, UMQ_CODES) for failure in FAILURES], lines["detail"])
    return concat_rows(letters, lines.id, b"\n", texts)


UMQ: Final[dict[LineKind, Writer]] = {
    LineKind.CALL: _umq_call,
    LineKind.CARRIER: lambda lines: concat_rows(b"A1\nM", lines.id, b"\n", lines.method, b"\n", lines.body),
    LineKind.RESULT: lambda lines: concat_rows(b"R", lines.id, b"\n", lines.body),
    LineKind.FAILURE: _umq_failure,
    LineKind.PUBLISH: lambda lines: concat_rows(b"M", lines.id, b"\nhub:publish\n", lines.topic, b"\n", lines.body),
    LineKind.EVENT: lambda lines: concat_rows(b"T", lines.topic, b"\n", lines.body),
    LineKind.HELLO: lambda lines: concat_rows(b"H1.0.0\n***", _blank(lines)),
    LineKind.WELCOME: lambda lines: concat_rows(b"W1.0.0\n***", _blank(lines)),
    LineKind.SET: lambda lines: concat_rows(b"Stoken\n***", _blank(lines)),
    LineKind.DISCOVER: lambda lines: concat_rows(b"?", lines.id, b"\n"),
    LineKind.CALLBACK: lambda lines: concat_rows(b"C", lines.id, b"\nx0x0x0", lines["number"], b"\n", lines.body),
    LineKind.ATTACHMENT: lambda lines: concat_rows(b"\x89PNG\r\n", lines["number"]),
}


def _blank(lines: ProtocolLines) -> pa.BinaryArray:
    return choose_rows([b""], np.zeros(len(lines), np.int8))


# UMQ36

# An array of several elements becomes the arguments behind the method name; null becomes no argument.
_ARGUMENTS: Final = [
    "" if each == "null" else f",{each[1:-1]}" if each[:1] == "[" and "," in each else f",{each}" for each in BODIES
]


def _umq36_call(lines: ProtocolLines) -> pa.BinaryArray:
    before, _, after = zip(*(each.partition(NUMBER_PLACEHOLDER) for each in _ARGUMENTS), strict=True)
    arguments = (choose_rows(before, lines["body"]), lines.digits, choose_rows(after, lines["body"]))
    rest = concat_rows(b':["', lines.method, b'"', *arguments, b"]")
    canonical = concat_rows(b"C", lines.id, rest)
    if not lines["odd"].any():
        return canonical
    spaced = concat_rows(b"C", lines.id, b':[ "', lines.method, b'" , {"a": [1, 2]} ]')
    return choose_variant(lines, canonical, concat_rows(b"C00", lines.id, rest), concat_rows(b"A:", canonical), spaced)


UMQ36: Final[dict[LineKind, Writer]] = {
    LineKind.CALL: _umq36_call,
    LineKind.CARRIER: lambda lines: concat_rows(b"A1:", _umq36_call(lines)),
    LineKind.RESULT: lambda lines: concat_rows(b"R", lines.id, b":", lines.body),
    LineKind.FAILURE: lambda lines: concat_rows(
        b"E", lines.id, b":", choose_rows([_umq_text(failure, UMQ36_CODES) for failure in FAILURES], lines["detail"])
    ),
    LineKind.PUBLISH: lambda lines: concat_rows(
        b"C", lines.id, b':["hub.publish",{"topic":', lines.quoted_topic(), b',"data":', lines.body, b"}]"
    ),
    LineKind.EVENT: lambda lines: concat_rows(b"T", lines["detail"].astype(np.int64) + 100, b":", lines.body),
    LineKind.HELLO: lambda lines: concat_rows(b"H1:***", _blank(lines)),
    LineKind.WELCOME: lambda lines: concat_rows(b"W1:***", _blank(lines)),
    LineKind.SET: lambda lines: concat_rows(b"S:token=***", _blank(lines)),
    LineKind.CALLBACK: lambda lines: concat_rows(b"B", lines.id, b":X0X0X0", lines["number"], b":", lines.body),
    LineKind.ATTACHMENT: UMQ[LineKind.ATTACHMENT],
    LineKind.SHOUT: lambda lines: concat_rows(b"C", lines.id, b":How are you? ", lines["number"]),
}


# LRPM


def _json_call(lines: ProtocolLines) -> pa.BinaryArray:
    name, body = lines.method, lines.body
    meta = choose_rows(
        [json.dumps(CALL_META.get(features, {}), separators=(",", ":")) for features in range(8)], lines["detail"]
    )
    canonical = concat_rows(b"[40,", lines.id, b',"', name, b'",', body, b",", meta, b"]")
    if not lines["odd"].any():
        return canonical
    named_kind = concat_rows(b'["CALL",', lines.id, b',"', name, b'",', body, b",{}]")
    short = concat_rows(b"[40,", lines.id, b',"', name, b'",', body, b"]")
    spaced = concat_rows(b"[40, ", lines.id, b', "', name, b'", ', body, b", {} ]")
    return choose_variant(lines, canonical, named_kind, short, spaced)


def _json_failure(lines: ProtocolLines) -> pa.BinaryArray:
    ends = []
    for failure in FAILURES:
        meta = '{"retry_after":1000}' if failure.reason is Reason.OVERLOADED else "{}"
        ends.append(f',"{lrpm_uri(failure)}","{failure.text}",{meta}]')
    return concat_rows(b"[20,40,", lines.id, choose_rows(ends, lines["detail"]))


def _json_result(ends: bytes) -> Writer:
    return lambda lines: concat_rows(b"[41,", lines.id, b",", lines.body, b',{"part":', lines["nth"], ends, b"}]")


LRPM_JSON: Final[dict[LineKind, Writer]] = {
    LineKind.CALL: _json_call,
    LineKind.RESULT: lambda lines: concat_rows(b"[41,", lines.id, b",", lines.body, b",{}]"),
    LineKind.FAILURE: _json_failure,
    LineKind.NOTE: lambda lines: concat_rows(
        b"[41,", lines.id, b",", lines.body, b',{"progress":true,"text":"', PROGRESS_TEXT.encode(), b'"}]'
    ),
    LineKind.PART: _json_result(b""),
    LineKind.LAST: _json_result(b',"last":true'),
    LineKind.END: lambda lines: concat_rows(
        b"[41,", lines.id, b',null,{"part":', lines["nth"], b',"last":true,"empty":true}]'
    ),
    LineKind.CANCEL: lambda lines: concat_rows(b"[21,", lines.id, b",{}]"),
    LineKind.PUBLISH: lambda lines: concat_rows(
        b"[61,", lines.id, b",", lines.quoted_topic(), b",", lines.body, b",{}]"
    ),
    LineKind.PUBLISHED: lambda lines: concat_rows(b"[62,", lines.id, b",", lines["number"], b",{}]"),
    LineKind.EVENT: lambda lines: concat_rows(
        b"[60,",
        lines["number"],
        b",",
        lines["detail"].astype(np.int64) + 100,
        b",",
        lines.body,
        b',{"topic":',
        lines.quoted_topic(),
        b"}]",
    ),
    LineKind.HELLO: lambda lines: concat_rows(b'[2,"***",{}]', _blank(lines)),
    LineKind.WELCOME: lambda lines: concat_rows(b'[2,{"session":"', lines["number"], b'","version":1},{}]'),
}
