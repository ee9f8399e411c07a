"""Attacks that make the hub hold something: durable requests, jobs, values, answers, unfinished input."""

import asyncio
import json
from typing import Final

from chaos.attacks.attack_run import Attack, AttackRun
from chaos.attacks.raw_sockets import BINARY, RawSocket, answer, asked, connected, header, post, repeat, umq

_MIB: Final = 1 << 20
_OTHER: Final = "127.0.0.8"


async def _shares(place: AttackRun) -> None:
    """Fill durable requests, retained values and work queues; then another peer wants some of each."""
    callee, wire = await umq(place.port), await umq(place.port)
    place.ends += [callee.reset, wire.reset]
    await callee.ask("M1\nhub:register\nwork")
    reading = asyncio.create_task(_discard(callee))  # and never answers

    async def owe(_: int) -> None:
        body = json.dumps({"t": "work", "r": "1", "d": "x" * 900_000})
        status, _head, said = await asked(place.port, post(body.encode()))
        if status != 200 or b"busy" in said:
            raise ConnectionError(status)

    place.failed = await repeat(place.actions, owe, place.count, workers=4)
    full = 0
    for each in range(1100):
        value = json.dumps({"topic": f"held.{each}", "data": "x" * 60_000, "retain": True})
        full += (await wire.ask(f"M2\nhub:publish\n{value}")).startswith(("!", "E"))
        job = json.dumps({"queue": f"held-{each}", "data": "x" * 60_000})
        full += (await wire.ask(f"M3\nhub:push\n{job}")).startswith(("!", "E"))
    place.hold()
    place.notes.append(f"stranger refused {place.failed + full}")
    await _ask_for_some(place)
    reading.cancel()


async def _discard(wire: RawSocket) -> None:
    while await wire.reader.read(1 << 20):
        pass


async def _ask_for_some(place: AttackRun) -> None:
    """Count what another peer is refused."""
    other = await umq(place.port, _OTHER)
    place.ends.append(other.reset)
    refused = {"requests": 0, "values": 0, "jobs": 0}
    for number in range(20):
        status, _, said = await asked(place.port, post(b'{"t":"work","r":"1","d":1}'), _OTHER)
        refused["requests"] += status != 200 or b"busy" in said
        for name, text in (
            ("values", f'M1\nhub:publish\n{{"topic":"other.{number}","data":1,"retain":true}}'),
            ("jobs", f'M1\nhub:push\n{{"queue":"other-{number}","data":1}}'),
        ):
            refused[name] += (await other.ask(text)).startswith(("!", "E"))
    place.notes.append("another peer refused " + ", ".join(f"{name} {number}/20" for name, number in refused.items()))


async def _answers(place: AttackRun) -> None:
    """Let each of many NQ peers ask for 64 answers of 1 MB, and acknowledge none."""
    text = "x" * 1_000_000

    async def ask(_: int) -> None:
        wire = await connected(place.port)
        try:
            peer = ""
            for number in range(64):
                body = json.dumps({"t": "hub-echo", "r": str(number), "d": text}).encode()
                wire.writer.write(post(body, "/nq?wait=5", f"NQ-Peer: {peer}\r\n" if peer else ""))
                status, head, said = await answer(wire)
                if status != 200 or b"busy" in said[:2000]:
                    raise ConnectionError(status)
                peer = head.lower().partition(b"nq-peer: ")[2].partition(b"\r\n")[0].decode()
                place.count()
                place.hold()
        finally:
            wire.reset()

    place.failed = await repeat(place.actions, ask, lambda: None, workers=3)
    place.notes.append("actions are answers, refused are peers")
    place.hold()


async def _unfinished(place: AttackRun) -> None:
    """Send frames of 16 MiB, and bodies of 1 MiB, but for the last byte."""
    frame, size = bytes(_MIB), 16 * _MIB - 1

    async def begin(number: int) -> None:
        if number % 2:
            wire = await connected(place.port)
            request = post(bytes(_MIB))
            wire.writer.write(request[:-1])
            await _flushed(wire)
        else:
            wire = await umq(place.port)
            wire.writer.write(header(size, BINARY))
            for _ in range(15):
                wire.writer.write(frame)
                await _flushed(wire)
        place.ends.append(wire.reset)
        if wire.reader.at_eof():
            raise ConnectionError("closed")
        place.hold()

    # Half of them are frames, half bodies.
    place.failed = await repeat(2 * place.actions, begin, place.count, workers=8)
    await place.settle()


async def _flushed(wire: RawSocket) -> None:
    async with asyncio.timeout(60):
        await wire.writer.drain()
        while wire.writer.transport.get_write_buffer_size():  # noqa: ASYNC110  a stream tells of its limits only
            await asyncio.sleep(0.001)


ATTACKS: Final = {
    "shares": Attack(_shares, 300, 300),
    "answers": Attack(_answers, 300, 300),
    "unfinished": Attack(_unfinished, 1_000, 300),
}
