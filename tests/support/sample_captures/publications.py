"""Publications: each goes to all subscribers of its topic; slow subscribers lose some events."""

import numpy as np

from tests.support.sample_captures.calls import MQTT, NQ, UMQS
from tests.support.sample_captures.script import CALLEE, CALLER, TOPIC_OP, Column, LineKind, Script
from tests.support.sample_captures.vocabulary import HUB_PUBLISH, TOPICS
from tests.support.sample_captures.world import World

SLOW = 4
"""A slow subscriber loses one event of this many."""


def publish_events(script: Script, world: World, at: Column, *, with_ops: bool) -> None:
    """Plan a publication at each of these times."""
    publishers = np.array(world.publishers(with_ops=with_ops))
    topic = script.rng.integers(0, len(TOPICS), len(at))
    call = script.operations(len(at))
    session = publishers[topic]
    line: dict[str, Column | int] = {
        "call": call,
        "session": session,
        "detail": topic,
        "num": call * 4,
        "op": TOPIC_OP,
        "leg": CALLER,
    }
    script.add(LineKind.PUBLISH, at, method=HUB_PUBLISH, out=False, **line)
    _confirm_publications(script, world, at, {**line, "aux": call * 4, "method": HUB_PUBLISH})
    for index in range(len(TOPICS)):
        chosen = np.flatnonzero(topic == index)
        for nth, subscriber in enumerate(world.subscribers(index, with_ops=with_ops)):
            _deliver_events(script, world, at[chosen], call[chosen], index, subscriber, is_slow=nth == 2)


def _confirm_publications(script: Script, world: World, at: Column, line: dict[str, Column | int]) -> None:
    """Plan the confirmation to the publisher, as its protocol has it."""
    protocol = world.protocol_of(np.asarray(line["session"]))
    for kind, mask in (
        (LineKind.PUBLISHED, ~np.isin(protocol, (*UMQS, NQ, MQTT))),
        (LineKind.RESULT, np.isin(protocol, (*UMQS, NQ))),
    ):
        rows = np.flatnonzero(mask)
        columns = {name: value[rows] if isinstance(value, np.ndarray) else value for name, value in line.items()}
        script.add(kind, at[rows] + 90_000, out=True, **columns)
    rows = np.flatnonzero(protocol == NQ)
    columns = {name: value[rows] if isinstance(value, np.ndarray) else value for name, value in line.items()}
    script.add(LineKind.ACCEPTED, at[rows] + 20_000, out=True, **columns)
    script.add(LineKind.ACK, at[rows] + 400_000, out=False, **columns)


def _deliver_events(
    script: Script, world: World, at: Column, call: Column, topic: int, subscriber: int, *, is_slow: bool
) -> None:
    """Plan the events of one subscriber: most arrive once, some twice, some never, some out of order."""
    fate = script.rng.integers(0, 100, len(at))
    dropped = (call % SLOW == 0) if is_slow else fate == 0
    twice = (fate == 1) & ~dropped
    wait = script.rng.exponential(300_000 if is_slow else 60_000, len(at)).astype(np.int64) + 10_000
    wait += np.where(fate == 2, 2_000_000_000, 0)
    line: dict[str, Column | int] = {"session": subscriber, "detail": topic, "op": TOPIC_OP, "leg": CALLEE, "out": True}
    here = np.flatnonzero(~dropped)
    num = call * 4 + CALLEE
    script.add(LineKind.EVENT, at[here] + wait[here], call=call[here], num=num[here], **line)
    again = np.flatnonzero(twice)
    script.add(LineKind.EVENT, at[again] + wait[again] + 40_000_000, call=call[again], num=num[again], **line)
    gone = np.flatnonzero(dropped)
    script.add(LineKind.DROP, at[gone] + wait[gone], call=call[gone], **line)
    if world.protocols[subscriber] == NQ:
        # A subscriber in NQ answers an event as it would any request.
        done = at[here] + wait[here] + 60_000
        line = {**line, "out": False, "aux": num[here], "call": call[here], "num": num[here]}
        script.add(LineKind.RESULT, done, **{**line, "body": 3})
