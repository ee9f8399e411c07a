"""Damages to the files of a store, and stores to damage.

python -m tests.support.damage_cases PATH closed|killed
"""

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from fiveways.model.store_changes import (
    PutAnswer,
    PutDeadLetter,
    PutJob,
    PutPeer,
    PutRequest,
    PutRetained,
    PutTombstone,
    StoreChange,
)
from tests.support.store_helpers import LATER, open_store, write, write_and_close

HEADER, FRAME = 32, 4096 + 24
"""Sizes of the header and of a frame of a WAL in bytes."""
HALF = 150


def records(start: int) -> list[list[StoreChange]]:
    """Return records for all tables, commit by commit."""
    commits: list[list[StoreChange]] = []
    for number in range(start, start + HALF, 5):
        numbers = range(number, number + 5)
        commits.append(
            [
                *(PutPeer(f"peer-{index:04}", "ann", 1.5, "10.0.0.1:4711") for index in numbers),
                *(PutRequest(f"peer-{index:04}", "k", b"request %04d " % index * 10, LATER) for index in numbers),
                *(PutRequest(f"peer-{index:04}", "l", b"asked %04d" % index, LATER) for index in numbers),
                *(PutAnswer(f"peer-{index:04}", "l", b"answer %04d " % index * 10, LATER) for index in numbers[:3]),
                PutTombstone(f"peer-{number:04}", "l", LATER),
                *(PutJob("jobs", index + 1, b'"job %04d"' % index, 0, "identity ann") for index in numbers),
                PutDeadLetter("jobs", number + 1, "tried too often", 7.5),
                *(PutRetained(f'["topic-{index:04}"]', b'"value %04d"' % index, index) for index in numbers),
            ]
        )
    return commits


async def fill(path: Path, ending: str) -> None:
    """Fill a store in two runs; the second one is closed or killed."""
    await write_and_close(path, *(record for commit in records(0) for record in commit))
    shutil.copyfile(path, older(path))
    store = open_store(path)
    for commit in records(HALF):
        assert not any(await write(store, *commit))
    if ending == "closed":
        store.close()
        return
    state, last = path.with_name(f"{path.name}-state"), b""
    while state.exists() and (now := state.read_bytes()) != last:
        last = now
        await asyncio.sleep(0.2)
    os._exit(0)


def older(path: Path) -> Path:
    """Return the path of the database after the first run."""
    return path.with_name(f"{path.name}.older")


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}-{suffix}")


Damage = Callable[[Path], object]


def cut(suffix: str, size: float, by: int = 0) -> Damage:
    """Truncate a file to a fraction of its size, or to a number of bytes."""

    def damage(path: Path) -> None:
        file = beside(path, suffix) if suffix else path
        length = file.stat().st_size
        os.truncate(file, max(0, (int(length * size) if size <= 1 else int(size)) + by))

    return damage


def cut_frames(write_and_close: Callable[[int], int]) -> Damage:
    """Truncate the WAL at the end of a frame."""

    def damage(path: Path) -> None:
        file = beside(path, "wal")
        os.truncate(file, HEADER + FRAME * write_and_close((file.stat().st_size - HEADER) // FRAME))

    return damage


def garble(suffix: str, place: Callable[[int], int], count: int = 1) -> Damage:
    """Flip a bit, or overwrite bytes with noise."""

    def damage(path: Path) -> None:
        file = beside(path, suffix) if suffix else path
        data = bytearray(file.read_bytes())
        start = place(len(data))
        noise = Random(start).randbytes(count) if count > 1 else bytes([data[start] ^ 4])
        data[start : start + count] = noise
        file.write_bytes(data)

    return damage


def flip_cell(text: bytes) -> Damage:
    """Flip a bit of a record in the database."""

    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        place = data.rindex(text)
        data[place + len(text) - 1] ^= 1
        path.write_bytes(data)

    return damage


def sql(*statements: str) -> Damage:
    """Execute statements that the store never executes."""

    def damage(path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()

    return damage


def remove(suffix: str) -> Damage:
    return lambda path: (beside(path, suffix) if suffix else path).unlink()


def without_middle(path: Path) -> None:
    """Remove a frame from the middle of the WAL."""
    data = beside(path, "wal").read_bytes()
    middle = HEADER + FRAME * ((len(data) - HEADER) // FRAME // 2)
    beside(path, "wal").write_bytes(data[:middle] + data[middle + FRAME :])


def zeros(path: Path) -> None:
    """Overwrite the second half of the WAL with zeros."""
    data = beside(path, "wal").read_bytes()
    half = len(data) // 2
    beside(path, "wal").write_bytes(data[:half] + bytes(len(data) - half))


def foreign_wal(path: Path) -> None:
    other = path.with_name("other")
    shutil.copyfile(beside(other, "wal"), beside(path, "wal"))


TABLES = ("peer", "log", "item", "retained")
_LAST = {"peer": "peer = 'peer-0007'", "log": "line = 17", "item": "number = 7", "retained": "publication = 7"}
_GARBAGE = {"peer": "remote", "log": "word", "item": "word", "retained": "word"}
_CELLS = {"peer": b"peer-0007ann", "log": b"request 0007 ", "item": b'"job 0007', "retained": b'"value 0007'}

BOTH: dict[str, Damage] = {
    "database removed": remove(""),
    "database emptied": cut("", 0),
    "database cut in its header": cut("", 60),
    "database cut in the middle": cut("", 0.5),
    "database cut in a page": cut("", 0.5, 1000),
    "last page of the database cut": cut("", 1, -4096),
    "magic of the database flipped": garble("", lambda _: 3),
    "schema of the database garbled": garble("", lambda _: 100, 3000),
    "page in the middle garbled": garble("", lambda size: size // 2 // 4096 * 4096, 4096),
    "last page garbled": garble("", lambda size: size - 4096, 4096),
    "page in the middle zeroed": lambda path: path.write_bytes(
        path.read_bytes()[: (half := path.stat().st_size // 2 // 4096 * 4096)]
        + bytes(4096)
        + path.read_bytes()[half + 4096 :]
    ),
    "older database": lambda path: shutil.copyfile(older(path), path),
    "wal of another store": foreign_wal,
    "foreign shm": lambda path: beside(path, "shm").write_bytes(bytes(32768)),
    **{f"cell of {table} flipped": flip_cell(text) for table, text in _CELLS.items()},
}
CLOSED: dict[str, Damage] = {
    **BOTH,
    "newer version": sql("PRAGMA user_version = 99"),
    "other application": sql("PRAGMA application_id = 99"),
    **{
        f"garbage in {table}": sql(f"UPDATE {table} SET {_GARBAGE[table]} = x'c1ff00' WHERE {_LAST[table]}")  # noqa: S608
        for table in TABLES
    },
    **{f"record of {table} gone": sql(f"DELETE FROM {table} WHERE {_LAST[table]}") for table in TABLES},  # noqa: S608
    "table gone": sql("DROP TABLE item"),
}
KILLED: dict[str, Damage] = {
    **BOTH,
    "wal removed": remove("wal"),
    "wal emptied": cut("wal", 0),
    "wal cut in its header": cut("wal", 16),
    "wal cut behind its header": cut("wal", 32),
    "wal cut in the middle of a frame": cut("wal", 0.5),
    "wal cut behind a frame in the middle": cut_frames(lambda frames: frames // 2),
    "last frame of the wal cut": cut_frames(lambda frames: frames - 1),
    "header of the wal flipped": garble("wal", lambda _: 5),
    "salt of the wal flipped": garble("wal", lambda _: 17),
    "first frame of the wal flipped": garble("wal", lambda _: 500),
    "frame in the middle flipped": garble("wal", lambda size: size // 2),
    "last frame flipped": garble("wal", lambda size: size - 500),
    "middle of the wal garbled": garble("wal", lambda size: size // 2, 20_000),
    "frame in the middle taken out": without_middle,
    "second half of the wal zeroed": zeros,
}
HARMLESS: dict[str, Damage] = {"state removed": remove("state"), "state garbled": garble("state", lambda _: 0, 64)}
"""Damages without loss."""

if __name__ == "__main__":
    asyncio.run(fill(Path(sys.argv[1]), sys.argv[2]))
