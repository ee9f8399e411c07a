"""How this program is typed, for commands that are printed to be typed."""

import os
import shutil
import sys
from pathlib import Path


def program_command() -> str:
    """Return how this program is started from here: by its name, where the shell finds it, else by its path."""
    path = Path(sys.argv[0])
    if path.parts[-2:] == ("fiveways", "__main__.py"):
        return f"{_python()} -m fiveways"
    found = shutil.which("fiveways")
    if path.name != "fiveways" or (found is not None and Path(found).resolve() == path.resolve()):
        return "fiveways"
    return os.path.relpath(path)


def _python() -> str:
    """Return how the shell starts this Python. Links are not followed: they tell one environment from another."""
    path = Path(sys.executable)
    found = shutil.which(path.name)
    return path.name if found is not None and Path(found) == path else os.path.relpath(path)
