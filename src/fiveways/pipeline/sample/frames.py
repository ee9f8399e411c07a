"""From the plan to records: every line written in its protocol, and lines that belong together put in one frame."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.model import topics
from fiveways.pipeline.sample.binary_frames import LRPM_CBOR, MQTT
from fiveways.pipeline.sample.byte_columns import choose_rows, concat_rows, decimal
from fiveways.pipeline.sample.encoder_input import ProtocolLines, written_topics
from fiveways.pipeline.sample.noise import CLOSE_REASONS, DENY_REASONS, DROP_REASON, PAYLOAD_OMITTED, UNREADABLE
from fiveways.pipeline.sample.nq_frames import NQ, batch_messages
from fiveways.pipeline.sample.options import ENCODINGS, Options
from fiveways.pipeline.sample.script import MARKS, NO_OP, NO_SESSION, TOPIC_OP, WRONG_OP, Column, LineKind
from fiveways.pipeline.sample.text_frames import LRPM_JSON, UMQ, UMQ36
from fiveways.pipeline.sample.vocabulary import METHODS, TOPICS
from fiveways.pipeline.sample.world import World

_WRITERS: Final = {
    "umq36": UMQ36,
    "umq": UMQ,
    "lrpm-json": LRPM_JSON,
    "nq": NQ,
    "lrpm-cbor": LRPM_CBOR,
    "mqtt-rpc": MQTT,
}
_BINARY: Final = tuple(ENCODINGS.index(each) for each in ("lrpm-cbor", "mqtt-rpc"))
_MQTT: Final = ENCODINGS.index("mqtt-rpc")
KINDS: Final = ("text", "binary", "open", "close", "drop", "deny")
_CANONICAL: Final = [topics.spell(topic, topics.LRPM) for topic in TOPICS]
_MIN_TRUNCATED_SIZE: Final = 90
"""Bytes of a frame of which the policy left one, or none."""


@dataclass
class Frames:
    """Records in no order yet, and of which line of the plan each frame began with."""

    table: pa.Table
    line: Column
    messages: Column
    sizes: Column
    """Line by line: the bytes of the frame that it is in."""
    queued: Column
    """Line by line: how long that frame waited."""


def encode_frames(lines: dict[str, Column], world: World, options: Options, rng: np.random.Generator) -> Frames:
    """Write all lines."""
    protocol = world.protocol_of(lines["session"])
    payloads, size = _payloads(lines, protocol)
    op = _operations(lines) if options.ops else pa.nulls(len(protocol), pa.string())
    first, messages, payloads, op = _group_lines(lines, payloads, op)
    lengths = pc.fill_null(pc.binary_length(payloads), 0).to_numpy()
    frame_size = np.where(size[first] > 0, size[first], lengths)
    rows = {name: column[first] for name, column in lines.items()}
    session, out = rows["session"], rows["out"]
    is_mark = np.isin(rows["what"], MARKS)
    queued = rng.exponential(20_000, len(first)).astype(np.int64)
    columns = {
        "at": pa.array(rows["at"]),
        "node": pa.nulls(len(first), pa.string()).fill_null("node-1"),
        "run": pa.nulls(len(first), pa.string()).fill_null(options.run),
        "session": _named(world.names, session),
        "peer": _named(world.peers, session),
        "protocol": _named(ENCODINGS, protocol[first]),
        "transport": _named(world.transports, session),
        "direction": _named(("in", "out"), out.astype(np.int8)),
        "kind": _named(KINDS, _kinds(rows, protocol[first])),
        "channel": _channels(rows, protocol[first], world),
        "op": op,
        "payload": payloads,
        "size": pa.array(frame_size.astype(np.int32), mask=is_mark),
        "reason": _reasons(rows),
        "queued_ns": pa.array(queued, mask=~out | is_mark),
    }
    place = _frame_of_line(lines, first)
    read = np.where(is_mark | rows["unread"], 0, messages)
    return Frames(pa.table(columns), first, read, frame_size[place], queued[place])


def _named(names: "tuple[str, ...] | list[str] | list[str | None]", index: Column) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(index))


def _payloads(lines: dict[str, Column], protocol: Column) -> tuple[pa.BinaryArray, Column]:
    """Return the payload of each line, and its size where that is more than what is left of it."""
    sort = protocol.astype(np.int64) * 32 + lines["what"]
    order = np.argsort(sort, kind="stable")
    bounds = np.flatnonzero(np.diff(sort[order], prepend=-1))
    size = np.zeros(len(sort), np.int64)
    pieces = []
    for start, end in zip(bounds, [*bounds[1:], len(order)], strict=True):
        rows = order[start:end]
        what, name = LineKind(int(lines["what"][rows[0]])), ENCODINGS[protocol[rows[0]]]
        some = ProtocolLines(name, {column: values[rows] for column, values in lines.items()})
        if what in MARKS:
            pieces.append(pa.nulls(len(rows), pa.binary()))
        elif what is LineKind.RAW:
            pieces.append(_raw(some))
            size[rows] = np.where(some["detail"] >= PAYLOAD_OMITTED, _MIN_TRUNCATED_SIZE, 0)
        else:
            pieces.append(_WRITERS[name][what](some))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return pa.concat_arrays([_flat(each) for each in pieces]).take(pa.array(place)), size


def _flat(array: "pa.Array | pa.ChunkedArray") -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _raw(lines: ProtocolLines) -> pa.BinaryArray:
    table: list[bytes | None] = [payload for payload, _ in UNREADABLE[lines.protocol]]
    return pa.array([*table, None, b"["], pa.binary()).take(pa.array(lines["detail"]))


def _kinds(rows: dict[str, Column], protocol: Column) -> Column:
    is_text = np.array(
        [[text for _, text in UNREADABLE[name]] + [name not in ("lrpm-cbor", "mqtt-rpc")] * 2 for name in ENCODINGS]
    )
    raw = rows["what"] == LineKind.RAW
    binary = np.isin(protocol, _BINARY) | (rows["what"] == LineKind.ATTACHMENT)
    binary = np.where(raw, ~is_text[protocol, np.where(raw, rows["detail"], 0)], binary)
    kinds = binary.astype(np.int8)
    for kind, what in enumerate(MARKS, start=2):
        kinds[rows["what"] == what] = kind
    return kinds


def _channels(rows: dict[str, Column], protocol: Column, world: World) -> pa.Array:
    own = _named(world.channels, rows["session"])
    service = choose_rows([method.topic for method in METHODS], np.maximum(rows["method"], 0)).cast(pa.string())
    detail = np.where(np.isin(rows["what"], (LineKind.PUBLISH, LineKind.EVENT, LineKind.DROP)), rows["detail"], 0)
    topic = _named(written_topics("mqtt-rpc"), detail)
    mqtt = protocol == _MQTT
    dropped = rows["what"] == LineKind.DROP
    in_topic = mqtt & np.isin(rows["what"], (LineKind.PUBLISH, LineKind.EVENT))
    is_call = mqtt & ~np.isin(rows["what"], MARKS) & ~in_topic
    found = pc.if_else(pa.array(is_call), service, own)
    found = pc.if_else(pa.array(in_topic), topic, found)
    return _flat(pc.if_else(pa.array(dropped), _named(_CANONICAL, detail), found))


def _reasons(rows: dict[str, Column]) -> pa.Array:
    nothing = len(CLOSE_REASONS) + len(DENY_REASONS) + 1
    index = np.full(len(rows["what"]), nothing)
    closed, denied = rows["what"] == LineKind.CLOSE, rows["what"] == LineKind.DENY
    index[closed] = rows["detail"][closed]
    index[denied] = rows["detail"][denied] + len(CLOSE_REASONS)
    index[rows["what"] == LineKind.DROP] = nothing - 1
    return _named([*CLOSE_REASONS, *DENY_REASONS, DROP_REASON, None], index)


def _operations(lines: dict[str, Column]) -> pa.Array:
    """Return the `op` of each line by itself."""
    text = decimal(lines["call"] + 1)
    told = pc.if_else(pa.array(lines["op"] == TOPIC_OP), concat_rows(b"p", text), text).cast(pa.string())
    return _flat(pc.if_else(pa.array(np.isin(lines["op"], (NO_OP, WRONG_OP))), pa.scalar(None, pa.string()), told))


def _group_lines(
    lines: dict[str, Column], payloads: pa.BinaryArray, op: pa.Array
) -> tuple[Column, Column, pa.BinaryArray, pa.Array]:
    """Put lines with one frame number together: first line, messages, payload and operations of each frame."""
    alone = np.flatnonzero(lines["frame"] == NO_SESSION)
    several = np.flatnonzero(lines["frame"] != NO_SESSION)
    ones = np.ones(len(alone), np.int64)
    if not len(several):
        return alone, ones, payloads, op
    several = several[np.argsort(lines["frame"][several], kind="stable")]
    joint, starts = batch_messages(_flat(payloads.take(pa.array(several))), lines["frame"][several])
    counts = np.diff([*starts, len(several)])
    some_op = pc.fill_null(op.take(pa.array(several)), "-")
    offsets = pa.array(np.concatenate([starts, [len(several)]]).astype(np.int32))
    ops = pc.binary_join(pa.ListArray.from_arrays(offsets, some_op), " ")
    silent = pc.match_substring_regex(ops, "^[- ]*$")
    ops = pc.if_else(silent, pa.scalar(None, pa.string()), ops)
    if op.null_count < len(op):
        wrong = pa.array(lines["op"][several[starts]] == WRONG_OP)
        ops = pc.if_else(wrong, pa.scalar("1 2", pa.string()), ops)
    return (
        np.concatenate([alone, several[starts]]),
        np.concatenate([ones, counts]),
        pa.concat_arrays([_flat(payloads.take(pa.array(alone))), _flat(joint)]),
        pa.concat_arrays([_flat(op.take(pa.array(alone))), _flat(ops)]),
    )


def _frame_of_line(lines: dict[str, Column], first: Column) -> Column:
    """Return, for each line, the place of its frame."""
    place = np.empty(len(lines["frame"]), np.int64)
    place[first] = np.arange(len(first))
    several = np.flatnonzero(lines["frame"] != NO_SESSION)
    if len(several):
        heads = first[lines["frame"][first] != NO_SESSION]
        by_frame = dict(zip(lines["frame"][heads].tolist(), place[heads].tolist(), strict=True))
        place[several] = [by_frame[frame] for frame in lines["frame"][several].tolist()]
    return place
