"""Stopped processes, for tests of their peers."""

import os
import signal


def freeze(pid: int) -> None:
    """Stop a child process (SIGSTOP) and return after it has stopped; its descriptors stay open.

    Without waiting, its threads could still run for a moment on another core.
    """
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)


def thaw(pid: int) -> None:
    """Continue a stopped process."""
    os.kill(pid, signal.SIGCONT)
