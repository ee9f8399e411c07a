"""Tests of the store: changes survive a restart, and callbacks follow the commit."""

import asyncio
import sqlite3
from itertools import pairwise
from pathlib import Path
from shutil import copyfile
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.model.store_changes import (
    DropJob,
    DropPeer,
    DropRetained,
    PutAnswer,
    PutDeadLetter,
    PutJob,
    PutPeer,
    PutRequest,
    PutRetained,
    PutTombstone,
    StoreChange,
)
from fiveways.store import writer_thread
from fiveways.store.batch_statement import Step
from fiveways.store.contents import StoreContents
from fiveways.store.errors import StoreError
from fiveways.store.store import Store
from tests.support.running import async_test
from tests.support.store_helpers import LATER, NOW, Model, content, open_store, write, write_and_close

REQUEST = PutRequest("p", "k", b"\x00\xff word", LATER)
ANSWER = PutAnswer("p", "k", b"answer", LATER)
JOB = PutJob("q", 2, b"work", 1)
OWNED_JOB = PutJob("q", 2, b"work", 1, "address 10.0.0.1")
DEAD = PutDeadLetter("q", 2, "tried 3 times", 5.5)
RETAINED = PutRetained("t", b"value", 7)

CASES: list[tuple[list[StoreChange], StoreContents]] = [
    ([], StoreContents()),
    ([PutPeer("p", "ann", 1.5)], StoreContents(peers=[PutPeer("p", "ann", 1.5)])),
    ([PutPeer("p", "ann", 1.5), PutPeer("p", "bob", 2.5)], StoreContents(peers=[PutPeer("p", "bob", 2.5)])),
    ([REQUEST], StoreContents(requests=[REQUEST])),
    ([REQUEST, REQUEST], StoreContents(requests=[REQUEST])),
    ([REQUEST, ANSWER], StoreContents(answers=[ANSWER])),
    ([ANSWER], StoreContents(answers=[ANSWER])),
    ([REQUEST, ANSWER, PutTombstone("p", "k", LATER)], StoreContents(tombstones=[PutTombstone("p", "k", LATER)])),
    ([REQUEST, PutTombstone("p", "k", 0)], StoreContents()),
    ([PutTombstone("p", "k", LATER)], StoreContents(tombstones=[PutTombstone("p", "k", LATER)])),
    (
        [PutTombstone("p", "k", LATER), PutTombstone("p", "k", 1500.0)],
        StoreContents(tombstones=[PutTombstone("p", "k", 1500.0)]),
    ),
    ([PutTombstone("p", "k", LATER), PutTombstone("p", "k", 0)], StoreContents()),
    ([PutTombstone("p", "k", LATER), REQUEST], StoreContents(requests=[REQUEST])),
    ([PutTombstone("p", "k", LATER), REQUEST, PutTombstone("p", "k", 0)], StoreContents()),
    ([PutPeer("p", "ann", 1.5), REQUEST, PutTombstone("p", "gone", LATER), DropPeer("p")], StoreContents()),
    (
        [DropPeer("p"), REQUEST, PutTombstone("p", "new", LATER)],
        StoreContents(requests=[REQUEST], tombstones=[PutTombstone("p", "new", LATER)]),
    ),
    ([REQUEST, DropPeer("another")], StoreContents(requests=[REQUEST])),
    ([JOB], StoreContents(jobs=[JOB])),
    ([JOB, PutJob("q", 2, b"work", 2)], StoreContents(jobs=[PutJob("q", 2, b"work", 2)])),
    ([JOB, DEAD], StoreContents(dead_jobs=[(JOB, DEAD)])),
    ([JOB, DEAD, JOB], StoreContents(jobs=[JOB])),
    ([DEAD], StoreContents()),
    ([JOB, DropJob("q", 2)], StoreContents()),
    ([JOB, DEAD, DropJob("q", 2)], StoreContents()),
    ([JOB, DropJob("q", 1), DropJob("r", 2)], StoreContents(jobs=[JOB])),
    ([RETAINED], StoreContents(retained=[RETAINED])),
    ([RETAINED, PutRetained("t", b"", 8)], StoreContents(retained=[PutRetained("t", b"", 8)])),
    ([RETAINED, DropRetained("t")], StoreContents()),
    ([PutPeer("p", "", 1.5, "10.0.0.1:4711")], StoreContents(peers=[PutPeer("p", "", 1.5, "10.0.0.1:4711")])),
    ([OWNED_JOB], StoreContents(jobs=[OWNED_JOB])),
    ([OWNED_JOB, DEAD], StoreContents(dead_jobs=[(OWNED_JOB, DEAD)])),
    (
        [RETAINED, PutRetained("t", b"", 8, "identity ann")],
        StoreContents(retained=[PutRetained("t", b"", 8, "identity ann")]),
    ),
]


@pytest.mark.parametrize(("records", "expected"), CASES)
@async_test
async def test_changes_are_loaded_after_a_restart(
    tmp_path: Path, records: list[StoreChange], expected: StoreContents
) -> None:
    if records:
        await write_and_close(tmp_path / "s", *records)
    assert content(tmp_path / "s") == expected
    assert content(tmp_path / "s") == expected


@async_test
async def test_contents_are_ordered(tmp_path: Path) -> None:
    keys = ["m", "z", "a", *map(str, range(200))]
    requests = [PutRequest(f"p{len(key)}", key, b"", LATER) for key in keys]
    answers = [PutAnswer(item.peer, item.key, b"a", LATER) for item in requests[3:6]]
    items = [PutJob("q", number, b"", 0) for number in (10, 9, -1, 2**63 - 1)]
    tombs = [PutTombstone("p", str(until), float(until)) for until in (1003, 1001, 1002)]
    await write_and_close(tmp_path / "s", *requests, *answers[::-1], *items, *tombs)
    loaded = content(tmp_path / "s")
    assert loaded.requests == [*requests[:3], *requests[6:]]
    assert loaded.answers == answers[::-1]
    assert [item.number for item in loaded.jobs] == [-1, 9, 10, 2**63 - 1]
    assert [tomb.until for tomb in loaded.tombstones] == [1001, 1002, 1003]


@async_test
async def test_expired_records_are_dropped_and_counted(tmp_path: Path) -> None:
    expired: list[StoreChange] = [
        PutRequest("p", "1", b"", NOW),
        PutAnswer("p", "2", b"", 5.0),
        PutTombstone("p", "3", 1500.0),
    ]
    await write_and_close(tmp_path / "s", *expired, PutTombstone("p", "4", LATER), PutRequest("p", "5", b"", LATER))
    assert content(tmp_path / "s", 1.0).expired_count == 0
    loaded = content(tmp_path / "s", 1600.0)
    assert (loaded.expired_count, loaded.expired_requests) == (2, expired[:1])  # its peer still needs a response
    assert ([item.key for item in loaded.requests], [item.key for item in loaded.tombstones]) == (["5"], ["4"])
    # The transaction also deleted expired records from the file, so an earlier time does not return them.
    assert content(tmp_path / "s", 1.0) == StoreContents(
        requests=[*loaded.expired_requests, *loaded.requests], tombstones=loaded.tombstones
    )


@async_test
async def test_mark_is_written_once_a_minute_and_at_the_end(tmp_path: Path) -> None:
    clock = [NOW]

    def open_store() -> Store:
        return Store.open(tmp_path / "s", now=lambda: clock[0], mark=lambda: f"at {clock[0]:g}")

    store = open_store()
    assert store.last_mark() == ""
    marked: list[str] = []
    for _ in range(130):
        clock[0] += 1.0
        await write(store, REQUEST)
        marked += mark_on_disk(tmp_path / "s")
    store.close()
    # The clock may advance before the writer thread reads it.
    times = sorted({int(item.removeprefix("at ")) for item in marked})
    assert len(times) == 3
    assert all(60 <= after - before < 65 for before, after in pairwise(times))
    assert mark_on_disk(tmp_path / "s") == ["at 1130"]
    clock[0] = 2_000.0
    idle = open_store()
    assert idle.last_mark() == "at 1130"
    idle.load()
    idle.close()
    assert mark_on_disk(tmp_path / "s") == ["at 2000"]


def mark_on_disk(path: Path) -> list[str]:
    """Return the mark on disk from a copy of the files."""
    copy = path.with_name("copy")
    for end in ("", "-wal"):
        if path.with_name(path.name + end).exists():
            copyfile(f"{path}{end}", f"{copy}{end}")
    connection = sqlite3.connect(copy)
    loaded = [str(value) for (value,) in connection.execute("SELECT value FROM mark WHERE name = 'last'")]
    connection.close()
    return loaded


@async_test
async def test_expired_tombstones_are_deleted(tmp_path: Path) -> None:
    clock = [NOW]
    store = Store.open(tmp_path / "s", now=lambda: clock[0])
    for turn in range(10):
        clock[0] = NOW + 2 * turn
        await write(store, *(PutTombstone("p", f"{turn}-{number}", clock[0] + 3) for number in range(100)))
    store.close()
    with sqlite3.connect(tmp_path / "s") as connection:
        assert connection.execute("SELECT count(*) FROM log").fetchone() == (200,)
    connection.close()
    assert len(content(tmp_path / "s", clock[0]).tombstones) == 200


class CommitGate:
    """Commit function that waits until it is opened, and counts the commits."""

    def __init__(self) -> None:
        self.open = Event()
        self.reached = Event()
        self.commits = 0

    def __call__(self, connection: sqlite3.Connection, last: Step) -> None:
        self.reached.set()
        assert self.open.wait(60)
        writer_thread.execute_last(connection, last)
        self.commits += 1


@async_test
async def test_done_is_called_after_the_commit_and_in_order(tmp_path: Path) -> None:
    gate = CommitGate()
    store = Store.open(tmp_path / "s", now=lambda: NOW, commit=gate)
    outcomes: list[int] = []
    store.write(REQUEST, lambda _: outcomes.append(0))
    assert await asyncio.to_thread(gate.reached.wait, 60)
    for number in range(1, 200):
        record = PutRequest("p", str(number), b"", LATER) if number % 3 else PutJob("q", number, b"", 0)
        store.write(record, lambda error, number=number: outcomes.append(-1 if error else number))  # type: ignore[misc]
    await asyncio.sleep(0.05)
    assert (outcomes, store.waiting, gate.commits) == ([], 200, 0)
    gate.open.set()
    while store.waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert outcomes == list(range(200))
    assert gate.commits == 2
    store.close()


@async_test
async def test_changes_above_max_waiting_bytes_are_refused(tmp_path: Path) -> None:
    gate = CommitGate()
    store = Store.open(tmp_path / "s", now=lambda: NOW, commit=gate, max_waiting_bytes=1000)
    outcomes: list[StoreError | None] = []
    value = PutRetained("t", bytes(400), 1)
    for _ in range(3):
        store.write(value, outcomes.append)
    with pytest.raises(StoreError, match="3 changes with 1200 bytes wait to be written"):
        store.write(value, outcomes.append)
    gate.open.set()
    while store.waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert store.waiting_bytes == 0
    assert await write(store, value) == [None]
    store.close()


@async_test
async def test_changes_above_max_waiting_are_refused(tmp_path: Path) -> None:
    gate = CommitGate()
    store = Store.open(tmp_path / "s", now=lambda: NOW, commit=gate, max_waiting=3)
    outcomes: list[StoreError | None] = []
    for _ in range(3):
        store.write(REQUEST, outcomes.append)
    with pytest.raises(StoreError, match="3 changes with"):
        store.write(REQUEST, outcomes.append)
    gate.open.set()
    while store.waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert await write(store, REQUEST) == [None]
    store.close()
    assert outcomes == [None] * 3


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@async_test
async def test_close_writes_waiting_changes_and_calls_done(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s")
    outcomes: list[StoreError | None] = []
    for number in range(10_000):
        store.write(PutJob("q", number, b"", 0), outcomes.append)
    store.close()
    assert (outcomes, store.waiting) == ([None] * 10_000, 0)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.write(JOB, outcomes.append)
    await asyncio.sleep(0)
    assert len(outcomes) == 10_000
    assert names_in(tmp_path) == ["s", "s-state"]
    assert len(content(tmp_path / "s").jobs) == 10_000


def test_store_is_closed_after_its_loop(tmp_path: Path) -> None:
    outcomes: list[StoreError | None] = []
    gate = CommitGate()

    async def run() -> Store:
        store = Store.open(tmp_path / "s", now=lambda: NOW, commit=gate)
        store.write(REQUEST, outcomes.append)
        return store

    store = asyncio.run(run())
    gate.open.set()
    store.close()
    assert outcomes == [None]


@async_test
async def test_load_after_the_first_change_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s")
    assert store.load() == StoreContents()
    await write(store, REQUEST)
    with pytest.raises(StoreError, match="before the first change"):
        store.load()
    store.close()


@async_test
async def test_failing_callback_is_reported_to_the_loop(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s")
    results: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: results.append(context["exception"]))

    def fail(_: StoreError | None) -> None:
        raise ZeroDivisionError

    store.write(REQUEST, fail)
    assert await write(store, JOB) == [None]
    store.close()
    assert [type(item) for item in results] == [ZeroDivisionError]


@async_test
async def test_wal_size_is_bounded(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s")
    for _ in range(20):
        await write(store, *(PutJob("q", number, bytes(3000), 0) for number in range(500)))
    assert (tmp_path / "s-wal").stat().st_size < 12 << 20
    store.close()


NAMES = st.sampled_from("ab")
WORDS = st.binary(max_size=3)
TIMES = st.sampled_from([0.0, NOW, NOW + 2, NOW + 5, LATER])
NUMBERS = st.integers(0, 3)
RECORDS = st.one_of(
    st.builds(PutPeer, NAMES, NAMES, TIMES),
    st.builds(DropPeer, NAMES),
    st.builds(PutRequest, NAMES, NAMES, WORDS, TIMES),
    st.builds(PutAnswer, NAMES, NAMES, WORDS, TIMES),
    st.builds(PutTombstone, NAMES, NAMES, TIMES),
    st.builds(PutJob, NAMES, NUMBERS, WORDS, NUMBERS),
    st.builds(PutDeadLetter, NAMES, NUMBERS, NAMES, TIMES),
    st.builds(DropJob, NAMES, NUMBERS),
    st.builds(PutRetained, NAMES, WORDS, NUMBERS),
    st.builds(DropRetained, NAMES),
)
RUNS = st.lists(st.tuples(st.sampled_from([0.0, 1.0, 4.0]), st.lists(RECORDS, max_size=40)), max_size=4)


@settings(max_examples=40, deadline=None)
@given(RUNS)
def test_store_behaves_like_the_model(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[float, list[StoreChange]]]
) -> None:
    path = tmp_path_factory.mktemp("store") / "s"

    async def run_once(now: float, records: list[StoreChange]) -> None:
        store = open_store(path, now)
        assert have_same_records(store.load(), model.load(now))
        for record in records:
            store.write(record, results.append)
            model.apply(record)
        store.close()

    model, now = Model(), NOW
    results: list[StoreError | None] = []
    for wait, records in [*runs, (0.0, [])]:
        now += wait
        asyncio.run(run_once(now, records))
    assert results == [None] * sum(len(records) for _, records in runs)


def have_same_records(loaded: StoreContents, expected: StoreContents) -> bool:
    """Compare the records; expired ones may be deleted before they are counted."""
    names = ("peers", "requests", "answers", "tombstones", "jobs", "dead_jobs", "retained")
    assert [getattr(loaded, name) for name in names] == [getattr(expected, name) for name in names]
    return True
