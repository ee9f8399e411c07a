"""Partial calls of several segments merge to the rows of one segment."""

from random import Random

import pyarrow as pa
import pytest

from fiveways.pipeline.pairing import MERGED_CALLS, PARTIAL_CALLS, merge_partial_calls, pair_messages
from tests.support.matching_cases import CASES
from tests.support.random_captures import SPLITS, random_rows, row_counts, split_rows
from tests.support.reference_matching import Row, message, reference_calls, table


def rows_of_one_segment(rows: list[Row]) -> list[Row]:
    """Return the rows if all messages are in one segment."""
    return [
        {name: row[name] for name in MERGED_CALLS.names}
        for row in pair_messages(table(rows)).cast(PARTIAL_CALLS).to_pylist()
    ]


def merge_segments(segments: list[list[Row]]) -> list[Row]:
    partial_calls = pa.concat_tables([pair_messages(table(rows)).cast(PARTIAL_CALLS) for rows in segments])
    rows: list[Row] = merge_partial_calls(partial_calls).to_pylist()
    return rows


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", CASES)
def test_split_cases_merge_to_the_same_rows(name: str, split: str) -> None:
    rows = CASES[name].messages
    assert row_counts(merge_segments(split_rows(rows, split, Random(name)))) == row_counts(rows_of_one_segment(rows))


@pytest.mark.parametrize("seed", range(10))
def test_split_random_captures_merge_to_the_same_rows(seed: int) -> None:
    chance = Random(seed)
    for number in range(10):
        rows = random_rows(str(number), chance)
        assert row_counts(merge_segments(split_rows(rows, SPLITS[1], chance))) == row_counts(
            rows_of_one_segment(rows)
        ), rows


def test_merging_no_rows_gives_no_rows() -> None:
    assert merge_partial_calls(PARTIAL_CALLS.empty_table()).schema == MERGED_CALLS
    assert merge_partial_calls(PARTIAL_CALLS.empty_table()).num_rows == 0


def test_many_uses_of_one_identifier_keep_their_order() -> None:
    rows = [
        message(2 * number + late, "out" if late else "in", "result" if late else "call", id="1")
        for number in range(300)
        for late in (0, 1)
    ]
    merged = merge_segments(split_rows(rows, SPLITS[1], Random(1)))
    assert sorted(row["answered_at"] - row["requested_at"] for row in merged) == [1] * 300
    assert len(reference_calls(rows)) == 300
