"""What can go wrong with a store, as sentences for whoever runs the hub."""

import sqlite3
from pathlib import Path
from typing import Final

from fiveways.errors import FivewaysError

NOT_A_STORE: Final = "{path} is no store of Fiveways, nor any SQLite file: name another file, or move this one away"
REPAIR_HINT: Final = (
    "`fiveways store check {path}` lists the damage, `fiveways store repair {path}` saves the records that are readable"
)
_IN_USE: Final = "{path} is in use: another process has this store open; end that one first, or name another file"
_OPENING: Final = {
    "BUSY": _IN_USE,
    "NOTADB": NOT_A_STORE,
    "CORRUPT": "{path} is damaged ({exc}); " + REPAIR_HINT,
    "CANTOPEN": "{path} cannot be opened ({exc}): the hub must be allowed to read and write it, and its folder",
    "READONLY": "{path} cannot be written ({exc}): the hub must be allowed to write it, and its folder",
    "PERM": "{path} cannot be opened ({exc}): the hub must be allowed to read and write it, and its folder",
    "FULL": "{path} cannot be opened: no room is left on its disk; make some, and start again",
}
_WRITING: Final = {
    "FULL": "no room is left on its disk",
    "TOOBIG": "it is larger than a store can hold",
}


class StoreError(FivewaysError):
    """What should be kept is not, or a store cannot be opened; the sentence names the file."""

    def __init__(self, text: str, why: str = "", *, is_its_own: bool = False) -> None:
        super().__init__(text)
        self.reason = why
        """The same for those whom the file does not concern."""
        self.is_record_error = is_its_own
        """It is the record that cannot be written, now or later; others can."""
        self.damage = ""
        """The damage, without the ways out."""


def opening_error(path: Path, exc: sqlite3.Error | OSError) -> StoreError:
    """Return why a store could not be opened or read, and what to do about it."""
    usual = "{path} cannot be opened as a store: {exc}"
    return StoreError(_OPENING.get(_error_kind(exc), usual).format(path=path, exc=exc))


def in_use_error(path: Path) -> StoreError:
    """Return an error about a store that is open."""
    return StoreError(_IN_USE.format(path=path))


def damage_error(path: Path, text: str, other: str = "", kind: type[StoreError] = StoreError) -> StoreError:
    """Return an error about damage, with the ways out of it; `other` is one more."""
    error = kind(f"{text}; {REPAIR_HINT.format(path=path)}{other}")
    error.damage = text
    return error


def write_error(path: Path, exc: Exception) -> StoreError:
    """Return why a record could not be written."""
    why = _WRITING.get(_error_kind(exc), "")
    passing = isinstance(exc, sqlite3.OperationalError | OSError)
    return StoreError(f"it could not be kept in {path}: {why or exc}", why, is_its_own=not passing)


def _error_kind(exc: Exception) -> str:
    """Return SQLite's word for the kind of error: the second part of SQLITE_IOERR_WRITE."""
    if isinstance(exc, OverflowError):
        return "TOOBIG"
    if isinstance(exc, PermissionError):
        return "PERM"
    parts: list[str] = getattr(exc, "sqlite_errorname", "").split("_")
    return parts[1] if len(parts) > 1 else ""
