"""Attacks on topics: many patterns, many retained values, subscribers that do not read, bodies that take long."""

import asyncio
from random import Random
from typing import Final

from chaos.attacks.attack_run import Attack, AttackRun
from chaos.attacks.raw_sockets import BINARY, RawSocket, umq, upgraded

_DEPTHS: Final = (60, 16)
"""Segments of deep topics; the second if the hub refuses the first."""
_READERS: Final = 200
_PUBLICATIONS: Final = 300
_RESULT: Final = b"\x84\x18\x29"
"""How a RESULT of lrpm begins in CBOR."""
_PEER: Final = 4096
"""Subscriptions that one peer may have."""


def _subscribe(number: int, pattern: str) -> str:
    return f'M2\nhub:subscribe\n{{"topic":"{pattern}","id":"s{number}"}}'


def _is_refused(answer: str) -> bool:
    return answer.startswith(("!", "E"))


async def _deep(place: AttackRun) -> None:
    """Subscribe one peer to deep patterns, each of another shape, and publish on a topic that all of them match."""
    wire, other, random = await umq(place.port), await umq(place.port), Random(1)
    place.ends += [wire.reset, other.reset]
    depth = _DEPTHS[0]
    if _is_refused(await wire.ask(_subscribe(0, ".".join(["a"] * depth)))):
        depth = _DEPTHS[1]
    topic = ".".join(["a"] * depth)
    await place.cost("publication before", 50, lambda: other.ask(f"M3\nhub:publish\n{topic}\n1"))
    for number in range(1, place.actions):
        pattern = ".".join(random.choice(("*", "a")) for _ in range(depth - 1)) + ".b"
        if _is_refused(await wire.ask(_subscribe(number, pattern))):
            place.failed += 1
        else:
            place.done += 1
    place.hold()
    place.notes.append(f"depth {depth}")
    # Another topic each time: one that was published before may be remembered.
    numbers = iter(range(1_000_000))
    await place.cost(
        "publication after",
        20,
        lambda: asyncio.wait_for(other.ask(f"M3\nhub:publish\n{topic[:-1]}x{next(numbers)}\n1"), 60),
    )


async def _wide(place: AttackRun) -> None:
    """Subscribe to partial wildcards of one node, and publish in it."""
    other = await umq(place.port)
    place.ends.append(other.reset)
    numbers = iter(range(1_000_000))
    await place.cost("publication before", 50, lambda: other.ask(f"M3\nhub:publish\nnode.y{next(numbers)}\n1"))
    wire: RawSocket | None = None
    for number in range(place.actions):
        if number % _PEER == 0:
            wire = await umq(place.port)
            place.ends.append(wire.reset)
        assert wire is not None
        refused = _is_refused(await wire.ask(_subscribe(number, f"node.x{number}*")))
        place.done += not refused
        place.failed += refused
    place.hold()
    await place.cost("publication after", 50, lambda: other.ask(f"M3\nhub:publish\nnode.y{next(numbers)}\n1"))


async def _retained(place: AttackRun) -> None:
    """Retain values on deep topics, and subscribe to all of them."""
    wire, other = await umq(place.port), await umq(place.port)
    place.ends += [wire.reset, other.reset]
    depth = _DEPTHS[0]
    for number in range(place.actions):
        while True:
            topic = ".".join([f"t{number}", *["a"] * (depth - 1)])
            refused = _is_refused(
                await wire.ask(f'M2\nhub:publish\n{{"topic":"{topic}","data":{number},"retain":true}}')
            )
            if not (refused and number == 0 and depth == _DEPTHS[0]):
                break
            depth = _DEPTHS[1]
        place.done += not refused
        place.failed += refused
    place.hold()
    place.notes.append(f"depth {depth}")

    async def subscribe() -> None:
        await other.ask(_subscribe(1, ".".join(["*"] * depth)))
        for _ in range(place.done):
            await other.receive()

    await place.cost("one SUBSCRIBE", 1, subscribe)


async def _stuck(place: AttackRun) -> None:
    """Publish to subscribers that read, then to as many more that do not."""
    publisher = await umq(place.port)
    place.ends.append(publisher.reset)

    async def publish(size: int = 2_000) -> None:
        await publisher.ask(f"M3\nhub:publish\nnews\n{'x' * size}")

    async def read(wire: RawSocket) -> None:
        while await wire.reader.read(1 << 16):
            pass

    readers = [await umq(place.port) for _ in range(place.actions)]
    for wire in readers:
        await wire.ask(_subscribe(1, "news"))
    reading = [asyncio.create_task(read(wire)) for wire in readers]
    place.ends += [each.reset for each in readers]
    healthy = await place.cost(f"publication to {place.actions} readers", _PUBLICATIONS, publish)
    for _ in range(place.actions):
        wire = await upgraded(place.port, "/umq", hello="H1.0.0\n", buffer=4096)
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]  # what a stream reads from can pause
        wire.send(_subscribe(1, "news"))
        place.ends.append(wire.reset)
        place.done += 1
    for _ in range(400):  # 8 MB each: until the system's buffers and the hub's are full
        await publish(20_000)
    both = await place.cost("publication to them and as many stuck readers", _PUBLICATIONS, publish)
    place.notes.append(f"stuck / healthy {(both - healthy) / max(healthy, 0.001):.2f}")
    place.hold()
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


async def _empty_maps(place: AttackRun) -> None:
    """Publish 1 MB of empty maps in CBOR to a subscriber of JSON."""
    subscriber = await umq(place.port)
    publisher = await upgraded(place.port, "/lrpm", more="Sec-WebSocket-Protocol: lrpm.cbor\r\n")
    place.ends += [subscriber.reset, publisher.reset]
    await subscriber.ask(_subscribe(1, "news"))
    publisher.send(bytes((0x83, 0x02, 0xF6, 0xA0)), BINARY)  # HELLO
    await publisher.receive()
    number = 1_000_000
    body = b"\x9a" + number.to_bytes(4, "big") + b"\xa0" * number
    topic = b"\x64news"
    request = _call(b"\x6bhub.publish", b"\xa2\x65topic" + topic + b"\x64data" + body)
    for _ in range(place.actions):
        try:
            await place.cost("1 MB of empty maps", 1, lambda: _published(publisher, request))
        except (OSError, asyncio.IncompleteReadError) as exc:
            place.failed += 1
            place.notes.append(f"refused: {exc}")
            return
        place.done += 1
        place.hold()


def _call(method: bytes, body: bytes) -> bytes:
    """Return a CALL of lrpm in CBOR."""
    return b"\x85\x18\x28\x01" + method + body + b"\xa0"


async def _published(wire: RawSocket, request: bytes) -> None:
    wire.send(request, BINARY)
    answer = await wire.receive()
    if not answer.startswith(_RESULT):
        raise ConnectionError(repr(answer[:60]))


ATTACKS: Final = {
    "deep": Attack(_deep, _PEER),
    "wide": Attack(_wide, 20_000),
    "retained": Attack(_retained, 10_000),
    "stuck": Attack(_stuck, _READERS),
    "empty-maps": Attack(_empty_maps, 1),
}
