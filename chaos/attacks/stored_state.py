"""Attacks that make the hub hold state: durable requests, jobs, values, responses, unfinished input."""

import asyncio
import json
from typing import Final

from chaos.attacks.attack_run import Attack, AttackRun
from chaos.attacks.raw_sockets import BINARY, RawSocket, answer, connect, header, post, repeat, request_once, umq

_MIB: Final = 1 << 20
_OTHER: Final = "127.0.0.8"


async def _shares(attack_run: AttackRun) -> None:
    """Fill durable requests, retained values and work queues, then let another peer request some of each."""
    callee, wire = await umq(attack_run.port), await umq(attack_run.port)
    attack_run.ends += [callee.reset, wire.reset]
    await callee.ask("M1\nhub:register\nwork")
    reading = asyncio.create_task(_discard(callee))  # reads requests and never answers

    async def send_request(_: int) -> None:
        body = json.dumps({"t": "work", "r": "1", "d": "x" * 900_000})
        status, _head, response = await request_once(attack_run.port, post(body.encode()))
        if status != 200 or b"busy" in response:
            raise ConnectionError(status)

    attack_run.failed = await repeat(attack_run.actions, send_request, attack_run.count, workers=4)
    refused = 0
    for number in range(1100):
        value = json.dumps({"topic": f"held.{number}", "data": "x" * 60_000, "retain": True})
        refused += (await wire.ask(f"M2\nhub:publish\n{value}")).startswith(("!", "E"))
        job = json.dumps({"queue": f"held-{number}", "data": "x" * 60_000})
        refused += (await wire.ask(f"M3\nhub:push\n{job}")).startswith(("!", "E"))
    attack_run.hold()
    attack_run.notes.append(f"stranger refused {attack_run.failed + refused}")
    await _ask_for_some(attack_run)
    reading.cancel()


async def _discard(wire: RawSocket) -> None:
    while await wire.reader.read(1 << 20):
        pass


async def _ask_for_some(attack_run: AttackRun) -> None:
    """Count the refusals that another peer gets."""
    other = await umq(attack_run.port, _OTHER)
    attack_run.ends.append(other.reset)
    refused = {"requests": 0, "values": 0, "jobs": 0}
    for number in range(20):
        status, _, response = await request_once(attack_run.port, post(b'{"t":"work","r":"1","d":1}'), _OTHER)
        refused["requests"] += status != 200 or b"busy" in response
        for name, text in (
            ("values", f'M1\nhub:publish\n{{"topic":"other.{number}","data":1,"retain":true}}'),
            ("jobs", f'M1\nhub:push\n{{"queue":"other-{number}","data":1}}'),
        ):
            refused[name] += (await other.ask(text)).startswith(("!", "E"))
    attack_run.notes.append(
        "another peer refused " + ", ".join(f"{name} {number}/20" for name, number in refused.items())
    )


async def _answers(attack_run: AttackRun) -> None:
    """Let many NQ peers request 64 results of 1 MB each, and acknowledge none."""
    text = "x" * 1_000_000

    async def ask(_: int) -> None:
        wire = await connect(attack_run.port)
        try:
            peer = ""
            for number in range(64):
                body = json.dumps({"t": "hub-echo", "r": str(number), "d": text}).encode()
                wire.writer.write(post(body, "/nq?wait=5", f"NQ-Peer: {peer}\r\n" if peer else ""))
                status, head, response = await answer(wire)
                if status != 200 or b"busy" in response[:2000]:
                    raise ConnectionError(status)
                peer = head.lower().partition(b"nq-peer: ")[2].partition(b"\r\n")[0].decode()
                attack_run.count()
                attack_run.hold()
        finally:
            wire.reset()

    attack_run.failed = await repeat(attack_run.actions, ask, lambda: None, workers=3)
    attack_run.notes.append("actions are answers, refused are peers")
    attack_run.hold()


async def _unfinished(attack_run: AttackRun) -> None:
    """Send frames of 16 MiB and bodies of 1 MiB, each without the last byte."""
    frame, size = bytes(_MIB), 16 * _MIB - 1

    async def begin(number: int) -> None:
        if number % 2:
            wire = await connect(attack_run.port)
            request = post(bytes(_MIB))
            wire.writer.write(request[:-1])
            await _flush(wire)
        else:
            wire = await umq(attack_run.port)
            wire.writer.write(header(size, BINARY))
            for _ in range(15):
                wire.writer.write(frame)
                await _flush(wire)
        attack_run.ends.append(wire.reset)
        if wire.reader.at_eof():
            raise ConnectionError("closed")
        attack_run.hold()

    # Half of the inputs are frames, half are bodies.
    attack_run.failed = await repeat(2 * attack_run.actions, begin, attack_run.count, workers=8)
    await attack_run.settle()


async def _flush(wire: RawSocket) -> None:
    async with asyncio.timeout(60):
        await wire.writer.drain()
        while wire.writer.transport.get_write_buffer_size():  # noqa: ASYNC110  a stream has no event for an empty buffer
            await asyncio.sleep(0.001)


ATTACKS: Final = {
    "shares": Attack(_shares, 300, 300),
    "answers": Attack(_answers, 300, 300),
    "unfinished": Attack(_unfinished, 1_000, 300),
}
