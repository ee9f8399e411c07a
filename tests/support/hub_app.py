"""The application of the test hub."""

import asyncio
from collections.abc import AsyncIterator

from fiveways.app.app import App
from fiveways.app.context import Context
from fiveways.app.responses import Fail, Reply

app = App()


@app.method("math.add")
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@app.method("text.shout")
def shout(text: str) -> str:
    return text.upper()


@app.method("demo.countdown")
async def countdown(start: int) -> AsyncIterator[int]:
    for number in range(start, -1, -1):
        yield number


@app.method("demo.fail")
async def fail() -> None:
    raise Fail("no luck", name="demo.err.luck", data={"luck": 0})


@app.method("demo.sleep")
async def sleep() -> None:
    await asyncio.Event().wait()


@app.method("files.swap")
async def swap(context: Context) -> Reply:
    attachments = await context.attachments()
    return Reply(len(attachments), attachments=attachments[::-1])


@app.method("bytes.make")
async def make(size: int) -> bytes:
    return bytes(range(size))


_go = asyncio.Event()


@app.method("demo.go")
async def go() -> None:
    """Release all builds that wait."""
    _go.set()
    _go.clear()


@app.method("demo.build")
async def build(context: Context, steps: list[object], *, waits: bool = True) -> str:
    """Report all steps, wait until released, then return."""
    for step in steps:
        match step:
            case {"kind": str(kind), "text": str(text)}:
                context.progress(None, text, kind=kind, code=f"demo_{kind}")
            case [value, str(text)]:
                context.progress(value, text)
            case value:
                context.progress(value)
    if waits:
        await _go.wait()
    return "built"
