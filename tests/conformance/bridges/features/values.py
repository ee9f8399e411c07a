"""Features: values at the limits of the protocols."""

from typing import Final

from tests.conformance.bridges.feature_outcomes import EXACT, Outcome, changed, exact, failed, feature
from tests.conformance.bridges.mqtt_raw_peer import NUMBERS
from tests.conformance.bridges.pair_environment import Stage

TEXT: Final = 'žluťoučký kůň 😀 \u2028 \x00 "quoted" back\\slash\nline'
EDGES: Final = dict(zip(NUMBERS, (2**53, 2**53 + 1, 2**63, 2**64, -0.0), strict=True))
MAPPED: Final = {name: str(EDGES[name]) for name in NUMBERS[:3]} | {"whole": float(2**64), "zero": -0.0}
"""By protobuf's JSON mapping."""
BYTES: Final = bytes(range(256))
LARGE: Final = "x" * (1 << 20)
DEEPEST_PROTOBUF: Final = 40
"""Alternating maps and arrays that need at most 100 messages: three for a map, two for an array."""


def nested(levels: int) -> object:
    """Return alternating arrays and maps."""
    value: object = "bottom"
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


async def both_ways(stage: Stage, message: str, body: object) -> tuple[str, str]:
    """Return a body as the callee receives it, and as the caller receives it in the result."""
    await stage.register(message)
    call_id, received = await stage.start_call(message, body)
    stage.callee.answer(received, received.body)
    answer = await stage.caller.wait_for_answer(call_id)
    assert answer.kind == "result", answer
    return exact(received.body), exact(answer.body)


@feature("text", "Non-ASCII text")
async def text(stage: Stage) -> Outcome:
    """Czech, an emoji, a line separator, NUL, quotes, a backslash and a line end, in both directions."""
    assert await both_ways(stage, "tell", TEXT) == (exact(TEXT), exact(TEXT))
    return EXACT


@feature("numbers", "Numbers at the edges")
async def numbers(stage: Stage) -> Outcome:
    """2^53, 2^53 + 1, 2^63, 2^64 and -0.0, in both directions."""
    at_callee, back = await both_ways(stage, "weigh", EDGES)
    if "mqtt-rpc" not in {stage.one, stage.other}:
        assert at_callee == back == exact(EDGES)
        return EXACT
    expected = {True: exact(EDGES | {"whole": float(2**64)}), False: exact(MAPPED)}
    assert at_callee == expected[stage.other == "mqtt-rpc"]
    assert back == expected[stage.one == "mqtt-rpc"]
    return changed("numbers-mqtt")


@feature("bytes", "Bytes within a body")
async def data(stage: Stage) -> Outcome:
    """All 256 bytes in a field of a map, in each side's own form, in both directions."""
    caller, callee = stage.caller, stage.callee
    await stage.register("pack")
    call_id, received = await stage.start_call("pack", {"data": caller.write_bytes(BYTES)})
    callee.answer(received, {"data": callee.write_bytes(BYTES[::-1])})
    answer = await caller.wait_for_answer(call_id)
    notes = set[str]()
    for peer, body, expected in ((callee, received.body, BYTES), (caller, answer.body, BYTES[::-1])):
        assert body.keys() == {"data"}
        arrived, how = peer.read_bytes(body["data"])
        assert arrived == expected
        notes |= {"own": set(), "other": {"bytes-mark"}, "bare": {"bytes-mqtt"}}[how]
    return changed(*notes)


@feature("nesting", "Nesting of 128 levels")
async def nesting(stage: Stage) -> Outcome:
    """128 nested arrays and maps, in both directions."""
    deep = nested(128)
    if "mqtt-rpc" in {stage.one, stage.other} and not stage.is_direct:
        deepest = nested(DEEPEST_PROTOBUF)
        assert await both_ways(stage, "tell", deepest) == (exact(deepest), exact(deepest))
        for levels in (DEEPEST_PROTOBUF + 1, 128):
            answer = await stage.caller.call_and_wait(stage.name(stage.caller, "tell"), nested(levels))
            assert failed(answer) == ("no", "bad arguments"), answer
        return changed("nesting-mqtt")
    assert await both_ways(stage, "tell", deep) == (exact(deep), exact(deep))
    return EXACT


@feature("large", "A body of 1 MiB")
async def large(stage: Stage) -> Outcome:
    """A text of 2^20 letters, in both directions; the hub's `limits.max_text` is 4 MiB here."""
    assert await both_ways(stage, "tell", LARGE) == (exact(LARGE), exact(LARGE))
    return EXACT
