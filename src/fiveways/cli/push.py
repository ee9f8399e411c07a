"""`fiveways push`: work for a queue."""

from dataclasses import dataclass

from fiveways.cli.connection_options import ConnectionOptions, run_async
from fiveways.cli.errors import UsageError, print_stderr
from fiveways.cli.json_io import parse_json, parse_json_argument, print_value
from fiveways.cli.stdin_lines import stdin_lines


@dataclass(frozen=True, slots=True)
class PushOptions:
    """What the user typed."""

    queue: str
    body: str | None = None
    lines: bool = False
    timeout: float = 30.0


def push(gate: ConnectionOptions, wish: PushOptions) -> None:
    """Push one piece and print how many wait, or push every line and print how many these were."""
    if not wish.lines:
        print_value(run_async(_push(gate, wish, parse_json_argument(wish.body))))
        return
    if wish.body is not None:
        raise UsageError("--lines takes its work from standard input, not from the command line")
    done = PushCount()
    try:
        run_async(_push_lines(gate, wish, done))
    except BaseException:
        if done.jobs:
            print_stderr(f"fiveways push: the hub has confirmed {done}")
        raise
    print_value(done.jobs)


@dataclass(slots=True)
class PushCount:
    """The lines that the hub has, for certain."""

    jobs: int = 0
    last_line: int = 0
    """The last of them."""

    def __str__(self) -> str:
        return f"{self.jobs} {'piece' if self.jobs == 1 else 'pieces'}, up to line {self.last_line}"


async def _push(gate: ConnectionOptions, wish: PushOptions, data: object) -> int:
    async with gate.connect_within(wish.timeout) as peer:
        return await peer.push(wish.queue, data)


async def _push_lines(gate: ConnectionOptions, wish: PushOptions, done: PushCount) -> None:
    """Push one after the other: so it is known which were taken, should the hub take no more."""
    async with gate.connect_peer(wish.timeout) as peer:
        async for number, line in stdin_lines():
            await peer.push(wish.queue, parse_json(line, f"line {number}"))
            done.jobs, done.last_line = done.jobs + 1, number
