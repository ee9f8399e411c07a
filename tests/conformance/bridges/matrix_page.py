"""docs/matrix.md: made from what is seen when all pairs do everything, and read again by the test of each of them.

Run `python -m tests.conformance.bridges.matrix_page > docs/matrix.md` to make it anew.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from tests.conformance.bridges.conversion_notes import NOTES
from tests.conformance.bridges.feature_outcomes import PROTOCOLS, Feature, Outcome, Verdict
from tests.conformance.bridges.features.registry import ORDER
from tests.conformance.bridges.pair_environment import EventLoopThread, HubEnvironment, event_loop_thread, open_stage
from tests.support.paths import ROOT

PAGE: Final = ROOT / "docs" / "matrix.md"
Cell = tuple[str, str, str]
"""A feature, the caller and the callee."""
SIGNS: Final[dict[Verdict, str]] = {"exact": "=", "changed": "~", "impossible": "×"}
CELLS: Final = [(key, one, other) for key in ORDER for one in PROTOCOLS for other in PROTOCOLS]
_NUMBERS: Final = list(NOTES)
_ROW: Final = re.compile(r"\| \*\*(?P<one>[\w-]+)\*\* \|(?P<cells>.+)\|")
_MARK: Final = re.compile(r"(?P<sign>[=~×]) ?(?P<notes>[\d, ]*)")
_INTRODUCTION: Final = """\
# What crosses, pair by pair

Every feature between every caller and every callee, through a real hub over real sockets. Both ends are raw peers
that share no code with the hub: what they sent is compared with what arrived.
`tests/conformance/bridges/test_feature_matrix.py` does all of it again and fails where a cell of this page is not what
happens; `make docs` writes the page anew from what happens. [From one protocol to another](crossing.md) has the rules.

| sign | |
| --- | --- |
| `=` | it arrives as it was said |
| `~` | it arrives changed, or in another way, as the note says |
| `×` | the caller's or the callee's protocol cannot do it: the note names the clause |

Rows are those who call, publish, push or read; columns those who serve, subscribe, pull or own.

**How MQTT was set up.** The hub has a broker (the nats-server that it starts itself) and the schema
`tests/support/proto/crossing.proto`. Services behind the broker are named in `mqtt.services`, methods of the hub are
called on the topic of their namespace. Bodies are `google.protobuf.Value`, so that any JSON crosses; numbers are a
message with `int64`, `uint64` and `double` fields; attachments a message whose `bytes` field is named in
`mqtt.attachments`, without which they are refused.
Topics are bridged by `mqtt.topics`. What the hub does itself (callbacks, variables, queues, discovery) is asked for
on `/hub` in JSON. From mqtt-rpc to mqtt-rpc a call needs no hub: the broker alone carries it, and the hub, which
hears it too, has to keep out of it.
"""


_RULES: Final = """\
In brackets is the rule that is the reason, as the pages of the protocols number them:
[UMQ36](../src/fiveways/protocols/umq36/README.md), [UMQ](../src/fiveways/protocols/umq/README.md),
[LRPM](../src/fiveways/protocols/lrpm/README.md), [RPC over MQTT](../src/fiveways/protocols/mqtt_rpc/README.md),
[NQ](../src/fiveways/protocols/nq/README.md). MQTT-3.3.1-9 is a rule of MQTT 3.1.1."""


def render(seen: Mapping[Cell, Outcome]) -> str:
    """Write the page."""
    parts = [_INTRODUCTION, *_counts(seen)]
    for feature in ORDER.values():
        parts += ["", *_section(feature, seen)]
    used = {note for outcome in seen.values() for note in outcome.notes}
    parts += ["", "## Notes", "", _RULES, ""]
    for number, (key, note) in enumerate(NOTES.items(), 1):
        assert key in used, f"nothing is noted as {key}"
        parts.append(f"{number}. {note.text}{f' ({note.clause})' if note.clause else ''}")
    return "\n".join([*parts, ""])


def _counts(seen: Mapping[Cell, Outcome]) -> Iterator[str]:
    total = Counter(outcome.verdict for outcome in seen.values())
    pairs = len(PROTOCOLS) ** 2
    ends = f"{total['exact']} are exact, {total['changed']} changed and {total['impossible']} impossible"
    yield f"Of {len(seen)} cells ({len(ORDER)} features between {pairs} pairs) {ends}."
    yield ""
    yield "| feature | exact | changed | impossible |"
    yield "| --- | --- | --- | --- |"
    for key, feature in ORDER.items():
        one = Counter(outcome.verdict for cell, outcome in seen.items() if cell[0] == key)
        yield f"| {feature.title} | {one['exact']} | {one['changed']} | {one['impossible']} |"


def _section(feature: Feature, seen: Mapping[Cell, Outcome]) -> Iterator[str]:
    yield f"## {feature.title}"
    yield ""
    yield feature.sentence
    yield ""
    yield f"| caller, callee | {' | '.join(PROTOCOLS)} |"
    yield f"| --- |{' --- |' * len(PROTOCOLS)}"
    for one in PROTOCOLS:
        yield f"| **{one}** | {' | '.join(_mark(seen[feature.key, one, other]) for other in PROTOCOLS)} |"


def _mark(outcome: Outcome) -> str:
    numbers = ", ".join(str(number) for number in sorted(_NUMBERS.index(note) + 1 for note in outcome.notes))
    return f"{SIGNS[outcome.verdict]} {numbers}".rstrip()


def parse(page: str) -> dict[Cell, Outcome]:
    """Read the outcomes from the page; a cell that it lacks is not among them."""
    found: dict[Cell, Outcome] = {}
    for key, feature in ORDER.items():
        head = f"\n## {feature.title}\n"
        section = page[page.index(head) + len(head) :].partition("\n## ")[0] if head in page else ""
        for row in _ROW.finditer(section):
            for other, written in zip(PROTOCOLS, row["cells"].split("|"), strict=True):
                found[key, row["one"], other] = _read(written.strip())
    return found


def _read(written: str) -> Outcome:
    mark = _MARK.fullmatch(written)
    assert mark is not None, f"{written!r} is no mark"
    verdict = next(verdict for verdict, sign in SIGNS.items() if sign == mark["sign"])
    numbers = [int(number) for number in mark["notes"].split(",") if number.strip()]
    return Outcome(verdict, frozenset(_NUMBERS[number - 1] for number in numbers))


def observe(loop: EventLoopThread, cell: Cell) -> Outcome:
    """Let a pair do a thing; return what became of it."""
    key, one, other = cell
    feature = ORDER[key]

    async def play(hall: HubEnvironment) -> Outcome:
        async with open_stage(hall, one, other) as stage:
            outcome = await feature.play(stage)
            await stage.check_idle()
            return outcome

    return loop.run(play, is_timed=other in feature.timed)


def main() -> None:
    """Let everybody do everything, and print the page; what goes wrong ends it."""
    with event_loop_thread() as loop:
        seen = {cell: observe(loop, cell) for cell in CELLS}
    sys.stdout.write(render(seen))


if __name__ == "__main__":
    main()
