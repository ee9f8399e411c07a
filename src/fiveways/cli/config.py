"""`fiveways config`: settings before they are used."""

import os
from pathlib import Path

from fiveways.cli.errors import print_stderr
from fiveways.settings.docs import render_toml
from fiveways.settings.load import read_settings
from fiveways.settings.secret_strength import weak_secrets
from fiveways.settings.sources import SettingsError


def check(file: Path) -> None:
    """Say that a file is good; SettingsError says what is not."""
    loaded = read_settings(file, os.environ)
    if found := list(weak_secrets(loaded.settings)):
        raise SettingsError("; ".join(found), source=str(file))
    for warning in loaded.warnings:
        print_stderr(f"fiveways config: {warning}")
    count = len(loaded.locations)
    sets = f"{count} setting{'' if count == 1 else 's'}"
    print(f"{file} is good; with the environment it sets {sets}")  # noqa: T201


def show(file: Path | None, *, docs: bool) -> None:
    """Print all settings, secrets as `***`."""
    print(render_toml(read_settings(file, os.environ), docs=docs))  # noqa: T201
