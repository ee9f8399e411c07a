"""Output directory of the tables, without Spark."""

import grp
import os
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from fiveways.journal.file_permissions import permissions_for_group
from fiveways.pipeline import table_directory
from fiveways.pipeline.errors import PipelineError, TablesLocked
from fiveways.pipeline.state import PipelineState
from fiveways.pipeline.table_directory import TableDirectory

SCHEMA = pa.schema([("n", pa.int64())])


def commit_table(out: TableDirectory, name: str, *kept: str) -> None:
    out.begin_next()
    out.carry_over("t", kept)
    parquet.write_table(pa.table({"n": [1]}), out.next_path / "t" / f"{name}.parquet")
    out.commit(PipelineState(journal=name))


def test_carried_over_files_are_linked_and_others_are_deleted(tmp_path: Path) -> None:
    out = TableDirectory(tmp_path / "out")
    with out.lock():
        commit_table(out, "a")
        inode = (out.path / "t" / "a.parquet").stat().st_ino
        commit_table(out, "b", "a.parquet")
        assert out.files("t") == ["a.parquet", "b.parquet"]
        assert (out.path / "t" / "a.parquet").stat().st_ino == inode
        commit_table(out, "c", "b.parquet")
    assert out.files("t") == ["b.parquet", "c.parquet"]
    state = out.read_state()
    assert state is not None
    assert state.journal == "c"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.lock", "out"]


def modes(folder: Path) -> set[tuple[bool, int]]:
    paths = [folder, *folder.rglob("*")]
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in paths}


def test_tables_are_private_unless_a_group_is_set(tmp_path: Path) -> None:
    private = TableDirectory(tmp_path / "out")
    with private.lock():
        commit_table(private, "a")
        assert modes(private.path) == {(True, 0o700), (False, 0o600)}
    group = grp.getgrgid(max(os.getgroups(), default=os.getegid())).gr_name
    shared = TableDirectory(tmp_path / "out", permissions_for_group(group))
    with shared.lock():
        commit_table(shared, "b", "a.parquet")
    assert modes(shared.path) == {(True, 0o2750), (False, 0o640)}
    assert {path.group() for path in [shared.path, *shared.path.rglob("*")]} == {group}


def test_dead_run_leaves_tables_and_its_remains_are_removed(tmp_path: Path) -> None:
    out = TableDirectory(tmp_path / "out")
    with out.lock():
        commit_table(out, "a")
        out.begin_next()
        out.carry_over("t", ["a.parquet"])
        (out.next_path / "t" / "half.parquet").write_bytes(b"PAR1")
    assert out.files("t") == ["a.parquet"]
    again = TableDirectory(tmp_path / "out")
    with again.lock():
        assert not again.next_path.exists()
        assert again.files("t") == ["a.parquet"]


def test_two_renames_replace_an_unsupported_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_directory, "_exchange_directories", lambda *_: False)
    out = TableDirectory(tmp_path / "out")
    with out.lock():
        commit_table(out, "a")
        commit_table(out, "b")
    assert out.files("t") == ["b.parquet"]
    assert not (tmp_path / ".out.old").exists()


def test_interrupted_replacement_is_recovered(tmp_path: Path) -> None:
    out = TableDirectory(tmp_path / "out")
    with out.lock():
        commit_table(out, "a")
    out.path.rename(tmp_path / ".out.old")
    with out.lock():
        assert out.files("t") == ["a.parquet"]


def test_second_run_is_rejected_while_locked(tmp_path: Path) -> None:
    first, second = TableDirectory(tmp_path / "out"), TableDirectory(tmp_path / "out")
    with (
        first.lock(),
        pytest.raises(TablesLocked, match=rf"another run is writing {tmp_path}/out \(process {os.getpid()}\)"),
        second.lock(),
    ):
        pass
    with second.lock():
        pass


def test_lock_of_killed_process_is_released(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from fiveways.pipeline.table_directory import TableDirectory\n"
        "with TableDirectory(Path(sys.argv[1])).lock(): os._exit(9)"
    )
    done = subprocess.run(  # noqa: S603  own code
        [sys.executable, "-c", code, str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        timeout=300,
    )
    assert done.returncode == 9
    with TableDirectory(tmp_path / "out").lock():
        pass


@pytest.mark.parametrize("is_file", [True, False])
def test_directory_with_other_content_is_not_replaced(tmp_path: Path, is_file: bool) -> None:
    path = tmp_path / "out"
    if is_file:
        path.write_text("mine")
    else:
        path.mkdir()
        (path / "thesis.txt").write_text("mine")
    with (
        pytest.raises(PipelineError, match="is not a directory" if is_file else "has files that are not tables"),
        TableDirectory(path).lock(),
    ):
        pass
    assert path.exists()


def test_empty_directory_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    out = TableDirectory(tmp_path / "out")
    with out.lock():
        assert out.read_state() is None
        commit_table(out, "a")
    assert out.files("t") == ["a.parquet"]


def test_table_without_rows_has_a_file_with_columns(tmp_path: Path) -> None:
    out = TableDirectory(tmp_path / "out")
    with out.lock():
        out.begin_next()
        assert out.complete_table("t", SCHEMA) == 0
        out.commit(PipelineState())
    assert parquet.read_table(out.path / "t").schema == SCHEMA


def test_state_of_another_version_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_run.json").write_text('{"version": 99}')
    assert TableDirectory(tmp_path / "out").read_state() is None
    (tmp_path / "out" / "_run.json").write_text("torn")
    assert TableDirectory(tmp_path / "out").read_state() is None
