"""Encoders of NQ frames, also of frames with several messages."""

import json
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.errors import Reason
from tests.support.sample_captures.byte_columns import choose_rows, concat_rows
from tests.support.sample_captures.encoder_input import ProtocolLines
from tests.support.sample_captures.script import Column, LineKind
from tests.support.sample_captures.text_frames import PROGRESS_TEXT, Writer, choose_variant
from tests.support.sample_captures.vocabulary import FAILURES, NQ_CODES, OWN_ERR, FailureCase

_CANCELS: Final = b',"e":{"type":"local","fatal":true,"err":"cancelled"}}'


def _call(lines: ProtocolLines) -> pa.BinaryArray:
    name, number, body = lines.method, lines.id, lines.body
    canonical = concat_rows(b'{"t":"', name, b'","r":"', number, b'","d":', body, b"}")
    if not lines["odd"].any():
        return canonical
    reordered = concat_rows(b'{"r":"', number, b'","d":', body, b',"t":"', name, b'","traceparent":"00-ab-cd-01"}')
    spaced = concat_rows(b'{ "t" : "', name, b'", "r" : "', number, b'", "d" : ', body, b" }")
    as_number = concat_rows(b'{"t":"', name, b'","r":', number, b',"d":', body, b"}")
    return choose_variant(lines, canonical, reordered, spaced, as_number)


def _response_start(lines: ProtocolLines) -> tuple[bytes | pa.BinaryArray, ...]:
    return b'{"a":"', lines.backchannel, b'","i":"', lines.id, b'"'


def _error(failed: FailureCase) -> str:
    error: dict[str, object] = {"type": "app" if failed.reason is Reason.RAISED else "local", "fatal": True}
    if failed.is_application_error:
        error["err"] = OWN_ERR
    elif failed.reason is not Reason.RAISED:
        error["err"] = NQ_CODES[failed.reason]
    error["text"] = failed.text
    if failed.reason is Reason.OVERLOADED:
        error["args"] = ["1000"]
    return json.dumps(error, separators=(",", ":"))


def _cancel(lines: ProtocolLines) -> pa.BinaryArray:
    by_backchannel = concat_rows(b'{"i":"', lines.backchannel, b'"', _CANCELS)
    if not lines["odd"].any():
        return by_backchannel
    return choose_variant(
        lines, by_backchannel, concat_rows(b'{"t":"', lines.method, b'","i":"', lines.id, b'"', _CANCELS)
    )


NQ: Final[dict[LineKind, Writer]] = {
    LineKind.CALL: _call,
    LineKind.CALL_PART: lambda lines: concat_rows(
        b'{"t":"',
        lines.method,
        b'","r":"',
        lines.id,
        b'","d":',
        lines.body,
        b',"n":',
        lines["nth"],
        choose_rows(["", ',"f":0'], lines["odd"]),
        b"}",
    ),
    LineKind.RESULT: lambda lines: concat_rows(*_response_start(lines), b',"d":', lines.body, b"}"),
    LineKind.FAILURE: lambda lines: concat_rows(
        *_response_start(lines), b',"e":', choose_rows([_error(failure) for failure in FAILURES], lines["detail"]), b"}"
    ),
    LineKind.ACCEPTED: lambda lines: concat_rows(*_response_start(lines), b"}"),
    LineKind.ACK: lambda lines: concat_rows(b'{"i":"', lines.backchannel, b'"}'),
    LineKind.NOTE: lambda lines: concat_rows(
        *_response_start(lines),
        b',"e":{"type":"note","fatal":false,"note":"half","text":"',
        PROGRESS_TEXT.encode(),
        b'"}}',
    ),
    LineKind.PART: lambda lines: concat_rows(
        *_response_start(lines), b',"d":', lines.body, b',"n":', lines["nth"], b"}"
    ),
    LineKind.LAST: lambda lines: concat_rows(
        *_response_start(lines), b',"d":', lines.body, b',"n":', lines["nth"], b',"f":0}'
    ),
    LineKind.END: lambda lines: concat_rows(*_response_start(lines), b',"n":', lines["nth"], b',"f":0}'),
    LineKind.CANCEL: _cancel,
    LineKind.PUBLISH: lambda lines: concat_rows(
        b'{"t":"hub-publish","r":"', lines.id, b'","d":{"topic":', lines.quoted_topic(), b',"data":', lines.body, b"}}"
    ),
    LineKind.EVENT: lambda lines: concat_rows(
        b'{"t":"', lines.topic, b'","r":"', lines.id, b'","d":', lines.body, b',"topic":', lines.quoted_topic(), b"}"
    ),
    LineKind.WELCOME: lambda lines: concat_rows(
        b'{"e":{"type":"sys","fatal":false,"note":"peer","args":["', lines["number"], b'"]}}'
    ),
}


def batch_messages(payloads: pa.BinaryArray, frames: Column) -> tuple[pa.BinaryArray, Column]:
    """Join adjacent messages with the same frame number into one array.

    Returns:
        The payloads, and for each the index of its first message.
    """
    first = np.flatnonzero(np.concatenate([[True], frames[1:] != frames[:-1]]))
    offsets = pa.array(np.concatenate([first, [len(frames)]]).astype(np.int32))
    texts = pc.binary_join(pa.ListArray.from_arrays(offsets, payloads.cast(pa.string())), ",").cast(pa.binary())
    return concat_rows(b"[", texts, b"]"), first
