"""Conversion of return values to bodies."""

import datetime as dt
import math
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum

import msgspec
import pytest

from fiveways.app.memory_budget import MemoryBudget, memory_cost
from fiveways.app.values import Unsendable, to_body
from fiveways.wire.payload import Binary, Json, Text, Value


@dataclass
class Pair:
    left: int
    right: bytes


class Kind(Enum):
    ONE = "one"


class Struct(msgspec.Struct):
    pair: Pair | None = None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (1, 1),
        (1 << 100, 1 << 100),
        ("text", "text"),
        (b"data", b"data"),
        (bytearray(b"data"), b"data"),
        (memoryview(b"data"), b"data"),
        (math.inf, math.inf),
        ([1, {"a": b"data"}], [1, {"a": b"data"}]),
        ({1: 2}, {"1": 2}),
        ({3}, [3]),
        (Pair(1, b"x"), {"left": 1, "right": b"x"}),
        (Struct(Pair(1, b"x")), {"pair": {"left": 1, "right": b"x"}}),
        (Kind.ONE, "one"),
        (Decimal("1.50"), "1.50"),
        (dt.date(2024, 1, 31), "2024-01-31"),
    ],
)
def test_supported_value_becomes_a_body(value: object, expected: object) -> None:
    assert to_body(value).value() == expected


@dataclass
class Job:
    truck: str
    to: str = "depot"


@dataclass
class Sealed:
    number: int
    version: int = field(init=False, default=3)


@dataclass
class Trip(Job):
    stops: list[Job] = field(default_factory=list)
    urgent: bool = False


@dataclass(slots=True)
class Slotted:
    job: Job
    to: str = "depot"


class Brief(msgspec.Struct, omit_defaults=True):
    job: Job
    note: str = ""


SENT = {"truck": "t1"}
WHOLE = {"truck": "t1", "to": "depot"}


@pytest.mark.parametrize(
    ("kind", "received", "sent"),
    [
        (Job, SENT, WHOLE),
        (list[Job], [SENT, SENT], [WHOLE, WHOLE]),
        (dict[str, Job], {"a": SENT}, {"a": WHOLE}),
        (tuple[Job, int], [SENT, 1], [WHOLE, 1]),
        (Slotted, {"job": SENT}, {"job": WHOLE, "to": "depot"}),
        (Struct, {}, {"pair": None}),
        (Brief, {"job": SENT}, {"job": WHOLE}),
        (Trip, {**SENT, "stops": [SENT]}, {**WHOLE, "stops": [WHOLE], "urgent": False}),
    ],
)
def test_decoded_dataclass_is_sent_with_its_defaults(kind: type, received: object, sent: object) -> None:
    """msgspec leaves the defaults of a dataclass that it decodes on the class."""
    body = to_body(msgspec.convert(received, kind))
    assert msgspec.json.decode(body.json()) == sent


def test_dataclass_is_sent_with_defaults_that_its_constructor_does_not_set() -> None:
    assert to_body([Sealed(1)]).value() == [{"number": 1, "version": 3}]


def test_body_is_a_copy_of_a_mutable_value() -> None:
    values = [1]
    body = to_body(values)
    values.append(2)
    assert body.value() == [1]


def endless() -> object:
    values: list[object] = []
    values.append(values)
    return values


@pytest.mark.parametrize("value", [object(), [object()], {None: 1}, endless(), print, iter([1])])
def test_unsupported_value_is_refused(value: object) -> None:
    with pytest.raises(Unsendable, match=f"a {type(value).__name__} cannot be sent: "):
        to_body(value)


def test_memory_cost_is_the_size_of_the_body() -> None:
    bodies = [Text("x" * 1000), Json(b"1" * 1000), Binary(b"x" * 1000), Value("x" * 1000), Value(b"x" * 1000)]
    assert {memory_cost(body) for body in bodies} == {memory_cost(Value(None)) + 1000}


def test_budget_can_be_used_completely() -> None:
    budget = MemoryBudget(10)
    assert budget.acquire(10)
    assert not budget.acquire(1)
    budget.release(1)
    assert budget.acquire(1)
