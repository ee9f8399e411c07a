"""Arguments of a worker function: the job, or its data checked against the annotation."""

from collections.abc import Callable
from typing import Any

from fiveways.app.arguments import BoundArguments
from fiveways.app.context import Context
from fiveways.app.conversion import decode
from fiveways.app.jobs import Job
from fiveways.app.signature import REQUIRED, Parameter, read_signature


class JobArgumentReader:
    """Reads the arguments of one worker function.

    Raises:
        TypeError: the function does not take exactly one argument, or its annotation cannot be checked.
    """

    def __init__(self, function: Callable[..., object], label: str) -> None:
        self._signature = signature = read_signature(function, label, unchecked=(Job,))
        parameters = [*signature.positional, *signature.keyword_only]
        required = [parameter for parameter in parameters if parameter.default is REQUIRED]
        candidates = required or signature.positional
        if not candidates or len(required) > 1 or signature.stream is not None:
            raise TypeError(f"{label}: the function must take one argument: a Job, or its data")
        self._job_parameter: Parameter = candidates[0]
        self.wants_context = signature.context is not None

    def read(self, job: Job, context: Context | None) -> BoundArguments:
        """Return the arguments for a job; BadValue if its data does not fit the annotation."""
        signature, job_parameter = self._signature, self._job_parameter
        value = job if job_parameter.type is Job else _decode(job.data, job_parameter.type)
        args = [value if item is job_parameter else item.default for item in signature.positional]
        keywords = {job_parameter.name: value} if job_parameter in signature.keyword_only else {}
        if signature.context is not None:
            if signature.context.position is None:
                keywords[signature.context.name] = context
            else:
                args.insert(signature.context.position, context)
        return args, keywords


def _decode(data: object, kind: Any) -> object:  # noqa: ANN401  # an annotation may be a union
    return data if kind is object or kind is Any else decode(data, kind)
