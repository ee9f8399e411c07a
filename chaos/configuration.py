"""The configuration file of the hub under test: identities with tokens, limits, and the journal."""

import secrets
from pathlib import Path
from random import Random
from typing import Final

from chaos.work_queues import MAX_TRIES

VAULT: Final = "vault"
"""Registers `vault.open`; no other identity may register it."""
KEEPER: Final = "keeper"
"""May call `vault.open`; its token is never rotated."""
GUEST: Final = "guest"
"""May not call `vault.open`."""
FLUSH_INTERVAL: Final = 0.05
_OPEN_TO_ALL: Final = '["hub.*", "chaos.*"]'


class Configuration:
    """The configuration file; after `write`, the next start or reload applies it."""

    def __init__(self, folder: Path, random: Random, *, journal: bool) -> None:
        self.path = folder / "fiveways.toml"
        self.journal = folder / "journal" if journal else None
        self.fixed = {name: secrets.token_hex(24) for name in (VAULT, KEEPER, GUEST)}
        """Tokens that are never rotated, by identity."""
        self.owners: dict[str, str] = {}
        """Tokens that are rotated, by identity: one, or two during a rotation."""
        self.rate = 0
        self._random = random

    def write(self) -> None:
        """Replace the file; size and age of the journal's segments are chosen at random each time."""
        lines = ["[auth]", f"call = {_OPEN_TO_ALL}", 'offer = ["chaos.*"]', "max_failures = 0"]
        for name, token in (self.fixed | self.owners).items():
            lines += ["[[auth.identity]]", f'name = "{name}"', f'token = "{token}"']
            if name == GUEST:
                lines += [f"call = {_OPEN_TO_ALL}"]
            lines += [f'offer = ["{"vault" if name == VAULT else "chaos"}.*"]']
        lines += ["[limits]", f"rate = {self.rate}", f"max_tries = {MAX_TRIES}", "retry_delay = 0.1"]
        if self.journal is not None:
            segment_bytes = self._random.randrange(1 << 18, 1 << 22)
            segment_age = self._random.uniform(0.5, 5.0)
            lines += ["[journal]", f'path = "{self.journal}"', f"flush_interval = {FLUSH_INTERVAL}"]
            lines += [f"segment_bytes = {segment_bytes}", f"segment_age = {segment_age:.2f}"]
        new_file = self.path.with_suffix(".new")
        new_file.write_text("\n".join([*lines, ""]))
        new_file.replace(self.path)
