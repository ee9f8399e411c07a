"""The directory of the tables: whole at every moment, exchanged for the next one in a single step.

The next tables are made beside it, in `.NAME.next`, where what stays the same is linked and not copied. A run that
dies leaves the tables as they were, and what it left behind is cleared by the next one.
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

from fiveways.journal.access import PRIVATE, Access
from fiveways.pipeline import state
from fiveways.pipeline.errors import Busy, PipelineError
from fiveways.pipeline.state import RUN_FILE, State

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_NOT_OFFERED: Final = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}
END: Final = ".parquet"


class Output:
    """The tables that are there, and the next ones."""

    def __init__(self, path: Path, access: Access = PRIVATE) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100  a link to a directory stays one
        self._access = access
        self._beside = self.path.parent
        self.next = self._beside / f".{self.path.name}.next"
        self._old = self._beside / f".{self.path.name}.old"
        self._lock = self._beside / f".{self.path.name}.lock"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from making the same tables; Busy if somebody does. What a dead run left is cleared."""
        try:
            self._beside.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise PipelineError(f"{self.path} cannot be written: {exc.strerror}") from exc
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                owner = os.read(handle, 20).decode(errors="replace").strip()
                raise Busy(f"another run is at work on {self.path} (process {owner or 'unknown'})") from exc
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            self._restore()
            self._refuse_foreign()
            yield
        finally:
            os.close(handle)

    def _restore(self) -> None:
        """Put back what an exchange in two steps left half done, and clear the rest."""
        if self._old.exists() and not self.path.exists():
            self._old.rename(self.path)
        _clear(self._old)
        _clear(self.next)

    def _refuse_foreign(self) -> None:
        """Refuse to replace a directory that is not ours: all in it would be lost."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise PipelineError(f"{self.path} is no directory")
        if any(self.path.iterdir()) and not (self.path / RUN_FILE).is_file():
            raise PipelineError(f"{self.path} holds other things than tables of ours; give an empty directory")

    def state(self) -> State | None:
        """Return what the tables that are there were made from; None if there are none, or of another version."""
        try:
            return state.decode((self.path / RUN_FILE).read_bytes())
        except FileNotFoundError:
            return None

    def begin(self) -> None:
        """Begin with the next tables."""
        _clear(self.next)
        self._access.make_directory(self.next)

    def keep(self, table: str, names: Iterable[str]) -> None:
        """Take over files of a table as they are."""
        folder = self.next / table
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
        """Return the names of the files that a table has now."""
        try:
            return sorted(each.name for each in (self.path / table).iterdir() if each.name.endswith(END))
        except FileNotFoundError:
            return []

    def complete(self, table: str, schema: pa.Schema) -> int:
        """Return how many rows the next table has. One without any gets a file that says its columns."""
        folder = self.next / table
        folder.mkdir(exist_ok=True)
        files = [each for each in folder.iterdir() if each.name.endswith(END)]
        if not files:
            parquet.write_table(schema.empty_table(), folder / f"empty{END}", store_schema=False)
        return sum(parquet.read_metadata(each).num_rows for each in files)

    def total(self, table: str, column: str) -> int:
        """Return the sum of a column of the next table that is 0 nearly everywhere: few files have to be read."""
        files = [each for each in (self.next / table).iterdir() if each.name.endswith(END)]
        return sum(_sum(each, column) for each in files)

    def finish(self, made: State) -> None:
        """Put the next tables in the place of those that are there."""
        file = self.next / RUN_FILE
        with file.open("wb") as out:
            out.write(state.encode(made))
            out.flush()
            os.fsync(out.fileno())
        self._access.give(self.next)
        _sync(self.next)
        if self.path.exists():
            if not _exchange(self.next, self.path):
                self.path.rename(self._old)
                self.next.rename(self.path)
        else:
            self.next.rename(self.path)
        _sync(self._beside)
        _clear(self.next)
        _clear(self._old)


def _sum(path: Path, column: str) -> int:
    with parquet.ParquetFile(path) as file:
        index = file.schema_arrow.get_field_index(column)
        groups = (file.metadata.row_group(number).column(index) for number in range(file.num_row_groups))
        if all(group.is_stats_set and group.statistics.has_min_max and group.statistics.max == 0 for group in groups):
            return 0
        return int(pc.sum(file.read(columns=[column]).column(column)).as_py() or 0)


def _exchange(one: Path, other: Path) -> bool:
    """Let two directories change their names in one step; False where the system has no such step."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_OFFERED:
        return False
    raise OSError(code, os.strerror(code), str(other))


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _clear(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)
