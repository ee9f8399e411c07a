"""The application inside the fuzzed hub; it uses every feature that an application has."""

import asyncio
from collections.abc import AsyncIterator

import fiveways


def create_app() -> fiveways.App:
    """Return a new application; errors that a peer can cause become failures."""
    app = fiveways.App()

    @app.method("app.add")
    async def add(a: float, b: float = 1) -> float:
        return a + b

    @app.method("app.count")
    async def count(times: int = 3) -> AsyncIterator[int]:
        for number in range(min(times, 5)):
            yield number
            await asyncio.sleep(0.5)

    @app.method("app.ask")
    async def ask(context: fiveways.Context, method: str = "alpha") -> object:
        try:
            return await context.caller.call(method, 1, timeout=5.0)
        except fiveways.CallError as exc:
            raise fiveways.Fail(str(exc)) from exc

    @app.method("app.relay")
    async def relay(context: fiveways.Context, method: str = "alpha") -> object:
        try:
            await context.publish("t.u", "relayed")
            await context.caller.vars.set("theme", method)
            return await context.call(method, [1], timeout=5.0)
        except fiveways.CallError as exc:
            raise fiveways.Fail(str(exc)) from exc

    @app.method("app.dismiss")
    async def dismiss(context: fiveways.Context) -> None:
        try:
            await context.caller.close("dismissed")
        except fiveways.CallError as exc:
            raise fiveways.Fail(str(exc)) from exc

    @app.worker("mail")
    async def work(data: object) -> None:
        await asyncio.sleep(0.5)
        if data is None:
            raise fiveways.Fail("the job is empty")

    @app.on("t.*")
    async def on_topic(_event: fiveways.Event) -> None:
        await asyncio.sleep(0.1)

    @app.on_update("u")
    async def on_update(_update: fiveways.Update) -> None:
        await asyncio.sleep(0.1)

    return app
