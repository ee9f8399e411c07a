"""Features: streamed requests and results."""

from typing import Final

from tests.conformance.bridges.feature_outcomes import EXACT, Outcome, changed, feature
from tests.conformance.bridges.pair_environment import Stage
from tests.conformance.bridges.raw_peer_base import RawPeer, ReceivedMessage

ELEMENTS: Final = ["a", ["b"], {"c": None}]
PARTS_OUT: Final = {"lrpm-json", "lrpm-cbor", "mqtt-rpc", "nq"}
"""The protocols with streamed results."""
PARTS_IN: Final = {"mqtt-rpc", "nq"}
"""The protocols with streamed requests."""


async def in_parts(peer: RawPeer, first: ReceivedMessage) -> tuple[list[object], bool]:
    """Return all elements of a streamed message, and whether it was streamed."""
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
    """A streaming method returns three elements to a caller that asks for parts if its protocol can."""
    caller, callee = stage.caller, stage.callee
    await stage.register("count", kind="server")
    call_id, received = await stage.start_call("count", meta=caller.STREAM_META)
    callee.stream_answer(received, ELEMENTS)
    elements, is_parted = await in_parts(caller, await caller.wait_for_answer(call_id))
    assert elements == ELEMENTS
    # A caller of a streaming service behind a broker always gets a stream.
    assert is_parted == (stage.one in PARTS_OUT and (stage.other in PARTS_OUT or stage.one == "mqtt-rpc"))
    notes = [f"stream-{end}" for end, side in (("caller", stage.one), ("callee", stage.other)) if side not in PARTS_OUT]
    return changed(*notes) if notes else EXACT


@feature("request", "Streamed request")
async def request(stage: Stage) -> Outcome:
    """A call with three elements as its argument, streamed if the caller's protocol can."""
    caller, callee = stage.caller, stage.callee
    await stage.register("gather", kind="client")
    call_id = caller.stream_call(stage.name(caller, "gather"), ELEMENTS)
    received = await callee.receive()
    elements, is_parted = await in_parts(callee, received)
    assert elements == ELEMENTS
    callee.answer(received, "all three")
    assert (await caller.wait_for_answer(call_id)).body == "all three"
    # An array becomes a stream only for a service that accepts nothing else.
    assert is_parted == (stage.other in PARTS_IN and (stage.one in PARTS_IN or stage.other == "mqtt-rpc"))
    notes = [f"request-{end}" for end, side in (("caller", stage.one), ("callee", stage.other)) if side not in PARTS_IN]
    return changed(*notes) if notes else EXACT
