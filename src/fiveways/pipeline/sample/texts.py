"""The frames of UMQ, UMQ36 and LRPM in JSON."""

import json
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.model.failures import Ran, Reason
from fiveways.pipeline.sample.joining import chosen, joined
from fiveways.pipeline.sample.script import What
from fiveways.pipeline.sample.spoken import Spoken
from fiveways.pipeline.sample.words import BODIES, FAILURES, SLOT, UMQ36_CODES, UMQ_CODES, Failed, uri_of

Writer = Callable[[Spoken], pa.BinaryArray]
HALF_WAY: Final = "half way"
SHARE: Final = {0: {}, 1: {"stream": True}, 2: {"progress": True}, 4: {"timeout": 5000}}
"""The meta of a LRPM call, by what it asks for."""


def by_oddity(lines: Spoken, *variants: pa.BinaryArray) -> pa.BinaryArray:
    """Return the first variant, or where `odd` says so another."""
    return pc.choose(pa.array(lines["odd"].astype(np.int64)), *variants) if lines["odd"].any() else variants[0]


# UMQ


def _umq_call(lines: Spoken) -> pa.BinaryArray:
    plain = joined(b"M", lines.id, b"\n", lines.method, b"\n", lines.body)
    if not lines["odd"].any():
        return plain
    short = joined(b"M", lines.id, b"\n", lines.method)
    long = joined(b"M", lines.id, b"\n", lines.method, b"\nfirst: line\n\nlast line\n", lines.digits)
    return by_oddity(lines, plain, short, joined(b"A0\n", plain), long)


def _umq_failed(failed: Failed) -> str:
    return "!" if failed.reason.ran is Ran.NO else "E"


def _umq_text(failed: Failed, codes: dict[Reason, int]) -> str:
    return failed.text if failed.own else f"{codes[failed.reason]} {failed.text}"


def _umq_failure(lines: Spoken) -> pa.BinaryArray:
    letters = chosen([_umq_failed(each) for each in FAILURES], lines["detail"])
    texts = chosen([_umq_text(each, UMQ_CODES) for each in FAILURES], lines["detail"])
    return joined(letters, lines.id, b"\n", texts)


UMQ: Final[dict[What, Writer]] = {
    What.CALL: _umq_call,
    What.CARRIER: lambda lines: joined(b"A1\nM", lines.id, b"\n", lines.method, b"\n", lines.body),
    What.RESULT: lambda lines: joined(b"R", lines.id, b"\n", lines.body),
    What.FAILURE: _umq_failure,
    What.PUBLISH: lambda lines: joined(b"M", lines.id, b"\nhub:publish\n", lines.topic, b"\n", lines.body),
    What.EVENT: lambda lines: joined(b"T", lines.topic, b"\n", lines.body),
    What.HELLO: lambda lines: joined(b"H1.0.0\n***", _blank(lines)),
    What.WELCOME: lambda lines: joined(b"W1.0.0\n***", _blank(lines)),
    What.SET: lambda lines: joined(b"Stoken\n***", _blank(lines)),
    What.DISCOVER: lambda lines: joined(b"?", lines.id, b"\n"),
    What.CALLBACK: lambda lines: joined(b"C", lines.id, b"\nx0x0x0", lines["number"], b"\n", lines.body),
    What.ATTACHMENT: lambda lines: joined(b"\x89PNG\r\n", lines["number"]),
}


def _blank(lines: Spoken) -> pa.BinaryArray:
    return chosen([b""], np.zeros(len(lines), np.int8))


# UMQ36

# A body that is an array of several is spread behind the method's name, and null is no argument at all.
_ARGUMENTS: Final = [
    "" if each == "null" else f",{each[1:-1]}" if each[:1] == "[" and "," in each else f",{each}" for each in BODIES
]


def _umq36_call(lines: Spoken) -> pa.BinaryArray:
    before, _, after = zip(*(each.partition(SLOT) for each in _ARGUMENTS), strict=True)
    arguments = (chosen(before, lines["body"]), lines.digits, chosen(after, lines["body"]))
    rest = joined(b':["', lines.method, b'"', *arguments, b"]")
    plain = joined(b"C", lines.id, rest)
    if not lines["odd"].any():
        return plain
    wide = joined(b"C", lines.id, b':[ "', lines.method, b'" , {"a": [1, 2]} ]')
    return by_oddity(lines, plain, joined(b"C00", lines.id, rest), joined(b"A:", plain), wide)


UMQ36: Final[dict[What, Writer]] = {
    What.CALL: _umq36_call,
    What.CARRIER: lambda lines: joined(b"A1:", _umq36_call(lines)),
    What.RESULT: lambda lines: joined(b"R", lines.id, b":", lines.body),
    What.FAILURE: lambda lines: joined(
        b"E", lines.id, b":", chosen([_umq_text(each, UMQ36_CODES) for each in FAILURES], lines["detail"])
    ),
    What.PUBLISH: lambda lines: joined(
        b"C", lines.id, b':["hub.publish",{"topic":', lines.quoted_topic(), b',"data":', lines.body, b"}]"
    ),
    What.EVENT: lambda lines: joined(b"T", lines["detail"].astype(np.int64) + 100, b":", lines.body),
    What.HELLO: lambda lines: joined(b"H1:***", _blank(lines)),
    What.WELCOME: lambda lines: joined(b"W1:***", _blank(lines)),
    What.SET: lambda lines: joined(b"S:token=***", _blank(lines)),
    What.CALLBACK: lambda lines: joined(b"B", lines.id, b":X0X0X0", lines["number"], b":", lines.body),
    What.ATTACHMENT: UMQ[What.ATTACHMENT],
    What.SHOUT: lambda lines: joined(b"C", lines.id, b":How are you? ", lines["number"]),
}


# LRPM


def _json_call(lines: Spoken) -> pa.BinaryArray:
    name, body = lines.method, lines.body
    meta = chosen([json.dumps(SHARE.get(wanted, {}), separators=(",", ":")) for wanted in range(8)], lines["detail"])
    plain = joined(b"[40,", lines.id, b',"', name, b'",', body, b",", meta, b"]")
    if not lines["odd"].any():
        return plain
    named = joined(b'["CALL",', lines.id, b',"', name, b'",', body, b",{}]")
    short = joined(b"[40,", lines.id, b',"', name, b'",', body, b"]")
    wide = joined(b"[40, ", lines.id, b', "', name, b'", ', body, b", {} ]")
    return by_oddity(lines, plain, named, short, wide)


def _json_failure(lines: Spoken) -> pa.BinaryArray:
    ends = []
    for each in FAILURES:
        meta = '{"retry_after":1000}' if each.reason is Reason.BUSY else "{}"
        ends.append(f',"{uri_of(each)}","{each.text}",{meta}]')
    return joined(b"[20,40,", lines.id, chosen(ends, lines["detail"]))


def _json_result(ends: bytes) -> Writer:
    return lambda lines: joined(b"[41,", lines.id, b",", lines.body, b',{"part":', lines["nth"], ends, b"}]")


LRPM_JSON: Final[dict[What, Writer]] = {
    What.CALL: _json_call,
    What.RESULT: lambda lines: joined(b"[41,", lines.id, b",", lines.body, b",{}]"),
    What.FAILURE: _json_failure,
    What.NOTE: lambda lines: joined(
        b"[41,", lines.id, b",", lines.body, b',{"progress":true,"text":"', HALF_WAY.encode(), b'"}]'
    ),
    What.PART: _json_result(b""),
    What.LAST: _json_result(b',"last":true'),
    What.END: lambda lines: joined(b"[41,", lines.id, b',null,{"part":', lines["nth"], b',"last":true,"empty":true}]'),
    What.CANCEL: lambda lines: joined(b"[21,", lines.id, b",{}]"),
    What.PUBLISH: lambda lines: joined(b"[61,", lines.id, b",", lines.quoted_topic(), b",", lines.body, b",{}]"),
    What.PUBLISHED: lambda lines: joined(b"[62,", lines.id, b",", lines["number"], b",{}]"),
    What.EVENT: lambda lines: joined(
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
    What.HELLO: lambda lines: joined(b'[2,"***",{}]', _blank(lines)),
    What.WELCOME: lambda lines: joined(b'[2,{"session":"', lines["number"], b'","version":1},{}]'),
}
