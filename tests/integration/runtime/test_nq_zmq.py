"""NQ over ZeroMQ, with sockets of the plain ZeroMQ library."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import zmq

import fiveways
from tests.support.hub_process import PATIENCE, served


class Plain:
    """A ZeroMQ socket that a thread waits for."""

    def __init__(self, kind: int, url: str, routing_id: bytes = b"") -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(kind)
        self.socket.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
        if routing_id:
            self.socket.setsockopt(zmq.ROUTING_ID, routing_id)
        self.socket.connect(url)

    async def say(self, *messages: dict[str, Any]) -> None:
        await asyncio.to_thread(self.socket.send, json.dumps(messages).encode())

    async def heard(self) -> list[dict[str, Any]]:
        said = json.loads(await asyncio.to_thread(self.socket.recv))
        return said if isinstance(said, list) else [said]

    async def answer_to(self, request: str) -> object:
        while True:
            for message in await self.heard():
                if message.get("i") == request and "d" in message:
                    return message["d"]

    def close(self) -> None:
        self._context.destroy(linger=0)


@asynccontextmanager
async def listening(*flags: str) -> AsyncIterator[tuple[int, str]]:
    zmq_flags = ("--set", "zmq.listen=true", "--set", "zmq.port=0")
    async with served(*zmq_flags, "--app", "examples.app:app", *flags) as (process, port):
        assert process.stdout is not None
        while b"nq+zmq://" not in (line := await asyncio.wait_for(process.stdout.readline(), PATIENCE)):
            pass
        yield port, "tcp://" + line.decode().partition("nq+zmq://")[2].strip()


def test_dealers_of_one_address_have_its_share_of_sessions() -> None:
    async def run() -> None:
        async with listening("--set", "limits.max_resumable=4") as (_, url):
            peers = [Plain(zmq.DEALER, url, name) for name in (b"", b"one", b"other")]
            for peer in peers[:2]:
                await peer.say({"t": "hub-ping", "r": "1"})
                assert await peer.answer_to("1") == "pong"
            await peers[2].say({"t": "hub-ping", "r": "1"})
            for number in count(2):
                await peers[0].say({"t": "hub-stats", "r": str(number)})
                stats = await peers[0].answer_to(str(number))
                assert isinstance(stats, dict)
                if stats["refused_sessions"]:
                    assert stats["resumable_sessions"] == 2
                    break
            for peer in peers:
                peer.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_dealer_sends_a_request_and_gets_its_answer() -> None:
    async def run() -> None:
        async with listening() as (_, url):
            peer = Plain(zmq.DEALER, url)
            await peer.say({"t": "math-add", "r": "1", "d": [2, 3]}, {"t": "hub-ping", "r": "2"})
            assert await peer.answer_to("1") == 5.0
            peer.close()

    asyncio.run(run())


def test_req_gets_one_packet_for_each_sent_one() -> None:
    async def run() -> None:
        async with listening() as (_, url):
            peer = Plain(zmq.REQ, url)
            await peer.say({"t": "hub-ping", "r": "1"})
            assert (await peer.heard())[0]["d"] == "pong"
            await peer.say({"t": "math-add", "r": "2", "d": [2, 3]})
            said = await peer.heard()
            while not any("d" in message for message in said):
                await peer.say()
                said = await peer.heard()
            assert said[-1]["d"] == 5.0
            peer.close()

    asyncio.run(run())


def test_peer_with_a_fixed_routing_id_resumes_its_session() -> None:
    async def run() -> None:
        async with listening() as (port, url), fiveways.connect(f"lrpm+ws://127.0.0.1:{port}") as worker:
            ready = asyncio.Event()

            async def slow(n: int) -> int:
                await ready.wait()
                return n * 2

            await worker.register("slow.twice", slow)
            peer = Plain(zmq.DEALER, url, b"me")
            await peer.say({"t": "slow-twice", "r": "1", "d": [21]})
            while not any(message.get("i") == "1" for message in await peer.heard()):
                pass
            peer.close()
            ready.set()
            again = Plain(zmq.DEALER, url, b"me")
            await again.say()
            assert await again.answer_to("1") == 42
            again.close()

    asyncio.run(run())


def test_zmq_port_requires_loopback() -> None:
    async def run() -> str:
        wanted = ("server.host=0.0.0.0", "zmq.listen=true", "auth.anonymous=always")
        try:
            async with served(*(part for each in wanted for part in ("--set", each))):
                return ""
        except AssertionError as exc:
            return str(exc)

    assert "zmq.listen needs a hub on loopback" in asyncio.run(run())
