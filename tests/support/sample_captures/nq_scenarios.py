"""Scenarios of NQ calls: retransmissions, batches and streamed requests."""

import numpy as np

from tests.support.sample_captures.calls import MILLI, NQ, CallGroup
from tests.support.sample_captures.script import CALLEE, CALLER, NO_OP, WRONG_OP, LineKind
from tests.support.sample_captures.vocabulary import PLAIN_BUILTINS


def repeated(calls: CallGroup) -> None:
    """The request is retransmitted once or twice over another connection before it is answered there."""
    calls.duration = calls.duration + 900 * MILLI
    other = calls.world.other_session(calls.caller)
    _, back = calls.request_and_forward()
    for wait, mask in ((200, calls.call % 2 < 2), (500, calls.call % 2 == 0)):
        some = calls.select(mask)
        again = some.at + wait * MILLI + some.random_delay(0, 5000)
        some.send_request(again, session=other[mask])
        some.accept(again + some.random_delay(10, 30), session=other[mask])
    calls.return_answer(back, LineKind.RESULT)
    calls.answer(back + calls.random_delay(10, 100), LineKind.RESULT, session=other)


def answered_again(calls: CallGroup) -> None:
    """The response is retransmitted until it is acknowledged."""
    _, back = calls.request_and_forward()
    calls.return_answer(back, LineKind.RESULT)
    answered = back + calls.random_delay(10, 100)
    calls.answer(answered, LineKind.RESULT, acked=False)
    calls.answer(answered + 200 * MILLI, LineKind.RESULT)


def useless(calls: CallGroup) -> None:
    """The request is retransmitted while its response is in flight, and is answered again."""
    _, back = calls.request_and_forward()
    calls.return_answer(back, LineKind.RESULT)
    answered = back + calls.random_delay(10, 100)
    calls.answer(answered, LineKind.RESULT, acked=False)
    again = answered + 20 * MILLI
    calls.send_request(again)
    calls.answer(again + calls.random_delay(10, 50), LineKind.RESULT)


def batched(calls: CallGroup) -> None:
    """Requests in batches of three, accepted in one frame, answered singly, acknowledged together with a ping."""
    groups = len(calls) // 3
    calls = calls.select(np.arange(3 * groups))
    lead = np.repeat(np.arange(groups) * 3, 3)
    calls.caller, calls.at = calls.caller[lead], calls.at[lead]
    first_frame = calls.script.frames
    calls.script.frames += 3 * groups
    frame = first_frame + np.repeat(np.arange(groups), 3)
    calls.send_request(calls.at, frame=frame)
    nth = np.tile(np.arange(3), groups)
    accepted = calls.at + 25_000
    calls.add_lines(
        LineKind.ACCEPTED, accepted, CALLER, out=True, num=calls.num, session=calls.caller, frame=frame + groups
    )
    forwarded = calls.at + calls.random_delay(35, 200)
    calls.forward(forwarded)
    back = forwarded + calls.random_delay(205, 300) + calls.duration
    calls.return_answer(back, LineKind.RESULT)
    answered = back + calls.random_delay(10, 100)
    calls.answer(answered, LineKind.RESULT, acked=False)
    last = np.repeat(np.maximum.reduceat(answered, np.arange(0, len(answered), 3)), 3) if groups else answered
    acked = last + 400_000
    frames = frame + 2 * groups
    calls.add_lines(LineKind.ACK, acked, CALLER, out=False, num=calls.num, session=calls.caller, frame=frames)
    leads = calls.select(nth == 0)
    pings = leads.script.operations(len(leads))
    leads.call, leads.num, leads.method = pings, pings * 4, np.full(len(pings), PLAIN_BUILTINS[0])
    leads.add_lines(
        LineKind.CALL,
        acked[nth == 0],
        CALLER,
        out=False,
        num=leads.num,
        session=leads.caller,
        op=NO_OP,
        frame=frames[nth == 0],
    )
    leads.add_lines(
        LineKind.RESULT,
        acked[nth == 0] + leads.random_delay(10, 60),
        CALLER,
        out=True,
        num=leads.num,
        session=leads.caller,
        op=NO_OP,
    )


def in_parts(calls: CallGroup) -> None:
    """A streamed request, forwarded in parts to NQ callees."""
    calls.accept(calls.at + calls.random_delay(10, 30))
    forwarded = calls.at + calls.random_delay(2000, 2300)
    takes = calls.callee_protocol == NQ
    some, others = calls.select(takes), calls.select(~takes)
    for nth in (1, 2, 3):
        what, odd = LineKind.CALL_PART, int(nth == 3)
        more = {"nth": nth, "odd": odd}
        calls.add_lines(
            what, calls.at + (nth - 1) * 500_000, CALLER, out=False, num=calls.num, session=calls.caller, **more
        )
        at = forwarded[takes] + (nth - 1) * 1000
        some.add_lines(what, at, CALLEE, out=True, num=some.hub_num(CALLEE), session=some.callee, **more)
    others.forward(forwarded[~takes])
    back = forwarded + calls.random_delay(205, 300) + calls.duration
    calls.return_answer(back, LineKind.RESULT)
    calls.answer(back + calls.random_delay(10, 100), LineKind.RESULT)


def miscounted(calls: CallGroup) -> None:
    """Three calls of built-in methods in one frame that names two operations; the operation ids are invalid."""
    groups = len(calls) // 3
    calls = calls.select(np.arange(3 * groups))
    lead = np.repeat(np.arange(groups) * 3, 3)
    calls.caller, calls.at, calls.method = calls.caller[lead], calls.at[lead], np.full(3 * groups, PLAIN_BUILTINS[0])
    frame = calls.script.frames + np.repeat(np.arange(groups), 3)
    calls.script.frames += groups
    calls.send_request(calls.at, frame=frame, op=WRONG_OP)
    calls.add_lines(
        LineKind.RESULT,
        calls.at + calls.random_delay(10, 60),
        CALLER,
        out=True,
        num=calls.num,
        session=calls.caller,
        op=NO_OP,
    )
