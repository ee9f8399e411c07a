"""Errors of a store, with texts for operators."""

import sqlite3
from pathlib import Path
from typing import Final

from fiveways.errors import FivewaysError

NOT_A_STORE: Final = "{path} is not a Fiveways store, nor an SQLite file: choose another file, or move this one away"
REPAIR_HINT: Final = (
    "`fiveways store check {path}` lists the damage, `fiveways store repair {path}` saves the records that are readable"
)
_IN_USE: Final = "{path} is in use: another process has opened this store; stop that process, or choose another file"
_OPENING: Final = {
    "BUSY": _IN_USE,
    "NOTADB": NOT_A_STORE,
    "CORRUPT": "{path} is damaged ({exc}); " + REPAIR_HINT,
    "CANTOPEN": "{path} cannot be opened ({exc}): the hub needs read and write access to the file and its folder",
    "READONLY": "{path} cannot be written ({exc}): the hub needs write access to the file and its folder",
    "PERM": "{path} cannot be opened ({exc}): the hub needs read and write access to the file and its folder",
    "FULL": "{path} cannot be opened: its disk is full; free some space and start again",
}
_WRITING: Final = {
    "FULL": "its disk is full",
    "TOOBIG": "it is larger than a store can hold",
}


class StoreError(FivewaysError):
    """A record was not stored, or a store cannot be opened; the text names the file."""

    def __init__(self, text: str, reason: str = "", *, is_record_error: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        """Reason without the file name, for clients."""
        self.is_record_error = is_record_error
        """The record itself cannot be written; others can."""
        self.damage = ""
        """Description of the damage without hints for a repair."""


def opening_error(path: Path, exc: sqlite3.Error | OSError) -> StoreError:
    """Return the error for a store that cannot be opened or read, with a hint."""
    default = "{path} cannot be opened as a store: {exc}"
    return StoreError(_OPENING.get(_error_kind(exc), default).format(path=path, exc=exc))


def in_use_error(path: Path) -> StoreError:
    """Return the error for a store that another process has opened."""
    return StoreError(_IN_USE.format(path=path))


def damage_error(path: Path, text: str, further_hint: str = "", kind: type[StoreError] = StoreError) -> StoreError:
    """Return the error for a damaged store, with hints for a repair; `further_hint` is one more."""
    error = kind(f"{text}; {REPAIR_HINT.format(path=path)}{further_hint}")
    error.damage = text
    return error


def write_error(path: Path, exc: Exception) -> StoreError:
    """Return the error for a record that cannot be written."""
    reason = _WRITING.get(_error_kind(exc), "")
    is_temporary = isinstance(exc, sqlite3.OperationalError | OSError)
    return StoreError(f"it was not stored in {path}: {reason or exc}", reason, is_record_error=not is_temporary)


def _error_kind(exc: Exception) -> str:
    """Return the kind of an SQLite error: the second part of names such as SQLITE_IOERR_WRITE."""
    if isinstance(exc, OverflowError):
        return "TOOBIG"
    if isinstance(exc, PermissionError):
        return "PERM"
    parts: list[str] = getattr(exc, "sqlite_errorname", "").split("_")
    return parts[1] if len(parts) > 1 else ""
