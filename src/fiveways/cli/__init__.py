"""The command line: `fiveways serve`, `call`, `publish`, `subscribe`, `push`, `pull`, `check` and so on.

Modules import the hub and the client inside functions, which keeps help and shell completion fast.
"""

from fiveways.cli.root import main

__all__ = ["main"]
