"""The peers of a soak; each actor is one round of a few seconds, repeated until the soak ends."""

import asyncio
import json
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

import fiveways
from chaos.methods import METHOD
from fiveways.client.peer import Peer
from fiveways.errors import Cancelled, FivewaysError
from fiveways.traffic import misbehaviours, raw_websocket
from fiveways.traffic.counts import TrafficCounts
from fiveways.traffic.driver import TrafficConfig, run_traffic
from fiveways.traffic.raw_websocket import ConnectionGone
from fiveways.traffic.target import Target

TOKEN: Final = "the-token-of-the-soak-0123456789"  # noqa: S105  for a hub on this machine alone
TOPICS: Final = 300
"""Topics used in turn; more than `/metrics` has labels for."""
RETAINED: Final = 40
_QUEUES: Final = 5
_ADDRESSES: Final = 200
"""Addresses of 127.0.2.0/24 that present wrong tokens."""
_DIALECTS: Final = ("umq+ws", "umq36+ws", "lrpm+ws", "lrpm+ws?cbor", "nq+ws", "nq+http", "nq+zmq")
_DURABLE: Final = ("nq+http", "nq+ws", "nq+zmq")
_POST: Final = b"POST /nq HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
_MIXED: Final = 12.0
"""Seconds of one round of `fiveways.traffic`."""


@dataclass
class SoakRun:
    """The hub, and the counts of finished and failed actions."""

    port: int
    zmq_port: int
    mqtt_port: int
    random: Random
    pace: float = 1.0
    """A factor for the pauses between two actions."""
    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    numbers: Iterator[int] = field(default_factory=count)

    def url(self, dialect: str, query: str = "") -> str:
        """Return the URL for a client."""
        scheme, _, encoding = dialect.partition("?")
        port = self.zmq_port if scheme.endswith("zmq") else self.port
        query = query or (f"?encoding={encoding}" if encoding else "")
        return f"{scheme}://127.0.0.1:{port}{query}"

    @property
    def target(self) -> Target:
        """The hub as `fiveways.traffic` addresses it."""
        return Target("127.0.0.1", self.port)

    @asynccontextmanager
    async def attempt(self, name: str) -> AsyncIterator[None]:
        """Count an action by its result; a failed call is not an error of the soak."""
        try:
            yield
        except (FivewaysError, ConnectionGone, OSError, TimeoutError, asyncio.IncompleteReadError) as exc:
            self.failed[f"{name}: {type(exc).__name__}"] += 1
        else:
            self.done[name] += 1

    async def pause(self, seconds: float) -> None:
        """Wait for about this number of seconds."""
        await asyncio.sleep(seconds * self.pace * self.random.uniform(0.5, 1.5))


async def mixed(soak_run: SoakRun) -> None:
    """Run the traffic of `fiveways traffic`: calls, streams, events, misbehaving and slow peers in all protocols."""
    number = next(soak_run.numbers)
    mqtt = f"mqtt://127.0.0.1:{soak_run.mqtt_port}" if soak_run.mqtt_port else ""
    report = await run_traffic(TrafficConfig(soak_run.target, _MIXED, 40 / soak_run.pace, number, 1, mqtt))
    soak_run.done["mixed traffic"] += report.counts.total


async def durable(soak_run: SoakRun) -> None:
    """Send durable requests over one NQ transport to callees that disconnect and reconnect."""
    dialect = _DURABLE[next(soak_run.numbers) % len(_DURABLE)]
    async with fiveways.connect(soak_run.url(dialect), timeout=60.0) as peer:
        for number in range(15):
            async with soak_run.attempt(f"durable over {dialect}"):
                await peer.call(METHOD, [number])
            await soak_run.pause(0.05)


async def visitor(soak_run: SoakRun) -> None:
    """Connect, use every feature of a session, and disconnect."""
    number = next(soak_run.numbers)
    dialect = _DIALECTS[number % len(_DIALECTS)]

    async def digest(context: fiveways.Context) -> fiveways.Reply:
        received = await context.attachments()
        return fiveways.Reply(len(received), received)

    async with fiveways.connect(soak_run.url(dialect), timeout=10.0) as peer:
        async with soak_run.attempt("register"):
            await peer.register(f"soak.v{number % TOPICS}.digest", digest)
        async with soak_run.attempt("variable"):
            await peer.vars.set(f"v{number % 7}", {"number": number})
        topic = f"soak.topic{number % TOPICS}"
        async with soak_run.attempt("subscribe"), peer.subscribe(f"soak.*{number % 10}") as events:
            await peer.publish(topic, {"number": number})
            await peer.publish(f"soak.kept{number % RETAINED}", "x" * (number % 2000), retain=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await anext(aiter(events))
        async with soak_run.attempt("attachments"):
            sizes = (10, 70_000, 1_500_000 if number % 8 == 0 else 100)
            await peer.call_reply(f"soak.v{number % TOPICS}.digest", attachments=[bytes(size) for size in sizes])
        await _calls(soak_run, peer, number)
    await soak_run.pause(0.1)


async def _calls(soak_run: SoakRun, peer: Peer, number: int) -> None:
    async with soak_run.attempt("call"):
        assert await peer.call("math.add", [number, 1]) == number + 1
        await peer.call("text.shout", ["soak"])
    async with (
        soak_run.attempt("stream"),
        aclosing(peer.stream("demo.countdown", {"start": 3, "pause": 0.01})) as parts,
    ):
        async for _ in parts:
            pass
    async with soak_run.attempt("cancel"):
        ongoing = peer.begin("demo.countdown", {"start": 100, "pause": 0.1})
        await asyncio.sleep(0.05)
        ongoing.cancel()
        with suppress(Cancelled):
            await ongoing
    async with soak_run.attempt("callback"):
        token = await peer.callback(lambda text: text)
        await peer.call(f"callback.{token}", ["soak"])


async def worker(soak_run: SoakRun) -> None:
    """Push and pull jobs; some fail until they are dead, and are dropped."""
    queue = f"soak-{next(soak_run.numbers) % _QUEUES}"
    async with fiveways.connect(soak_run.url("lrpm+ws"), timeout=10.0) as pusher:
        async with fiveways.connect(soak_run.url("umq+ws"), timeout=10.0) as puller:
            for number in range(8):
                async with soak_run.attempt("push"):
                    await pusher.push(queue, {"number": number, "text": "x" * 500})
            for number in range(10):  # one job fails now, and one of an earlier round is redelivered
                async with soak_run.attempt("pull"), puller.pull(queue, timeout=1.0) as job:
                    if number == 7:
                        await job.fail("as the soak wants it")
                await soak_run.pause(0.05)
        async with soak_run.attempt("drop"):
            for dead in (await pusher.call("hub.dead", {"queue": queue}))["jobs"]:
                await pusher.call("hub.drop", {"queue": queue, "job": dead["job"]})


async def viewer(soak_run: SoakRun) -> None:
    """Poll the hub as the dashboard does, and reload the page after a while."""
    url = soak_run.url("lrpm+ws", "/lrpm?observer")
    async with fiveways.connect(url, timeout=10.0) as peer, peer.subscribe("soak.topic1*", max_waiting=10):
        for _ in range(10):
            async with soak_run.attempt("dashboard"):
                for method in ("hub.traffic", "hub.peers", "hub.stats"):
                    await peer.call(method)
            await soak_run.pause(1.0)


async def scraper(soak_run: SoakRun) -> None:
    """Request metrics and health checks, as Prometheus and a load balancer do."""
    for path in ("/metrics", "/readyz", "/livez", "/"):
        async with soak_run.attempt("scrape"):
            status, _ = await http_request(soak_run.port, b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
            soak_run.failed["scrape: not 200"] += status != 200
    await soak_run.pause(2.0)


async def token_peer(soak_run: SoakRun) -> None:
    """Present a wrong token from many addresses, and the right one from another."""
    number = next(soak_run.numbers)
    for token, address, expected_status in (
        ("wrong", f"127.0.2.{1 + number % _ADDRESSES}", 401),
        (TOKEN, f"127.0.3.{1 + number % 5}", 200),
    ):
        async with soak_run.attempt(f"token answered {expected_status}"):
            head = _POST.replace(b"\r\n", f"\r\nAuthorization: Bearer {token}\r\n".encode(), 1)
            status, _ = await http_request(soak_run.port, head + b"2\r\n\r\n[]", address)
            soak_run.failed[f"token {expected_status}: {status}"] += status not in {expected_status, 429}
    await soak_run.pause(0.5)


async def misbehaving_peer(soak_run: SoakRun) -> None:
    """Misbehave in one way: malformed input, or a connection closed in the middle."""
    number = next(soak_run.numbers)
    async with soak_run.attempt("malformed"):
        await misbehaviours.send_malformed(soak_run.target, TrafficCounts(), number)
    async with soak_run.attempt("cut"):
        await _CUTS[number % len(_CUTS)](soak_run)
    await soak_run.pause(0.2)


async def _cut_request(soak_run: SoakRun) -> None:
    """Close within the head or the body of an HTTP request."""
    for request in (b"GET /umq HT", _POST + b"60000\r\n\r\n" + bytes(30_000)):
        await http_request(soak_run.port, request, patience=0.05)


async def _cut_poll(soak_run: SoakRun) -> None:
    """Close during a long poll."""
    await http_request(soak_run.port, _POST.replace(b"/nq", b"/nq?wait=60") + b"2\r\n\r\n[]", patience=0.05)


async def _cut_frame(soak_run: SoakRun) -> None:
    """Close within a WebSocket frame, and within a fragmented message."""
    for part in (
        struct.pack(">BBHI", 0x82, 0xFE, 60_000, 0) + bytes(20_000),
        struct.pack(">BBI", 2, 0x85, 0) + b"first",
    ):
        async with raw_websocket.open_websocket(soak_run.target, "/umq", subprotocol="umq.1") as link:
            link.send("H1.0.0\n")
            await link.receive()
            link.write(part)
            await asyncio.sleep(0.02)


async def _cut_session(soak_run: SoakRun) -> None:
    """Close with a registration, a subscription, a variable, a pending call and unsent attachments."""
    async with raw_websocket.open_websocket(soak_run.target, "/lrpm", subprotocol="lrpm.json") as link:
        link.send("[2,null,{}]")
        await link.receive()
        requests = (
            ("hub.register", {"name": f"soak.cut{soak_run.random.randrange(TOPICS)}"}),
            ("hub.set", {"name": "v", "value": 1}),
            ("hub.subscribe", {"topic": "soak.*", "id": "s"}),
            ("hub.callback", {"id": "c"}),
            ("demo.countdown", {"start": 100, "pause": 1}),
        )
        for number, (method, body) in enumerate(requests, 1):
            link.send(json.dumps([40, number, method, body, {}]))
        await link.receive()
    async with raw_websocket.open_websocket(soak_run.target, "/umq", subprotocol="umq.1") as link:
        link.send("H1.0.0\n")
        await link.receive()
        link.send("M1 2\nhub:echo\nx")
        await asyncio.sleep(0.02)
    async with raw_websocket.open_websocket(soak_run.target, "/nq", subprotocol="nq.1") as link:
        await link.receive()
        link.send(json.dumps({"t": METHOD, "r": "1", "d": [1]}))
        await asyncio.sleep(0.05)


_CUTS: Final[tuple[Callable[[SoakRun], Awaitable[None]], ...]] = (_cut_request, _cut_poll, _cut_frame, _cut_session)
ACTORS: Final[tuple[Callable[[SoakRun], Awaitable[None]], ...]] = (
    mixed,
    durable,
    durable,
    visitor,
    worker,
    viewer,
    scraper,
    token_peer,
    misbehaving_peer,
)


async def act(actor: Callable[[SoakRun], Awaitable[None]], soak_run: SoakRun, is_over: asyncio.Event) -> None:
    """Repeat an actor's round until the soak ends."""
    while not is_over.is_set():
        async with soak_run.attempt(actor.__name__):
            await actor(soak_run)
        if soak_run.failed[actor.__name__]:
            await asyncio.sleep(0.2)


async def http_request(
    port: int, request: bytes, address: str = "127.0.0.1", patience: float = 10.0
) -> tuple[int, bytes]:
    """Send bytes from an address and return status and body of the response; 0 without a response in time."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.bind((address, 0))
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        writer.write(request)
        async with asyncio.timeout(patience):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            return int(head.split()[1]), await reader.readexactly(length)
    except (TimeoutError, asyncio.IncompleteReadError):
        return 0, b""
    finally:
        writer.transport.abort()
