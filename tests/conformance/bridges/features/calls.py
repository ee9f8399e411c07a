"""Features: calls and their ends without disconnects."""

import asyncio
from typing import Final

from tests.conformance.bridges.feature_outcomes import (
    EXACT,
    PROTOCOLS,
    Outcome,
    changed,
    exact,
    failed,
    feature,
    impossible,
)
from tests.conformance.bridges.mqtt_raw_peer import Mqtt
from tests.conformance.bridges.pair_environment import Stage
from tests.conformance.bridges.raw_peer_base import FailureDetails, NotSupported, RawPeer, ReceivedMessage

BODY: Final = {"what": "tea", "hot": True, "with": [None, "milk", {}, []], "": "no key"}
ERROR: Final = FailureDetails("no funds", "bank.err.no_funds", {"need": ["more"]}, 422, 1.5)
DEFAULTS: Final = FailureDetails("", "app.err.failed", None, 500, 0.0)
"""The values that a protocol uses for details that the callee did not give."""
LOST: Final = {
    "umq36": ("failure-umq", {"name", "data", "code", "retry_after"}),
    "umq": ("failure-umq", {"name", "data", "code", "retry_after"}),
    "lrpm-json": ("failure-lrpm", {"code"}),
    "lrpm-cbor": ("failure-lrpm", {"code"}),
    "nq": ("failure-nq", {"code", "retry_after"}),
    "mqtt-rpc": ("", set[str]()),
}
"""The details of a failure that each caller's protocol cannot express."""


@feature("call", "Call and result")
async def call(stage: Stage) -> Outcome:
    """A call with a nested body, and a result with the body that the callee received."""
    await stage.register("tell")
    call_id, received = await stage.start_call("tell", BODY)
    stage.callee.answer(received, [received.body, "and cake"])
    answer = await stage.caller.wait_for_answer(call_id)
    assert (answer.kind, exact(received.body), exact(answer.body)) == ("result", exact(BODY), exact([BODY, "and cake"]))
    assert "part" not in answer.meta, "a single result must not be streamed"
    return EXACT


@feature("failure", "Failure")
async def failure(stage: Stage) -> Outcome:
    """The callee fails with all details that its protocol can express: text, name, data, code and retry delay."""
    await stage.register("tell")
    call_id, received = await stage.start_call("tell")
    sent = stage.callee.fail_with_details(received, ERROR)
    answer = await stage.caller.wait_for_answer(call_id)
    assert failed(answer) == ("yes", "raised")
    learned = stage.caller.read_failure(answer)
    assert learned.text == sent.text
    note, may_be_lost = LOST[stage.one]
    lost = set()
    for field in ("name", "data", "code", "retry_after"):
        spoken, arrived = getattr(sent, field), getattr(learned, field)
        if spoken and arrived != spoken:
            lost.add(field)
        elif not spoken:
            assert arrived in {getattr(FailureDetails(), field), getattr(DEFAULTS, field)}, (field, learned)
        assert arrived in (spoken, getattr(FailureDetails(), field), getattr(DEFAULTS, field)), (field, learned)
    assert lost <= may_be_lost, (lost, learned)
    return changed(note) if lost else EXACT


@feature("not-run", "Certainly not run")
async def not_run(stage: Stage) -> Outcome:
    """A call of an unknown method fails.

    A method of a Python client of the callee's protocol gets bad arguments (not on MQTT, where the schema decides).
    Then the callee denies a call, and rejects the arguments of another one.
    """
    caller, callee = stage.caller, stage.callee
    nobody = await caller.call_and_wait(caller.spell("counter", "carry"), {"label": ""})
    assert failed(nobody) == ("no", "no such method")
    if not isinstance(callee, Mqtt):
        async with stage.hall.client(stage.other) as client:
            await client.register("counter.tell", tell)
            answer = await caller.call_and_wait(stage.name(caller, "tell"), {"message": [5]})
            assert failed(answer) == ("no", "bad arguments")
            assert caller.read_failure(answer).text == "argument 'message': expected str, got array"
    await stage.register("tell")
    for reason in ("refused", "bad arguments"):
        call_id, received = await stage.start_call("tell")
        callee.reject(received, "not on Sundays", reason)
        answer = await caller.wait_for_answer(call_id)
        assert failed(answer) == ("no", reason)
        assert caller.read_failure(answer).text == "not on Sundays"
    return EXACT


async def tell(message: str) -> str:
    return message


@feature("cancel", "Cancel")
async def cancel(stage: Stage) -> Outcome:
    """The caller cancels a call: it ends at once.

    The callee receives the cancellation, and its late result is dropped.
    """
    caller, callee = stage.caller, stage.callee
    await stage.register("tell")
    call_id, received = await stage.start_call("tell")
    try:
        caller.cancel(call_id)
    except NotSupported:
        callee.answer(received)
        await caller.wait_for_answer(call_id)
        return impossible(f"cancel-{caller.protocol}")
    assert failed(await caller.wait_for_answer(call_id)) == ("unknown", "cancelled")
    outcome = await is_told(callee, received)
    callee.answer(received, "too late")
    return outcome


async def is_told(callee: RawPeer, received: ReceivedMessage) -> Outcome:
    """Return whether a callee receives the cancellation that the hub has processed."""
    ping = callee.call(callee.builtin("ping"))
    reported = await callee.receive()
    if reported.kind == "cancel":
        assert reported.id == received.id
        assert (await callee.wait_for_answer(ping)).body == "pong"
        return EXACT
    assert (reported.id, reported.body) == (ping, "pong"), reported
    return changed("untold")


@feature("timeout", "Timeout at the hub", timed=PROTOCOLS)
async def timeout(stage: Stage) -> Outcome:
    """The callee does not respond, and the hub ends the call at its deadline: the method may have run."""
    caller, callee = stage.caller, stage.callee
    await stage.register("tell")
    call_id, received = await stage.start_call("tell")
    if stage.one != "nq" and not stage.is_direct:
        assert failed(await caller.wait_for_answer(call_id)) == ("unknown", "timeout")
        await is_told(callee, received)
        return EXACT
    await time_is_over(stage)
    # The hub sends a request to a service behind a broker again, because nothing shows whether it was received.
    is_again = isinstance(callee, Mqtt) and not stage.is_direct
    answer = await answered_by(stage, callee, call_id) if is_again else await late(stage, received, call_id)
    assert answer.body == "done"
    return impossible("timeout-nq") if stage.one == "nq" else changed("direct-timeout")


async def late(stage: Stage, received: ReceivedMessage, call_id: str) -> ReceivedMessage:
    """Answer a call after its end and return the messages of its caller."""
    stage.callee.answer(received, "done")
    return await stage.caller.wait_for_answer(call_id)


async def answered_by(stage: Stage, callee: RawPeer, call_id: str) -> ReceivedMessage:
    """Answer all calls, including repeated ones, until the caller has its result, and return that."""

    async def answer_all() -> None:
        while True:
            received = await callee.receive()
            if received.kind == "call":
                callee.answer(received, "done")

    answering = asyncio.create_task(answer_all())
    answer = await stage.caller.wait_for_answer(call_id)
    answering.cancel()
    await asyncio.wait([answering])
    if isinstance(callee, Mqtt):
        stage.disconnect(callee)  # a repeated request may be on its way
    return answer


async def time_is_over(stage: Stage) -> None:
    """Wait for the hub's timeout: another call, made now, has ended."""
    witness, sleeper = await stage.add_peer("umq"), await stage.add_peer("umq")
    name = f"Sleeper:n{stage.number}"
    await sleeper.register(name)
    assert failed(await witness.call_and_wait(name)) == ("unknown", "timeout")
    await sleeper.receive()
