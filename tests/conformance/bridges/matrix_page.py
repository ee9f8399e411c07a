"""The generator and the parser of docs/matrix.md, with the outcomes of all features between all pairs.

Run `python -m tests.conformance.bridges.matrix_page > docs/matrix.md` to write it again.
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
"""A feature, the caller's and the callee's protocol."""
SIGNS: Final[dict[Verdict, str]] = {"exact": "=", "changed": "~", "impossible": "×"}
CELLS: Final = [(key, one, other) for key in ORDER for one in PROTOCOLS for other in PROTOCOLS]
_NUMBERS: Final = list(NOTES)
_ROW: Final = re.compile(r"\| \*\*(?P<one>[\w-]+)\*\* \|(?P<cells>.+)\|")
_MARK: Final = re.compile(r"(?P<sign>[=~×]) ?(?P<notes>[\d, ]*)")
_INTRODUCTION: Final = """\
# Feature matrix of protocol pairs

Every feature between every caller and every callee, through a real hub over real sockets. Both ends are raw peers
that share no code with the hub: the messages that arrive are compared with those that were sent.
`tests/conformance/bridges/test_feature_matrix.py` runs all features and fails if the outcome differs from this page;
`make docs` writes the page from the observed outcomes. [From one protocol to another](crossing.md) has the rules.

| sign | |
| --- | --- |
| `=` | it arrives unchanged |
| `~` | it arrives changed, as the note says |
| `×` | the caller's or the callee's protocol does not support it: the note names the rule |

Rows are callers, publishers, pushers and readers; columns are callees, subscribers, workers and owners.

**The MQTT setup.** The hub has a broker (the nats-server that it starts itself) and the schema
`tests/support/proto/crossing.proto`. Services behind the broker are named in `mqtt.services`; methods of the hub are
called on the topic of their namespace. Bodies are `google.protobuf.Value`, which can contain any JSON; numbers are a
message with `int64`, `uint64` and `double` fields; attachments are a message whose `bytes` field is named in
`mqtt.attachments`, without which they are refused.
Topics are bridged by `mqtt.topics`. Built-in methods (callbacks, variables, work queues, discovery) are called on
`/hub` in JSON. From mqtt-rpc to mqtt-rpc a call needs no hub: the broker delivers it, and the hub, which
receives it too, must ignore it.
"""


_RULES: Final = """\
The rule that is the reason is in brackets, as numbered in the pages of the protocols:
[UMQ36](../src/fiveways/protocols/umq36/README.md), [UMQ](../src/fiveways/protocols/umq/README.md),
[LRPM](../src/fiveways/protocols/lrpm/README.md), [RPC over MQTT](../src/fiveways/protocols/mqtt_rpc/README.md),
[NQ](../src/fiveways/protocols/nq/README.md). MQTT-3.3.1-9 is a rule of MQTT 3.1.1."""


def render(outcomes: Mapping[Cell, Outcome]) -> str:
    """Return the page for the outcomes."""
    parts = [_INTRODUCTION, *_counts(outcomes)]
    for feature in ORDER.values():
        parts += ["", *_section(feature, outcomes)]
    used = {note for outcome in outcomes.values() for note in outcome.notes}
    parts += ["", "## Notes", "", _RULES, ""]
    for number, (key, note) in enumerate(NOTES.items(), 1):
        assert key in used, f"no outcome has the note {key}"
        parts.append(f"{number}. {note.text}{f' ({note.clause})' if note.clause else ''}")
    return "\n".join([*parts, ""])


def _counts(outcomes: Mapping[Cell, Outcome]) -> Iterator[str]:
    total = Counter(outcome.verdict for outcome in outcomes.values())
    pairs = len(PROTOCOLS) ** 2
    ends = f"{total['exact']} are exact, {total['changed']} changed and {total['impossible']} impossible"
    yield f"Of {len(outcomes)} cells ({len(ORDER)} features between {pairs} pairs) {ends}."
    yield ""
    yield "| feature | exact | changed | impossible |"
    yield "| --- | --- | --- | --- |"
    for key, feature in ORDER.items():
        counts = Counter(outcome.verdict for cell, outcome in outcomes.items() if cell[0] == key)
        yield f"| {feature.title} | {counts['exact']} | {counts['changed']} | {counts['impossible']} |"


def _section(feature: Feature, outcomes: Mapping[Cell, Outcome]) -> Iterator[str]:
    yield f"## {feature.title}"
    yield ""
    yield feature.sentence
    yield ""
    yield f"| caller, callee | {' | '.join(PROTOCOLS)} |"
    yield f"| --- |{' --- |' * len(PROTOCOLS)}"
    for one in PROTOCOLS:
        yield f"| **{one}** | {' | '.join(_mark(outcomes[feature.key, one, other]) for other in PROTOCOLS)} |"


def _mark(outcome: Outcome) -> str:
    numbers = ", ".join(str(number) for number in sorted(_NUMBERS.index(note) + 1 for note in outcome.notes))
    return f"{SIGNS[outcome.verdict]} {numbers}".rstrip()


def parse(page: str) -> dict[Cell, Outcome]:
    """Return the outcomes on the page, without missing cells."""
    outcomes: dict[Cell, Outcome] = {}
    for key, feature in ORDER.items():
        head = f"\n## {feature.title}\n"
        section = page[page.index(head) + len(head) :].partition("\n## ")[0] if head in page else ""
        for row in _ROW.finditer(section):
            for other, cell in zip(PROTOCOLS, row["cells"].split("|"), strict=True):
                outcomes[key, row["one"], other] = _read(cell.strip())
    return outcomes


def _read(cell: str) -> Outcome:
    mark = _MARK.fullmatch(cell)
    assert mark is not None, f"{cell!r} is not a mark"
    verdict = next(verdict for verdict, sign in SIGNS.items() if sign == mark["sign"])
    numbers = [int(number) for number in mark["notes"].split(",") if number.strip()]
    return Outcome(verdict, frozenset(_NUMBERS[number - 1] for number in numbers))


def observe(loop: EventLoopThread, cell: Cell) -> Outcome:
    """Run a feature between a pair and return its outcome."""
    key, one, other = cell
    feature = ORDER[key]

    async def play(hall: HubEnvironment) -> Outcome:
        async with open_stage(hall, one, other) as stage:
            outcome = await feature.play(stage)
            await stage.check_idle()
            return outcome

    return loop.run(play, is_timed=other in feature.timed)


def main() -> None:
    """Run all features between all pairs and print the page; an unexpected outcome raises."""
    with event_loop_thread() as loop:
        seen = {cell: observe(loop, cell) for cell in CELLS}
    sys.stdout.write(render(seen))


if __name__ == "__main__":
    main()
