"""`fiveways` that makes a few of the tables only, for tests that ask how they are made and not what is in them.

python -m tests.pipeline.few pipeline run ...
"""

import sys
from collections.abc import Callable
from typing import Final

from fiveways.pipeline import making
from fiveways.pipeline.tables import TABLES

NAMES: Final = ("messages", "quarantine", "late", "_activity", "calls", "orphans", "sessions", "slo")


def narrow(setattr_: Callable[[object, str, object], None] = setattr) -> None:
    """Let no others be made in this process, until `setattr_` is undone."""
    setattr_(making, "TABLES", {name: TABLES[name] for name in NAMES})


def shown(tables: dict[str, list[tuple[object, ...]]]) -> dict[str, list[tuple[object, ...]]]:
    """Return those of all tables that are made here too."""
    return {name: rows for name, rows in tables.items() if name in NAMES}


if __name__ == "__main__":
    from fiveways.cli import main

    narrow()
    sys.exit(main())
