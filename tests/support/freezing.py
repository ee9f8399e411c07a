"""Processes that are made to stand still, for tests of what others do meanwhile."""

import os
import signal


def freeze(pid: int) -> None:
    """Let a child of this process do nothing more, with all that it has open; return when it does nothing.

    A signal alone is on its way for a while, in which another core may still run one of the child's threads.
    """
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)


def thaw(pid: int) -> None:
    """Let it go on."""
    os.kill(pid, signal.SIGCONT)
