"""Features: disconnects in the middle of a call."""

import asyncio

from tests.conformance.bridges.feature_outcomes import EXACT, Outcome, changed, failed, feature
from tests.conformance.bridges.features.calls import answered_by, is_told, late, time_is_over
from tests.conformance.bridges.mqtt_raw_peer import Mqtt
from tests.conformance.bridges.nq_raw_peer import Nq
from tests.conformance.bridges.pair_environment import Stage
from tests.conformance.bridges.raw_peer_base import ReceivedMessage


@feature("callee-dies", "The callee dies in mid-call", timed=("mqtt-rpc", "nq"))
async def callee_dies(stage: Stage) -> Outcome:
    """The callee disconnects while it works: the call fails as lost, because the method may have run."""
    await stage.register("tell")
    call_id, received = await stage.start_call("tell", "work")
    stage.disconnect(stage.callee)
    if stage.one == "nq":
        return await _redelivered(stage, received, call_id)
    if stage.is_direct:
        await time_is_over(stage)
        return changed("direct-dies")
    reason = failed(await stage.caller.wait_for_answer(call_id))
    if reason == ("unknown", "timeout"):
        return changed({"nq": "dies-nq", "mqtt-rpc": "dies-mqtt"}[stage.other])
    assert reason == ("unknown", "lost")
    return EXACT


async def _redelivered(stage: Stage, received: ReceivedMessage, call_id: str) -> Outcome:
    """Check that the next callee of the method gets the request; an NQ callee reconnects and answers itself."""
    if isinstance(stage.callee, Nq):
        stage.callee = await stage.reconnect(stage.callee)
        answer = await late(stage, received, call_id)
    else:
        next_callee = await stage.add_peer(stage.other)
        await stage.register_late("tell", next_callee)
        answer = await answered_by(stage, next_callee, call_id)
    assert answer.body == "done"
    return changed("dies-waits")


@feature("caller-dies", "The caller dies in mid-call")
async def caller_dies(stage: Stage) -> Outcome:
    """The caller disconnects while the callee works.

    The callee receives a cancellation, and its late result is dropped.
    """
    caller, callee = stage.caller, stage.callee
    await stage.register("tell")
    call_id, received = await stage.start_call("tell")
    stage.disconnect(caller)
    if isinstance(caller, Nq):
        reconnected = await stage.reconnect(caller)
        callee.answer(received, "you are back")
        answer = await reconnected.wait_for_answer(call_id)
        assert answer.body == "you are back"
        return changed("caller-nq")
    if isinstance(caller, Mqtt):
        assert await is_told(callee, received) == changed("untold")
        callee.answer(received, "anybody there?")
        return changed("caller-mqtt")
    while stage.hall.is_asking(callee.protocol):  # noqa: ASYNC110  only the hub knows
        await asyncio.sleep(0.002)
    outcome = await is_told(callee, received)
    callee.answer(received, "too late")
    return outcome
