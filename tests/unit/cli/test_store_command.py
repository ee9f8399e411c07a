"""`fiveways store check` and `fiveways store repair`."""

import asyncio
from pathlib import Path

import pytest

from fiveways.cli.root import main
from fiveways.model.store_changes import PutJob, PutPeer, PutRetained
from tests.support.damage_cases import sql
from tests.support.store_helpers import write_and_close


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "hub.db"
    jobs = [PutJob("jobs", number, b"1", 0) for number in (1, 2)]
    asyncio.run(write_and_close(path, PutPeer("p", "ann", 1.0), *jobs, PutRetained('["t"]', b"1", 1)))
    return path


HELD = "1 peers, 0 request records, 2 jobs in queues, 1 retained values"
INTACT = "1 peers, 0 request records, 1 jobs in queues, 1 retained values"


def test_check_of_intact_store_returns_0(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "check", str(store)]) == 0
    assert capsys.readouterr().out == f"{store} is ok: {HELD}\n"
    assert main(["store", "repair", str(store), "--yes"]) == 0
    assert capsys.readouterr().out == f"{store} is ok, no repair is needed: {HELD}\n"
    assert sorted(path.name for path in store.parent.iterdir()) == ["hub.db", "hub.db-state"]


def test_check_of_damaged_store_lists_damage_and_returns_1(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql("UPDATE item SET word = x'00' WHERE number = 2", "DELETE FROM retained")(store)
    assert main(["store", "check", str(store)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{store} is damaged:",
        f"  {store}: table item, number 2 of queue jobs: the record does not match its checksum",
        f"  {store}: table retained: it has 0 records, but had 1 others when the hub stopped",
        (
            "Readable: 1 peers, 0 request records, 1 jobs in queues, 0 retained values."
            f" `fiveways store repair {store}` shows the effect of a repair."
        ),
    ]


def test_repair_without_yes_changes_nothing(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql("UPDATE item SET word = x'00' WHERE number = 2")(store)
    before = store.read_bytes()
    assert main(["store", "repair", str(store)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        f"A repair would keep: {INTACT}",
        "Lost records, as far as they left a trace:",
        "  table item, number 2 of queue jobs",
        "Nothing was changed; --yes repairs the store.",
    ]
    assert store.read_bytes() == before
    assert main(["store", "repair", str(store), "--yes"]) == 0
    assert f"Kept: {INTACT}\n" in capsys.readouterr().out
    [damaged] = [path for path in store.parent.iterdir() if ".damaged-" in path.name and path.name[-1] == "Z"]
    assert damaged.read_bytes() == before
    assert main(["store", "check", str(store)]) == 0
    assert capsys.readouterr().out == f"{store} is ok: {INTACT}\n"


def test_store_of_the_configuration_is_checked(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = store.with_name("fiveways.toml")
    config.write_text(f'[store]\npath = "{store}"\n', encoding="utf-8")
    assert main(["store", "check", "--config", str(config)]) == 0
    monkeypatch.setenv("FIVEWAYS_CONFIG", str(config))
    assert main(["store", "check"]) == 0
    assert capsys.readouterr().out == f"{store} is ok: {HELD}\n" * 2


@pytest.mark.parametrize(
    ("make", "code", "sentence"),
    [
        (lambda _: None, 1, "is missing: choose the file of a store"),
        (lambda path: path.mkdir(), 1, "is a folder: choose a file in it"),
        (lambda path: path.write_bytes(b"garbage " * 1000), 1, "is not a Fiveways store, nor an SQLite file"),
        (sql("CREATE TABLE a (b)"), 1, "belongs to another program"),
    ],
)
def test_file_that_is_not_a_store_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: object, code: int, sentence: str
) -> None:
    assert callable(make)
    make(tmp_path / "s")
    for command in ("check", "repair"):
        assert main(["store", command, str(tmp_path / "s")]) == code
        assert f"fiveways store: {tmp_path / 's'} {sentence}" in capsys.readouterr().err


def test_missing_store_path_is_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "check"]) == 2
    assert "give the file of a store, or a configuration that sets store.path" in capsys.readouterr().err
