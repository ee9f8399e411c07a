"""Calls of one segment, and of many, told by hand. `tests/integration/pipeline` has the same from Spark."""

from random import Random

import pyarrow as pa
import pytest

from fiveways.pipeline.arrow_schemas import CALLS
from fiveways.pipeline.pairing import PARTIAL_CALLS, build_calls, merge_partial_calls, pair_messages
from tests.support.matching_cases import CASES
from tests.support.random_captures import CUTS, alike, cut
from tests.support.reference_matching import Row, table


def rows_of(pieces: pa.Table) -> list[Row]:
    rows: list[Row] = build_calls(pieces).cast(CALLS).to_pylist()
    return rows


@pytest.mark.parametrize("name", CASES)
def test_one_segment_gives_expected_calls(name: str) -> None:
    assert alike(rows_of(pair_messages(table(CASES[name].messages)))) == alike(CASES[name].calls)


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("name", CASES)
def test_merged_segments_give_expected_calls(name: str, how: str) -> None:
    segments = cut(CASES[name].messages, how, Random(name))
    pieces = pa.concat_tables([pair_messages(table(rows)).cast(PARTIAL_CALLS) for rows in segments])
    assert alike(rows_of(merge_partial_calls(pieces))) == alike(CASES[name].calls)
