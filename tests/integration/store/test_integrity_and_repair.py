"""A damaged store starts with all that was acknowledged, or is refused; a repair saves what is readable."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Sized
from pathlib import Path

import pytest

from fiveways.model.store_changes import PutJob, PutPeer
from fiveways.store import store_repair
from fiveways.store.contents import StoreContents
from fiveways.store.errors import StoreError
from tests.support import damage_cases
from tests.support.paths import ROOT
from tests.support.processes import mark
from tests.support.running import async_test
from tests.support.store_helpers import NOW, Model, child, content, open_store, write_and_close

CASES = [
    (ending, name)
    for ending, kinds in (("closed", damage_cases.CLOSED), ("killed", damage_cases.KILLED))
    for name in (*kinds, *damage_cases.HARMLESS)
]
KINDS = {**damage_cases.CLOSED, **damage_cases.KILLED, **damage_cases.HARMLESS}
OTHERS = {"newer version": "written by a newer Fiveways", "other application": "belongs to another program"}
"""Stores that are not damaged, and not ours to repair."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with a store that was closed, and with one whose hub was killed."""
    base = tmp_path_factory.mktemp("stores")
    for ending in ("closed", "killed"):
        (base / ending).mkdir()
        for name, its_ending in (("s", ending), ("other", "killed")):
            command = [sys.executable, "-m", "tests.support.damage_cases", str(base / ending / name), its_ending]
            env = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin", **mark()}
            subprocess.run(command, check=True, cwd=ROOT, env=env)  # noqa: S603
    return base


def expected() -> StoreContents:
    model = Model()
    for start in (0, damage_cases.HALF):
        for commit in damage_cases.records(start):
            for record in commit:
                model.apply(record)
    return model.load(NOW)


def damaged(stores: Path, folder: Path, ending: str, name: str) -> Path:
    shutil.copytree(stores / ending, folder, dirs_exist_ok=True)
    KINDS[name](folder / "s")
    return folder / "s"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def why_refused(path: Path) -> str:
    """Return why a store is refused; empty if it is opened, with all that was acknowledged."""

    async def look() -> str:
        try:
            assert content(path) == expected()
        except StoreError as exc:
            return str(exc)
        return ""

    return asyncio.run(look())


@pytest.mark.parametrize(("ending", "name"), CASES)
def test_store_starts_with_everything_or_is_refused(stores: Path, tmp_path: Path, ending: str, name: str) -> None:
    path = damaged(stores, tmp_path, ending, name)
    why = why_refused(path)
    if name in OTHERS:
        assert OTHERS[name] in why
    elif why:
        assert str(path) in why
        assert f"`fiveways store repair {path}` saves the records that are readable" in why
    if name in damage_cases.HARMLESS:
        assert not why
    # Another start finds the same.
    assert bool(why_refused(path)) == bool(why)


@pytest.mark.parametrize(("ending", "name"), CASES)
def test_repair_keeps_what_is_readable(stores: Path, tmp_path: Path, ending: str, name: str) -> None:
    path = damaged(stores, tmp_path, ending, name)
    if name in OTHERS:
        with pytest.raises(StoreError, match=OTHERS[name]):
            store_repair.repair_store(path)
        return
    before = files(tmp_path)
    report = store_repair.check_store(path)
    assert files(tmp_path) == before
    if not report.damage:
        assert not why_refused(path)
        return
    _, moved = store_repair.repair_store(path)
    after = files(tmp_path)
    assert [after[each.name] for each in moved] == [
        before[suffixed] for suffixed in ("s", "s-wal", "s-state", "s-shm") if suffixed in before
    ]
    found, whole = asyncio.run(loaded(path)), expected()
    assert not set(found.peers) - set(whole.peers)
    assert not set(found.retained) - set(whole.retained)
    # A job may be there as it was before it was given up, and a request as it was before it was answered.
    jobs = {each.number: each for each in (*whole.jobs, *(item for item, _ in whole.dead_jobs))}
    assert all(jobs[each.number] == each for each in found.jobs)
    assert not store_repair.check_store(path).damage


async def loaded(path: Path) -> StoreContents:
    return content(path)


@pytest.mark.parametrize("table", damage_cases.TABLES)
def test_repair_loses_the_damaged_record_alone_and_names_it(stores: Path, tmp_path: Path, table: str) -> None:
    path = damaged(stores, tmp_path, "closed", f"garbage in {table}")
    report, _ = store_repair.repair_store(path)
    names = {
        "peer": ["table peer, peer peer-0007", "peer peer-0007: 2 requests and responses of this peer"],
        "log": ["table log, line 17 (peer peer-0007, key k)"],
        "item": ["table item, number 7 of queue jobs"],
        "retained": ['table retained, topic ["topic-0007"]'],
    }
    assert report.lost == names[table]
    found, whole = asyncio.run(loaded(path)), expected()
    both: dict[str, tuple[Sized, Sized]] = {
        "peer": (whole.peers, found.peers),
        "log": (whole.requests, found.requests),
        "item": (whole.jobs, found.jobs),
        "retained": (whole.retained, found.retained),
    }
    before, after = map(len, both[table])
    assert before - after == 1


@pytest.mark.parametrize(
    "name", ["frame in the middle flipped", "header of the wal flipped", "salt of the wal flipped"]
)
def test_repair_reads_the_frames_that_sqlite_does_not(stores: Path, tmp_path: Path, name: str) -> None:
    path = damaged(stores, tmp_path, "killed", name)
    store_repair.repair_store(path)
    assert asyncio.run(loaded(path)) == expected()


@async_test
async def test_store_that_is_open_is_neither_checked_nor_repaired(tmp_path: Path) -> None:
    path = tmp_path / "s"
    await write_and_close(path, PutPeer("p", "", 1.0))
    with child("hold", path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        for command in (store_repair.check_store, store_repair.repair_store):
            with pytest.raises(StoreError, match="is in use: another process has opened this store"):
                command(path)
        # A state file that was deleted does not hide the process.
        path.with_name("s-state").unlink()
        with pytest.raises(StoreError, match="is in use"):
            store_repair.check_store(path)
        holder.kill()


@async_test
async def test_store_that_could_not_be_closed_in_good_order_starts(tmp_path: Path) -> None:
    path = tmp_path / "s"
    await write_and_close(path, PutJob("q", 1, b"1", 0))
    for _ in range(3):
        # A start that fails, here for a record that is damaged, leaves no WAL.
        damage_cases.sql("UPDATE item SET word = x'32'")(path)
        with pytest.raises(StoreError, match="number 1 of queue q: the record does not match its checksum"):
            open_store(path)
        assert not path.with_name("s-wal").exists()
    damage_cases.sql("UPDATE item SET word = x'31'")(path)
    assert content(path).jobs == [PutJob("q", 1, b"1", 0)]


@pytest.mark.parametrize("writes", [0, 1, 20])
def test_process_that_ends_without_closing_the_store_is_no_damage(tmp_path: Path, writes: int) -> None:
    with child("leave", tmp_path / "s", writes) as process:
        _, err = process.communicate()
    assert (process.returncode, err) == (1, "exit\n")

    async def items() -> int:
        return len(content(tmp_path / "s").jobs)

    assert asyncio.run(items()) == writes


def test_kill_at_any_line_of_a_start_or_a_close_is_no_damage(tmp_path: Path) -> None:
    with child("interrupted", tmp_path / "s") as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    lines = [tuple(map(int, line.split())) for line in out.splitlines()]
    assert len(lines) > 50
    assert [number for number, items in lines if items != 1] == []
