"""Attacks on topics: many patterns, many retained values, slow consumers, bodies that are slow to convert."""

import asyncio
from random import Random
from typing import Final

from chaos.attacks.attack_run import Attack, AttackRun
from chaos.attacks.raw_sockets import BINARY, RawSocket, umq, upgrade

_DEPTHS: Final = (60, 16)
"""Numbers of segments of deep topics; the second is used if the hub refuses the first."""
_READERS: Final = 200
_PUBLICATIONS: Final = 300
_RESULT: Final = b"\x84\x18\x29"
"""The first bytes of an LRPM-CBOR RESULT."""
_PEER: Final = 4096
"""Limit of subscriptions per peer."""


def _subscribe(number: int, pattern: str) -> str:
    return f'M2\nhub:subscribe\n{{"topic":"{pattern}","id":"s{number}"}}'


def _is_refused(answer: str) -> bool:
    return answer.startswith(("!", "E"))


async def _deep(attack_run: AttackRun) -> None:
    """Subscribe one peer to deep patterns of different shapes, and publish on a topic that all of them match."""
    wire, other, random = await umq(attack_run.port), await umq(attack_run.port), Random(1)
    attack_run.ends += [wire.reset, other.reset]
    depth = _DEPTHS[0]
    if _is_refused(await wire.ask(_subscribe(0, ".".join(["a"] * depth)))):
        depth = _DEPTHS[1]
    topic = ".".join(["a"] * depth)
    await attack_run.cost("publication before", 50, lambda: other.ask(f"M3\nhub:publish\n{topic}\n1"))
    for number in range(1, attack_run.actions):
        pattern = ".".join(random.choice(("*", "a")) for _ in range(depth - 1)) + ".b"
        if _is_refused(await wire.ask(_subscribe(number, pattern))):
            attack_run.failed += 1
        else:
            attack_run.done += 1
    attack_run.hold()
    attack_run.notes.append(f"depth {depth}")
    # A new topic each time, because the hub may cache the matches of a topic.
    numbers = iter(range(1_000_000))
    await attack_run.cost(
        "publication after",
        20,
        lambda: asyncio.wait_for(other.ask(f"M3\nhub:publish\n{topic[:-1]}x{next(numbers)}\n1"), 60),
    )


async def _wide(attack_run: AttackRun) -> None:
    """Subscribe to partial wildcards below one segment, and publish below it."""
    other = await umq(attack_run.port)
    attack_run.ends.append(other.reset)
    numbers = iter(range(1_000_000))
    await attack_run.cost("publication before", 50, lambda: other.ask(f"M3\nhub:publish\nnode.y{next(numbers)}\n1"))
    wire: RawSocket | None = None
    for number in range(attack_run.actions):
        if number % _PEER == 0:
            wire = await umq(attack_run.port)
            attack_run.ends.append(wire.reset)
        assert wire is not None
        refused = _is_refused(await wire.ask(_subscribe(number, f"node.x{number}*")))
        attack_run.done += not refused
        attack_run.failed += refused
    attack_run.hold()
    await attack_run.cost("publication after", 50, lambda: other.ask(f"M3\nhub:publish\nnode.y{next(numbers)}\n1"))


async def _retained(attack_run: AttackRun) -> None:
    """Retain values on deep topics, and subscribe to all of them."""
    wire, other = await umq(attack_run.port), await umq(attack_run.port)
    attack_run.ends += [wire.reset, other.reset]
    depth = _DEPTHS[0]
    for number in range(attack_run.actions):
        while True:
            topic = ".".join([f"t{number}", *["a"] * (depth - 1)])
            refused = _is_refused(
                await wire.ask(f'M2\nhub:publish\n{{"topic":"{topic}","data":{number},"retain":true}}')
            )
            if not (refused and number == 0 and depth == _DEPTHS[0]):
                break
            depth = _DEPTHS[1]
        attack_run.done += not refused
        attack_run.failed += refused
    attack_run.hold()
    attack_run.notes.append(f"depth {depth}")

    async def subscribe() -> None:
        await other.ask(_subscribe(1, ".".join(["*"] * depth)))
        for _ in range(attack_run.done):
            await other.receive()

    await attack_run.cost("one SUBSCRIBE", 1, subscribe)


async def _stuck(attack_run: AttackRun) -> None:
    """Publish to subscribers that read, then also to as many that do not read."""
    publisher = await umq(attack_run.port)
    attack_run.ends.append(publisher.reset)

    async def publish(size: int = 2_000) -> None:
        await publisher.ask(f"M3\nhub:publish\nnews\n{'x' * size}")

    async def read(wire: RawSocket) -> None:
        while await wire.reader.read(1 << 16):
            pass

    readers = [await umq(attack_run.port) for _ in range(attack_run.actions)]
    for wire in readers:
        await wire.ask(_subscribe(1, "news"))
    reading = [asyncio.create_task(read(wire)) for wire in readers]
    attack_run.ends += [reader.reset for reader in readers]
    healthy = await attack_run.cost(f"publication to {attack_run.actions} readers", _PUBLICATIONS, publish)
    for _ in range(attack_run.actions):
        wire = await upgrade(attack_run.port, "/umq", hello="H1.0.0\n", buffer=4096)
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]  # the transport of a stream can pause
        wire.send(_subscribe(1, "news"))
        attack_run.ends.append(wire.reset)
        attack_run.done += 1
    for _ in range(400):  # 8 MB each fill the buffers of the kernel and of the hub
        await publish(20_000)
    both = await attack_run.cost("publication to them and as many stuck readers", _PUBLICATIONS, publish)
    attack_run.notes.append(f"stuck / healthy {(both - healthy) / max(healthy, 0.001):.2f}")
    attack_run.hold()
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


async def _empty_maps(attack_run: AttackRun) -> None:
    """Publish 1 MB of empty CBOR maps to a JSON subscriber."""
    subscriber = await umq(attack_run.port)
    publisher = await upgrade(attack_run.port, "/lrpm", headers="Sec-WebSocket-Protocol: lrpm.cbor\r\n")
    attack_run.ends += [subscriber.reset, publisher.reset]
    await subscriber.ask(_subscribe(1, "news"))
    publisher.send(bytes((0x83, 0x02, 0xF6, 0xA0)), BINARY)  # HELLO
    await publisher.receive()
    number = 1_000_000
    body = b"\x9a" + number.to_bytes(4, "big") + b"\xa0" * number
    topic = b"\x64news"
    request = _call(b"\x6bhub.publish", b"\xa2\x65topic" + topic + b"\x64data" + body)
    for _ in range(attack_run.actions):
        try:
            await attack_run.cost("1 MB of empty maps", 1, lambda: _publish(publisher, request))
        except (OSError, asyncio.IncompleteReadError) as exc:
            attack_run.failed += 1
            attack_run.notes.append(f"refused: {exc}")
            return
        attack_run.done += 1
        attack_run.hold()


def _call(method: bytes, body: bytes) -> bytes:
    """Return an LRPM-CBOR CALL."""
    return b"\x85\x18\x28\x01" + method + body + b"\xa0"


async def _publish(wire: RawSocket, request: bytes) -> None:
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
