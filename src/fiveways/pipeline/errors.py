"""What can keep the pipeline from its tables."""

from fiveways.errors import FivewaysError


class PipelineError(FivewaysError):
    """The tables were not made; those of before are as they were."""


class SparkUnavailable(PipelineError):
    """Spark, or the Java it needs, is not here or does not start; the text says what to install."""


class SparkFailed(PipelineError):
    """Spark gave up in the middle of its work; the text says why, and where what it said is kept."""


class BadInput(PipelineError):
    """The journal cannot be read as it is; the text names the file, and the column if it is one."""


class TablesLocked(PipelineError):
    """Another run is at work on the same tables."""
