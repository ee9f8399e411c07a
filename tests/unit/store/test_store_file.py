"""Tests of opening a store: permissions, upgrades and refused files."""

import asyncio
import sqlite3
import stat
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fiveways.model.store_changes import (
    PutAnswer,
    PutDeadLetter,
    PutJob,
    PutPeer,
    PutRequest,
    PutRetained,
    PutTombstone,
)
from fiveways.store import request_log, schema
from fiveways.store.contents import StoreContents
from fiveways.store.errors import StoreError
from tests.support import old_schemas
from tests.support.running import async_test
from tests.support.store_helpers import LATER, child, content, open_store, write_and_close


@async_test
async def test_folder_and_file_are_created_without_access_for_others(tmp_path: Path) -> None:
    path = tmp_path / "one" / "two" / "s"
    store = open_store(path)
    modes = [stat.S_IMODE(item.stat().st_mode) for item in (path.parent, path, path.with_name("s-wal"))]
    store.close()
    assert modes == [0o700, 0o600, 0o600]


@async_test
async def test_file_has_application_id_and_version(tmp_path: Path) -> None:
    open_store(tmp_path / "s").close()
    connection = sqlite3.connect(tmp_path / "s")
    assert connection.execute("PRAGMA application_id").fetchone() == (schema.APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    connection.close()


@async_test
async def test_commits_are_synchronous(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s")
    assert store._connection is not None
    answers = [store._connection.execute(f"PRAGMA {item}").fetchone()[0] for item in ("synchronous", "journal_mode")]
    store.close()
    assert answers == [2, "wal"]


@async_test
async def test_statements_use_an_index(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s")
    assert store._connection is not None
    for run_sql, values in (
        step for statement in [request_log.APPEND, *schema.STATEMENTS.values()] for step in statement.all_texts()
    ):
        plan = store._connection.execute(f"EXPLAIN QUERY PLAN {run_sql}", values)
        scanned = [row[3] for row in plan if row[3].split()[:2] in (["SCAN", item] for item in TABLES)]
        assert not scanned, run_sql
    store.close()


TABLES = ("mark", "peer", "log", "item", "retained")
STATEMENTS_OF_VERSION_1 = (
    *old_schemas.VERSION_1.split(";"),
    "INSERT INTO peer VALUES ('p', 'ann', 1.5)",
    "INSERT INTO tomb VALUES (1, 'p', 'over', 2000), (2, 'p', 'a', 2000), (3, 'q', 'b', 2000), (4, 'q', NULL, 0)",
    "INSERT INTO request VALUES (7, 'p', 'a', x'00', 2000, 0), (9, 'p', 'b', x'01', 2000, 1)",
    "INSERT INTO item (queue, number, word, tries) VALUES ('q', 1, x'02', 3)",
)
"""Statements for a store of version 1."""


@async_test
async def test_store_of_version_1_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "s"
    run_sql(
        path, *STATEMENTS_OF_VERSION_1, f"PRAGMA application_id = {schema.APPLICATION_ID}", "PRAGMA user_version = 1"
    )
    expected = StoreContents(
        peers=[PutPeer("p", "ann", 1.5)],
        requests=[PutRequest("p", "a", b"\0", LATER)],
        answers=[PutAnswer("p", "b", b"\1", LATER)],
        tombstones=[PutTombstone("p", "over", LATER)],
        jobs=[PutJob("q", 1, b"\2", 3)],
    )
    assert content(path) == expected
    await write_and_close(path, PutTombstone("p", "a", 0))
    assert content(path) == replace(expected, requests=[])
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    assert {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE sql > ''")} == {*TABLES}
    connection.close()


VERSION_2 = """
CREATE TABLE peer (peer TEXT NOT NULL PRIMARY KEY, identity TEXT NOT NULL, seen_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE log (
    line INTEGER PRIMARY KEY, state INTEGER NOT NULL, peer TEXT NOT NULL, key TEXT, until REAL NOT NULL, word BLOB
);
CREATE TABLE item (
    id INTEGER PRIMARY KEY, queue TEXT NOT NULL, number INTEGER NOT NULL,
    word BLOB NOT NULL, tries INTEGER NOT NULL, why TEXT, at REAL,
    UNIQUE (queue, number)
);
CREATE TABLE retained (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL UNIQUE, word BLOB NOT NULL, publication INTEGER NOT NULL
);
INSERT INTO peer VALUES ('p', 'ann', 1.5), ('q', '', 2.5);
INSERT INTO log VALUES (1, 0, 'q', 'a', 2000, x'00');
INSERT INTO item (queue, number, word, tries, why, at) VALUES
    ('q', 1, x'02', 3, NULL, NULL), ('q', 2, x'03', 5, 'no', 9);
INSERT INTO retained (topic, word, publication) VALUES ('["t"]', x'31', 7)
"""
"""Store of version 2, without owners of records."""


def content_of_version_2() -> StoreContents:
    return StoreContents(
        peers=[PutPeer("p", "ann", 1.5), PutPeer("q", "", 2.5)],
        requests=[PutRequest("q", "a", b"\0", LATER)],
        jobs=[PutJob("q", 1, b"\2", 3)],
        dead_jobs=[(PutJob("q", 2, b"\3", 5), PutDeadLetter("q", 2, "no", 9.0))],
        retained=[PutRetained('["t"]', b"1", 7)],
    )


@async_test
async def test_store_of_version_2_is_upgraded_with_owners(tmp_path: Path) -> None:
    path = tmp_path / "s"
    run_sql(path, *VERSION_2.split(";"), f"PRAGMA application_id = {schema.APPLICATION_ID}", "PRAGMA user_version = 2")
    expected = content_of_version_2()
    assert content(path) == expected
    peer = PutPeer("q", "", 3.5, "10.0.0.1:4711")
    item = PutJob("q", 3, b"\4", 0, "identity ann")
    value = PutRetained('["t"]', b"2", 8, "address 10.0.0.1")
    await write_and_close(path, peer, item, value)
    assert content(path) == replace(
        expected, peers=[expected.peers[0], peer], jobs=[*expected.jobs, item], retained=[value]
    )
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    connection.close()


VERSION_3 = (
    VERSION_2.replace("seen_at REAL NOT NULL", "seen_at REAL NOT NULL, remote TEXT NOT NULL DEFAULT ''")
    .replace("at REAL,", "at REAL, owner TEXT NOT NULL DEFAULT '',")
    .replace("publication INTEGER NOT NULL", "publication INTEGER NOT NULL, owner TEXT NOT NULL DEFAULT ''")
    .replace("INTO peer VALUES", "INTO peer (peer, identity, seen_at) VALUES")
)
"""Store of version 3, without marks and checksums."""


@async_test
async def test_store_of_version_3_is_upgraded_with_checksums(tmp_path: Path) -> None:
    path = tmp_path / "s"
    run_sql(path, *VERSION_3.split(";"), f"PRAGMA application_id = {schema.APPLICATION_ID}", "PRAGMA user_version = 3")
    expected = content_of_version_2()
    assert content(path) == expected
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    assert connection.execute("SELECT count(*) FROM mark WHERE name IN ('store', 'run', 'closed')").fetchone() == (3,)
    connection.close()
    assert content(path) == expected
    run_sql(path, "UPDATE retained SET word = x'32'")
    with pytest.raises(StoreError, match=r'table retained, topic \["t"\]: the record does not match its checksum'):
        content(path)


def write_newer_store(path: Path) -> None:
    run_sql(path, f"PRAGMA application_id = {schema.APPLICATION_ID}", f"PRAGMA user_version = {schema.VERSION + 1}")


def run_sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


INVALID_FILES: list[tuple[str, Callable[[Path], object], str]] = [
    (
        "newer",
        write_newer_store,
        "was written by a newer Fiveways (store version 5, this hub supports 4): run the newer version",
    ),
    ("foreign", lambda path: run_sql(path, "CREATE TABLE a (b)"), "belongs to another program: choose another file"),
    (
        "foreign id",
        lambda path: run_sql(path, "PRAGMA application_id = 7"),
        "belongs to another program: choose another",
    ),
    ("garbage", lambda path: path.write_bytes(b"garbage " * 1000), "is not a Fiveways store, nor an SQLite file"),
    ("short", lambda path: path.write_bytes(b"x"), "is not a Fiveways store, nor an SQLite file"),
    ("folder", lambda path: path.mkdir(), "is a folder: choose a file in it"),
]


@pytest.mark.parametrize(
    ("make", "sentence"), [item[1:] for item in INVALID_FILES], ids=[item[0] for item in INVALID_FILES]
)
@async_test
async def test_other_file_is_refused_and_unchanged(
    tmp_path: Path, make: Callable[[Path], object], sentence: str
) -> None:
    path = tmp_path / "s"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StoreError) as caught:
        open_store(path)
    assert str(caught.value).startswith(f"{path} {sentence}")
    assert (path.read_bytes() if path.is_file() else b"") == before


@async_test
async def test_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be opened as a store"):
        open_store(tmp_path / "file" / "s")


@async_test
async def test_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"")
    await write_and_close(tmp_path / "s", PutRequest("p", "k", b"", LATER))
    assert len(content(tmp_path / "s").requests) == 1


@async_test
async def test_damaged_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    await write_and_close(path, *(PutRequest("p", str(number), bytes(1000), LATER) for number in range(50)))
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xa5" * (len(data) - 8192)
    path.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged"):
        content(path)


@async_test
async def test_second_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    sentence = "is in use: another process has opened this store; stop that process"
    with child("hold", path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match=sentence):
            open_store(path)
        holder.kill()
    store = open_store(path)
    with child("hold", path) as process:
        _, err = process.communicate()
    with pytest.raises(StoreError, match=sentence):
        open_store(path)
    store.close()
    assert sentence in err


@pytest.mark.parametrize(("name", "mode"), [("", 0o000), ("s", 0o000), ("s", 0o444)])
def test_missing_permission_is_an_error(name: str, mode: int) -> None:
    # Other users cannot enter tmp_path.
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        folder.chmod(0o755)
        asyncio.run(write_and_close(folder / "s", PutRequest("p", "k", b"", LATER)))
        (folder / name).chmod(mode)
        try:
            with child("denied", folder / "s") as process:
                out, err = process.communicate()
        finally:
            folder.chmod(0o700)
    assert out.startswith(f"{folder / 's'} cannot be opened ([Errno 13] Permission denied"), err
    assert "the hub needs" in out
