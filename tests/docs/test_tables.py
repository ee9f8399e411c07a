"""Tables of the docs agree with the code."""

import json
import re
from operator import attrgetter

import pytest

from fiveways.errors import Reason
from fiveways.protocols import registry
from fiveways.protocols.base import ProtocolSpec
from tests.support import vectors
from tests.support.paths import ROOT

every_protocol = pytest.mark.parametrize("spec", registry.all_specs(), ids=attrgetter("name"))


def readme(spec: ProtocolSpec) -> str:
    return (vectors.folder_of(spec).parent / "README.md").read_text(encoding="utf-8")


def short(rule: str) -> str:
    """Return the short form of a rule, as lists of rules have it."""
    return f"**{rule.rpartition('-')[2]}**"


def failure_rows() -> list[str]:
    rows = json.loads((ROOT / "tests/conformance/vectors/failures.json").read_text(encoding="utf-8"))
    columns = ("umq36", "umq", "lrpm", "mqtt", "nq")
    cells = [[Reason[row["reason"]].value, row["ran"], *(row[each] or "-" for each in columns)] for row in rows]
    return [f"| {' | '.join(map(str, row))} |" for row in cells]


def test_table_of_failures_is_the_tested_one() -> None:
    page = (ROOT / "docs/crossing.md").read_text(encoding="utf-8")
    table = page[page.index("## Failures") :].splitlines()[4:]
    assert table[: len(Reason)] == failure_rows()


@every_protocol
def test_readme_explains_every_rule_of_its_vectors(spec: ProtocolSpec) -> None:
    page = readme(spec)
    rules = {vector.entry["rule"] for vector in vectors.load(spec)}
    examples = {rule for rule in rules if "-x" in rule}
    assert [rule for rule in sorted(rules - examples) if rule not in page and short(rule) not in page] == []


@every_protocol
def test_readme_names_every_message_and_state(spec: ProtocolSpec) -> None:
    page = readme(spec)
    missing = [name for name in spec.messages if not re.search(rf"\b{name}\b", page)]
    missing += [state.name for state in spec.states if state.name not in page and state.value not in page]
    assert missing == []
