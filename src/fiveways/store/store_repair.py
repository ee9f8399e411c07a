"""Check and repair of a store that is not open.

The files are copied before SQLite opens them, because SQLite would change them. A repair writes a new store with every
intact record, and keeps the damaged files under other names.
"""

import fcntl
import os
import shutil
import sqlite3
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fiveways.store import consistency_check, errors, integrity, marks, schema, store_file, wal
from fiveways.store.errors import StoreError
from fiveways.store.integrity import Row
from fiveways.store.state_file import StateFile, StoreInUse, state_path, wal_path

Decode = Callable[[str, Row], None]
_HEADER_SIZE: Final = 100
_MAX_PAGES: Final = 1 << 24
"""Maximum page number of a store: a frame with a higher one is damaged."""
_HEADER_START: Final = b"SQLite format 3\0\x10\x00\x02\x02\x00\x40\x20\x20"
"""First bytes of each store: file type, page size and constants."""
_SHARED_LOCK_RANGE: Final = (510, 0x40000002)
"""Byte range that SQLite locks in a database."""
_SUFFIXES: Final = ("", "-wal", "-state", "-shm", "-journal")
_ROW_KEYS: Final = {"peer": "peer", "log": "line", "item": "id", "retained": "id"}
_INSERT: Final = {
    name: f"INSERT OR IGNORE INTO {name} ({columns}) VALUES ({','.join('?' * (columns.count(',') + 1))})"  # noqa: S608
    for name, table in integrity.TABLES.items()
    for columns in [", ".join(filter(None, (table.fields, "sum", table.extra_columns)))]
}


@dataclass
class DamageReport:
    """Damage of a store, and its intact records."""

    damage: list[str] = field(default_factory=list)
    """Damage of files and records."""
    rows: dict[str, list[Row]] = field(default_factory=dict)
    """Intact records of each table."""
    lost: list[str] = field(default_factory=list)
    """Records and parts of tables that are not readable."""

    is_sound: bool = False
    """Whether SQLite found no damage in the structure of the database."""

    @property
    def record_count(self) -> int:
        """Number of intact records."""
        return sum(map(len, self.rows.values()))


def check_store(path: Path, decode: Decode = lambda _table, _row: None) -> DamageReport:
    """Return the damage of a store; StoreError if it is not a store, or in use. No file is changed.

    `decode` raises an exception for a row of a table that a hub could not use.
    """
    with _lock_store(path) as state, TemporaryDirectory(prefix="fiveways-store-") as folder:
        return _examine(path, state, Path(folder), decode)


def repair_store(path: Path, decode: Decode = lambda _table, _row: None) -> tuple[DamageReport, list[Path]]:
    """Replace a damaged store by one with all intact records; return the new paths of the damaged files."""
    new = path.with_name(f"{path.name}.repaired")
    with _lock_store(path) as state:
        with TemporaryDirectory(prefix="fiveways-store-") as folder:
            report = _examine(path, state, Path(folder), decode)
        for suffix in _SUFFIXES:
            new.with_name(f"{new.name}{suffix}").unlink(missing_ok=True)
        _write_store(new, report)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        moved = []
        for suffix in _SUFFIXES:
            old = path.with_name(f"{path.name}{suffix}")
            if old.exists():
                moved.append(old.rename(path.with_name(f"{path.name}.damaged-{stamp}{suffix}")))
        # While the database is missing, its state file prevents a hub from creating an empty store.
        state_path(new).rename(state_path(path))
        new.rename(path)
    return report, moved


@contextmanager
def _lock_store(path: Path) -> Iterator[StateFile | None]:
    """Lock a store against hubs."""
    with ExitStack() as stack:
        try:
            if not any(file.exists() for file in (path, wal_path(path), state_path(path))):
                raise StoreError(f"{path} is missing: choose the file of a store")
            if path.is_dir():
                raise StoreError(f"{path} is a folder: choose a file in it")
            if (state := StateFile.open(path)) is not None:
                stack.callback(state.close)
            if path.exists():
                handle = os.open(path, os.O_RDONLY)
                stack.callback(os.close, handle)
                fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB, *_SHARED_LOCK_RANGE)
        except (StoreInUse, BlockingIOError):
            raise errors.in_use_error(path) from None
        except OSError as exc:
            raise errors.opening_error(path, exc) from exc
        yield state


def _examine(path: Path, state: StateFile | None, folder: Path, decode: Decode) -> DamageReport:
    """Return the damage of a store, and the records of its newest sound image, or else of the one with most records."""
    damage: list[str] = []
    uses_wal = True
    try:
        consistency_check.check_files(path, None if state is None else state.state)
    except StoreError as exc:
        damage.append(exc.damage or str(exc))
        uses_wal = not isinstance(exc, consistency_check.ForeignWal)
    reports = []
    for image in _images(path, folder, uses_wal=uses_wal, is_damaged=bool(damage)):
        with closing(sqlite3.connect(image.path, isolation_level=None)) as connection:
            try:
                report = _read_image(path, connection, decode, is_whole=not damage)
            except StoreError:
                if not image.is_patched:  # a newer version, or another program
                    raise
                report = DamageReport()
        report.damage[:0] = image.damage
        reports.append(report)
    chosen = next((report for report in reports if report.is_sound), None) or max(
        reports, key=lambda report: report.record_count
    )
    chosen.damage[:0] = damage
    return chosen


@dataclass(frozen=True, slots=True)
class _Image:
    """Copy of a database."""

    path: Path
    damage: list[str]
    """Repairs that SQLite needed to read the copy."""
    is_patched: bool = False
    """Whether it contains frames that SQLite does not use."""


def _images(path: Path, folder: Path, *, uses_wal: bool, is_damaged: bool) -> Iterator[_Image]:
    """Yield copies of the database, newest first: with frames that SQLite ignores, then as SQLite sees it."""
    log = folder / "log"
    if uses_wal and wal_path(path).exists():
        shutil.copyfile(wal_path(path), log)
        with log.open("r+b") as copy:
            has_salts = wal.parse_salts(copy.read(wal.HEADER_STRUCT.size)) is not None
            if not has_salts and (header := wal.build_header(copy.read(wal.FRAME_STRUCT.size))):
                copy.seek(0)
                copy.write(header)
        if is_damaged:
            for name, only_good in (("all frames", False), ("good frames", True)):
                image = _copy(path, folder / name)
                _apply_wal(log, image.path, only_good=only_good)
                yield replace(image, is_patched=True)
    image = _copy(path, folder / "as it is")
    if log.exists() and log.stat().st_size:
        shutil.copyfile(wal_path(path), wal_path(image.path))
    else:
        image.damage.extend(_restore_size(path, image.path))
    yield image


def _copy(path: Path, image: Path) -> _Image:
    """Copy a database; replace a damaged header by that of a store."""
    damage: list[str] = []
    if not path.exists():
        image.touch()
        return _Image(image, damage)
    shutil.copyfile(path, image)
    with image.open("r+b") as copy:
        head = copy.read(_HEADER_SIZE)
        if len(head) == _HEADER_SIZE and not head.startswith(_HEADER_START[:16]):
            if head[68:72] != struct.pack(">I", schema.APPLICATION_ID) and not state_path(path).exists():
                raise StoreError(errors.NOT_A_STORE.format(path=path))
            pages = path.stat().st_size // wal.PAGE_BYTES
            numbers = (1, pages, 0, 0, 1, 4, 0, 0, 1, schema.VERSION, 0, schema.APPLICATION_ID, *(0,) * 5, 1, 0)
            copy.seek(0)
            copy.write(_HEADER_START + struct.pack(">19I", *numbers))
            if not wal_path(path).exists():
                damage.append(f"the header of {path} is damaged")
    return _Image(image, damage)


def _restore_size(path: Path, image: Path) -> Iterator[str]:
    """Extend a truncated database to the size in its header: SQLite reads no other."""
    with image.open("rb") as copy:
        head = copy.read(_HEADER_SIZE)
    if len(head) == _HEADER_SIZE:
        (pages,) = struct.unpack_from(">I", head, 28)
        size = image.stat().st_size
        if size < pages * wal.PAGE_BYTES and pages <= _MAX_PAGES:
            os.truncate(image, pages * wal.PAGE_BYTES)
            yield f"{path} has {size} bytes instead of {pages * wal.PAGE_BYTES}"


def _apply_wal(log: Path, image: Path, *, only_good: bool) -> None:
    """Write the frames of a WAL into a database, up to the last commit, even those that SQLite would ignore."""
    with log.open("rb") as source:
        frames = [frame for frame in wal.read_frames(source) if frame.is_checksum_valid or not only_good]
    last_commit = max((number for number, frame in enumerate(frames) if frame.database_pages), default=-1)
    with image.open("r+b") as target:
        for frame in frames[: last_commit + 1]:
            if 0 < frame.page <= _MAX_PAGES:
                target.seek((frame.page - 1) * len(frame.data))
                target.write(frame.data)


def _read_image(path: Path, connection: sqlite3.Connection, decode: Decode, *, is_whole: bool) -> DamageReport:
    """Read all records of an image."""
    report, own_marks = DamageReport(), None
    try:
        version = store_file.check_version(path, connection)
        if version == 0:
            return DamageReport([f"{path} has no tables"])
        if version < schema.VERSION:
            store_file.make_tables(connection, version)
        own_marks = marks.read_marks(connection)
    except sqlite3.Error as exc:
        report.damage.append(f"{path}: {exc}")
    expected = own_marks.totals if is_whole and own_marks is not None and own_marks.is_closed else None
    findings = list(integrity.find_damage(connection, expected))
    report.is_sound = all(finding.table for finding in findings)
    report.damage += [f"{path}: {finding}" for finding in findings]
    with integrity.tolerate_bad_utf8(connection):
        for name in integrity.TABLES:
            _read_table(connection, name, report)
            _drop_undecodable(path, name, decode, report)
    _report_orphans(report)
    return report


def _read_table(connection: sqlite3.Connection, name: str, report: DamageReport) -> None:
    """Read a table from both ends, as far as possible."""
    table, key = integrity.TABLES[name], _ROW_KEYS[name]
    good: list[Row] = []
    gap = ""
    for order in ("ASC", "DESC"):
        rows: list[Row] = []
        try:
            for row in integrity.read_rows(connection, name, f"NOT INDEXED ORDER BY {key} {order}"):
                if good and order == "DESC" and row == good[-1]:
                    break
                if table.is_intact(row):
                    rows.append(row)
                else:
                    report.lost.append(f"table {name}, {integrity.describe_row(table, row)}")
        except sqlite3.Error as exc:
            gap = str(exc)
        good += rows if order == "ASC" else rows[::-1]
        if not gap:
            break
    if gap:
        report.lost.append(f"table {name}: some records, in pages that cannot be read ({gap})")
    report.rows[name] = good


def _drop_undecodable(path: Path, name: str, decode: Decode, report: DamageReport) -> None:
    """Remove records that no hub could use."""
    good: list[Row] = []
    for row in report.rows[name]:
        try:
            decode(name, row)
        except Exception as exc:  # noqa: BLE001  any error of `decode` concerns this record
            record = f"table {name}, {integrity.describe_row(integrity.TABLES[name], row)}"
            report.damage.append(f"{path}: {record}: the record cannot be decoded ({exc})")
            report.lost.append(record)
        else:
            good.append(row)
    report.rows[name] = good


def _report_orphans(report: DamageReport) -> None:
    """Report intact requests and responses of lost peers."""
    if not any(record.startswith("table peer") for record in report.lost):
        return
    peers = {row[0] for row in report.rows["peer"]}
    orphans = Counter(row[2] for row in report.rows["log"] if row[2] not in peers and row[5] is not None)
    report.lost += [f"peer {peer}: {count} requests and responses of this peer" for peer, count in orphans.items()]


def _write_store(path: Path, report: DamageReport) -> None:
    """Write a new store with the intact records."""
    connection, state = store_file.connect(path)
    try:
        connection.execute("BEGIN")
        for name, rows in report.rows.items():
            connection.executemany(_INSERT[name], rows)
        connection.execute("COMMIT")
    finally:
        store_file.close(connection, state)
