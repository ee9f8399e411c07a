"""The sections that every run prints at its end."""

from collections import Counter
from collections.abc import Iterable

import pytest

from fiveways.protocols import registry
from tests.support import vectors


def skipped(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Return one line per reason of skipped tests, the most frequent one first."""
    reasons: Counter[str] = Counter()
    for report in reports:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[text.removeprefix("Skipped: ")] += 1
    lines = [f"{count} {'test' if count == 1 else 'tests'}: {reason}" for reason, count in reasons.most_common()]
    return lines or ["no test was skipped"]


def vectors_per_protocol() -> list[str]:
    """Return the number of vectors of each protocol."""
    lines = []
    for spec in registry.all_specs():
        entries = list(vectors.load(spec))
        dialogues = sum(vector.is_dialogue for vector in entries)
        codec = len(entries) - dialogues
        lines.append(f"{spec.name:10} {len(entries):4} ({codec} codec, {dialogues} dialogues)")
    return lines
