"""`fiveways call`: call a method and print its response."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fiveways.cli.connection_options import ConnectionOptions
from fiveways.cli.errors import UsageError, print_stderr
from fiveways.cli.json_io import check_readable, parse_json_argument, print_value
from fiveways.cli.progress_notes import NoteDisplay, NoteLines
from fiveways.client.peer import Peer
from fiveways.errors import CallTimeout

_PROTOCOLS_WITH_NOTES: Final = frozenset({"nq", "lrpm-json", "lrpm-cbor"})
"""Protocols with notes and progress for pending calls."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Options of `fiveways call`."""

    method: str
    body: str | None = None
    timeout: float = 30.0
    stream: bool = False
    attachments: tuple[Path, ...] = ()
    save_directory: Path | None = None
    raw: bool = False
    verbose: bool = False


def call(connection: ConnectionOptions, options: CallOptions) -> None:
    """Call a method, and print its response or the parts of it."""
    if connection.is_mqtt:
        _check_mqtt(options)
        asyncio.run(_call_mqtt(connection, options, parse_json_argument(options.body)))
        return
    if connection.schema:
        raise UsageError("--schema is only for services behind an MQTT broker (mqtt-rpc+mqtt://...)")
    if options.stream and (options.attachments or options.save_directory is not None):
        raise UsageError("--stream cannot be combined with attachments")
    if options.stream and options.verbose:
        raise UsageError("--stream cannot be combined with --verbose")
    body = parse_json_argument(options.body)
    attachments = [check_readable(path) for path in options.attachments]
    asyncio.run(_stream(connection, options, body) if options.stream else _call(connection, options, body, attachments))


async def _call(connection: ConnectionOptions, options: CallOptions, body: object, attachments: list[Path]) -> None:
    async with connection.connect_within(options.timeout) as peer:
        pending = peer.begin(
            options.method, body, timeout=options.timeout, attachments=attachments, verbose=options.verbose
        )
        try:
            with _progress_display(peer, options) as display:
                async for note in pending.notes():
                    display.show_note(note)
            reply = await pending.reply()
        finally:
            pending.cancel()
    if options.save_directory is not None:
        _save(reply.attachments, options.save_directory)
    elif reply.attachments:
        print_stderr(
            f"fiveways call: the response has {len(reply.attachments)} attachments; "
            "save them with --save-attachments DIR"
        )
    print_value(reply.value, raw=options.raw)


def _check_mqtt(options: CallOptions) -> None:
    if options.attachments or options.save_directory is not None:
        raise UsageError("RPC over MQTT does not support attachments")
    if options.verbose:
        raise UsageError("RPC over MQTT does not support --verbose: it has no notes or progress")


async def _call_mqtt(connection: ConnectionOptions, options: CallOptions, body: object) -> None:
    """Call a service behind an MQTT broker."""
    try:
        async with asyncio.timeout(options.timeout) as limit, connection.connect_broker(options.timeout) as peer:
            if options.stream:
                async for part in peer.stream(options.method, body, timeout=options.timeout):
                    print_value(part, raw=options.raw)
            else:
                print_value(await peer.call(options.method, body, timeout=options.timeout), raw=options.raw)
    except TimeoutError:
        if not limit.expired():
            raise
        raise CallTimeout(f"no response within {options.timeout:g} s") from None


def _progress_display(peer: Peer, options: CallOptions) -> NoteDisplay:
    """Return the display for notes and progress of the method."""
    if sys.stderr.isatty() and peer.protocol in _PROTOCOLS_WITH_NOTES:
        from fiveways.cli.progress_bar import NoteProgressBar  # noqa: PLC0415  slow import, needed on terminals only

        return NoteProgressBar(options.method, verbose=options.verbose)
    return NoteLines("fiveways call", verbose=options.verbose)


async def _stream(connection: ConnectionOptions, options: CallOptions, body: object) -> None:
    async with connection.connect_within(options.timeout) as peer:
        async for part in peer.stream(options.method, body, timeout=options.timeout):
            print_value(part, raw=options.raw)


def _save(attachments: Sequence[bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(attachments, 1):
        path = folder / f"attachment-{number}"
        path.write_bytes(data)
        print_stderr(f"fiveways call: saved {len(data)} bytes to {path}")
