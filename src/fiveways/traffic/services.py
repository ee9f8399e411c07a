"""What the workers offer: methods that are quick, slow, fail, answer in parts, or have too much to do."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Final

from fiveways.app.app import App
from fiveways.app.context import Context
from fiveways.app.responses import Fail

SERVICES: Final = {
    "umq": "account",
    "umq36": "stock",
    "lrpm-json": "orders",
    "lrpm-cbor": "sensors",
    "nq+ws": "payments",
    "nq+http": "archive",
}
"""What the worker in each protocol is for."""
METHODS: Final = {
    "quick": "look_up",
    "slow": "build",
    "impatient": "build",
    "cancelled": "build",
    "failing": "charge",
    "streaming": "history",
    "busy": "reserve",
    "wrong": "look_up",
    "unknown": "no_such_thing",
}
"""The method of each kind of call."""
MAX_RESERVATIONS: Final = 2
"""Reservations that are made at once; whoever else comes is sent away."""


def create_app(service: str, ran: Counter[str]) -> App:
    """Return the methods of one service; how often each has run is counted."""
    app = App()
    taken = 0

    @app.method(f"{service}.look_up")
    async def look_up(item: int) -> dict[str, object]:
        """Tell what is known of an item."""
        ran[f"{service}.look_up"] += 1
        return {"item": item, "name": f"{service} {item}", "price": item % 1000 / 10}

    @app.method(f"{service}.build")
    async def build(context: Context, item: int, wait: float) -> str:
        """Take some time, and tell how far it is."""
        ran[f"{service}.build"] += 1
        for part in range(1, 4):
            await asyncio.sleep(wait / 3)
            context.progress({"done": part, "total": 3}, "building")
        return f"{service} {item} built"

    @app.method(f"{service}.digest")
    async def digest(data: bytes) -> bytes:
        """Answer bytes for bytes."""
        ran[f"{service}.digest"] += 1
        return sha256(data).digest()

    @app.method(f"{service}.charge")
    async def charge(item: int) -> None:
        """Fail."""
        ran[f"{service}.charge"] += 1
        raise Fail(f"there is not enough for {item}", name="app.err.no_funds", code=402, data={"item": item})

    @app.method(f"{service}.history")
    async def history(count: int) -> AsyncIterator[dict[str, int]]:
        """Answer in parts."""
        ran[f"{service}.history"] += 1
        for number in range(count):
            yield {"entry": number}

    @app.method(f"{service}.reserve")
    async def reserve(item: int, wait: float) -> str:
        """Reserve, unless too many do so now."""
        nonlocal taken
        ran[f"{service}.reserve"] += 1
        if taken >= MAX_RESERVATIONS:
            raise Fail("too much to do", name="app.err.busy", code=429, retry_after=0.5)
        taken += 1
        try:
            await asyncio.sleep(wait)
        finally:
            taken -= 1
        return f"{service} {item} reserved"

    return app
