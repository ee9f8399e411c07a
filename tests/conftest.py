"""How all tests are run, and what every run says at its end."""

import pytest
from hypothesis import settings

from fiveways.protocols import registry
from tests.protocols import vectors

# A machine that is busy with other work makes no example wrong.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many vectors stand behind each protocol."""
    terminalreporter.section("vectors per protocol")
    for spec in registry.all_specs():
        entries = list(vectors.load(spec))
        dialogues = sum(each.is_dialogue for each in entries)
        codec = len(entries) - dialogues
        terminalreporter.write_line(f"{spec.name:10} {len(entries):4} ({codec} codec, {dialogues} dialogues)")
