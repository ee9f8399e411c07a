"""How much work a piece of code is, counted: the same on a slow machine as on a fast one."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def instructions(work: Callable[[], object]) -> int:
    """The instructions of Python that it takes."""
    count = 0

    def trace(frame: FrameType, event: str, _arg: object) -> Any:  # noqa: ANN401  as `sys.settrace` wants it
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
