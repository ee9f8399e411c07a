"""Conversion of results, events and jobs to the program's types."""

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import wraps
from typing import Annotated, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

import fiveways
from fiveways.app.conversion import decode
from tests.support.raw_peers import Place, hub

PATIENCE = 60.0
SCHEMES = ["umq+ws", "umq36+ws", "lrpm+ws", "nq+ws", "nq+http"]


class Color(Enum):
    RED = "red"


@dataclass
class Ticket:
    number: int
    to: str = "depot"


class Point(NamedTuple):
    x: int
    y: int


class Row(TypedDict):
    name: str


class Frame(msgspec.Struct):
    raw: bytes
    at: dt.datetime


class Model(pydantic.BaseModel):
    number: int
    tags: list[str] = []


app = fiveways.App()


@app.method("model.next")
async def next_model(model: Model) -> Model:
    return Model(number=model.number + 1, tags=model.tags)


@app.method("ticket.get")
async def get(number: int) -> Ticket:
    return Ticket(number)


@app.method("frame.get")
async def frame() -> Frame:
    return Frame(b"\x00\xff", dt.datetime(2026, 5, 1, tzinfo=dt.UTC))


Test = Callable[[Place], Awaitable[None]]


def with_hub(test: Test) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        async def inner() -> None:
            async with asyncio.timeout(PATIENCE), hub(app=app) as place:
                await test(place)

        asyncio.run(inner())

    del run.__wrapped__  # otherwise pytest looks for a fixture `place`
    return run


@with_hub
async def test_result_is_converted_in_every_protocol(place: Place) -> None:
    for scheme in SCHEMES:
        async with fiveways.connect(f"{scheme}://127.0.0.1:{place.port}") as peer:
            assert await peer.call("ticket.get", [7], type=Ticket) == Ticket(7)
            assert await peer.call("ticket.get", [7], type=Ticket, idempotent=True) == Ticket(7)
            assert (await peer.call("frame.get", type=Frame)).raw == b"\x00\xff"
            assert await peer.call("ticket.get", [7]) == {"number": 7, "to": "depot"}


@with_hub
async def test_result_that_does_not_fit_is_a_bad_value(place: Place) -> None:
    async with fiveways.connect(f"lrpm+ws://127.0.0.1:{place.port}") as peer:
        with pytest.raises(
            fiveways.BadValue, match="the value is not of type Row: Object missing required field `name`"
        ):
            await peer.call("ticket.get", [7], type=Row)


@with_hub
async def test_pydantic_models_are_arguments_and_results(place: Place) -> None:
    async with fiveways.connect(f"lrpm+ws://127.0.0.1:{place.port}") as peer:
        assert await peer.call("model.next", [{"number": 1}], type=Model) == Model(number=2)
        assert await peer.call("model.next", [Model(number=2, tags=["x"])]) == {"number": 3, "tags": ["x"]}
        with pytest.raises(fiveways.NotExecuted, match=r"argument 'model': .*number Field required"):
            await peer.call("model.next", [{}])
        with pytest.raises(fiveways.BadValue, match=r"the value is not of type Model: .*number Field required"):
            await peer.call("hub.echo", {}, type=Model)


@with_hub
async def test_events_and_jobs_are_converted(place: Place) -> None:
    async with fiveways.connect(f"lrpm+ws://127.0.0.1:{place.port}") as peer:
        async with peer.subscribe("tickets") as events:
            await peer.publish("tickets", {"number": 1})
            assert (await anext(aiter(events))).decode(Ticket) == Ticket(1)
        await peer.push("tickets", {"number": 2})
        async with peer.pull("tickets") as job:
            assert job.decode(Ticket) == Ticket(2)


@with_hub
async def test_job_is_done_when_the_next_one_is_requested(place: Place) -> None:
    async with fiveways.connect(f"lrpm+ws://127.0.0.1:{place.port}") as peer:
        for number in range(3):
            await peer.push("numbers", number)
        async with aclosing(peer.jobs("numbers")) as jobs:
            async for job in jobs:
                if job.data == 2:
                    break
        # The loop ended during the last job.
        async with peer.pull("numbers") as job:
            assert job.data == 2
        assert await peer.call("hub.queues") == {}


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ({"number": 1, "to": "x"}, Ticket, Ticket(1, "x")),
        ([1, 2], Point, Point(1, 2)),
        ({"name": "a"}, Row, {"name": "a"}),
        ("red", Color, Color.RED),
        ("a", Literal["a", "b"], "a"),
        ("2026-05-01", dt.date, dt.date(2026, 5, 1)),
        ("12345678-1234-5678-1234-567812345678", UUID, UUID("12345678-1234-5678-1234-567812345678")),
        ("1.10", Decimal, Decimal("1.10")),
        (5, Annotated[int, msgspec.Meta(ge=1)], 5),
        (None, int | None, None),
        ({"1": b"x"}, dict[int, bytes], {1: b"x"}),
    ],
)
def test_value_is_converted_to_each_supported_type(value: object, kind: type[object], expected: object) -> None:
    assert decode(value, kind) == expected


def test_violated_bound_raises_bad_value() -> None:
    with pytest.raises(fiveways.BadValue, match="Expected `int` >= 1"):
        decode(0, Annotated[int, msgspec.Meta(ge=1)])  # type: ignore[arg-type]


def test_blocking_client_converts_values() -> None:
    async def run() -> None:
        async with hub(app=app) as place:
            await asyncio.to_thread(blocking, place.port)

    def blocking(port: int) -> None:
        with fiveways.connect_sync(f"lrpm+ws://127.0.0.1:{port}") as peer:
            assert peer.call("ticket.get", [7], type=Ticket) == Ticket(7)
            with peer.subscribe("tickets") as events:
                peer.publish("tickets", {"number": 1})
                event = events.next(PATIENCE)
                assert event is not None
                assert event.decode(Ticket) == Ticket(1)
            peer.push("tickets", {"number": 2})
            peer.push("tickets", {"number": 3})
            seen = []
            for job in peer.jobs("tickets"):
                seen.append(job.decode(Ticket))
                if len(seen) == 2:
                    job.done()
                    break
            assert seen == [Ticket(2), Ticket(3)]

    asyncio.run(run())
