"""The ways in which a call can go; each function takes many calls at once."""

import numpy as np

from fiveways.model.failures import Reason
from fiveways.pipeline.sample.calls import LRPM, MILLI, MQTT, NQ, Calls
from fiveways.pipeline.sample.script import CALLEE, CALLER, NO_OP, NOBODY, SECOND_CALLEE, What
from fiveways.pipeline.sample.spoken import PROGRESS, STREAM, TIMEOUT
from fiveways.pipeline.sample.words import BY_REASON, NOWHERE, OWN, REFUSALS


def plain(calls: Calls) -> None:
    """Ask, forward, come back, answer."""
    _, back = calls.there()
    calls.come_back(back, What.RESULT)
    calls.answer(back + calls.delay(10, 100), What.RESULT)


def raised(calls: Calls) -> None:
    """The method ran and failed."""
    details = np.where(calls.call % 2 == 0, OWN, BY_REASON[Reason.RAISED])
    _, back = calls.there()
    calls.come_back(back, What.FAILURE, detail=details)
    calls.answer(back + calls.delay(10, 100), What.FAILURE, detail=details)


def refused(calls: Calls) -> None:
    """The hub refuses, for one of several reasons; nobody is asked."""
    details = np.array(REFUSALS)[calls.script.rng.integers(0, len(REFUSALS), len(calls))]
    nowhere = details == BY_REASON[Reason.NO_METHOD]
    methods = np.where(nowhere, np.array(NOWHERE)[calls.call % len(NOWHERE)], calls.method)
    calls.method = methods
    calls.ask(calls.at)
    calls.answer(calls.at + calls.delay(20, 60), What.FAILURE, detail=details)
    denied = calls.only(details == BY_REASON[Reason.DENIED])
    denied.say(What.DENY, denied.at + denied.delay(10, 15), CALLER, out=False, num=denied.num, session=denied.caller)


def timed_out(calls: Calls) -> None:
    """The deadline comes first; every other callee answers later, in vain."""
    calls.duration = calls.duration + 50 * MILLI
    _, back = calls.there(TIMEOUT)
    calls.answer(back, What.FAILURE, detail=BY_REASON[Reason.TIMEOUT])
    late = calls.call % 2 == 0
    calls.only(late).come_back(back[late] + 3 * MILLI, What.RESULT)


def lost(calls: Calls) -> None:
    """The callee goes away; for NQ the request is given to another one."""
    forwarded, back = calls.there()
    nq = calls.caller_protocol == NQ
    others = calls.only(~nq)
    others.answer(back[~nq], What.FAILURE, detail=BY_REASON[Reason.LOST])
    again = calls.only(nq)
    other = again.world.offering(again.method, again.script.rng)
    second = forwarded[nq] + again.delay(2000, 9000)
    again.forward(second, SECOND_CALLEE, other)
    done = second + again.duration + again.delay(205, 300)
    again.come_back(done, What.RESULT, SECOND_CALLEE, other)
    again.answer(done + again.delay(10, 100), What.RESULT)


def cancelled(calls: Calls) -> None:
    """The caller does not want it any more; a few hear no more of it."""
    calls.duration = calls.duration + 20 * MILLI
    forwarded, back = calls.there()
    stop = (forwarded + back) // 2
    # In NQ by the backchannel, or by target and id; the former is matched by nothing but the operation.
    odd = calls.call % 2 if calls.script.ops else 1
    calls.say(What.CANCEL, stop, CALLER, out=False, num=calls.num, session=calls.caller, odd=odd)
    told = np.isin(calls.callee_protocol, (*LRPM, NQ))
    some = calls.only(told)
    some.say(
        What.CANCEL, stop[told] + some.delay(5, 20), CALLEE, out=True, num=some.hub_num(CALLEE), session=some.callee
    )
    some.come_back(stop[told] + some.delay(300, 900), What.FAILURE, detail=BY_REASON[Reason.CANCELLED])
    answered = calls.call % 8 != 0
    calls.only(answered).answer(
        stop[answered] + calls.only(answered).delay(1000, 2000), What.FAILURE, detail=BY_REASON[Reason.CANCELLED]
    )


def unanswered(calls: Calls) -> None:
    """Nothing ever comes back; every other call is not even forwarded."""
    calls.ask(calls.at)
    calls.accept(calls.at + calls.delay(10, 30))
    some = calls.only(calls.call % 2 == 0)
    some.forward(some.at + some.delay(35, 200))


def streamed(calls: Calls) -> None:
    """The callee answers in parts, and so does the hub where the caller's protocol has them."""
    forwarded, back = calls.there(STREAM)
    takes_parts = np.isin(calls.caller_protocol, (*LRPM, NQ, MQTT))
    parts = 2 + calls.call % 4
    step = (back - forwarded) // (parts + 1)
    for nth in range(1, int(parts.max(initial=0))):
        going = nth < parts
        calls.only(going).parted(forwarded[going] + step[going] * nth, nth, takes_parts[going])
    broken = calls.call % 7 == 0
    some = calls.only(broken)
    some.come_back(back[broken], What.FAILURE, detail=OWN)
    some.answer(back[broken] + some.delay(10, 100), What.FAILURE, detail=OWN)
    empty = calls.call % 3 == 0
    for what, which in ((What.END, empty & ~broken), (What.LAST, ~empty & ~broken)):
        group = calls.only(which)
        group.ended(back[which], what, parts[which], takes_parts[which])


def progressing(calls: Calls) -> None:
    """The callee says how it is doing."""
    forwarded, back = calls.there(PROGRESS)
    for share in (3, 2):
        at = forwarded + (back - forwarded) // share
        calls.say(What.NOTE, at, CALLEE, out=False, num=calls.hub_num(CALLEE), session=calls.callee)
        calls.say(What.NOTE, at + calls.delay(10, 50), CALLER, out=True, num=calls.num, session=calls.caller)
    calls.come_back(back, What.RESULT)
    calls.answer(back + calls.delay(10, 100), What.RESULT)


def carried(calls: Calls) -> None:
    """An attachment goes with the call, in a frame of its own."""
    forwarded = calls.at + calls.delay(35, 200)
    legs = ((CALLER, calls.at, calls.num, calls.caller), (CALLEE, forwarded, calls.hub_num(CALLEE), calls.callee))
    for leg, at, num, session in legs:
        calls.say(What.CARRIER, at, leg, out=leg == CALLEE, num=num, session=session)
        calls.say(What.ATTACHMENT, at + 30_000, leg, out=leg == CALLEE, num=num, session=session)
    back = forwarded + calls.delay(205, 300) + calls.duration
    calls.come_back(back, What.RESULT)
    calls.answer(back + calls.delay(10, 100), What.RESULT)


def reused(calls: Calls) -> None:
    """The second half asks as the first did, under the same ids, when these are free again."""
    half = len(calls) // 2
    first, second = calls.only(np.arange(half)), calls.only(np.arange(half, 2 * half))
    second.caller, second.callee, second.num, second.method = first.caller, first.callee, first.num, first.method
    second.at = first.at + first.duration + 1000 * MILLI
    plain(first)
    plain(second)


def called_back(calls: Calls) -> None:
    """A callback is called, once; every other one is unknown. This is no call of a method."""
    calls.say(What.CALLBACK, calls.at, CALLER, out=False, num=calls.num, session=calls.caller)
    known = calls.call % 2 == 0
    some, others = calls.only(known), calls.only(~known)
    others.answer(others.at + others.delay(10, 50), What.FAILURE, detail=BY_REASON[Reason.NO_CALLBACK])
    forwarded = some.at + some.delay(35, 200)
    num = some.hub_num(CALLEE)
    some.say(What.CALLBACK, forwarded, CALLEE, out=True, num=num, session=some.callee)
    some.come_back(forwarded + some.duration, What.RESULT)
    some.answer(forwarded + some.duration + some.delay(10, 100), What.RESULT)


def built_in(calls: Calls, *, answered: bool = True) -> None:
    """The hub answers by itself, and there is no operation."""
    calls.say(What.CALL, calls.at, CALLER, out=False, num=calls.num, session=calls.caller, op=NO_OP, odd=calls.odd)
    if answered:
        calls.say(
            What.RESULT, calls.at + calls.delay(10, 60), CALLER, out=True, num=calls.num, session=calls.caller, op=NO_OP
        )


def discovered(calls: Calls) -> None:
    """Somebody asks what there is, in the message that UMQ has for it."""
    calls.say(What.DISCOVER, calls.at, CALLER, out=False, num=calls.num, session=calls.caller, op=NO_OP)
    calls.say(
        What.RESULT, calls.at + calls.delay(10, 60), CALLER, out=True, num=calls.num, session=calls.caller, op=NO_OP
    )


def overlapped(calls: Calls) -> None:
    """The second half uses the ids of the first while these are in use; answers come in the order of the requests."""
    half = len(calls) // 2
    first, second = calls.only(np.arange(half)), calls.only(np.arange(half, 2 * half))
    second.caller, second.callee, second.num, second.method = first.caller, first.callee, first.num, first.method
    first.duration = first.duration + 5 * MILLI
    second.at, second.duration = first.at + 2 * MILLI, first.duration + 5 * MILLI
    plain(first)
    plain(second)


def declined(calls: Calls) -> None:
    """The callee itself has no such method, and says so."""
    _, back = calls.there()
    calls.come_back(back, What.FAILURE, detail=BY_REASON[Reason.NO_METHOD])
    calls.answer(back + calls.delay(10, 100), What.FAILURE, detail=BY_REASON[Reason.NO_METHOD])


def shouted(calls: Calls) -> None:
    """The request names no method at all."""
    calls.say(What.SHOUT, calls.at, CALLER, out=False, num=calls.num, session=calls.caller, method=NOBODY)
    calls.answer(calls.at + calls.delay(20, 60), What.FAILURE, detail=BY_REASON[Reason.NO_METHOD], method=NOBODY)
