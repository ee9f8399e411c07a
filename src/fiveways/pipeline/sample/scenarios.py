"""The ways in which a call can go; each function takes many calls at once."""

import numpy as np

from fiveways.errors import Reason
from fiveways.pipeline.sample.calls import LRPM, MILLI, MQTT, NQ, CallGroup
from fiveways.pipeline.sample.encoder_input import PROGRESS, STREAM, TIMEOUT
from fiveways.pipeline.sample.script import CALLEE, CALLER, NO_OP, NO_SESSION, SECOND_CALLEE, LineKind
from fiveways.pipeline.sample.vocabulary import APPLICATION_FAILURE, BY_REASON, NOWHERE, REFUSALS


def plain(calls: CallGroup) -> None:
    """Ask, forward, come back, answer."""
    _, back = calls.request_and_forward()
    calls.return_answer(back, LineKind.RESULT)
    calls.answer(back + calls.random_delay(10, 100), LineKind.RESULT)


def raised(calls: CallGroup) -> None:
    """The method ran and failed."""
    details = np.where(calls.call % 2 == 0, APPLICATION_FAILURE, BY_REASON[Reason.RAISED])
    _, back = calls.request_and_forward()
    calls.return_answer(back, LineKind.FAILURE, detail=details)
    calls.answer(back + calls.random_delay(10, 100), LineKind.FAILURE, detail=details)


def refused(calls: CallGroup) -> None:
    """The hub refuses, for one of several reasons; nobody is asked."""
    details = np.array(REFUSALS)[calls.script.rng.integers(0, len(REFUSALS), len(calls))]
    nowhere = details == BY_REASON[Reason.NO_SUCH_METHOD]
    methods = np.where(nowhere, np.array(NOWHERE)[calls.call % len(NOWHERE)], calls.method)
    calls.method = methods
    calls.send_request(calls.at)
    calls.answer(calls.at + calls.random_delay(20, 60), LineKind.FAILURE, detail=details)
    denied = calls.select(details == BY_REASON[Reason.DENIED])
    denied.add_lines(
        LineKind.DENY, denied.at + denied.random_delay(10, 15), CALLER, out=False, num=denied.num, session=denied.caller
    )


def timed_out(calls: CallGroup) -> None:
    """The deadline comes first; every other callee answers later, in vain."""
    calls.duration = calls.duration + 50 * MILLI
    _, back = calls.request_and_forward(TIMEOUT)
    calls.answer(back, LineKind.FAILURE, detail=BY_REASON[Reason.TIMEOUT])
    late = calls.call % 2 == 0
    calls.select(late).return_answer(back[late] + 3 * MILLI, LineKind.RESULT)


def lost(calls: CallGroup) -> None:
    """The callee goes away; for NQ the request is given to another one."""
    forwarded, back = calls.request_and_forward()
    nq = calls.caller_protocol == NQ
    others = calls.select(~nq)
    others.answer(back[~nq], LineKind.FAILURE, detail=BY_REASON[Reason.LOST])
    again = calls.select(nq)
    other = again.world.choose_callees(again.method, again.script.rng)
    second = forwarded[nq] + again.random_delay(2000, 9000)
    again.forward(second, SECOND_CALLEE, other)
    done = second + again.duration + again.random_delay(205, 300)
    again.return_answer(done, LineKind.RESULT, SECOND_CALLEE, other)
    again.answer(done + again.random_delay(10, 100), LineKind.RESULT)


def cancelled(calls: CallGroup) -> None:
    """The caller does not want it any more; a few hear no more of it."""
    calls.duration = calls.duration + 20 * MILLI
    forwarded, back = calls.request_and_forward()
    stop = (forwarded + back) // 2
    # In NQ by the backchannel, or by target and id; the former is matched by nothing but the operation.
    odd = calls.call % 2 if calls.script.ops else 1
    calls.add_lines(LineKind.CANCEL, stop, CALLER, out=False, num=calls.num, session=calls.caller, odd=odd)
    told = np.isin(calls.callee_protocol, (*LRPM, NQ))
    some = calls.select(told)
    some.add_lines(
        LineKind.CANCEL,
        stop[told] + some.random_delay(5, 20),
        CALLEE,
        out=True,
        num=some.hub_num(CALLEE),
        session=some.callee,
    )
    some.return_answer(stop[told] + some.random_delay(300, 900), LineKind.FAILURE, detail=BY_REASON[Reason.CANCELLED])
    answered = calls.call % 8 != 0
    calls.select(answered).answer(
        stop[answered] + calls.select(answered).random_delay(1000, 2000),
        LineKind.FAILURE,
        detail=BY_REASON[Reason.CANCELLED],
    )


def unanswered(calls: CallGroup) -> None:
    """Nothing ever comes back; every other call is not even forwarded."""
    calls.send_request(calls.at)
    calls.accept(calls.at + calls.random_delay(10, 30))
    some = calls.select(calls.call % 2 == 0)
    some.forward(some.at + some.random_delay(35, 200))


def streamed(calls: CallGroup) -> None:
    """The callee answers in parts, and so does the hub where the caller's protocol has them."""
    forwarded, back = calls.request_and_forward(STREAM)
    takes_parts = np.isin(calls.caller_protocol, (*LRPM, NQ, MQTT))
    parts = 2 + calls.call % 4
    step = (back - forwarded) // (parts + 1)
    for nth in range(1, int(parts.max(initial=0))):
        going = nth < parts
        calls.select(going).send_part(forwarded[going] + step[going] * nth, nth, takes_parts[going])
    broken = calls.call % 7 == 0
    some = calls.select(broken)
    some.return_answer(back[broken], LineKind.FAILURE, detail=APPLICATION_FAILURE)
    some.answer(back[broken] + some.random_delay(10, 100), LineKind.FAILURE, detail=APPLICATION_FAILURE)
    empty = calls.call % 3 == 0
    for what, which in ((LineKind.END, empty & ~broken), (LineKind.LAST, ~empty & ~broken)):
        group = calls.select(which)
        group.end_stream(back[which], what, parts[which], takes_parts[which])


def progressing(calls: CallGroup) -> None:
    """The callee says how it is doing."""
    forwarded, back = calls.request_and_forward(PROGRESS)
    for share in (3, 2):
        at = forwarded + (back - forwarded) // share
        calls.add_lines(LineKind.NOTE, at, CALLEE, out=False, num=calls.hub_num(CALLEE), session=calls.callee)
        calls.add_lines(
            LineKind.NOTE, at + calls.random_delay(10, 50), CALLER, out=True, num=calls.num, session=calls.caller
        )
    calls.return_answer(back, LineKind.RESULT)
    calls.answer(back + calls.random_delay(10, 100), LineKind.RESULT)


def carried(calls: CallGroup) -> None:
    """An attachment goes with the call, in a frame of its own."""
    forwarded = calls.at + calls.random_delay(35, 200)
    legs = ((CALLER, calls.at, calls.num, calls.caller), (CALLEE, forwarded, calls.hub_num(CALLEE), calls.callee))
    for leg, at, num, session in legs:
        calls.add_lines(LineKind.CARRIER, at, leg, out=leg == CALLEE, num=num, session=session)
        calls.add_lines(LineKind.ATTACHMENT, at + 30_000, leg, out=leg == CALLEE, num=num, session=session)
    back = forwarded + calls.random_delay(205, 300) + calls.duration
    calls.return_answer(back, LineKind.RESULT)
    calls.answer(back + calls.random_delay(10, 100), LineKind.RESULT)


def reused(calls: CallGroup) -> None:
    """The second half asks as the first did, under the same ids, when these are free again."""
    half = len(calls) // 2
    first, second = calls.select(np.arange(half)), calls.select(np.arange(half, 2 * half))
    second.caller, second.callee, second.num, second.method = first.caller, first.callee, first.num, first.method
    second.at = first.at + first.duration + 1000 * MILLI
    plain(first)
    plain(second)


def called_back(calls: CallGroup) -> None:
    """A callback is called, once; every other one is unknown. This is no call of a method."""
    calls.add_lines(LineKind.CALLBACK, calls.at, CALLER, out=False, num=calls.num, session=calls.caller)
    known = calls.call % 2 == 0
    some, others = calls.select(known), calls.select(~known)
    others.answer(others.at + others.random_delay(10, 50), LineKind.FAILURE, detail=BY_REASON[Reason.NO_SUCH_CALLBACK])
    forwarded = some.at + some.random_delay(35, 200)
    num = some.hub_num(CALLEE)
    some.add_lines(LineKind.CALLBACK, forwarded, CALLEE, out=True, num=num, session=some.callee)
    some.return_answer(forwarded + some.duration, LineKind.RESULT)
    some.answer(forwarded + some.duration + some.random_delay(10, 100), LineKind.RESULT)


def built_in(calls: CallGroup, *, answered: bool = True) -> None:
    """The hub answers by itself, and there is no operation."""
    calls.add_lines(
        LineKind.CALL, calls.at, CALLER, out=False, num=calls.num, session=calls.caller, op=NO_OP, odd=calls.odd
    )
    if answered:
        calls.add_lines(
            LineKind.RESULT,
            calls.at + calls.random_delay(10, 60),
            CALLER,
            out=True,
            num=calls.num,
            session=calls.caller,
            op=NO_OP,
        )


def discovered(calls: CallGroup) -> None:
    """Somebody asks what there is, in the message that UMQ has for it."""
    calls.add_lines(LineKind.DISCOVER, calls.at, CALLER, out=False, num=calls.num, session=calls.caller, op=NO_OP)
    calls.add_lines(
        LineKind.RESULT,
        calls.at + calls.random_delay(10, 60),
        CALLER,
        out=True,
        num=calls.num,
        session=calls.caller,
        op=NO_OP,
    )


def overlapped(calls: CallGroup) -> None:
    """The second half uses the ids of the first while these are in use; answers come in the order of the requests."""
    half = len(calls) // 2
    first, second = calls.select(np.arange(half)), calls.select(np.arange(half, 2 * half))
    second.caller, second.callee, second.num, second.method = first.caller, first.callee, first.num, first.method
    first.duration = first.duration + 5 * MILLI
    second.at, second.duration = first.at + 2 * MILLI, first.duration + 5 * MILLI
    plain(first)
    plain(second)


def declined(calls: CallGroup) -> None:
    """The callee itself has no such method, and says so."""
    _, back = calls.request_and_forward()
    calls.return_answer(back, LineKind.FAILURE, detail=BY_REASON[Reason.NO_SUCH_METHOD])
    calls.answer(back + calls.random_delay(10, 100), LineKind.FAILURE, detail=BY_REASON[Reason.NO_SUCH_METHOD])


def shouted(calls: CallGroup) -> None:
    """The request names no method at all."""
    calls.add_lines(LineKind.SHOUT, calls.at, CALLER, out=False, num=calls.num, session=calls.caller, method=NO_SESSION)
    calls.answer(
        calls.at + calls.random_delay(20, 60),
        LineKind.FAILURE,
        detail=BY_REASON[Reason.NO_SUCH_METHOD],
        method=NO_SESSION,
    )
