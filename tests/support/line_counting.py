"""The work of a piece of code as a number of instructions, which does not depend on the machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def instructions(work: Callable[[], object]) -> int:
    """Return the number of bytecode instructions that a function executes."""
    count = 0

    def trace(frame: FrameType, event: str, _arg: object) -> Any:  # noqa: ANN401  required by `sys.settrace`
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
