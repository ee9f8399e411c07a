"""`fiveways call`: one call, one answer, or its parts."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fiveways.cli.access import Access, run
from fiveways.cli.endings import UsageError, tell
from fiveways.cli.jsonio import read_json, readable, show
from fiveways.cli.notes import Lines, Teller
from fiveways.client.peer import Peer
from fiveways.errors import CallTimeout

_TELLING: Final = frozenset({"nq", "lrpm-json", "lrpm-cbor"})
"""Protocols in which something is told on the way to an answer."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user typed."""

    method: str
    body: str | None = None
    timeout: float = 30.0
    stream: bool = False
    attach: tuple[Path, ...] = ()
    save: Path | None = None
    raw: bool = False
    verbose: bool = False


def call(gate: Access, wish: Wish) -> None:
    """Call, and print what comes."""
    if gate.is_mqtt:
        _check_mqtt(wish)
        run(_call_mqtt(gate, wish, read_json(wish.body)))
        return
    if gate.schema:
        raise UsageError("--schema is for services behind a broker: mqtt-rpc+mqtt://...")
    if wish.stream and (wish.attach or wish.save is not None):
        raise UsageError("--stream goes without attachments")
    if wish.stream and wish.verbose:
        raise UsageError("--stream goes without --verbose")
    body = read_json(wish.body)
    attachments = [readable(path) for path in wish.attach]
    run(_stream(gate, wish, body) if wish.stream else _call(gate, wish, body, attachments))


async def _call(gate: Access, wish: Wish, body: object, attachments: list[Path]) -> None:
    async with gate.within(wish.timeout) as peer:
        going = peer.begin(wish.method, body, timeout=wish.timeout, attachments=attachments, verbose=wish.verbose)
        try:
            with _teller(peer, wish) as teller:
                async for note in going.notes():
                    teller.note(note)
            reply = await going.reply()
        finally:
            going.cancel()
    if wish.save is not None:
        _save(reply.attachments, wish.save)
    elif reply.attachments:
        tell(f"fiveways call: {len(reply.attachments)} attachments came; --save-attachments DIR keeps them")
    show(reply.value, raw=wish.raw)


def _check_mqtt(wish: Wish) -> None:
    if wish.attach or wish.save is not None:
        raise UsageError("RPC over MQTT has no attachments")
    if wish.verbose:
        raise UsageError("in RPC over MQTT nothing is told on the way: leave --verbose out")


async def _call_mqtt(gate: Access, wish: Wish, body: object) -> None:
    """Call a service behind a broker."""
    try:
        async with asyncio.timeout(wish.timeout) as limit, gate.broker(wish.timeout) as peer:
            if wish.stream:
                async for part in peer.stream(wish.method, body, timeout=wish.timeout):
                    show(part, raw=wish.raw)
            else:
                show(await peer.call(wish.method, body, timeout=wish.timeout), raw=wish.raw)
    except TimeoutError:
        if not limit.expired():
            raise
        raise CallTimeout(f"no answer within {wish.timeout:g} s") from None


def _teller(peer: Peer, wish: Wish) -> Teller:
    """Choose who tells the user how far it is."""
    if sys.stderr.isatty() and peer.protocol in _TELLING:
        from fiveways.cli.meter import Meter  # noqa: PLC0415  a program that reads the output does without it

        return Meter(wish.method, verbose=wish.verbose)
    return Lines("fiveways call", verbose=wish.verbose)


async def _stream(gate: Access, wish: Wish, body: object) -> None:
    async with gate.within(wish.timeout) as peer:
        async for part in peer.stream(wish.method, body, timeout=wish.timeout):
            show(part, raw=wish.raw)


def _save(attachments: Sequence[bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(attachments, 1):
        path = folder / f"attachment-{number}"
        path.write_bytes(data)
        tell(f"fiveways call: {len(data)} bytes are in {path}")
