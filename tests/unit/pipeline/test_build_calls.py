"""Calls from one segment and from several; `tests/integration/pipeline` tests the same with Spark."""

from random import Random

import pyarrow as pa
import pytest

from fiveways.pipeline.arrow_schemas import CALLS
from fiveways.pipeline.pairing import PARTIAL_CALLS, build_calls, merge_partial_calls, pair_messages
from tests.support.matching_cases import CASES
from tests.support.random_captures import SPLITS, row_counts, split_rows
from tests.support.reference_matching import Row, table


def rows_of(partial_calls: pa.Table) -> list[Row]:
    rows: list[Row] = build_calls(partial_calls).cast(CALLS).to_pylist()
    return rows


@pytest.mark.parametrize("name", CASES)
def test_one_segment_gives_expected_calls(name: str) -> None:
    assert row_counts(rows_of(pair_messages(table(CASES[name].messages)))) == row_counts(CASES[name].calls)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", CASES)
def test_merged_segments_give_expected_calls(name: str, split: str) -> None:
    segments = split_rows(CASES[name].messages, split, Random(name))
    partial_calls = pa.concat_tables([pair_messages(table(rows)).cast(PARTIAL_CALLS) for rows in segments])
    assert row_counts(rows_of(merge_partial_calls(partial_calls))) == row_counts(CASES[name].calls)
