"""Checking bodies in groups gives the same result as checking them one by one."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.errors import Malformed
from fiveways.pipeline.decode.json_bodies import valid_json
from fiveways.pipeline.decode.payload_buffer import PayloadBuffer
from fiveways.wire import strict_json

TOKENS = st.sampled_from(
    [
        b"1",
        b"[",
        b"]",
        b"{",
        b"}",
        b'"a"',
        b":",
        b",",
        b" ",
        b"\n",
        b"null",
        b"1e5",
        b"1e400",
        b"-",
        b".5",
        b'"',
        b"\\u00e9",
    ]
)


def is_json(body: bytes) -> bool:
    try:
        strict_json.check(body)
    except Malformed:
        return False
    return True


def check_grouped(bodies: list[bytes]) -> list[bool]:
    buffer = PayloadBuffer(pa.array(bodies, pa.binary()))
    return [bool(is_valid) for is_valid in valid_json(buffer, buffer.starts, buffer.ends)]


@settings(max_examples=300, deadline=None)
@given(bodies=st.lists(st.lists(TOKENS, max_size=6).map(b"".join), min_size=1, max_size=5))
def test_grouped_check_equals_single_checks(bodies: list[bytes]) -> None:
    assert check_grouped(bodies) == [is_json(body) for body in bodies]


def test_invalid_bodies_that_join_to_valid_json_are_rejected() -> None:
    """Joined by commas, these bodies are a valid array with the right number of items."""
    assert check_grouped([b"[1", b"2]", b"3,4"]) == [False, False, False]
    assert check_grouped([b'"a', b'b"', b"1,2"]) == [False, False, False]
    assert check_grouped([b"1 ", b"2", b" 3"]) == [False, True, False]


def test_invalid_body_does_not_affect_its_group() -> None:
    bodies = [b"[%d]" % number for number in range(1000)]
    bodies[500] = b"[5"
    assert np.flatnonzero(~np.array(check_grouped(bodies))).tolist() == [500]


def test_too_long_numbers_and_too_deep_nesting_are_rejected() -> None:
    deep = [b"[" * depth + b"]" * depth for depth in (128, 129)]
    long = [b"9" * 4300, b"9" * 4301, b"1e308", b"1e309", b"1E+309", b"1e-999", b'"1e309"']
    assert check_grouped(deep + long) == [True, False, True, False, True, False, False, True, True]
