"""Exceptions of the pipeline."""

from fiveways.errors import FivewaysError


class PipelineError(FivewaysError):
    """A pipeline command failed; the existing tables are unchanged."""


class SparkUnavailable(PipelineError):
    """Spark or Java is missing or does not start; the text says how to install it."""


class SparkFailed(PipelineError):
    """Spark failed during a job; the text names the cause and the file with Spark's log."""


class BadInput(PipelineError):
    """The journal cannot be read; the text names the file and, if known, the column."""


class TablesLocked(PipelineError):
    """Another run is writing the same tables."""
