"""Measure what a journal lacks when hub and writer are killed under load at a random moment.

    python -m benchmarks.journal.loss [--rounds 30] [--folder /on/the/disk/to/measure]

In each round a new hub has 32 calls in flight; after a second or two its writer process and then the hub get SIGKILL.
The time from that to the last record of the journal is what is missing. A power cut takes one sync more, because the
system keeps what a killed process has written.
"""

import argparse
import asyncio
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import fiveways
from fiveways.journal.reader import list_segments, read_batches

_IN_FLIGHT = 32
_MS = 1e6


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--folder", help="where the journals are: the place for temporary files")
    options = parser.parse_args(arguments)
    found = []
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found.append(missing(folder))
        print(f"round {number + 1}: {found[-1]:.0f} ms", flush=True)
    print(f"missing: median {median(found):.0f} ms, at most {max(found):.0f} ms in {len(found)} rounds")
    return 0


def missing(folder: str) -> float:
    """Return how many ms of records are missing after a kill."""
    command = [sys.executable, "-m", "fiveways", "serve", "--port", "0", "--journal", folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as hub:  # noqa: S603
        assert hub.stdout is not None
        port = next(int(found[1]) for line in hub.stdout if (found := re.search(r"127\.0\.0\.1:(\d+)", line)))
        load = multiprocessing.Process(target=_load, args=(port,), daemon=True)
        load.start()
        time.sleep(1.5 + random.random())
        writers = Path(f"/proc/{hub.pid}/task/{hub.pid}/children").read_text(encoding="ascii").split()
        killed_at = time.time_ns()
        for pid in writers:
            os.kill(int(pid), signal.SIGKILL)
        hub.kill()
        load.kill()
        load.join()
    batches = [batch for each in list_segments(folder) for batch in read_batches(each.path, ["at"])]
    last = max(int(at) for batch in batches for at in batch.column(0).to_pylist())
    return (killed_at - last) / _MS


def _load(port: int) -> None:
    async def calls() -> None:
        async with fiveways.connect(f"lrpm+ws://127.0.0.1:{port}") as peer, asyncio.TaskGroup() as tasks:
            for _ in range(_IN_FLIGHT):
                tasks.create_task(_call_on(peer))

    asyncio.run(calls())


async def _call_on(peer: fiveways.Peer) -> None:
    while True:
        await peer.call("hub.echo", "x" * 100)


if __name__ == "__main__":
    sys.exit(main())
