"""Requests and answers in parts."""

from typing import Final

from tests.conformance.bridges.feature_outcomes import EXACT, Outcome, changed, feature
from tests.conformance.bridges.pair_environment import Stage
from tests.conformance.bridges.raw_peer_base import RawPeer, ReceivedMessage

ELEMENTS: Final = ["a", ["b"], {"c": None}]
PARTS_OUT: Final = {"lrpm-json", "lrpm-cbor", "mqtt-rpc", "nq"}
"""Who can answer in parts, and hear an answer in parts."""
PARTS_IN: Final = {"mqtt-rpc", "nq"}
"""Who can ask in parts, and be asked in parts."""


async def in_parts(peer: RawPeer, first: ReceivedMessage) -> tuple[list[object], bool]:
    """Hear the rest of what comes in parts; return all elements, and whether it came so."""
    if "part" not in first.meta:
        assert isinstance(first.body, list), first
        return first.body, False
    elements: list[object] = []
    received = first
    while True:
        assert received.id == first.id, received
        if not received.meta.get("empty"):
            elements.append(received.body)
        if received.meta.get("last"):
            return elements, True
        received = await peer.receive()


@feature("stream", "Streamed answer")
async def stream(stage: Stage) -> Outcome:
    """A streaming method gives three elements, to a caller that asks for parts where it can."""
    caller, callee = stage.caller, stage.callee
    await stage.register("count", kind="server")
    call_id, received = await stage.start_call("count", meta=caller.STREAM_META)
    callee.stream_answer(received, ELEMENTS)
    elements, is_parted = await in_parts(caller, await caller.wait_for_answer(call_id))
    assert elements == ELEMENTS
    # As above: who called a service of gRPC's kind for a stream gets one.
    assert is_parted == (stage.one in PARTS_OUT and (stage.other in PARTS_OUT or stage.one == "mqtt-rpc"))
    notes = [f"stream-{end}" for end, who in (("caller", stage.one), ("callee", stage.other)) if who not in PARTS_OUT]
    return changed(*notes) if notes else EXACT


@feature("request", "Streamed request")
async def request(stage: Stage) -> Outcome:
    """A call whose argument is three elements, each by itself where the caller can."""
    caller, callee = stage.caller, stage.callee
    await stage.register("gather", kind="client")
    call_id = caller.stream_call(stage.name(caller, "gather"), ELEMENTS)
    received = await callee.receive()
    elements, is_parted = await in_parts(callee, received)
    assert elements == ELEMENTS
    callee.answer(received, "all three")
    assert (await caller.wait_for_answer(call_id)).body == "all three"
    # An array becomes the elements of a stream only where a service cannot be asked otherwise.
    assert is_parted == (stage.other in PARTS_IN and (stage.one in PARTS_IN or stage.other == "mqtt-rpc"))
    notes = [f"request-{end}" for end, who in (("caller", stage.one), ("callee", stage.other)) if who not in PARTS_IN]
    return changed(*notes) if notes else EXACT
