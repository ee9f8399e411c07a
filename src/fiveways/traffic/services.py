"""Services of the callees: methods that are fast, slow, failing, streaming or overloaded."""

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
"""Service of the callee in each protocol."""
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
"""Method for each kind of call."""
MAX_RESERVATIONS: Final = 2
"""Maximum concurrent reservations; further calls fail as busy."""


def create_app(service: str, method_runs: Counter[str]) -> App:
    """Return an app with the methods of a service; `method_runs` counts their runs."""
    app = App()
    reservations = 0

    @app.method(f"{service}.look_up")
    async def look_up(item: int) -> dict[str, object]:
        """Return an item."""
        method_runs[f"{service}.look_up"] += 1
        return {"item": item, "name": f"{service} {item}", "price": item % 1000 / 10}

    @app.method(f"{service}.build")
    async def build(context: Context, item: int, wait: float) -> str:
        """Take some time, with progress."""
        method_runs[f"{service}.build"] += 1
        for part in range(1, 4):
            await asyncio.sleep(wait / 3)
            context.progress({"done": part, "total": 3}, "building")
        return f"{service} {item} built"

    @app.method(f"{service}.digest")
    async def digest(data: bytes) -> bytes:
        """Return the digest of bytes."""
        method_runs[f"{service}.digest"] += 1
        return sha256(data).digest()

    @app.method(f"{service}.charge")
    async def charge(item: int) -> None:
        """Fail."""
        method_runs[f"{service}.charge"] += 1
        raise Fail(f"insufficient funds for {item}", name="app.err.no_funds", code=402, data={"item": item})

    @app.method(f"{service}.history")
    async def history(count: int) -> AsyncIterator[dict[str, int]]:
        """Return a stream."""
        method_runs[f"{service}.history"] += 1
        for number in range(count):
            yield {"entry": number}

    @app.method(f"{service}.reserve")
    async def reserve(item: int, wait: float) -> str:
        """Reserve an item, or fail if there are too many concurrent reservations."""
        nonlocal reservations
        method_runs[f"{service}.reserve"] += 1
        if reservations >= MAX_RESERVATIONS:
            raise Fail("too many reservations", name="app.err.busy", code=429, retry_after=0.5)
        reservations += 1
        try:
            await asyncio.sleep(wait)
        finally:
            reservations -= 1
        return f"{service} {item} reserved"

    return app
