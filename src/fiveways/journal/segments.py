"""Segments of a journal in a directory, or under a URL that pyarrow supports."""

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
    """Empty if no hub wrote the file."""
    number: int
    path: str
    """The directory as it was given, and the name of the file."""
    size: int
    is_closed: bool

    @property
    def name(self) -> str:
        """The name of the file without its suffix."""
        return self.path.rpartition("/")[2].removesuffix(CLOSED_SUFFIX).removesuffix(OPEN_SUFFIX)


def resolve_filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URL, and the path in that file system."""
    if "://" not in path:
        return fs.LocalFileSystem(), path
    try:
        resolved: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path)
    except (ArrowException, ValueError, OSError) as exc:
        raise JournalError(f"{path} cannot be accessed: {exc}") from exc
    return resolved


def segment_name(run: str, number: int) -> str:
    """Return the name of a segment; the segments of a run sort by name up to number 999999."""
    return f"{run}-{number:06}"


def list_segments(directory: str) -> list[Segment]:
    """Return the segments of a journal, by run and number; files with other names come first.

    During its conversion, a segment briefly exists as open and as closed; it is listed once, as closed.
    """
    by_name = {
        segment.name: segment for segment in sorted(_scan_directory(directory), key=lambda segment: segment.is_closed)
    }
    return sorted(by_name.values())


def require_segments(directory: str) -> list[Segment]:
    """Return the segments of a journal; JournalError if there are none."""
    segments = list_segments(directory)
    if not segments:
        raise JournalError(f"there is no journal in {directory}: it has no segments")
    return segments


def _scan_directory(directory: str) -> Iterator[Segment]:
    system, root = resolve_filesystem(directory)
    try:
        infos = system.get_file_info(fs.FileSelector(root))
    except FileNotFoundError:
        raise JournalError(f"directory {directory} does not exist") from None
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
        match = _SEGMENT_NAME.fullmatch(name.removesuffix(CLOSED_SUFFIX if is_closed else OPEN_SUFFIX))
        run, number = (match["run"], int(match["number"])) if match else ("", 0)
        yield Segment(run, number, f"{directory.rstrip('/')}/{name}", info.size, is_closed)
