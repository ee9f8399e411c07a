"""`fiveways config`: check and show settings."""

import os
from pathlib import Path

from fiveways.cli.errors import print_stderr
from fiveways.settings.docs import render_toml
from fiveways.settings.load import read_settings
from fiveways.settings.secret_strength import weak_secrets
from fiveways.settings.sources import SettingsError


def check(file: Path) -> None:
    """Check a configuration file together with the environment, and print the number of settings.

    Raises:
        SettingsError: a setting is invalid, or a secret is too weak.
    """
    loaded = read_settings(file, os.environ)
    if problems := list(weak_secrets(loaded.settings)):
        raise SettingsError("; ".join(problems), source=str(file))
    for warning in loaded.warnings:
        print_stderr(f"fiveways config: {warning}")
    count = len(loaded.locations)
    settings = f"{count} setting{'' if count == 1 else 's'}"
    print(f"{file} is valid; with the environment it sets {settings}")  # noqa: T201


def show(file: Path | None, *, docs: bool) -> None:
    """Print all settings as TOML, with secrets as `***`."""
    print(render_toml(read_settings(file, os.environ), docs=docs))  # noqa: T201
