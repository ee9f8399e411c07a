"""`fiveways held`: listing and purging stored records."""

import json
from collections.abc import Iterator

import pytest

from tests.support.command_output import CommandRunner
from tests.support.hubs import Hub, serving
from tests.support.terminals import Terminal

OWNER = "address 127.0.0.1"


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with serving("--set", 'auth.call=["*", "hub.purge"]') as running:
        yield running


def rows(hub: Hub, said: CommandRunner, *options: str) -> list[tuple[str, str, str, int]]:
    lines = map(json.loads, said("held", hub.url("lrpm"), *options).splitlines())
    return [(row["kind"], row["owner"], row["name"], row["count"]) for row in lines]


def fill(hub: Hub, said: CommandRunner, name: str) -> None:
    for number in range(3):
        said("push", hub.url("lrpm"), f"{name}.jobs", str(number))
    said("publish", hub.url("umq"), f"{name}.value", "1", "--retain")


def test_held_lists_by_owner_and_purges_only_selected_records(hub: Hub, said: CommandRunner) -> None:
    fill(hub, said, "one")
    fill(hub, said, "other")
    chosen = "--name", "one.*"
    assert sorted(rows(hub, said, *chosen)) == [("jobs", OWNER, "one.jobs", 3), ("values", OWNER, "one.value", 1)]
    assert rows(hub, said, *chosen, "--kind", "values") == [("values", OWNER, "one.value", 1)]
    assert rows(hub, said, *chosen, "--owner", "identity ada") == []
    assert said("held", hub.url("lrpm"), *chosen, "--kind", "jobs", "--purge", "--yes") == "3\n"
    assert rows(hub, said, *chosen) == [("values", OWNER, "one.value", 1)]
    assert len(rows(hub, said, "--name", "other.*")) == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--purge", "--yes", "--kind", "jobs"), "--purge requires --kind, and --owner or --name"),
        (("--purge", "--yes", "--owner", OWNER), "--purge requires --kind, and --owner or --name"),
        (("--purge", "--kind", "jobs", "--name", "x"), "--purge requires --yes if there is no terminal"),
        (("--yes",), "--yes requires --purge"),
    ],
)
def test_purge_without_required_options_is_usage_error(
    hub: Hub, said: CommandRunner, options: tuple[str, ...], sentence: str
) -> None:
    said("held", hub.url("lrpm"), *options, code=2)
    assert sentence in said.err


def test_purge_without_the_permission_is_refused(said: CommandRunner) -> None:
    with serving() as running:
        fill(running, said, "one")
        said("held", running.url("lrpm"), "--kind", "jobs", "--name", "*", "--purge", "--yes", code=1)
        assert "hub.purge" in said.err
        assert len(rows(running, said)) == 2


@pytest.mark.parametrize(("typed", "remaining"), [("y", 0), ("n", 1)])
def test_purge_asks_on_a_terminal(hub: Hub, said: CommandRunner, typed: str, remaining: int) -> None:
    fill(hub, said, f"asked_{typed}")
    chosen = "--kind", "jobs", "--name", f"asked_{typed}.*"
    with Terminal("held", hub.url("lrpm"), *chosen, "--purge", has_keyboard=True) as terminal:
        terminal.until("Purge 3 jobs of 1 owners and names? [y/N]")
        terminal.type(f"{typed}\n")
        assert terminal.end() == remaining
    assert len(rows(hub, said, *chosen)) == remaining
