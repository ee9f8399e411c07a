"""Features: callbacks, variables, discovery, work queues, attachments."""

import re
from typing import Final

from tests.conformance.bridges.feature_outcomes import EXACT, Outcome, failed, feature, impossible
from tests.conformance.bridges.features.values import TEXT
from tests.conformance.bridges.mqtt_raw_peer import Mqtt
from tests.conformance.bridges.pair_environment import Stage
from tests.conformance.bridges.raw_peer_base import NotSupported

FILES: Final = (b"", b"\x00\xff" * 50, "kůň".encode())
DOC: Final = "Tells what it was told: žluťoučký kůň 😀."


@feature("attachment", "Attachments")
async def attachment(stage: Stage) -> Outcome:
    """A call with three attachments, and a result with the same attachments in another order."""
    caller, callee = stage.caller, stage.callee
    await stage.register("carry")
    call_id = caller.call(stage.name(caller, "carry"), {"label": TEXT}, FILES)
    received = await callee.receive()
    assert (received.kind, received.body, received.attachments) == ("call", {"label": TEXT}, FILES)
    callee.answer(received, {"label": "back"}, FILES[::-1])
    answer = await caller.wait_for_answer(call_id)
    assert (answer.kind, answer.body, answer.attachments) == ("result", {"label": "back"}, FILES[::-1]), answer
    return EXACT


@feature("callback", "Callback")
async def callback(stage: Stage) -> Outcome:
    """The callee creates a callback token; the caller calls it, gets the result, and cannot call it again."""
    caller, owner = stage.caller, stage.callee
    value = "C0" if stage.other == "umq36" else "c0"
    if isinstance(owner, Mqtt):
        await owner.serve("/callback", value)
    token = str(await owner.value(owner.builtin("callback"), {"id": value}))
    # A program that hands a token from one protocol to another converts its case: umq36 has no lower-case digits.
    token = token.upper() if stage.one == "umq36" else token.lower()
    call_id = caller.call_back(token, [TEXT])
    received = await owner.receive()
    assert (received.kind, received.name, received.body) == ("callback", value, [TEXT])
    owner.answer(received, "thanks")
    assert (await caller.wait_for_answer(call_id)).body == "thanks"
    assert failed(await caller.wait_for_answer(caller.call_back(token, None))) == ("no", "no such callback")
    return EXACT


@feature("variable", "Variable")
async def variable(stage: Stage) -> Outcome:
    """The callee sets a variable of its session, and the caller reads it."""
    reader = stage.caller

    async def peers() -> set[str]:
        listed = (await reader.value(reader.builtin("peers")))["peers"]
        return {session["peer"] for session in listed if session["protocol"] == stage.other}

    old_value = await peers()
    owner = await stage.add_peer(stage.other)
    for value in (TEXT, "1.10", 1.5, {"a": [None]}, ""):
        try:
            await owner.set("Jméno", value)
        except NotSupported:
            return impossible("variable-mqtt")
        await owner.check_alive()
        (name,) = await peers() - old_value
        assert await reader.value(reader.builtin("get"), {"name": "Jméno", "peer": name}) == value
    return EXACT


@feature("discovery", "Discovery with documentation")
async def discovery(stage: Stage) -> Outcome:
    """The callee's method is in the list that the caller gets, with its documentation."""
    caller = stage.caller
    await stage.register("tell", doc=DOC)
    name = stage.name(caller, "tell")
    assert plain(name) in {plain(item) for item in (await caller.discover())["methods"]}
    assert await caller.discover(name) == {"doc": DOC}
    return EXACT


def plain(name: str) -> str:
    """Return a name without the spelling of its protocol."""
    return re.sub(r"[/:-]", ".", name).strip(".").lower()


@feature("queue", "Push and pull")
async def queue(stage: Stage) -> Outcome:
    """The callee pulls a job, the caller pushes one, and the callee gets it and completes it."""
    pusher, worker = stage.caller, stage.callee
    jobs = f"jobs{stage.number}"
    pull = {"queue": jobs, "callback": "C0" if stage.other == "umq36" else "c0"}
    if isinstance(worker, Mqtt):
        await worker.serve("/callback", "c0")
    assert await worker.value(worker.builtin("pull"), pull) is None
    assert await pusher.value(pusher.builtin("push"), {"queue": jobs, "data": [TEXT]}) == {"waiting": 0}
    job = await worker.receive()
    assert (job.kind, job.name, job.body) == ("callback", pull["callback"], [TEXT])
    worker.answer(job, "done")
    await worker.check_alive()
    assert jobs not in (await pusher.value(pusher.builtin("stats")))["queues"]
    return EXACT
