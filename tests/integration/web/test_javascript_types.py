"""fiveways.d.ts declares the run-time content of fiveways.js: exports, members of classes, fields of results."""

import re
from typing import Any

from fiveways.errors import Execution, Reason
from tests.integration.web.engines import MODULE, Node, run
from tests.support.hubs import Hub

TEXT = MODULE.with_suffix(".d.ts").read_text(encoding="utf-8")
_BLOCK = re.compile(
    r"^export (class|interface) (\w+)(?:<[^>]*>)?(?: extends (\w+))?(?: implements [^{]*)? \{(?:\}$|\n(.*?)^\})",
    re.MULTILINE | re.DOTALL,
)
_MEMBER = re.compile(r"^  (?:static |readonly |get )*(\w+|\[Symbol\.\w+\])(?:<[^>]*>)?\??[(:]", re.MULTILINE)
_STANDARD = {"constructor", "name", "addEventListener", "removeEventListener"}


def declarations(kind: str) -> dict[str, set[str]]:
    """Return the declared members of all classes or interfaces, with those that they inherit from each other."""
    members_by_name: dict[str, set[str]] = {}
    for block in _BLOCK.finditer(TEXT):
        if block[1] == kind:
            members = set(_MEMBER.findall(block[4] or "")) - {"constructor"}
            members_by_name[block[2]] = members | members_by_name.get(block[3], set())
    return members_by_name


def union(name: str) -> set[str]:
    """Return the texts of a declared union type."""
    declared = re.search(rf"^export type {name} =(.*?);", TEXT, re.MULTILINE | re.DOTALL)
    assert declared is not None
    return set(re.findall(r'"(\w+)"', declared[1]))


def at_run_time(node: Node, hub: Hub) -> Any:  # noqa: ANN401  JSON
    declared = {name: sorted(members) for name, members in declarations("class").items()}
    return run(node, "declared", url=hub.url("lrpm+ws"), declared=declared)


def test_every_export_is_declared(node: Node, hub: Hub) -> None:
    values = set(re.findall(r"^export (?:class|function|const) (\w+)", TEXT, re.MULTILINE))
    assert set(at_run_time(node, hub)["exported"]) - {"declared"} == values


def test_members_of_classes_are_declared(node: Node, hub: Hub) -> None:
    classes = at_run_time(node, hub)["classes"]
    declared = declarations("class")
    assert classes.keys() == declared.keys()
    for name, members in classes.items():
        assert set(members["own"]) == declared[name] - _STANDARD, name
        assert declared[name] - {"[Symbol.asyncIterator]"} <= {*members["own"], *members["inherited"]}, name


def test_fields_of_results_and_options_are_declared(node: Node, hub: Hub) -> None:
    interfaces = at_run_time(node, hub)["interfaces"]
    declared = declarations("interface")
    assert len(interfaces) > 5
    assert {name: set(fields) for name, fields in interfaces.items()} == {name: declared[name] for name in interfaces}


def test_reasons_are_declared() -> None:
    assert union("Reason") == {reason.value for reason in Reason}
    assert union("Ran") == {execution.value for execution in Execution}
