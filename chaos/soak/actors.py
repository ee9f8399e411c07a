"""The peers of a soak: each actor is one round of a few seconds, which is repeated until the soak ends."""

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
"""Topics in turn: more than `/metrics` has labels for."""
RETAINED: Final = 40
_QUEUES: Final = 5
_ADDRESSES: Final = 200
"""Addresses of 127.0.2.0/24 that show wrong tokens."""
_DIALECTS: Final = ("umq+ws", "umq36+ws", "lrpm+ws", "lrpm+ws?cbor", "nq+ws", "nq+http", "nq+zmq")
_DURABLE: Final = ("nq+http", "nq+ws", "nq+zmq")
_POST: Final = b"POST /nq HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
_MIXED: Final = 12.0
"""Seconds of one round of `fiveways.traffic`."""


@dataclass
class SoakRun:
    """The hub, and what has been done to it."""

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
        """The hub as `fiveways.traffic` knows it."""
        return Target("127.0.0.1", self.port)

    @asynccontextmanager
    async def attempt(self, name: str) -> AsyncIterator[None]:
        """Count an action by how it ends; a call that another actor made fail is no error of the soak."""
        try:
            yield
        except (FivewaysError, ConnectionGone, OSError, TimeoutError, asyncio.IncompleteReadError) as exc:
            self.failed[f"{name}: {type(exc).__name__}"] += 1
        else:
            self.done[name] += 1

    async def pause(self, seconds: float) -> None:
        """Wait about so long."""
        await asyncio.sleep(seconds * self.pace * self.random.uniform(0.5, 1.5))


async def mixed(place: SoakRun) -> None:
    """Run the traffic of `fiveways traffic`: calls, streams, events, misfits and a slow reader in all dialects."""
    number = next(place.numbers)
    mqtt = f"mqtt://127.0.0.1:{place.mqtt_port}" if place.mqtt_port else ""
    report = await run_traffic(TrafficConfig(place.target, _MIXED, 40 / place.pace, number, 1, mqtt))
    place.done["mixed traffic"] += report.counts.total


async def durable(place: SoakRun) -> None:
    """Make durable requests over one transport of NQ, to callees that come and go."""
    dialect = _DURABLE[next(place.numbers) % len(_DURABLE)]
    async with fiveways.connect(place.url(dialect), timeout=60.0) as peer:
        for number in range(15):
            async with place.attempt(f"durable over {dialect}"):
                await peer.call(METHOD, [number])
            await place.pause(0.05)


async def visitor(place: SoakRun) -> None:
    """Come in, use all that a session can have, and leave."""
    number = next(place.numbers)
    dialect = _DIALECTS[number % len(_DIALECTS)]

    async def digest(context: fiveways.Context) -> fiveways.Reply:
        received = await context.attachments()
        return fiveways.Reply(len(received), received)

    async with fiveways.connect(place.url(dialect), timeout=10.0) as peer:
        async with place.attempt("register"):
            await peer.register(f"soak.v{number % TOPICS}.digest", digest)
        async with place.attempt("variable"):
            await peer.vars.set(f"v{number % 7}", {"number": number})
        topic = f"soak.topic{number % TOPICS}"
        async with place.attempt("subscribe"), peer.subscribe(f"soak.*{number % 10}") as events:
            await peer.publish(topic, {"number": number})
            await peer.publish(f"soak.kept{number % RETAINED}", "x" * (number % 2000), retain=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await anext(aiter(events))
        async with place.attempt("attachments"):
            sizes = (10, 70_000, 1_500_000 if number % 8 == 0 else 100)
            await peer.call_reply(f"soak.v{number % TOPICS}.digest", attachments=[bytes(each) for each in sizes])
        await _calls(place, peer, number)
    await place.pause(0.1)


async def _calls(place: SoakRun, peer: Peer, number: int) -> None:
    async with place.attempt("call"):
        assert await peer.call("math.add", [number, 1]) == number + 1
        await peer.call("text.shout", ["soak"])
    async with place.attempt("stream"), aclosing(peer.stream("demo.countdown", {"start": 3, "pause": 0.01})) as parts:
        async for _ in parts:
            pass
    async with place.attempt("cancel"):
        ongoing = peer.begin("demo.countdown", {"start": 100, "pause": 0.1})
        await asyncio.sleep(0.05)
        ongoing.cancel()
        with suppress(Cancelled):
            await ongoing
    async with place.attempt("callback"):
        token = await peer.callback(lambda text: text)
        await peer.call(f"callback.{token}", ["soak"])


async def worker(place: SoakRun) -> None:
    """Push jobs and pull them; some fail until they are dead, and are dropped."""
    queue = f"soak-{next(place.numbers) % _QUEUES}"
    async with fiveways.connect(place.url("lrpm+ws"), timeout=10.0) as pusher:
        async with fiveways.connect(place.url("umq+ws"), timeout=10.0) as puller:
            for number in range(8):
                async with place.attempt("push"):
                    await pusher.push(queue, {"number": number, "text": "x" * 500})
            for number in range(10):  # one fails now, and one of an earlier round is tried again
                async with place.attempt("pull"), puller.pull(queue, timeout=1.0) as job:
                    if number == 7:
                        await job.fail("as the soak wants it")
                await place.pause(0.05)
        async with place.attempt("drop"):
            for dead in (await pusher.call("hub.dead", {"queue": queue}))["jobs"]:
                await pusher.call("hub.drop", {"queue": queue, "job": dead["job"]})


async def viewer(place: SoakRun) -> None:
    """Look at the hub as the dashboard does, and reload the page after a while."""
    url = place.url("lrpm+ws", "/lrpm?observer")
    async with fiveways.connect(url, timeout=10.0) as peer, peer.subscribe("soak.topic1*", max_waiting=10):
        for _ in range(10):
            async with place.attempt("dashboard"):
                for method in ("hub.traffic", "hub.peers", "hub.stats"):
                    await peer.call(method)
            await place.pause(1.0)


async def scraper(place: SoakRun) -> None:
    """Ask for metrics and health, as Prometheus and a load balancer do."""
    for path in ("/metrics", "/readyz", "/livez", "/"):
        async with place.attempt("scrape"):
            status, _ = await asked(place.port, b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
            place.failed["scrape: not 200"] += status != 200
    await place.pause(2.0)


async def stranger(place: SoakRun) -> None:
    """Show a wrong token from many addresses, and the right one from another."""
    number = next(place.numbers)
    for token, address, wanted in (
        ("wrong", f"127.0.2.{1 + number % _ADDRESSES}", 401),
        (TOKEN, f"127.0.3.{1 + number % 5}", 200),
    ):
        async with place.attempt(f"token answered {wanted}"):
            head = _POST.replace(b"\r\n", f"\r\nAuthorization: Bearer {token}\r\n".encode(), 1)
            status, _ = await asked(place.port, head + b"2\r\n\r\n[]", address)
            place.failed[f"token {wanted}: {status}"] += status not in {wanted, 429}
    await place.pause(0.5)


async def breaker(place: SoakRun) -> None:
    """Misbehave in one way: malformed input, or a connection that is closed in the middle."""
    number = next(place.numbers)
    async with place.attempt("malformed"):
        await misbehaviours.send_malformed(place.target, TrafficCounts(), number)
    async with place.attempt("cut"):
        await _CUTS[number % len(_CUTS)](place)
    await place.pause(0.2)


async def _cut_request(place: SoakRun) -> None:
    """Close within the head, or the body, of an HTTP request."""
    for request in (b"GET /umq HT", _POST + b"60000\r\n\r\n" + bytes(30_000)):
        await asked(place.port, request, patience=0.05)


async def _cut_poll(place: SoakRun) -> None:
    """Close during a long poll."""
    await asked(place.port, _POST.replace(b"/nq", b"/nq?wait=60") + b"2\r\n\r\n[]", patience=0.05)


async def _cut_frame(place: SoakRun) -> None:
    """Close within a frame of WebSocket, and within a message in fragments."""
    for part in (
        struct.pack(">BBHI", 0x82, 0xFE, 60_000, 0) + bytes(20_000),
        struct.pack(">BBI", 2, 0x85, 0) + b"first",
    ):
        async with raw_websocket.open_websocket(place.target, "/umq", subprotocol="umq.1") as link:
            link.send("H1.0.0\n")
            await link.receive()
            link.write(part)
            await asyncio.sleep(0.02)


async def _cut_session(place: SoakRun) -> None:
    """Close with a registration, a subscription, a variable, a call and unsent attachments."""
    async with raw_websocket.open_websocket(place.target, "/lrpm", subprotocol="lrpm.json") as link:
        link.send("[2,null,{}]")
        await link.receive()
        requests = (
            ("hub.register", {"name": f"soak.cut{place.random.randrange(TOPICS)}"}),
            ("hub.set", {"name": "v", "value": 1}),
            ("hub.subscribe", {"topic": "soak.*", "id": "s"}),
            ("hub.callback", {"id": "c"}),
            ("demo.countdown", {"start": 100, "pause": 1}),
        )
        for number, (method, body) in enumerate(requests, 1):
            link.send(json.dumps([40, number, method, body, {}]))
        await link.receive()
    async with raw_websocket.open_websocket(place.target, "/umq", subprotocol="umq.1") as link:
        link.send("H1.0.0\n")
        await link.receive()
        link.send("M1 2\nhub:echo\nx")
        await asyncio.sleep(0.02)
    async with raw_websocket.open_websocket(place.target, "/nq", subprotocol="nq.1") as link:
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
    stranger,
    breaker,
)


async def act(actor: Callable[[SoakRun], Awaitable[None]], place: SoakRun, is_over: asyncio.Event) -> None:
    """Repeat an actor's round until the soak ends."""
    while not is_over.is_set():
        async with place.attempt(actor.__name__):
            await actor(place)
        if place.failed[actor.__name__]:
            await asyncio.sleep(0.2)


async def asked(port: int, request: bytes, address: str = "127.0.0.1", patience: float = 10.0) -> tuple[int, bytes]:
    """Send bytes from an address, and return status and body of the answer; 0 if there was none in time."""
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
