"""The frames of NQ, and those that hold several messages."""

import json
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.model.failures import Reason
from fiveways.pipeline.sample.joining import chosen, joined
from fiveways.pipeline.sample.script import Column, What
from fiveways.pipeline.sample.spoken import Spoken
from fiveways.pipeline.sample.texts import HALF_WAY, Writer, by_oddity
from fiveways.pipeline.sample.words import FAILURES, NQ_CODES, OWN_ERR, Failed

_CANCELS: Final = b',"e":{"type":"local","fatal":true,"err":"cancelled"}}'


def _call(lines: Spoken) -> pa.BinaryArray:
    name, number, body = lines.method, lines.id, lines.body
    plain = joined(b'{"t":"', name, b'","r":"', number, b'","d":', body, b"}")
    if not lines["odd"].any():
        return plain
    turned = joined(b'{"r":"', number, b'","d":', body, b',"t":"', name, b'","traceparent":"00-ab-cd-01"}')
    wide = joined(b'{ "t" : "', name, b'", "r" : "', number, b'", "d" : ', body, b" }")
    as_number = joined(b'{"t":"', name, b'","r":', number, b',"d":', body, b"}")
    return by_oddity(lines, plain, turned, wide, as_number)


def _back(lines: Spoken) -> tuple[bytes | pa.BinaryArray, ...]:
    return b'{"a":"', lines.backchannel, b'","i":"', lines.id, b'"'


def _error(failed: Failed) -> str:
    error: dict[str, object] = {"type": "app" if failed.reason is Reason.RAISED else "local", "fatal": True}
    if failed.own:
        error["err"] = OWN_ERR
    elif failed.reason is not Reason.RAISED:
        error["err"] = NQ_CODES[failed.reason]
    error["text"] = failed.text
    if failed.reason is Reason.BUSY:
        error["args"] = ["1000"]
    return json.dumps(error, separators=(",", ":"))


def _cancel(lines: Spoken) -> pa.BinaryArray:
    by_backchannel = joined(b'{"i":"', lines.backchannel, b'"', _CANCELS)
    if not lines["odd"].any():
        return by_backchannel
    return by_oddity(lines, by_backchannel, joined(b'{"t":"', lines.method, b'","i":"', lines.id, b'"', _CANCELS))


NQ: Final[dict[What, Writer]] = {
    What.CALL: _call,
    What.CALL_PART: lambda lines: joined(
        b'{"t":"',
        lines.method,
        b'","r":"',
        lines.id,
        b'","d":',
        lines.body,
        b',"n":',
        lines["nth"],
        chosen(["", ',"f":0'], lines["odd"]),
        b"}",
    ),
    What.RESULT: lambda lines: joined(*_back(lines), b',"d":', lines.body, b"}"),
    What.FAILURE: lambda lines: joined(
        *_back(lines), b',"e":', chosen([_error(each) for each in FAILURES], lines["detail"]), b"}"
    ),
    What.ACCEPTED: lambda lines: joined(*_back(lines), b"}"),
    What.ACK: lambda lines: joined(b'{"i":"', lines.backchannel, b'"}'),
    What.NOTE: lambda lines: joined(
        *_back(lines), b',"e":{"type":"note","fatal":false,"note":"half","text":"', HALF_WAY.encode(), b'"}}'
    ),
    What.PART: lambda lines: joined(*_back(lines), b',"d":', lines.body, b',"n":', lines["nth"], b"}"),
    What.LAST: lambda lines: joined(*_back(lines), b',"d":', lines.body, b',"n":', lines["nth"], b',"f":0}'),
    What.END: lambda lines: joined(*_back(lines), b',"n":', lines["nth"], b',"f":0}'),
    What.CANCEL: _cancel,
    What.PUBLISH: lambda lines: joined(
        b'{"t":"hub-publish","r":"', lines.id, b'","d":{"topic":', lines.quoted_topic(), b',"data":', lines.body, b"}}"
    ),
    What.EVENT: lambda lines: joined(
        b'{"t":"', lines.topic, b'","r":"', lines.id, b'","d":', lines.body, b',"topic":', lines.quoted_topic(), b"}"
    ),
    What.WELCOME: lambda lines: joined(
        b'{"e":{"type":"sys","fatal":false,"note":"peer","args":["', lines["number"], b'"]}}'
    ),
}


def batched(payloads: pa.BinaryArray, frames: Column) -> tuple[pa.BinaryArray, Column]:
    """Put messages with the same frame number, which are neighbours, into one array.

    Returns:
        The payloads, and for each the place of its first message.
    """
    first = np.flatnonzero(np.concatenate([[True], frames[1:] != frames[:-1]]))
    offsets = pa.array(np.concatenate([first, [len(frames)]]).astype(np.int32))
    texts = pc.binary_join(pa.ListArray.from_arrays(offsets, payloads.cast(pa.string())), ",").cast(pa.binary())
    return joined(b"[", texts, b"]"), first
