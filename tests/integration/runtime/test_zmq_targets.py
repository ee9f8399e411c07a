"""Methods served by plain ZeroMQ programs that die, restart, or never answer."""

import asyncio
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import fiveways
from tests.support.hub_process import PATIENCE, served

REP = """
import json, sys, time, zmq
socket = zmq.Context().socket(zmq.REP)
socket.bind(sys.argv[1])
print("ready", flush=True)
while True:
    given = json.loads(socket.recv())
    if given == ["die"]:
        print("dying", flush=True)
        time.sleep(60)
    socket.send(json.dumps({"by": sys.argv[2], "given": given}).encode())
"""


def free_endpoint() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


@asynccontextmanager
async def processor(endpoint: str, name: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", REP, endpoint, name, stdout=PIPE)
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE) == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def hub(folder: Path, *endpoints: str) -> AsyncIterator[fiveways.Peer]:
    config = folder / "fiveways.toml"
    listed = ", ".join(f'"{each}"' for each in endpoints)
    config.write_text(f'[zmq]\nretry_after = 0.5\n[zmq.targets]\n"image.scale" = [{listed}]\n', encoding="utf-8")
    async with (
        served("--config", str(config)) as (_, port),
        fiveways.connect(f"lrpm+ws://127.0.0.1:{port}", timeout=PATIENCE) as peer,
    ):
        yield peer


async def scaled(peer: fiveways.Peer, number: int) -> dict[str, object]:
    answer = await peer.call("image.scale", [number])
    assert isinstance(answer, dict)
    return answer


def test_unfinished_request_goes_to_another_processor(tmp_path: Path) -> None:
    async def run() -> None:
        first, second = free_endpoint(), free_endpoint()
        async with hub(tmp_path, first, second) as peer, processor(first, "one") as one:
            assert await peer.call("image.scale", [1]) == {"by": "one", "given": [1]}
            dying = asyncio.create_task(peer.call("image.scale", ["die"]))
            assert one.stdout is not None
            assert await asyncio.wait_for(one.stdout.readline(), PATIENCE) == b"dying\n"
            one.kill()
            await one.wait()
            async with processor(second, "two") as two:
                assert two.stdout is not None
                # The request goes to the other processor, which hangs as well; a third one answers all others.
                assert await asyncio.wait_for(two.stdout.readline(), PATIENCE) == b"dying\n"
            dying.cancel()
            async with processor(first, "three"), processor(second, "four"):
                seen: set[object] = set()
                while seen != {"three", "four"}:  # ZeroMQ takes its time to reconnect
                    seen.add((await scaled(peer, 0))["by"])
                answers = await asyncio.gather(*(scaled(peer, number) for number in range(40)))
                assert [each["given"] for each in answers] == [[number] for number in range(40)]
                assert min(sum(each["by"] == name for each in answers) for name in ("three", "four")) >= 10

    asyncio.run(run())


def test_missing_processor_costs_its_callers_only_their_timeout(tmp_path: Path) -> None:
    async def run() -> None:
        async with hub(tmp_path, free_endpoint()) as peer:
            with pytest.raises(fiveways.CallTimeout, match=r"image\.scale"):
                await peer.call("image.scale", [1], timeout=0.3)
            assert await peer.call("hub.ping") == "pong"

    asyncio.run(run())


def test_invalid_target_is_refused_at_the_start(tmp_path: Path) -> None:
    async def run() -> str:
        try:
            async with hub(tmp_path, "nowhere"):
                return ""
        except AssertionError as exc:
            return str(exc)

    assert "zmq.targets: image.scale" in asyncio.run(run())
