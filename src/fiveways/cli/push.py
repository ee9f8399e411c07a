"""`fiveways push`: work for a queue."""

from dataclasses import dataclass

from fiveways.cli.access import Access, run
from fiveways.cli.endings import UsageError, tell
from fiveways.cli.jsonio import read_json, show, value_of
from fiveways.cli.lines import lines


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user typed."""

    queue: str
    body: str | None = None
    lines: bool = False
    timeout: float = 30.0


def push(gate: Access, wish: Wish) -> None:
    """Push one piece and print how many wait, or push every line and print how many these were."""
    if not wish.lines:
        show(run(_push(gate, wish, read_json(wish.body))))
        return
    if wish.body is not None:
        raise UsageError("--lines takes its work from standard input, not from the command line")
    done = Count()
    try:
        run(_push_lines(gate, wish, done))
    except BaseException:
        if done.pieces:
            tell(f"fiveways push: the hub has confirmed {done}")
        raise
    show(done.pieces)


@dataclass(slots=True)
class Count:
    """The lines that the hub has, for certain."""

    pieces: int = 0
    line: int = 0
    """The last of them."""

    def __str__(self) -> str:
        return f"{self.pieces} {'piece' if self.pieces == 1 else 'pieces'}, up to line {self.line}"


async def _push(gate: Access, wish: Wish, data: object) -> int:
    async with gate.within(wish.timeout) as peer:
        return await peer.push(wish.queue, data)


async def _push_lines(gate: Access, wish: Wish, done: Count) -> None:
    """Push one after the other: so it is known which were taken, should the hub take no more."""
    async with gate.peer(wish.timeout) as peer:
        async for number, line in lines():
            await peer.push(wish.queue, value_of(line, f"line {number}"))
            done.pieces, done.line = done.pieces + 1, number
