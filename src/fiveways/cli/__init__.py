"""What the user types: `fiveways serve`, `call`, `publish`, `subscribe`, `push`, `pull`, `check` and so on.

Modules here import the hub and the client inside their functions, so that help and completion come at once.
"""

from fiveways.cli.root import main

__all__ = ["main"]
