"""Output directory of the tables, replaced as a whole in one step.

The next tables are built beside it in `.NAME.next`, where unchanged files are hard links. A run that dies leaves the
tables unchanged; the next run removes its remains.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from fiveways.journal.file_permissions import OWNER_ONLY, FilePermissions
from fiveways.pipeline import state
from fiveways.pipeline.errors import PipelineError, TablesLocked
from fiveways.pipeline.state import STATE_FILE, PipelineState

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_UNSUPPORTED: Final = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}
PARQUET_SUFFIX: Final = ".parquet"


class TableDirectory:
    """Existing tables and the next ones."""

    def __init__(self, path: Path, access: FilePermissions = OWNER_ONLY) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100  keep a symbolic link to a directory
        self._access = access
        self._parent = self.path.parent
        self.next_path = self._parent / f".{self.path.name}.next"
        self._old_path = self._parent / f".{self.path.name}.old"
        self._lock = self._parent / f".{self.path.name}.lock"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the directory and remove the remains of a dead run; raise TablesLocked if another run has the lock."""
        try:
            self._parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise PipelineError(f"cannot write {self.path}: {exc.strerror}") from exc
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                owner = os.read(handle, 20).decode(errors="replace").strip()
                raise TablesLocked(f"another run is writing {self.path} (process {owner or 'unknown'})") from exc
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            self._recover()
            self._check_ownership()
            yield
        finally:
            os.close(handle)

    def _recover(self) -> None:
        """Undo a half-done replacement, and remove temporary directories."""
        if self._old_path.exists() and not self.path.exists():
            self._old_path.rename(self.path)
        _remove_tree(self._old_path)
        _remove_tree(self.next_path)

    def _check_ownership(self) -> None:
        """Refuse to replace a directory with other content, which would be lost."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise PipelineError(f"{self.path} is not a directory")
        if any(self.path.iterdir()) and not (self.path / STATE_FILE).is_file():
            raise PipelineError(f"{self.path} has files that are not tables of Fiveways; choose an empty directory")

    def read_state(self) -> PipelineState | None:
        """Return the state of the existing tables; None if there are none or they are of another version."""
        try:
            return state.decode((self.path / STATE_FILE).read_bytes())
        except FileNotFoundError:
            return None

    def begin_next(self) -> None:
        """Create an empty directory for the next tables."""
        _remove_tree(self.next_path)
        self._access.make_directory(self.next_path)

    def carry_over(self, table: str, names: Iterable[str]) -> None:
        """Carry over files of a table unchanged."""
        folder = self.next_path / table
        folder.mkdir(exist_ok=True)
        for name in names:
            source, target = self.path / table / name, folder / name
            try:
                target.hardlink_to(source)
            except OSError as exc:
                if exc.errno not in {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK}:
                    raise
                shutil.copyfile(source, target)

    def files(self, table: str) -> list[str]:
        """Return the file names of an existing table."""
        try:
            return sorted(path.name for path in (self.path / table).iterdir() if path.name.endswith(PARQUET_SUFFIX))
        except FileNotFoundError:
            return []

    def complete_table(self, table: str, schema: pa.Schema) -> int:
        """Return the row count of a next table; a table without rows gets an empty file with its schema."""
        folder = self.next_path / table
        folder.mkdir(exist_ok=True)
        files = [path for path in folder.iterdir() if path.name.endswith(PARQUET_SUFFIX)]
        if not files:
            parquet.write_table(schema.empty_table(), folder / f"empty{PARQUET_SUFFIX}", store_schema=False)
        return sum(parquet.read_metadata(path).num_rows for path in files)

    def sum_column(self, table: str, column: str) -> int:
        """Return the sum of a column that is mostly 0; files with only zeros are not read."""
        files = [path for path in (self.next_path / table).iterdir() if path.name.endswith(PARQUET_SUFFIX)]
        return sum(_sum(path, column) for path in files)

    def commit(self, next_state: PipelineState) -> None:
        """Replace the existing tables by the next ones."""
        file = self.next_path / STATE_FILE
        with file.open("wb") as out:
            out.write(state.encode(next_state))
            out.flush()
            os.fsync(out.fileno())
        self._access.apply_to_tree(self.next_path)
        _fsync_directory(self.next_path)
        if self.path.exists():
            if not _exchange_directories(self.next_path, self.path):
                self.path.rename(self._old_path)
                self.next_path.rename(self.path)
        else:
            self.next_path.rename(self.path)
        _fsync_directory(self._parent)
        _remove_tree(self.next_path)
        _remove_tree(self._old_path)


def _sum(path: Path, column: str) -> int:
    with parquet.ParquetFile(path) as file:
        index = file.schema_arrow.get_field_index(column)
        groups = (file.metadata.row_group(number).column(index) for number in range(file.num_row_groups))
        if all(group.is_stats_set and group.statistics.has_min_max and group.statistics.max == 0 for group in groups):
            return 0
        return int(pc.sum(file.read(columns=[column]).column(column)).as_py() or 0)


def _exchange_directories(one: Path, other: Path) -> bool:
    """Exchange two directories atomically; return False if the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(other))


def _fsync_directory(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_tree(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)
