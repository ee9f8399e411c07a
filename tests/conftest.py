"""What every run of the tests says at its end."""

import pytest

from fiveways.protocols import registry
from tests.protocols import vectors


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many vectors stand behind each protocol."""
    terminalreporter.section("vectors per protocol")
    for spec in registry.all_specs():
        entries = list(vectors.load(spec))
        dialogues = sum(each.is_dialogue for each in entries)
        codec = len(entries) - dialogues
        terminalreporter.write_line(f"{spec.name:10} {len(entries):4} ({codec} codec, {dialogues} dialogues)")
