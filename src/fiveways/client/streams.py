"""The parts of a streamed answer, as they come."""

from collections.abc import AsyncGenerator
from typing import Any

from fiveways.client.requests import Parts, Pending
from fiveways.client.session import Session
from fiveways.model.outcomes import value_of


async def parts_of(session: Session, pending: Pending, parts: Parts) -> AsyncGenerator[Any, None]:
    """Give the parts of one call; the call is abandoned if its reader stops before the end."""
    pending.future.add_done_callback(lambda _: parts.more.set())
    try:
        while True:
            while parts.waiting:
                yield value_of(parts.waiting.popleft())
            if pending.future.done():
                break
            parts.more.clear()
            await parts.more.wait()
        answer = pending.future.result()
        if not answer.stream:
            value = value_of(answer)
            for part in value if isinstance(value, list) else [value]:
                yield part
    finally:
        if pending.future.done():
            pending.future.exception()  # it was told above, or nobody wants to know
        else:
            session.abandon(pending)
