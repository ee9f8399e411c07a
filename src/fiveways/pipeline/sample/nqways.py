"""The ways of a call in NQ, which repeats what was not answered, and says several things at once."""

import numpy as np

from fiveways.pipeline.sample.calls import MILLI, NQ, Calls
from fiveways.pipeline.sample.script import CALLEE, CALLER, NO_OP, WRONG_OP, What
from fiveways.pipeline.sample.words import PLAIN_BUILTINS


def repeated(calls: Calls) -> None:
    """The request comes once or twice more, over another link, before it is answered there."""
    calls.duration = calls.duration + 900 * MILLI
    other = calls.world.other_link(calls.caller)
    _, back = calls.there()
    for wait, which in ((200, calls.call % 2 < 2), (500, calls.call % 2 == 0)):
        some = calls.only(which)
        again = some.at + wait * MILLI + some.delay(0, 5000)
        some.ask(again, session=other[which])
        some.accept(again + some.delay(10, 30), session=other[which])
    calls.come_back(back, What.RESULT)
    calls.answer(back + calls.delay(10, 100), What.RESULT, session=other)


def answered_again(calls: Calls) -> None:
    """The answer is said again until somebody acknowledges it."""
    _, back = calls.there()
    calls.come_back(back, What.RESULT)
    answered = back + calls.delay(10, 100)
    calls.answer(answered, What.RESULT, acked=False)
    calls.answer(answered + 200 * MILLI, What.RESULT)


def useless(calls: Calls) -> None:
    """The request is repeated although its answer is on the way, and answered once more."""
    _, back = calls.there()
    calls.come_back(back, What.RESULT)
    answered = back + calls.delay(10, 100)
    calls.answer(answered, What.RESULT, acked=False)
    again = answered + 20 * MILLI
    calls.ask(again)
    calls.answer(again + calls.delay(10, 50), What.RESULT)


def batched(calls: Calls) -> None:
    """Three requests in one frame, accepted in one frame, answered one by one, acknowledged together with a ping."""
    groups = len(calls) // 3
    calls = calls.only(np.arange(3 * groups))
    lead = np.repeat(np.arange(groups) * 3, 3)
    calls.caller, calls.at = calls.caller[lead], calls.at[lead]
    first_frame = calls.script.frames
    calls.script.frames += 3 * groups
    frame = first_frame + np.repeat(np.arange(groups), 3)
    calls.ask(calls.at, frame=frame)
    nth = np.tile(np.arange(3), groups)
    accepted = calls.at + 25_000
    calls.say(What.ACCEPTED, accepted, CALLER, out=True, num=calls.num, session=calls.caller, frame=frame + groups)
    forwarded = calls.at + calls.delay(35, 200)
    calls.forward(forwarded)
    back = forwarded + calls.delay(205, 300) + calls.duration
    calls.come_back(back, What.RESULT)
    answered = back + calls.delay(10, 100)
    calls.answer(answered, What.RESULT, acked=False)
    last = np.repeat(np.maximum.reduceat(answered, np.arange(0, len(answered), 3)), 3) if groups else answered
    acked = last + 400_000
    frames = frame + 2 * groups
    calls.say(What.ACK, acked, CALLER, out=False, num=calls.num, session=calls.caller, frame=frames)
    leads = calls.only(nth == 0)
    pings = leads.script.operations(len(leads))
    leads.call, leads.num, leads.method = pings, pings * 4, np.full(len(pings), PLAIN_BUILTINS[0])
    leads.say(
        What.CALL,
        acked[nth == 0],
        CALLER,
        out=False,
        num=leads.num,
        session=leads.caller,
        op=NO_OP,
        frame=frames[nth == 0],
    )
    leads.say(
        What.RESULT,
        acked[nth == 0] + leads.delay(10, 60),
        CALLER,
        out=True,
        num=leads.num,
        session=leads.caller,
        op=NO_OP,
    )


def in_parts(calls: Calls) -> None:
    """The request itself comes in parts, and goes on in parts where the callee speaks NQ."""
    calls.accept(calls.at + calls.delay(10, 30))
    forwarded = calls.at + calls.delay(2000, 2300)
    takes = calls.callee_protocol == NQ
    some, others = calls.only(takes), calls.only(~takes)
    for nth in (1, 2, 3):
        what, odd = What.CALL_PART, int(nth == 3)
        more = {"nth": nth, "odd": odd}
        calls.say(what, calls.at + (nth - 1) * 500_000, CALLER, out=False, num=calls.num, session=calls.caller, **more)
        at = forwarded[takes] + (nth - 1) * 1000
        some.say(what, at, CALLEE, out=True, num=some.hub_num(CALLEE), session=some.callee, **more)
    others.forward(forwarded[~takes])
    back = forwarded + calls.delay(205, 300) + calls.duration
    calls.come_back(back, What.RESULT)
    calls.answer(back + calls.delay(10, 100), What.RESULT)


def miscounted(calls: Calls) -> None:
    """Three calls of the hub's own methods in one frame, which names two operations: these mean nothing."""
    groups = len(calls) // 3
    calls = calls.only(np.arange(3 * groups))
    lead = np.repeat(np.arange(groups) * 3, 3)
    calls.caller, calls.at, calls.method = calls.caller[lead], calls.at[lead], np.full(3 * groups, PLAIN_BUILTINS[0])
    frame = calls.script.frames + np.repeat(np.arange(groups), 3)
    calls.script.frames += groups
    calls.ask(calls.at, frame=frame, op=WRONG_OP)
    calls.say(
        What.RESULT, calls.at + calls.delay(10, 60), CALLER, out=True, num=calls.num, session=calls.caller, op=NO_OP
    )
