"""`fiveways config`: settings before they are used."""

import os
from pathlib import Path

from fiveways.cli.endings import tell
from fiveways.settings.docs import as_toml
from fiveways.settings.file import SettingsError
from fiveways.settings.load import read
from fiveways.settings.strength import weak


def check(file: Path) -> None:
    """Say that a file is good; SettingsError says what is not."""
    loaded = read(file, os.environ)
    if found := list(weak(loaded.settings)):
        raise SettingsError("; ".join(found), place=str(file))
    for warning in loaded.warnings:
        tell(f"fiveways config: {warning}")
    count = len(loaded.places)
    sets = f"{count} setting{'' if count == 1 else 's'}"
    print(f"{file} is good; with the environment it sets {sets}")  # noqa: T201


def show(file: Path | None, *, docs: bool) -> None:
    """Print all settings, secrets as `***`."""
    print(as_toml(read(file, os.environ), docs=docs))  # noqa: T201
