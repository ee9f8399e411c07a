"""The parts of a streamed answer, as they come."""

from collections.abc import AsyncGenerator
from typing import Any

from fiveways.client.pending_requests import PartQueue, PendingRequest
from fiveways.client.session import Session
from fiveways.model.outcomes import value_of_result


async def iterate_parts(session: Session, pending: PendingRequest, parts: PartQueue) -> AsyncGenerator[Any, None]:
    """Give the parts of one call; the call is abandoned if its reader stops before the end."""
    pending.future.add_done_callback(lambda _: parts.arrived.set())
    try:
        while True:
            while parts.queue:
                yield value_of_result(parts.queue.popleft())
            if pending.future.done():
                break
            parts.arrived.clear()
            await parts.arrived.wait()
        answer = pending.future.result()
        if not answer.stream:
            value = value_of_result(answer)
            for part in value if isinstance(value, list) else [value]:
                yield part
    finally:
        if pending.future.done():
            pending.future.exception()  # it was told above, or nobody wants to know
        else:
            session.abandon(pending)
