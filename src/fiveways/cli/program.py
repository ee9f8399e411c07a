"""The command that started this program, for commands that are printed for users to type."""

import os
import shutil
import sys
from pathlib import Path


def program_command() -> str:
    """Return the command that starts this program: its name if the shell finds it, else its path."""
    path = Path(sys.argv[0])
    if path.parts[-2:] == ("fiveways", "__main__.py"):
        return f"{_python()} -m fiveways"
    on_path = shutil.which("fiveways")
    if path.name != "fiveways" or (on_path is not None and Path(on_path).resolve() == path.resolve()):
        return "fiveways"
    return os.path.relpath(path)


def _python() -> str:
    """Return the command that starts this Python.

    Links are not followed, because they distinguish virtual environments.
    """
    path = Path(sys.executable)
    on_path = shutil.which(path.name)
    return path.name if on_path is not None and Path(on_path) == path else os.path.relpath(path)
