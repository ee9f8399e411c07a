"""`fiveways call`: one call, one answer, or its parts."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fiveways.cli.connection_options import ConnectionOptions, run_async
from fiveways.cli.errors import UsageError, print_stderr
from fiveways.cli.json_io import check_readable, parse_json_argument, print_value
from fiveways.cli.progress_notes import NoteDisplay, NoteLines
from fiveways.client.peer import Peer
from fiveways.errors import CallTimeout

_PROTOCOLS_WITH_NOTES: Final = frozenset({"nq", "lrpm-json", "lrpm-cbor"})
"""Protocols in which something is told on the way to an answer."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What the user typed."""

    method: str
    body: str | None = None
    timeout: float = 30.0
    stream: bool = False
    attachments: tuple[Path, ...] = ()
    save_directory: Path | None = None
    raw: bool = False
    verbose: bool = False


def call(gate: ConnectionOptions, wish: CallOptions) -> None:
    """Call, and print what comes."""
    if gate.is_mqtt:
        _check_mqtt(wish)
        run_async(_call_mqtt(gate, wish, parse_json_argument(wish.body)))
        return
    if gate.schema:
        raise UsageError("--schema is for services behind a broker: mqtt-rpc+mqtt://...")
    if wish.stream and (wish.attachments or wish.save_directory is not None):
        raise UsageError("--stream goes without attachments")
    if wish.stream and wish.verbose:
        raise UsageError("--stream goes without --verbose")
    body = parse_json_argument(wish.body)
    attachments = [check_readable(path) for path in wish.attachments]
    run_async(_stream(gate, wish, body) if wish.stream else _call(gate, wish, body, attachments))


async def _call(gate: ConnectionOptions, wish: CallOptions, body: object, attachments: list[Path]) -> None:
    async with gate.connect_within(wish.timeout) as peer:
        going = peer.begin(wish.method, body, timeout=wish.timeout, attachments=attachments, verbose=wish.verbose)
        try:
            with _progress_display(peer, wish) as teller:
                async for note in going.notes():
                    teller.show_note(note)
            reply = await going.reply()
        finally:
            going.cancel()
    if wish.save_directory is not None:
        _save(reply.attachments, wish.save_directory)
    elif reply.attachments:
        print_stderr(f"fiveways call: {len(reply.attachments)} attachments came; --save-attachments DIR keeps them")
    print_value(reply.value, raw=wish.raw)


def _check_mqtt(wish: CallOptions) -> None:
    if wish.attachments or wish.save_directory is not None:
        raise UsageError("RPC over MQTT has no attachments")
    if wish.verbose:
        raise UsageError("in RPC over MQTT nothing is told on the way: leave --verbose out")


async def _call_mqtt(gate: ConnectionOptions, wish: CallOptions, body: object) -> None:
    """Call a service behind a broker."""
    try:
        async with asyncio.timeout(wish.timeout) as limit, gate.connect_broker(wish.timeout) as peer:
            if wish.stream:
                async for part in peer.stream(wish.method, body, timeout=wish.timeout):
                    print_value(part, raw=wish.raw)
            else:
                print_value(await peer.call(wish.method, body, timeout=wish.timeout), raw=wish.raw)
    except TimeoutError:
        if not limit.expired():
            raise
        raise CallTimeout(f"no answer within {wish.timeout:g} s") from None


def _progress_display(peer: Peer, wish: CallOptions) -> NoteDisplay:
    """Choose who tells the user how far it is."""
    if sys.stderr.isatty() and peer.protocol in _PROTOCOLS_WITH_NOTES:
        from fiveways.cli.progress_bar import NoteProgressBar  # noqa: PLC0415  a program that reads the output does without it

        return NoteProgressBar(wish.method, verbose=wish.verbose)
    return NoteLines("fiveways call", verbose=wish.verbose)


async def _stream(gate: ConnectionOptions, wish: CallOptions, body: object) -> None:
    async with gate.connect_within(wish.timeout) as peer:
        async for part in peer.stream(wish.method, body, timeout=wish.timeout):
            print_value(part, raw=wish.raw)


def _save(attachments: Sequence[bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(attachments, 1):
        path = folder / f"attachment-{number}"
        path.write_bytes(data)
        print_stderr(f"fiveways call: {len(data)} bytes are in {path}")
