"""Decoding of record batches: operations, marks, truncated payloads, and captures with other columns."""

from typing import Any

import pyarrow as pa
import pytest

from fiveways.journal import schema
from fiveways.pipeline import spark_schemas
from fiveways.pipeline.decode import decode
from fiveways.protocols import registry
from tests.support import sample_records
from tests.support.sample_records import assert_paths_agree, batch, row

BATCH = b'[{"t":"a","r":"1","d":1},{"a":"b","i":["2","3"],"d":null},{"i":"c"}]'


def decoded_values(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in assert_paths_agree(rows).messages.to_pylist()]


def test_decoded_tables_have_the_documented_columns() -> None:
    decoded = decode(batch([row("umq", b"R1\nx"), row("umq", b""), {**sample_records.RECORD, "kind": "open"}]))
    for table, columns in zip(
        decoded, (spark_schemas.MESSAGES, spark_schemas.QUARANTINE, spark_schemas.MARKS), strict=True
    ):
        plain = [
            pa.field(field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
            for field in table.schema
        ]
        assert pa.schema(plain) == spark_schemas.to_arrow(columns)
        assert len(table) == 1


def test_nq_array_gives_one_row_per_message_with_its_operation() -> None:
    rows = [row("nq", BATCH, op="5 - p6")]
    expected = [(0, "call", "1", "5"), (1, "result", "2", None), (2, "result", "3", None), (3, "ack", None, "p6")]
    assert decoded_values(rows, "part", "kind", "id", "op") == expected


@pytest.mark.parametrize(("op", "expected"), [("5", None), ("5 6", None), ("5 6 7 8", None), (None, None), ("", None)])
def test_wrong_number_of_operations_gives_null_operations(op: str | None, expected: str | None) -> None:
    assert {value for (value,) in decoded_values([row("nq", BATCH, op=op)], "op")} == {expected}


@pytest.mark.parametrize(("op", "expected"), [("5", "5"), ("-", None), ("5 6", None), ("", None), (None, None)])
def test_operation_of_a_single_message(op: str | None, expected: str | None) -> None:
    rows = [row("umq", b"R1\nx", op=op), row("umq", b"Xv", op=op), row("umq", b"R2\nx", op="9")]
    assert decoded_values(rows, "op") == [(expected,), (expected,), ("9",)]


def test_invalid_message_does_not_affect_others_of_its_frame() -> None:
    decoded = assert_paths_agree([row("nq", b'[{"i":"a"},{"q":1},{"i":"b"}]', op="1 2 3")])
    assert [(row["part"], row["target"], row["op"]) for row in decoded.messages.to_pylist()] == [
        (0, "a", "1"),
        (1, "b", "3"),
    ]
    (bad,) = decoded.quarantine.to_pylist()
    assert bad["reason"] == "a message needs r, p, a, i or e [NQ-13]"


def test_binary_frames_of_umq_are_attachments() -> None:
    rows = [
        row("umq", b"A1\nR1\nx"),
        row("umq", b"\x00\xff", kind="binary"),
        row("umq36", None, kind="binary", size=70),
    ]
    assert decoded_values(rows, "kind", "body_size") == [("result", 1), ("attachment", 2), ("attachment", 70)]


def test_publications_on_bridged_topics_are_decoded_without_payload() -> None:
    rows = [
        row("mqtt-rpc", b"\xff", op="p1", channel="a/B", kind="binary"),
        row("mqtt-rpc", b"hello", "out", op="p1", channel="a/B", kind="text"),
        row("mqtt-rpc", None, "out", op="p1", channel=None, size=5),
    ]
    expected = [("publish", "a/B", "a.__42", 1), ("event", "a/B", "a.__42", 5), ("event", None, None, 5)]
    assert decoded_values(rows, "kind", "target", "topic", "body_size") == expected


def test_marks_keep_kind_and_reason() -> None:
    marks = [
        {**sample_records.RECORD, "kind": kind, "reason": f"why {kind}", "op": "p1"}
        for kind in sorted(schema.MARKER_KINDS)
    ]
    decoded = assert_paths_agree([row("umq", b"R1\nx"), *marks])
    assert [(row["kind"], row["reason"], row["seq"]) for row in decoded.marks.to_pylist()] == [
        ("close", "why close", 1),
        ("deny", "why deny", 2),
        ("drop", "why drop", 3),
        ("open", "why open", 4),
    ]
    assert len(decoded.messages) == 1


def test_unreadable_frames_keep_their_first_bytes_and_reason() -> None:
    decoded = assert_paths_agree(
        [row("lrpm-json", b"\x01" * 300, op="3", channel="c"), row("xyz", b"?"), row("umq", b"x", kind="odd")]
    )
    first, *others = decoded.quarantine.to_pylist()
    assert (first["payload"], first["size"], first["op"], first["channel"]) == ("01" * 256, 300, "3", "c")
    assert first["reason"].endswith("[LRPM-13]")
    assert [other["reason"] for other in others] == ["unknown protocol 'xyz'", "unknown kind of record 'odd'"]


@pytest.mark.parametrize("protocol", registry.PROTOCOLS)
def test_omitted_payload_goes_to_quarantine(protocol: str) -> None:
    (decoded,) = assert_paths_agree([row(protocol, None, size=9)]).quarantine.to_pylist()
    assert (decoded["reason"], decoded["payload"], decoded["size"]) == ("payload left out", None, 9)


TRUNCATED = [
    ("umq", b"M7\nAccount:get\n[1", "call", "7", "account.get"),
    ("umq", b"M7\nAccount:g", "call", "7", None),
    ("umq", b"R7\n\xc3", "result", "7", None),
    ("umq", b"M7", None, None, None),
    ("umq", b"E7\n1", None, None, None),
    ("umq36", b'C7:["a.b",[1,', "call", "7", "a.b"),
    ("umq36", b'C7:["a.', "call", "7", None),
    ("umq36", b"C7", None, None, None),
    ("lrpm-json", b'[40,7,"a.b",{"x', "call", "7", "a.b"),
    ("lrpm-json", b'[40,7,"a.b"', None, None, None),
    ("lrpm-json", b"[41,7,[1", "result", "7", None),
    ("lrpm-json", b'[20,40,7,"app.x",', "failure", "7", None),
    ("lrpm-cbor", bytes.fromhex("85182807 63612e62 a16178"), "call", "7", "a.b"),
    ("lrpm-cbor", bytes.fromhex("85182807 63612e"), None, None, None),
    ("nq", b'{"t":"a-b","r":"7","d":[1', "call", "7", "a.b"),
    ("nq", b'{"t":"a-b","r":"7', None, None, None),
    ("nq", b'{"a":"x","i":"7","d":[1', "result", "7", None),
    ("nq", b'{"a":"x","i":"7","e":{"ty', None, None, None),
    ("nq", b'[{"i":"7"},', None, None, None),
    ("mqtt-rpc", bytes.fromhex("0807 1219 0a03 616263 1212 00"), "call", "7", "s.abc"),
    ("mqtt-rpc", bytes.fromhex("0807 1219 1217 00"), "result", "7", None),
    ("mqtt-rpc", bytes.fromhex("0807 1219 0a03 61"), None, None, None),
]


@pytest.mark.parametrize(("protocol", "payload", "kind", "identifier", "method"), TRUNCATED)
def test_truncated_frame_is_decoded_as_far_as_possible(
    protocol: str, payload: bytes, kind: str | None, identifier: str | None, method: str | None
) -> None:
    decoded = assert_paths_agree([row(protocol, payload, size=len(payload) + 20, channel="/s", op="1")])
    if kind is None:
        assert [row["reason"] for row in decoded.quarantine.to_pylist()] == ["payload cut"]
        return
    (only,) = decoded.messages.to_pylist()
    assert (only["kind"], only["id"], only["method"], only["body_size"]) == (kind, identifier, method, None)
    assert only["size"] == len(payload) + 20


def test_every_prefix_of_a_frame_is_decoded_or_quarantined() -> None:
    rows = [
        {**record, "payload": record["payload"][:end], "size": len(record["payload"])}
        for record in sample_records.vector_rows()[::40]
        for end in range(min(len(record["payload"]), 40))
    ]
    decoded = assert_paths_agree(rows)
    assert len(decoded.messages) + len(decoded.quarantine) == len(rows)


def test_chunked_table_decodes_as_one() -> None:
    one, other = batch([row("umq", b"R1\nx")]), batch([row("nq", b'{"i":"a"}'), row("umq", b"R2\nx")])
    decoded = decode(pa.Table.from_batches([one, other]))
    assert decoded.messages["id"].to_pylist() == ["1", None, "2"]


def test_empty_input_gives_empty_tables() -> None:
    for nothing in (batch([]), pa.Table.from_batches([batch([])]), schema.SCHEMA.empty_table()):
        assert [len(table) for table in decode(nothing)] == [0, 0, 0]


def test_missing_additional_and_dictionary_columns_are_accepted() -> None:
    records = batch([row("umq", b"R1\nx", channel="c"), row("umq", b"T2\nx")])
    others = pa.RecordBatch.from_pydict(
        {
            name: records[name].dictionary_encode() if name == "session" else records[name]
            for name in records.schema.names[:-1]
        }
        | {"more": pa.array([1, 2])}
    )
    assert decode(others).messages.to_pylist() == decode(records).messages.to_pylist()


def test_slice_of_a_batch_decodes_only_its_rows() -> None:
    records = batch([row("umq", b"R%d\nx" % number) for number in range(9)])
    assert decode(records.slice(3, 4)).messages["id"].to_pylist() == ["3", "4", "5", "6"]


def test_surrogate_halves_become_question_marks() -> None:
    """A text that UTF-8 cannot encode does not make a frame unreadable."""
    decoded = assert_paths_agree([row("nq", b'{"t":"a","r":"\\ud800x","d":1}')])
    assert len(decoded.messages) + len(decoded.quarantine) == 1


def test_input_columns_are_not_copied() -> None:
    records = batch([row("umq", b"R%d\nx" % number) for number in range(100)])
    decoded = decode(records).messages
    assert decoded["at"].chunk(0).buffers()[1].address == records["at"].buffers()[1].address
