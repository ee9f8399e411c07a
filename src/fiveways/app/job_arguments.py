"""The argument of a worker function: the data of a job, checked against its annotation, or the job itself."""

from collections.abc import Callable
from typing import Any

from fiveways.app.arguments import BoundArguments
from fiveways.app.context import Context
from fiveways.app.conversion import decode
from fiveways.app.jobs import Job
from fiveways.app.signature import REQUIRED, Parameter, read_signature


class JobArgumentReader:
    """The reader for one worker function.

    Raises:
        TypeError: the function does not take one argument, or its annotation cannot be checked.
    """

    def __init__(self, function: Callable[..., object], label: str) -> None:
        self._signature = found = read_signature(function, label, unchecked=(Job,))
        parameters = [*found.positional, *found.keyword_only]
        required = [each for each in parameters if each.default is REQUIRED]
        candidates = required or found.positional
        if not candidates or len(required) > 1 or found.stream is not None:
            raise TypeError(f"{label}: the function must take one argument: a Job, or its data")
        self._job_parameter: Parameter = candidates[0]
        self.wants_context = found.context is not None

    def read(self, job: Job, context: Context | None) -> BoundArguments:
        """Return the arguments for a job; BadValue if its data does not fit the annotation."""
        found, wanted = self._signature, self._job_parameter
        value = job if wanted.type is Job else _decode(job.data, wanted.type)
        args = [value if each is wanted else each.default for each in found.positional]
        named = {wanted.name: value} if wanted in found.keyword_only else {}
        if found.context is not None:
            if found.context.position is None:
                named[found.context.name] = context
            else:
                args.insert(found.context.position, context)
        return args, named


def _decode(data: object, kind: Any) -> object:  # noqa: ANN401  # an annotation may be a union as well
    return data if kind is object or kind is Any else decode(data, kind)
