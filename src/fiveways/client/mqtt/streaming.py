"""Calls in which one side, or both, send more than one message."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from fiveways.client.mqtt.session import MqttCallTarget, MqttSession
from fiveways.client.pending_requests import PendingRequest
from fiveways.errors import Cancelled, ConnectionLost, LocalProtocolError, NotExecuted, Reason
from fiveways.wire.payload import Payload

# ruff: noqa: ASYNC109  a timeout is told to the service

RequestBodies = AsyncIterator[tuple[Payload, bool]]
"""The elements of a streamed request, each with whether it is known to be the last."""


async def stream(
    session: MqttSession, target: MqttCallTarget, request: Payload | RequestBodies, timeout: float | None
) -> AsyncGenerator[bytes, None]:
    """Call a method that answers in parts, and give them as they come. Who stops taking them has given the call up."""
    first, is_last, bodies = await _take_first(request)
    left = await session.wait_ready(target.topic, timeout)
    inflow = session.new_part_buffer()
    pending = session.start_call(target, first, session.remaining(timeout, left), inflow, more=not is_last)
    sending = _start_sending(session, pending, bodies) if bodies is not None and not is_last else None
    if sending is not None:
        sending.add_done_callback(lambda task: inflow.end(_task_error(task)) if _task_error(task) else None)
    try:
        while (data := await inflow.wait_next()) is not None:
            yield data
    finally:
        session.abandon(pending)
        inflow.drop()
        await _stop_sending(sending)


async def upload(session: MqttSession, target: MqttCallTarget, bodies: RequestBodies, timeout: float | None) -> bytes:
    """Call a method that takes a streamed request, and return its answer."""
    first, is_last, _ = await _take_first(bodies)
    left = await session.wait_ready(target.topic, timeout)
    pending = session.start_call(target, first, session.remaining(timeout, left), more=not is_last)
    sending = None if is_last else _start_sending(session, pending, bodies)
    if sending is not None:
        sending.add_done_callback(lambda task: _propagate_error(task, pending))
    try:
        body = (await pending.future).body
        return b"" if body is None else body.binary()
    finally:
        session.abandon(pending)
        await _stop_sending(sending)


async def _take_first(request: Payload | RequestBodies) -> tuple[Payload, bool, RequestBodies | None]:
    """Take the first element: it names the method, so that there is no call without it."""
    if isinstance(request, Payload):
        return request, True, None
    async for body, is_last in request:
        return body, is_last, request
    raise NotExecuted(Reason.BAD_ARGUMENTS, "a streamed request has at least one element: the first names the method")


def _start_sending(session: MqttSession, pending: PendingRequest, bodies: RequestBodies) -> "asyncio.Task[None]":
    """Send the other elements while somebody waits for the answer."""
    return asyncio.create_task(_send_rest(session, pending, bodies), name="fiveways.mqtt.upload")


async def _send_rest(session: MqttSession, pending: PendingRequest, bodies: RequestBodies) -> None:
    number, is_last = 1, False
    async for body, is_last in bodies:
        number += 1
        await session.reconnector.wait_writable()
        if pending.future.done():
            return
        try:
            session.send_part(pending, body, last=is_last)
        except LocalProtocolError as exc:
            # The others have left, so it cannot be said that nothing was run.
            raise Cancelled(f"element {number} cannot be sent: {exc}; the call was given up, and may have run") from exc
        # One who gives elements without ever waiting must not keep the link from being written to.
        if number % 32 == 0:
            await asyncio.sleep(0)
    if not is_last and not pending.future.done():
        await session.reconnector.wait_writable()
        with suppress(LocalProtocolError):  # the answer may have come meanwhile
            session.send_part(pending, None, last=True)


def _task_error(task: "asyncio.Task[None]") -> Exception | None:
    error = None if task.cancelled() else task.exception()
    # That there is no link any more, the call hears itself.
    return error if isinstance(error, Exception) and not isinstance(error, ConnectionLost) else None


def _propagate_error(task: "asyncio.Task[None]", pending: PendingRequest) -> None:
    error = _task_error(task)
    if error is not None and not pending.future.done():
        pending.future.set_exception(error)


async def _stop_sending(sending: "asyncio.Task[None] | None") -> None:
    """End the sending, and wait for it: the user's iterable must not run on behind its back."""
    if sending is not None and not sending.done():
        sending.cancel()
        await asyncio.wait([sending])
