"""What can be wrong with a journal."""

from fiveways.errors import FivewaysError


class JournalError(FivewaysError):
    """The journal cannot be written, or is not what its name says."""


class BadSegment(JournalError):
    """A segment cannot be read; the text names the file, and the column if it is one."""
