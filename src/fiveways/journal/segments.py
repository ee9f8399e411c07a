"""Where a journal lies: a directory, or a URL that pyarrow knows how to reach."""

import re
from collections.abc import Iterator

import msgspec
from pyarrow import ArrowException, fs

from fiveways.journal.errors import JournalError
from fiveways.journal.suffixes import CLOSED_SUFFIX, OPEN_SUFFIX

_SEGMENT_NAME = re.compile(r"(?P<run>.+)-(?P<number>\d{6,})")


class Segment(msgspec.Struct, frozen=True, order=True):
    """One file of a journal."""

    run: str
    """Empty if its name is not one that a hub gives."""
    number: int
    path: str
    """As `directory` was written, with the file's name behind it."""
    size: int
    is_closed: bool

    @property
    def name(self) -> str:
        """Return the file's name, without the end that says whether it is closed."""
        return self.path.rpartition("/")[2].removesuffix(CLOSED_SUFFIX).removesuffix(OPEN_SUFFIX)


def resolve_filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URL, and the path there."""
    if "://" not in path:
        return fs.LocalFileSystem(), path
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path)
    except (ArrowException, ValueError, OSError) as exc:
        raise JournalError(f"{path} cannot be reached: {exc}") from exc
    return found


def segment_name(run: str, number: int) -> str:
    """Return what a segment is called: by its name, those of a run are in order."""
    return f"{run}-{number:06}"


def list_segments(directory: str) -> list[Segment]:
    """Return the segments of a journal, by run and number; files of other names come first, by name.

    A segment that is being closed is there twice for a moment; it is told once, as closed.
    """
    found = {each.name: each for each in sorted(_scan_directory(directory), key=lambda each: each.is_closed)}
    return sorted(found.values())


def require_segments(directory: str) -> list[Segment]:
    """Return the segments of a journal; JournalError if there are none."""
    found = list_segments(directory)
    if not found:
        raise JournalError(f"there is no journal in {directory}: it holds no segments")
    return found


def _scan_directory(directory: str) -> Iterator[Segment]:
    system, root = resolve_filesystem(directory)
    try:
        infos = system.get_file_info(fs.FileSelector(root))
    except FileNotFoundError:
        raise JournalError(f"there is no directory {directory}") from None
    except NotADirectoryError:
        raise JournalError(f"{directory} is a file, not the directory of a journal") from None
    except OSError as exc:
        raise JournalError(f"{directory} cannot be read: {exc}") from exc
    for info in infos:
        name = info.base_name
        if (
            info.type != fs.FileType.File
            or name.startswith((".", "_"))
            or not name.endswith((CLOSED_SUFFIX, OPEN_SUFFIX))
        ):
            continue
        is_closed = name.endswith(CLOSED_SUFFIX)
        ours = _SEGMENT_NAME.fullmatch(name.removesuffix(CLOSED_SUFFIX if is_closed else OPEN_SUFFIX))
        run, number = (ours["run"], int(ours["number"])) if ours else ("", 0)
        yield Segment(run, number, f"{directory.rstrip('/')}/{name}", info.size, is_closed)
