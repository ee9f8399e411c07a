"""Frames on raw WebSockets, as a page shows them.

    ```frames meter=/umq caller=/lrpm "Authorization: Bearer something"
    meter  > M1                     a text frame to the hub, on several lines if it has line feeds
             hub:register
             meter.read
    meter  < R1                     a text frame from the hub
             null
    meter >> 89 50 4e 47            a binary frame; `<<` is one from the hub. After `#` may be its meaning in JSON
    meter [closed]                  the hub closes the connection, or [closed 1009]
    ```

A page with one peer needs no names: `frames /umq`. Peers in the first line connect anew; other peers stay connected.
"""

import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import cbor2

from tests.support.docs import matching
from tests.support.docs.markdown import Block
from tests.support.raw_peers import PATIENCE, WirePeer, connected

_LINE = re.compile(r"(?:(?P<peer>\w+) +)?(?P<direction>>>?|<<?)(?: (?P<text>.*))?")
_CLOSED = re.compile(r"(?:(?P<peer>\w+) +)?\[closed(?: (?P<code>\d+))?\]")


@dataclass(slots=True)
class Line:
    """One frame, or the end of a connection."""

    peer: str
    direction: str
    text: str
    column: int = 0


def lines(block: Block) -> Iterator[Line]:
    """Parse a block."""
    last: Line | None = None
    for line in block.text.splitlines():
        frame, closed = _LINE.fullmatch(line), _CLOSED.fullmatch(line)
        if frame is not None:
            if last is not None:
                yield last
            last = Line(frame["peer"] or "", frame["direction"], frame["text"] or "", frame.start("text"))
        elif closed is not None:
            if last is not None:
                yield last
            last = Line(closed["peer"] or "", "closed", closed["code"] or "")
        elif last is not None and last.column > 0 and (not line or line.startswith(" " * last.column)):
            last.text += f"\n{line[last.column :]}"
        else:
            raise AssertionError(f"{block.place}: {line!r} is not a frame")
    if last is not None:
        yield last


class Wires:
    """The raw WebSockets of one page."""

    def __init__(self, place: str, known: dict[str, str]) -> None:
        """Prepare the event loop.

        Args:
            place: Host and port of the hub.
            known: Values of the placeholders of the page.
        """
        self._place = place
        self._known = known
        self._runner = asyncio.Runner()
        self._peers: dict[str, WirePeer] = {}
        self._known_messages: set[str] = set()
        """Received NQ messages, which the hub may retransmit."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._peers):
            self._runner.run(self._disconnect(name))
        self._runner.close()

    def run(self, block: Block) -> None:
        """Send and expect the frames of a block."""
        self._runner.run(self._run(block))

    async def _run(self, block: Block) -> None:
        arguments = shlex.split(matching.fill(block.details, self._known))
        headers = dict(argument.split(": ", 1) for argument in arguments if ": " in argument)
        for argument in arguments:
            if ": " not in argument:
                await self._connect(argument, headers)
        for line in lines(block):
            peer = self._peers.get(line.peer)
            assert peer is not None, f"{block.place}: unknown peer {line.peer!r}"
            await self._run_line(peer, line, block.place)

    async def _connect(self, argument: str, headers: dict[str, str]) -> None:
        name, _, path = argument.rpartition("=")
        await self._disconnect(name)
        self._peers[name] = await connected(f"ws://{self._place}{path}", headers)

    async def _disconnect(self, name: str) -> None:
        """Close a connection, and let the event loop process the close."""
        peer = self._peers.pop(name, None)
        if peer is not None:
            peer.leave()
            await asyncio.sleep(0)

    async def _run_line(self, peer: WirePeer, line: Line, place: str) -> None:
        text = line.text.partition("  #")[0] if line.direction in {">>", "<<"} else line.text
        if line.direction in {">>", "<<"}:
            check_meaning(line.text, place)
        match line.direction:
            case ">":
                peer.text(matching.fill(text, self._known))
            case ">>":
                peer.binary(bytes.fromhex(text))
            case "<":
                self._check(text, await self._next_new_text(peer), place)
            case "<<":
                self._check(text.strip(), (await peer.data()).hex(" "), place)
            case _:
                assert await asyncio.wait_for(peer.frames.get(), PATIENCE) is None, place
                assert text in {"", str(getattr(peer.close_code, "value", None))}, (
                    f"{place}: closed with {peer.close_code}"
                )

    async def _next_new_text(self, peer: WirePeer) -> str:
        """Return the next text that is not a retransmission, which NQ sends if the machine is slow."""
        while True:
            text = await peer.heard()
            messages = _nq_messages(text)
            if not messages or not messages <= self._known_messages:
                self._known_messages |= messages
                return text

    def _check(self, shown: str, actual: str, place: str) -> None:
        assert matching.matches(shown, actual, self._known), f"{place} shows\n{shown}\nbut received\n{actual}"


def _nq_messages(text: str) -> set[str]:
    """Return the messages of an NQ packet as texts; none for other texts."""
    if not text.startswith(('{"', '[{"')):
        return set()
    parsed = json.loads(text)
    return {json.dumps(message) for message in (parsed if isinstance(parsed, list) else [parsed])}


def check_meaning(text: str, place: str) -> None:
    """Check the JSON after `#` against the bytes of the line."""
    data, mark, meaning = text.partition("  #")
    if mark and "..." not in data:
        assert cbor2.loads(bytes.fromhex(data)) == json.loads(meaning), f"{place}: {data} is not {meaning}"
