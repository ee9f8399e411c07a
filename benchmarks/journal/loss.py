"""Measure the records that a journal loses when hub and writer process are killed under load.

    python -m benchmarks.journal.loss [--rounds 30] [--folder /on/the/disk/to/measure]

In each round a new hub has 32 pending calls; after one to two seconds its writer process and then the hub get SIGKILL.
The loss is the time from the kill to the last record of the journal. A power cut loses one sync interval more, because
the kernel keeps the data that a killed process has written.
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
    parser.add_argument("--folder", help="folder of the journals (default: the folder for temporary files)")
    options = parser.parse_args(arguments)
    losses = []
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            losses.append(measure_loss(folder))
        print(f"round {number + 1}: {losses[-1]:.0f} ms", flush=True)
    print(f"lost: median {median(losses):.0f} ms, at most {max(losses):.0f} ms in {len(losses)} rounds")
    return 0


def measure_loss(folder: str) -> float:
    """Return the milliseconds of records that are missing after a kill."""
    command = [sys.executable, "-m", "fiveways", "serve", "--port", "0", "--journal", folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as hub:  # noqa: S603
        assert hub.stdout is not None
        port = next(int(match[1]) for line in hub.stdout if (match := re.search(r"127\.0\.0\.1:(\d+)", line)))
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
    batches = [batch for segment in list_segments(folder) for batch in read_batches(segment.path, ["at"])]
    last = max(int(at) for batch in batches for at in batch.column(0).to_pylist())
    return (killed_at - last) / _MS


def _load(port: int) -> None:
    async def calls() -> None:
        async with fiveways.connect(f"lrpm+ws://127.0.0.1:{port}") as peer, asyncio.TaskGroup() as tasks:
            for _ in range(_IN_FLIGHT):
                tasks.create_task(_call_repeatedly(peer))

    asyncio.run(calls())


async def _call_repeatedly(peer: fiveways.Peer) -> None:
    while True:
        await peer.call("hub.echo", "x" * 100)


if __name__ == "__main__":
    sys.exit(main())
