"""A process with an open store, and the failures that happen to it.

python -m tests.support.store_process interrupted|hold|leave|heavy|slow|limit|full|denied PATH [...]
"""

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType

from fiveways.model.store_changes import PutAnswer, PutJob, PutRequest, PutTombstone, StoreChange
from fiveways.store import store_file
from fiveways.store.errors import StoreError
from fiveways.store.state_file import parse_state
from fiveways.store.store import Store
from tests.support.store_helpers import LATER, NOW, content, open_store, write, write_and_close

IN_FLIGHT = 400
HEADER, FRAME = 32, 4096 + 24
"""Sizes of the header and of a frame of a WAL in bytes."""
KILLED = 9
LAG = 50
"""Number of later requests after which a request is answered, and after twice as many forgotten."""


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def change(step: int) -> StoreChange:
    """Return the record of this step."""
    number, kind = divmod(step, 3)
    if kind == 0:
        return PutRequest("p", f"{number:08}", b"request %d" % number, LATER)
    if kind == 1:
        return PutAnswer("p", f"{number - LAG:08}", b"answer %d" % (number - LAG), LATER)
    return PutTombstone("p", f"{number - 2 * LAG:08}", LATER)


class Heavy:
    """Writes continuously, and prints the number of finished steps after each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begun = 0
        self._done = 0

    def begin(self) -> None:
        self._store.write(change(self._begun), self._next)
        self._begun += 1

    def _next(self, error: StoreError | None) -> None:
        assert error is None
        self._done += 1
        os.write(1, b"%d\n" % self._done)
        self.begin()


async def heavy(path: Path) -> None:
    load = Heavy(open_store(path))
    for _ in range(IN_FLIGHT):
        load.begin()
    await asyncio.Event().wait()


async def slow(path: Path, steps: str) -> None:
    """Write step by step; print the size of the WAL and the state file after each; exit without closing."""
    store = open_store(path)
    wal, state = (path.with_name(path.name + suffix) for suffix in ("-wal", "-state"))
    states = []
    for step in range(int(steps)):
        assert await write(store, change(step)) == [None]
        size = wal.stat().st_size
        # The state file is written after the acknowledgement.
        while (state_ := parse_state(state.read_bytes())) is None or state_.frames * FRAME + HEADER < size:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        states.append((size, state.read_bytes().hex()))
    say(json.dumps(states))
    os._exit(0)


async def leave(path: Path, writes: str) -> None:
    """Exit normally without closing the store."""
    store = open_store(path)
    for number in range(int(writes)):
        assert await write(store, PutJob("q", number, b"1", 0)) == [None]
    sys.exit("exit")


async def hold(path: Path) -> None:
    store = open_store(path)
    say("open")
    sys.stdin.read()
    store.close()


async def limit(path: Path) -> None:
    """Reach the limit of file sizes, then raise it."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = open_store(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, hard))
    await fill(path, store, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)))


async def full(path: Path) -> None:
    """Fill the disk, then free space."""
    filler = path.with_name("filler")
    filler.write_bytes(bytes(1 << 20))
    await fill(path, open_store(path), filler.unlink)


async def fill(path: Path, store: Store, make_room: Callable[[], object]) -> None:
    """Write until there is no space, continue for a while, make room, and write again."""
    written_keys: list[str] = []
    errors: list[str] = []
    for turn in range(40):
        keys = [f"{turn}-{number}" for number in range(12)]
        results = await write(store, *(PutRequest("p", key, bytes(4000), LATER) for key in keys))
        written_keys += [key for key, error in zip(keys, results, strict=True) if error is None]
        errors += [str(error) for error in results if error is not None]
    make_room()
    later_keys = [f"again-{number}" for number in range(50)]
    results = await write(store, *(PutRequest("p", key, bytes(4000), LATER) for key in later_keys))
    store.close()
    found_keys = [request.key for request in content(path, NOW).requests]
    answer = {
        "kept": written_keys,
        "sentences": errors,
        "again": [str(error) for error in results],
        "found": found_keys,
    }
    say(json.dumps({**answer, "expected": [*written_keys, *later_keys]}))


async def denied(path: Path) -> None:
    """Try to open the store without permission."""
    if os.getuid() == 0:
        os.setuid(65534)
    try:
        open_store(path).close()
    except StoreError as exc:
        say(str(exc))


async def interrupted(path: Path) -> None:
    """Open and close a store in processes that are killed at one line after the other; print the contents."""
    await write_and_close(path, PutJob("q", 1, b"1", 0))
    for line in count(1):
        if (process := os.fork()) == 0:
            kill_at(line)
            try:
                store_file.close(*store_file.connect(path))
            finally:
                os._exit(0)
        _, status = os.waitpid(process, 0)  # noqa: ASYNC222
        if os.waitstatus_to_exitcode(status) != KILLED:
            break
        say(f"{line} {len(content(path).jobs)}")


def kill_at(last: int) -> None:
    """Exit before a line of the modules that open stores, or of the state file, is executed."""
    left = count(1)

    def trace(frame: FrameType, event: str, _: object) -> object:
        if not frame.f_code.co_filename.endswith(("store/store_file.py", "store/state_file.py", "store/marks.py")):
            return None
        if event == "line" and next(left) == last:
            os._exit(KILLED)
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]


if __name__ == "__main__":
    mode = {each.__name__: each for each in (interrupted, hold, leave, heavy, slow, limit, full, denied)}[sys.argv[1]]
    asyncio.run(mode(Path(sys.argv[2]), *sys.argv[3:]))
