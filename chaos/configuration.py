"""The configuration file of the hub: identities and their tokens, limits, and the journal."""

import secrets
from pathlib import Path
from random import Random
from typing import Final

from chaos.work_queues import MAX_TRIES

VAULT: Final = "vault"
"""Serves `vault.open`; nobody else may offer it."""
KEEPER: Final = "keeper"
"""May call `vault.open`; its token stays."""
GUEST: Final = "guest"
"""May not call `vault.open`."""
FLUSH_INTERVAL: Final = 0.05
_OPEN_TO_ALL: Final = '["hub.*", "chaos.*"]'


class Configuration:
    """The settings of the file; `write` makes them hold from the next start or reload."""

    def __init__(self, folder: Path, random: Random, *, journal: bool) -> None:
        self.path = folder / "fiveways.toml"
        self.journal = folder / "journal" if journal else None
        self.fixed = {name: secrets.token_hex(24) for name in (VAULT, KEEPER, GUEST)}
        """The tokens of the identities that keep them."""
        self.owners: dict[str, str] = {}
        """The tokens that are rotated, by the name of their identity: one, or for a while two."""
        self.rate = 0
        self._random = random

    def write(self) -> None:
        """Replace the file; the size and the age of the journal's segments are others each time."""
        lines = ["[auth]", f"call = {_OPEN_TO_ALL}", 'offer = ["chaos.*"]', "max_failures = 0"]
        for name, token in (self.fixed | self.owners).items():
            lines += ["[[auth.identity]]", f'name = "{name}"', f'token = "{token}"']
            if name == GUEST:
                lines += [f"call = {_OPEN_TO_ALL}"]
            lines += [f'offer = ["{"vault" if name == VAULT else "chaos"}.*"]']
        lines += ["[limits]", f"rate = {self.rate}", f"max_tries = {MAX_TRIES}", "retry_delay = 0.1"]
        if self.journal is not None:
            size = self._random.randrange(1 << 18, 1 << 22)
            age = self._random.uniform(0.5, 5.0)
            lines += ["[journal]", f'path = "{self.journal}"', f"flush_interval = {FLUSH_INTERVAL}"]
            lines += [f"segment_bytes = {size}", f"segment_age = {age:.2f}"]
        made = self.path.with_suffix(".new")
        made.write_text("\n".join([*lines, ""]))
        made.replace(self.path)
