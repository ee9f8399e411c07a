"""`fiveways call`: one call, one answer, or its parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fiveways.cli.access import Access, run
from fiveways.cli.endings import UsageError, tell
from fiveways.cli.jsonio import read_json, readable, show


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


def call(gate: Access, wish: Wish) -> None:
    """Call, and print what comes."""
    if wish.stream and (wish.attach or wish.save is not None):
        raise UsageError("--stream goes without attachments")
    body = read_json(wish.body)
    attachments = [readable(path) for path in wish.attach]
    run(_stream(gate, wish, body) if wish.stream else _call(gate, wish, body, attachments))


async def _call(gate: Access, wish: Wish, body: object, attachments: list[Path]) -> None:
    async with gate.within(wish.timeout) as peer:
        reply = await peer.call_reply(wish.method, body, timeout=wish.timeout, attachments=attachments)
    if wish.save is not None:
        _save(reply.attachments, wish.save)
    elif reply.attachments:
        tell(f"fiveways call: {len(reply.attachments)} attachments came; --save-attachments DIR keeps them")
    show(reply.value, raw=wish.raw)


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
