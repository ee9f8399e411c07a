"""Encoding of a plan into records: each line is encoded in its protocol, and lines of one frame are joined."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.model import topics
from tests.support.sample_captures.binary_frames import LRPM_CBOR, MQTT
from tests.support.sample_captures.byte_columns import choose_rows, concat_rows, decimal
from tests.support.sample_captures.encoder_input import ProtocolLines, written_topics
from tests.support.sample_captures.noise import CLOSE_REASONS, DENY_REASONS, DROP_REASON, PAYLOAD_OMITTED, UNREADABLE
from tests.support.sample_captures.nq_frames import NQ, batch_messages
from tests.support.sample_captures.options import ENCODINGS, Options
from tests.support.sample_captures.script import MARKS, NO_OP, NO_SESSION, TOPIC_OP, WRONG_OP, Column, LineKind
from tests.support.sample_captures.text_frames import LRPM_JSON, UMQ, UMQ36
from tests.support.sample_captures.vocabulary import METHODS, TOPICS
from tests.support.sample_captures.world import World

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
"""Original size of a frame whose payload was truncated or omitted by the capture policy."""


@dataclass
class Frames:
    """Records before ordering, each with the plan line that its frame begins with."""

    table: pa.Table
    line: Column
    messages: Column
    sizes: Column
    """Per line: the size of its frame in bytes."""
    queued: Column
    """Per line: the time in nanoseconds that its frame was queued."""


def encode_frames(lines: dict[str, Column], world: World, options: Options, rng: np.random.Generator) -> Frames:
    """Encode all lines."""
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
        "session": _choose_names(world.names, session),
        "peer": _choose_names(world.peers, session),
        "protocol": _choose_names(ENCODINGS, protocol[first]),
        "transport": _choose_names(world.transports, session),
        "direction": _choose_names(("in", "out"), out.astype(np.int8)),
        "kind": _choose_names(KINDS, _kinds(rows, protocol[first])),
        "channel": _channels(rows, protocol[first], world),
        "op": op,
        "payload": payloads,
        "size": pa.array(frame_size.astype(np.int32), mask=is_mark),
        "reason": _reasons(rows),
        "queued_ns": pa.array(queued, mask=~out | is_mark),
    }
    place = _frame_of_line(lines, first)
    message_counts = np.where(is_mark | rows["unread"], 0, messages)
    return Frames(pa.table(columns), first, message_counts, frame_size[place], queued[place])


def _choose_names(names: "tuple[str, ...] | list[str] | list[str | None]", index: Column) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(index))


def _payloads(lines: dict[str, Column], protocol: Column) -> tuple[pa.BinaryArray, Column]:
    """Return the payload of each line, and its original size where it was truncated or omitted, else 0."""
    sort = protocol.astype(np.int64) * 32 + lines["what"]
    order = np.argsort(sort, kind="stable")
    bounds = np.flatnonzero(np.diff(sort[order], prepend=-1))
    size = np.zeros(len(sort), np.int64)
    pieces = []
    for start, end in zip(bounds, [*bounds[1:], len(order)], strict=True):
        rows = order[start:end]
        kind, name = LineKind(int(lines["what"][rows[0]])), ENCODINGS[protocol[rows[0]]]
        group = ProtocolLines(name, {column: values[rows] for column, values in lines.items()})
        if kind in MARKS:
            pieces.append(pa.nulls(len(rows), pa.binary()))
        elif kind is LineKind.RAW:
            pieces.append(_raw(group))
            size[rows] = np.where(group["detail"] >= PAYLOAD_OMITTED, _MIN_TRUNCATED_SIZE, 0)
        else:
            pieces.append(_WRITERS[name][kind](group))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return pa.concat_arrays([_flat(piece) for piece in pieces]).take(pa.array(place)), size


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
    own = _choose_names(world.channels, rows["session"])
    service = choose_rows([method.topic for method in METHODS], np.maximum(rows["method"], 0)).cast(pa.string())
    detail = np.where(np.isin(rows["what"], (LineKind.PUBLISH, LineKind.EVENT, LineKind.DROP)), rows["detail"], 0)
    topic = _choose_names(written_topics("mqtt-rpc"), detail)
    mqtt = protocol == _MQTT
    dropped = rows["what"] == LineKind.DROP
    in_topic = mqtt & np.isin(rows["what"], (LineKind.PUBLISH, LineKind.EVENT))
    is_call = mqtt & ~np.isin(rows["what"], MARKS) & ~in_topic
    channel = pc.if_else(pa.array(is_call), service, own)
    channel = pc.if_else(pa.array(in_topic), topic, channel)
    return _flat(pc.if_else(pa.array(dropped), _choose_names(_CANONICAL, detail), channel))


def _reasons(rows: dict[str, Column]) -> pa.Array:
    nothing = len(CLOSE_REASONS) + len(DENY_REASONS) + 1
    index = np.full(len(rows["what"]), nothing)
    closed, denied = rows["what"] == LineKind.CLOSE, rows["what"] == LineKind.DENY
    index[closed] = rows["detail"][closed]
    index[denied] = rows["detail"][denied] + len(CLOSE_REASONS)
    index[rows["what"] == LineKind.DROP] = nothing - 1
    return _choose_names([*CLOSE_REASONS, *DENY_REASONS, DROP_REASON, None], index)


def _operations(lines: dict[str, Column]) -> pa.Array:
    """Return the operation id of each line."""
    text = decimal(lines["call"] + 1)
    operation = pc.if_else(pa.array(lines["op"] == TOPIC_OP), concat_rows(b"p", text), text).cast(pa.string())
    return _flat(pc.if_else(pa.array(np.isin(lines["op"], (NO_OP, WRONG_OP))), pa.scalar(None, pa.string()), operation))


def _group_lines(
    lines: dict[str, Column], payloads: pa.BinaryArray, op: pa.Array
) -> tuple[Column, Column, pa.BinaryArray, pa.Array]:
    """Join lines of one frame; return first line, messages, payload and operations of each frame."""
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
    """Return the row of the frame of each line."""
    place = np.empty(len(lines["frame"]), np.int64)
    place[first] = np.arange(len(first))
    several = np.flatnonzero(lines["frame"] != NO_SESSION)
    if len(several):
        heads = first[lines["frame"][first] != NO_SESSION]
        by_frame = dict(zip(lines["frame"][heads].tolist(), place[heads].tolist(), strict=True))
        place[several] = [by_frame[frame] for frame in lines["frame"][several].tolist()]
    return place
