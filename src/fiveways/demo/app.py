"""A small application: methods for callers in all protocols, and a topic with regular events.

fiveways serve --app fiveways.demo.app:app
fiveways call umq+ws://localhost:7500 math.add '[2, 3]'
fiveways call lrpm+ws://localhost:7500 demo.countdown 3 --stream
fiveways subscribe umq36+ws://localhost:7500 demo.ticks &
fiveways call lrpm+ws://localhost:7500 demo.tick '{"times": 3}'
"""

import asyncio
from collections.abc import AsyncIterator

import fiveways

app = fiveways.App()


@app.method("math.add")
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@app.method("text.shout")
def shout(text: str) -> str:
    """Return the text in capitals. A plain function runs in a thread."""
    return f"{text.upper()}!"


@app.method("demo.countdown")
async def countdown(start: int = 3, pause: float = 0.2) -> AsyncIterator[int]:
    """Count down to zero; each number is a part of the response."""
    if start < 0:
        raise fiveways.Fail("cannot count down from a negative number", name="demo.err.negative")
    for number in range(start, -1, -1):
        yield number
        await asyncio.sleep(pause)


@app.method("demo.tick")
async def tick(context: fiveways.Context, times: int = 5, pause: float = 0.2) -> int:
    """Publish on the topic `demo.ticks`, `times` times; return the number of publications."""
    for number in range(1, times + 1):
        await context.publish("demo.ticks", {"tick": number, "of": times})
        await asyncio.sleep(pause)
    return times
