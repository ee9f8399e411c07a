"""Calls and how they end, where both sides stay."""

from typing import Final

from tests.bridges.hall import Stage
from tests.bridges.outcomes import EXACT, Outcome, changed, exact, feature
from tests.bridges.voices import Told

BODY: Final = {"what": "tea", "hot": True, "with": [None, "milk", {}, []], "": "no key"}
ERROR: Final = Told("no funds", "bank.err.no_funds", {"need": ["more"]}, 422, 1.5)
DEFAULTS: Final = Told("", "app.err.failed", None, 500, 0.0)
"""What a protocol says where a callee said nothing."""
LOST: Final = {
    "umq36": ("failure-umq", {"name", "data", "code", "retry_after"}),
    "umq": ("failure-umq", {"name", "data", "code", "retry_after"}),
    "lrpm-json": ("failure-lrpm", {"code"}),
    "lrpm-cbor": ("failure-lrpm", {"code"}),
    "nq": ("failure-nq", {"code", "retry_after"}),
    "mqtt-rpc": ("", set[str]()),
}
"""What each caller's protocol has no place for."""


@feature("call", "Call and result", "A call with a nested body, and an answer that holds what the callee heard.")
async def call(stage: Stage) -> Outcome:
    await stage.offer("tell")
    call_id, heard = await stage.begun("tell", BODY)
    stage.callee.answer(heard, [heard.body, "and cake"])
    answer = await stage.caller.answered(call_id)
    assert (answer.kind, exact(heard.body), exact(answer.body)) == ("result", exact(BODY), exact([BODY, "and cake"]))
    return EXACT


@feature(
    "failure",
    "Failure",
    "The callee says all that its protocol has words for about an error of its own: text, name, data, code, and when "
    "to try again.",
)
async def failure(stage: Stage) -> Outcome:
    await stage.offer("tell")
    call_id, heard = await stage.begun("tell")
    said = stage.callee.fail_fully(heard, ERROR)
    answer = await stage.caller.answered(call_id)
    assert (answer.kind, answer.name) == ("failure", "raised"), answer
    learned = stage.caller.told(answer)
    assert learned.text == said.text
    note, may_be_lost = LOST[stage.one]
    lost = set()
    for field in ("name", "data", "code", "retry_after"):
        spoken, arrived = getattr(said, field), getattr(learned, field)
        if spoken and arrived != spoken:
            lost.add(field)
        elif not spoken:
            assert arrived in {getattr(Told(), field), getattr(DEFAULTS, field)}, (field, learned)
        assert arrived in (spoken, getattr(Told(), field), getattr(DEFAULTS, field)), (field, learned)
    assert lost <= may_be_lost, (lost, learned)
    return changed(note) if lost else EXACT
