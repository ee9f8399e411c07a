"""The courses that a call can take; each function plans a group of calls."""

import numpy as np

from fiveways.errors import Reason
from tests.support.sample_captures.calls import LRPM, MILLI, MQTT, NQ, CallGroup
from tests.support.sample_captures.encoder_input import PROGRESS, STREAM, TIMEOUT
from tests.support.sample_captures.script import CALLEE, CALLER, NO_OP, NO_SESSION, SECOND_CALLEE, LineKind
from tests.support.sample_captures.vocabulary import APPLICATION_FAILURE, BY_REASON, NOWHERE, REFUSALS


def plain(calls: CallGroup) -> None:
    """Request, forwarding, response, answer."""
    _, back = calls.request_and_forward()
    calls.return_answer(back, LineKind.RESULT)
    calls.answer(back + calls.random_delay(10, 100), LineKind.RESULT)


def raised(calls: CallGroup) -> None:
    """The method raises."""
    details = np.where(calls.call % 2 == 0, APPLICATION_FAILURE, BY_REASON[Reason.RAISED])
    _, back = calls.request_and_forward()
    calls.return_answer(back, LineKind.FAILURE, detail=details)
    calls.answer(back + calls.random_delay(10, 100), LineKind.FAILURE, detail=details)


def refused(calls: CallGroup) -> None:
    """The hub refuses the call for one of several reasons; no callee is asked."""
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
    """The deadline passes; every second callee still answers, too late."""
    calls.duration = calls.duration + 50 * MILLI
    _, back = calls.request_and_forward(TIMEOUT)
    calls.answer(back, LineKind.FAILURE, detail=BY_REASON[Reason.TIMEOUT])
    late = calls.call % 2 == 0
    calls.select(late).return_answer(back[late] + 3 * MILLI, LineKind.RESULT)


def lost(calls: CallGroup) -> None:
    """The callee disconnects; an NQ request is redelivered to another callee."""
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
    """The caller cancels; one in eight gets no answer."""
    calls.duration = calls.duration + 20 * MILLI
    forwarded, back = calls.request_and_forward()
    stop = (forwarded + back) // 2
    # NQ cancels by backchannel, or by target and id. Only the operation id matches a cancellation by backchannel.
    odd = calls.call % 2 if calls.script.ops else 1
    calls.add_lines(LineKind.CANCEL, stop, CALLER, out=False, num=calls.num, session=calls.caller, odd=odd)
    notified = np.isin(calls.callee_protocol, (*LRPM, NQ))
    some = calls.select(notified)
    some.add_lines(
        LineKind.CANCEL,
        stop[notified] + some.random_delay(5, 20),
        CALLEE,
        out=True,
        num=some.hub_num(CALLEE),
        session=some.callee,
    )
    some.return_answer(
        stop[notified] + some.random_delay(300, 900), LineKind.FAILURE, detail=BY_REASON[Reason.CANCELLED]
    )
    answered = calls.call % 8 != 0
    calls.select(answered).answer(
        stop[answered] + calls.select(answered).random_delay(1000, 2000),
        LineKind.FAILURE,
        detail=BY_REASON[Reason.CANCELLED],
    )


def unanswered(calls: CallGroup) -> None:
    """No response ever arrives; every second request is not even forwarded."""
    calls.send_request(calls.at)
    calls.accept(calls.at + calls.random_delay(10, 30))
    some = calls.select(calls.call % 2 == 0)
    some.forward(some.at + some.random_delay(35, 200))


def streamed(calls: CallGroup) -> None:
    """The callee streams its result, and so does the hub if the caller's protocol has streams."""
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
    """The callee reports progress."""
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
    """The call has an attachment, which follows in a frame of its own."""
    forwarded = calls.at + calls.random_delay(35, 200)
    legs = ((CALLER, calls.at, calls.num, calls.caller), (CALLEE, forwarded, calls.hub_num(CALLEE), calls.callee))
    for leg, at, num, session in legs:
        calls.add_lines(LineKind.CARRIER, at, leg, out=leg == CALLEE, num=num, session=session)
        calls.add_lines(LineKind.ATTACHMENT, at + 30_000, leg, out=leg == CALLEE, num=num, session=session)
    back = forwarded + calls.random_delay(205, 300) + calls.duration
    calls.return_answer(back, LineKind.RESULT)
    calls.answer(back + calls.random_delay(10, 100), LineKind.RESULT)


def reused(calls: CallGroup) -> None:
    """The second half of the calls reuses the ids of the first half after these are free."""
    half = len(calls) // 2
    first, second = calls.select(np.arange(half)), calls.select(np.arange(half, 2 * half))
    second.caller, second.callee, second.num, second.method = first.caller, first.callee, first.num, first.method
    second.at = first.at + first.duration + 1000 * MILLI
    plain(first)
    plain(second)


def called_back(calls: CallGroup) -> None:
    """A callback is called; every second one is unknown. The pipeline must not count it as a method call."""
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
    """The hub answers itself; there is no operation."""
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
    """A peer lists the methods with UMQ's message for it."""
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
    """The second half reuses ids still in use by the first half; responses come in the order of the requests."""
    half = len(calls) // 2
    first, second = calls.select(np.arange(half)), calls.select(np.arange(half, 2 * half))
    second.caller, second.callee, second.num, second.method = first.caller, first.callee, first.num, first.method
    first.duration = first.duration + 5 * MILLI
    second.at, second.duration = first.at + 2 * MILLI, first.duration + 5 * MILLI
    plain(first)
    plain(second)


def declined(calls: CallGroup) -> None:
    """The callee answers that it does not have the method."""
    _, back = calls.request_and_forward()
    calls.return_answer(back, LineKind.FAILURE, detail=BY_REASON[Reason.NO_SUCH_METHOD])
    calls.answer(back + calls.random_delay(10, 100), LineKind.FAILURE, detail=BY_REASON[Reason.NO_SUCH_METHOD])


def shouted(calls: CallGroup) -> None:
    """The request names no method."""
    calls.add_lines(LineKind.SHOUT, calls.at, CALLER, out=False, num=calls.num, session=calls.caller, method=NO_SESSION)
    calls.answer(
        calls.at + calls.random_delay(20, 60),
        LineKind.FAILURE,
        detail=BY_REASON[Reason.NO_SUCH_METHOD],
        method=NO_SESSION,
    )
