"""Partial calls of one segment; the resulting calls and orphans are tested with Spark."""

from random import Random

import pyarrow as pa
import pytest

from fiveways.pipeline import spark_schemas
from fiveways.pipeline.pairing import PARTIAL_CALLS, pair_messages, roles
from tests.support.reference_matching import NOON, OTHERS, Row, message, reference_role, table

NQ: Row = {"protocol": "nq", "session": "s", "peer": "p"}
TEXTS = ("run", "session", "peer", "protocol", "direction", "kind", "op", "id", "target", "method", "status")
MIXED = [
    message(1, "in", "call", op="7", id="a"),
    message(2, "out", "call", op="7", id="1", session="t"),
    message(3, "in", "call", id="a", run="r2"),
    message(4, "in", "call", op="7", id="a", run="r2"),
    message(5, "in", "result", op="7", id="1", session="t"),
    message(6, "out", "result", op="7", id="a"),
    message(7, "in", "call", id="a", **NQ),
    message(8, "in", "call", id="a", run="r2"),
    message(9, "out", "result", id="a", run="r2"),
    message(10, "out", "result", id="b", run="r2"),
]


def rows_of(messages: pa.Table) -> list[Row]:
    """Return the partial calls of messages as sorted rows."""
    rows: list[Row] = pair_messages(messages).cast(PARTIAL_CALLS).to_pylist()
    return sorted(rows, key=lambda row: (row["run"], row["op"] or "", row["scope"] or "", row["requested_at"] or 0))


def test_no_messages_give_no_partial_calls() -> None:
    assert pair_messages(table([])).schema == PARTIAL_CALLS
    assert pair_messages(table([message(1, "in", "hello"), message(2, "out", "event", target="3")])).num_rows == 0


def test_partial_calls_have_the_declared_columns() -> None:
    assert pair_messages(table(MIXED)).schema.names == PARTIAL_CALLS.names
    assert pair_messages(table(MIXED)).cast(PARTIAL_CALLS).num_rows == 6


def test_an_operation_is_one_row() -> None:
    row = rows_of(table(MIXED))[1]
    assert (row["run"], row["op"], row["leg"], row["scope"], row["id"]) == ("r", "7", None, None, None)
    assert (row["requested_at"], row["requested_seq"], row["requested_part"]) == (NOON + 1, 1, 0)
    assert (row["forwarded_at"], row["returned_at"], row["answered_at"]) == (NOON + 2, NOON + 5, NOON + 6)
    assert (row["caller_session"], row["callee_session"], row["status"]) == ("s", "t", "result")
    assert (row["attempts"], row["forwards"], row["returns"], row["answers"]) == (1, 1, 1, 1)
    assert row["head"]
    assert row["more"] is row["strays"] is None


def test_each_use_of_an_identifier_is_a_row_with_first_as_head() -> None:
    rows = [row for row in rows_of(table(MIXED)) if row["run"] == "r2" and row["id"] == "a"]
    assert [(row["leg"], row["scope"], row["head"]) for row in rows] == [
        ("caller", "session s", True),
        ("caller", "session s", False),
    ]
    assert [row["answers"] for row in rows] == [1, 0]


def test_response_without_request_is_stray() -> None:
    (row,) = [row for row in rows_of(table(MIXED)) if row["id"] == "b"]
    (stray,) = row["strays"]
    assert (stray["what"], stray["seq"], stray["id"], stray["transport"]) == ("answer", 10, "b", "ws")


def test_repeated_requests_are_listed() -> None:
    (row,) = rows_of(table([message(seq, "in", "call", op="7", **NQ) for seq in (3, 1, 2)]))
    assert (row["requested_seq"], row["attempts"]) == (1, 3)
    assert [listed["seq"] for listed in row["more"]] == [2, 3]


@pytest.mark.parametrize("seed", range(5))
def test_order_chunks_and_dictionaries_do_not_change_the_rows(seed: int) -> None:
    chance = Random(seed)
    shuffled = chance.sample(MIXED, len(MIXED))
    coded = chance.sample(TEXTS, 6)
    at = sorted(chance.sample(range(len(MIXED)), 2))
    parts = (shuffled[: at[0]], shuffled[at[0] : at[1]], shuffled[at[1] :])
    # Each part has its own dictionaries.
    assert rows_of(pa.concat_tables([table(part, coded=coded) for part in parts])) == rows_of(table(MIXED))


def test_dictionary_with_duplicate_values_is_accepted() -> None:
    plain = table(MIXED)
    sessions = pa.array(["s", "t", "s"])
    codes = [{"s": (0, 2)[number % 2], "t": 1}[row["session"]] for number, row in enumerate(MIXED)]
    doubled = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), sessions)
    place = plain.schema.get_field_index("session")
    assert rows_of(plain.set_column(place, "session", doubled)) == rows_of(plain)


def test_similar_operation_ids_are_different() -> None:
    ops = ["7", "07", "7 ", "p7", "+7", "\u0667", "", "9" * 40]
    rows = rows_of(table([message(number, "in", "call", op=op) for number, op in enumerate(ops)]))
    assert sorted(row["op"] for row in rows) == sorted(ops)


def test_key_has_the_same_bucket_in_every_segment() -> None:
    buckets: dict[tuple[object, ...], set[int]] = {}
    for row in MIXED:
        for partial_call in rows_of(table([row])):
            key = tuple(partial_call[name] for name in ("run", "op", "leg", "scope", "id"))
            buckets.setdefault(key, set()).add(partial_call["bucket"])
    assert all(len(numbers) == 1 for numbers in buckets.values())


def test_neighbouring_operations_share_a_bucket() -> None:
    rows = rows_of(table([message(number, "in", "call", op=str(number)) for number in range(100)]))
    assert len({row["bucket"] for row in rows}) == 2


@pytest.mark.parametrize("protocol", OTHERS)
@pytest.mark.parametrize("direction", ["in", "out"])
def test_roles_equal_reference_matching(protocol: str, direction: str) -> None:
    kinds = (
        "call call_part result part failure accepted progress ack cancel callback publish event subscribe unsubscribe"
    )
    kinds += " topic_closed set unset discover description attachment hello welcome goodbye error ping other"
    for kind in kinds.split():
        expected = reference_role(message(1, direction, kind, protocol=protocol))
        assert roles.ROLE_NAMES[roles.message_role(kind, direction, protocol)] == (expected or "")


def test_messages_have_the_columns_needed_for_pairing() -> None:
    assert set(spark_schemas.MESSAGES.fieldNames()) >= set(TEXTS)
