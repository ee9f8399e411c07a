"""Calls with a streamed request, a streamed response, or both."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from fiveways.client.mqtt.session import MqttCallTarget, MqttSession
from fiveways.client.pending_requests import PendingRequest
from fiveways.errors import Cancelled, ConnectionLost, LocalProtocolError, NotExecuted, Reason
from fiveways.wire.payload import Payload

# ruff: noqa: ASYNC109  the timeout is sent to the service

RequestBodies = AsyncIterator[tuple[Payload, bool]]
"""Elements of a streamed request, each with whether it is known to be the last."""


async def stream(
    session: MqttSession, target: MqttCallTarget, request: Payload | RequestBodies, timeout: float | None
) -> AsyncGenerator[bytes, None]:
    """Call a method with a streamed response and yield its parts; closing the generator abandons the call."""
    first, is_last, bodies = await _take_first(request)
    remaining = await session.wait_ready(target.topic, timeout)
    buffer = session.new_part_buffer()
    pending = session.start_call(target, first, session.remaining(timeout, remaining), buffer, more=not is_last)
    sender = _start_sending(session, pending, bodies) if bodies is not None and not is_last else None
    if sender is not None:
        sender.add_done_callback(lambda task: buffer.end(_task_error(task)) if _task_error(task) else None)
    try:
        while (data := await buffer.wait_next()) is not None:
            yield data
    finally:
        session.abandon(pending)
        buffer.drop()
        await _stop_sending(sender)


async def upload(session: MqttSession, target: MqttCallTarget, bodies: RequestBodies, timeout: float | None) -> bytes:
    """Call a method with a streamed request and return its response."""
    first, is_last, _ = await _take_first(bodies)
    remaining = await session.wait_ready(target.topic, timeout)
    pending = session.start_call(target, first, session.remaining(timeout, remaining), more=not is_last)
    sender = None if is_last else _start_sending(session, pending, bodies)
    if sender is not None:
        sender.add_done_callback(lambda task: _propagate_error(task, pending))
    try:
        body = (await pending.future).body
        return b"" if body is None else body.binary()
    finally:
        session.abandon(pending)
        await _stop_sending(sender)


async def _take_first(request: Payload | RequestBodies) -> tuple[Payload, bool, RequestBodies | None]:
    """Return the first element, with which the call begins, whether it is the last, and the other elements."""
    if isinstance(request, Payload):
        return request, True, None
    async for body, is_last in request:
        return body, is_last, request
    raise NotExecuted(
        Reason.BAD_ARGUMENTS, "a streamed request needs at least one element: the first one carries the method"
    )


def _start_sending(session: MqttSession, pending: PendingRequest, bodies: RequestBodies) -> "asyncio.Task[None]":
    """Start a task that sends the remaining elements."""
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
            # Earlier elements were sent: the method may have run.
            raise Cancelled(f"element {number} cannot be sent: {exc}; the call was cancelled and may have run") from exc
        # An iterable that never waits must not keep the loop from writing to the link.
        if number % 32 == 0:
            await asyncio.sleep(0)
    if not is_last and not pending.future.done():
        await session.reconnector.wait_writable()
        with suppress(LocalProtocolError):  # the response may have arrived in the meantime
            session.send_part(pending, None, last=True)


def _task_error(task: "asyncio.Task[None]") -> Exception | None:
    error = None if task.cancelled() else task.exception()
    # The call itself fails when the link is lost.
    return error if isinstance(error, Exception) and not isinstance(error, ConnectionLost) else None


def _propagate_error(task: "asyncio.Task[None]", pending: PendingRequest) -> None:
    error = _task_error(task)
    if error is not None and not pending.future.done():
        pending.future.set_exception(error)


async def _stop_sending(sender: "asyncio.Task[None] | None") -> None:
    """Cancel the sender task and wait for it: the user's iterable must not run after the call."""
    if sender is not None and not sender.done():
        sender.cancel()
        await asyncio.wait([sender])
