"""Calls of one segment, and of many, told by hand. `tests/pipeline` has the same from Spark."""

from random import Random

import pyarrow as pa
import pytest

from fiveways.pipeline.columns import CALLS
from fiveways.pipeline.pieces import PIECES, calls_of, merged, pieces_of
from tests.pipeline.matching import Row, table
from tests.pipeline.matching_cases import CASES
from tests.pipeline.matching_chance import CUTS, alike, cut


def rows_of(pieces: pa.Table) -> list[Row]:
    rows: list[Row] = calls_of(pieces).cast(CALLS).to_pylist()
    return rows


@pytest.mark.parametrize("name", CASES)
def test_a_segment_tells_its_calls(name: str) -> None:
    assert alike(rows_of(pieces_of(table(CASES[name].messages)))) == alike(CASES[name].calls)


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("name", CASES)
def test_segments_tell_their_calls_together(name: str, how: str) -> None:
    segments = cut(CASES[name].messages, how, Random(name))
    pieces = pa.concat_tables([pieces_of(table(rows)).cast(PIECES) for rows in segments])
    assert alike(rows_of(merged(pieces))) == alike(CASES[name].calls)
