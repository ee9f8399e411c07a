"""Pieces of several segments, put together, are those of one."""

from random import Random

import pyarrow as pa
import pytest

from fiveways.pipeline.pairing import MERGED_CALLS, PARTIAL_CALLS, merge_partial_calls, pair_messages
from tests.support.matching_cases import CASES
from tests.support.random_captures import CUTS, alike, at_random, cut
from tests.support.reference_matching import Row, calls_of, message, table


def whole(rows: list[Row]) -> list[Row]:
    """Return what is known if all messages are in one segment."""
    return [
        {name: row[name] for name in MERGED_CALLS.names}
        for row in pair_messages(table(rows)).cast(PARTIAL_CALLS).to_pylist()
    ]


def put_together(segments: list[list[Row]]) -> list[Row]:
    pieces = pa.concat_tables([pair_messages(table(rows)).cast(PARTIAL_CALLS) for rows in segments])
    rows: list[Row] = merge_partial_calls(pieces).to_pylist()
    return rows


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("name", CASES)
def test_split_cases_merge_to_the_same_rows(name: str, how: str) -> None:
    rows = CASES[name].messages
    assert alike(put_together(cut(rows, how, Random(name)))) == alike(whole(rows))


@pytest.mark.parametrize("seed", range(10))
def test_split_random_captures_merge_to_the_same_rows(seed: int) -> None:
    chance = Random(seed)
    for number in range(10):
        rows = at_random(str(number), chance)
        assert alike(put_together(cut(rows, CUTS[1], chance))) == alike(whole(rows)), rows


def test_merging_no_rows_gives_no_rows() -> None:
    assert merge_partial_calls(PARTIAL_CALLS.empty_table()).schema == MERGED_CALLS
    assert merge_partial_calls(PARTIAL_CALLS.empty_table()).num_rows == 0


def test_many_uses_of_one_identifier_keep_their_order() -> None:
    rows = [
        message(2 * number + late, "out" if late else "in", "result" if late else "call", id="1")
        for number in range(300)
        for late in (0, 1)
    ]
    found = put_together(cut(rows, CUTS[1], Random(1)))
    assert sorted(row["answered_at"] - row["requested_at"] for row in found) == [1] * 300
    assert len(calls_of(rows)) == 300
