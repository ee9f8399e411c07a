"""Disks that are full, records that cannot be written, processes that are killed, files that are torn."""

import json
import random
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from fiveways.model.store_changes import PutAnswer, PutJob, PutRequest, PutTombstone, StoreChange
from fiveways.store import writer_thread
from fiveways.store.batch_statement import Step
from fiveways.store.errors import StoreError
from fiveways.store.store import Store
from tests.support.running import async_test
from tests.support.store_helpers import LATER, NOW, Model, child, content, open_store, write
from tests.support.store_process import change

SMALL = PutRequest("p", "small", b"", LATER)
UNWRITABLE: list[tuple[StoreChange, str]] = [
    (PutJob("q", 1 << 70, b"", 0), "larger than a store can hold"),
    (PutRequest("p", "\ud800", b"", LATER), "surrogates not allowed"),
    (PutRequest("p", "k", b"", float("nan")), "NOT NULL constraint failed: log.until"),
    (PutRequest("p", "k", bytes(20_000), LATER), "larger than a store can hold"),
    (StoreChange(), "StoreChange"),
]


@pytest.mark.parametrize(("bad", "why"), UNWRITABLE)
@pytest.mark.parametrize("place", [0, 1, 50, 99])
@async_test
async def test_only_the_bad_one_fails(tmp_path: Path, bad: StoreChange, why: str, place: int) -> None:
    store = open_store(tmp_path / "s")
    assert store._connection is not None
    store._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)
    records: list[StoreChange] = [PutJob("q", number, b"", 0) for number in range(99)]
    told = await write(store, *records[:place], bad, *records[place:])
    assert [number for number, error in enumerate(told) if error] == [place]
    assert str(told[place]).startswith(f"it was not stored in {tmp_path / 's'}: ")
    assert why in str(told[place])
    store.close()
    found = content(tmp_path / "s")
    assert found.jobs == records
    assert not found.requests


@async_test
async def test_what_was_there_stays_when_a_commit_fails(tmp_path: Path) -> None:
    broken = False

    def commit(connection: sqlite3.Connection, last: Step) -> None:
        if broken:
            raise sqlite3.OperationalError("disk I/O error")
        writer_thread.execute_last(connection, last)

    store = Store.open(tmp_path / "s", now=lambda: NOW, commit=commit)
    kept = [PutRequest("p", str(number), b"word", LATER) for number in range(10)]
    assert await write(store, *kept) == [None] * 10
    broken = True
    told = await write(store, PutAnswer("p", "1", b"", LATER), PutTombstone("p", "2", LATER), PutTombstone("p", "3", 0))
    assert [str(error) for error in told] == [f"it was not stored in {tmp_path / 's'}: disk I/O error"] * 3
    broken = False
    store.resume()
    assert await write(store, PutTombstone("p", "9", 0)) == [None]
    store.close()
    assert content(tmp_path / "s").requests == kept[:9]


@async_test
async def test_after_what_cannot_be_written_now_nothing_is_until_it_is_tried_again(tmp_path: Path) -> None:
    room = 10

    def commit(connection: sqlite3.Connection, last: Step) -> None:
        if not connection.in_transaction:
            connection.execute("BEGIN")
            connection.execute(*last)
        if connection.execute("SELECT count(*) FROM item").fetchone()[0] > room:
            raise sqlite3.OperationalError("disk I/O error")
        connection.execute("COMMIT")

    store = Store.open(tmp_path / "s", now=lambda: NOW, commit=commit)
    items = [PutJob("q", number, b"", 0) for number in range(20)]
    told = await write(store, *items)
    assert [error is None for error in told] == [True] * 10 + [False] * 10
    room = 20
    assert all(await write(store, items[0], items[19]))
    store.resume()
    assert await write(store, *items[10:]) == [None] * 10
    store.close()
    assert content(tmp_path / "s").jobs == items


def filled(process: "subprocess.Popen[str]") -> dict[str, list[str]]:
    with process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    found: dict[str, list[str]] = json.loads(out)
    assert found["kept"]
    assert found["sentences"]
    assert set(found["again"]) == {"None"}
    assert found["found"] == found["expected"]
    return found


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    found = filled(child("limit", tmp_path / "s"))
    assert set(found["sentences"]) == {f"it was not stored in {tmp_path / 's'}: disk I/O error"}


def test_a_full_disk(tmp_path: Path) -> None:
    inside = f'mount -t tmpfs -o size=1536k none {tmp_path} && exec "$@"'
    before = ["unshare", "--map-root-user", "--mount", "sh", "-c", inside, "sh"]
    if shutil.which("unshare") is None or subprocess.run([*before, "true"], check=False).returncode:  # noqa: S603
        pytest.skip("a small disk cannot be mounted here; the test above runs everywhere")
    found = filled(child("full", tmp_path / "s", before=before))
    assert set(found["sentences"]) == {f"it was not stored in {tmp_path / 's'}: its disk is full"}


def after(steps: int) -> Model:
    model = Model()
    for step in range(steps):
        model.apply(change(step))
    return model


def steps_in(path: Path) -> int:
    """Return how many steps the store holds; it holds exactly what these make, and nothing else."""
    found = content(path)
    last = max((request.key for request in found.requests), default=None)
    candidates = [0] if last is None else [3 * int(last) + more for more in (1, 2, 3)]
    for steps in candidates:
        expected = after(steps).load(NOW)
        if found == expected:
            return steps
    pytest.fail(f"after the last of {candidates} steps, the store is not what it should be")


@pytest.mark.parametrize("seed", range(6))
@async_test
async def test_a_killed_process_loses_nothing_it_was_told_of(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "s"
    with child("heavy", path) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(random.Random(seed).uniform(0.0, 0.3))  # noqa: ASYNC251
        process.kill()
        lines = [first, *process.stdout.read().splitlines()]
    told = max(int(line) for line in lines if line.strip())
    assert told > 0
    assert steps_in(path) >= told


def put(origin: Path, path: Path, wal: bytes, state: bytes | None) -> None:
    shutil.copyfile(origin, path)
    path.with_name(f"{path.name}-wal").write_bytes(wal)
    path.with_name(f"{path.name}-state").unlink(missing_ok=True)
    if state is not None:
        path.with_name(f"{path.name}-state").write_bytes(state)


@pytest.fixture(scope="module")
def slowly(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int], list[bytes]]:
    """A store that was killed after 200 steps, how long its WAL was after each, and what the state file had."""
    origin = tmp_path_factory.mktemp("slow") / "origin"
    with child("slow", origin, 200) as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found[-1][0] == origin.with_name("origin-wal").stat().st_size
    return origin, [size for size, _ in found], [bytes.fromhex(state) for _, state in found]


Slowly = tuple[Path, list[int], list[bytes]]


@async_test
async def test_wal_torn_by_a_power_cut_costs_only_what_is_behind_the_tear(slowly: Slowly, tmp_path: Path) -> None:
    origin, sizes, states = slowly
    wal = origin.with_name("origin-wal").read_bytes()
    chance = random.Random(5)
    edges = [size + by for size in chance.sample(sizes[:-1], 2) for by in (-1, 0, 1)]
    places = [sizes[0], *edges, *(chance.randrange(sizes[0], len(wal)) for _ in range(2))]
    path = tmp_path / "s"
    for place in places:
        safe = sum(size <= place for size in sizes)
        # Of the one transaction that was under way, any sector may have reached the disk; and the state file is older.
        unsynced = bytearray(wal[: sizes[safe]])
        for start in range(sizes[safe - 1], len(unsynced), 512):
            if start >= place:
                unsynced[start : start + 512] = bytes(len(unsynced[start : start + 512]))
        for torn in (wal[:place], wal[:place] + bytes(len(wal) - place), bytes(unsynced)):
            for state in (states[safe - 1], states[chance.randrange(safe)], None):
                put(origin, path, torn, state)
                tear = next((at for at in range(len(torn)) if torn[at : at + 1] != wal[at : at + 1]), len(torn))
                assert steps_in(path) == sum(size <= tear for size in sizes), place
                store = open_store(path)
                assert await write(store, SMALL) == [None]
                store.close()


@async_test
async def test_wal_with_less_than_was_acknowledged_is_refused_and_left_alone(slowly: Slowly, tmp_path: Path) -> None:
    origin, sizes, states = slowly
    wal = origin.with_name("origin-wal").read_bytes()
    chance, path = random.Random(6), tmp_path / "s"
    for place in (0, 1, 31, 32, 33, 56, sizes[5], *(chance.randrange(len(wal)) for _ in range(20))):
        flipped = wal[:place] + bytes([wal[place] ^ 1]) + wal[place + 1 :]
        for torn in (wal[:place], wal[:place] + bytes(len(wal) - place), flipped):
            put(origin, path, torn, states[-1])
            with pytest.raises(StoreError, match="`fiveways store repair"):
                open_store(path)
            assert path.with_name("s-wal").read_bytes() == torn
            assert path.read_bytes() == origin.read_bytes()


@async_test
async def test_commits_behind_a_bad_frame_are_missed_without_a_state_file(slowly: Slowly, tmp_path: Path) -> None:
    origin, sizes, _ = slowly
    wal = bytearray(origin.with_name("origin-wal").read_bytes())
    path = tmp_path / "s"
    wal[sizes[100] + 1000] ^= 1
    put(origin, path, bytes(wal), None)
    with pytest.raises(StoreError, match=r"frame \d+ of .*/s-wal is damaged, and 9\d commits follow it"):
        open_store(path)
