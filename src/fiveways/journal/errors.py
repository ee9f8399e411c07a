"""Errors of the journal."""

from fiveways.errors import FivewaysError


class JournalError(FivewaysError):
    """The journal cannot be written or read."""


class BadSegment(JournalError):
    """A segment cannot be read; the text names the file and, if known, the column."""
