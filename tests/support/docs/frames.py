"""Frames on a raw WebSocket, as a page shows them.

    ```frames meter=/umq caller=/lrpm "Authorization: Bearer something"
    meter  > M1                     a text frame to the hub, on several lines if it has line feeds
             hub:register
             meter.read
    meter  < R1                     a text frame from the hub
             null
    meter >> 89 50 4e 47            a binary frame; `<<` is one from the hub. Behind `#` it may say what it is in JSON
    meter [closed]                  the hub closes the connection, or [closed 1009]
    ```

A page with one peer needs no names: `frames /umq`. Who is named in the first line is connected anew; who is not, goes
on.
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

_LINE = re.compile(r"(?:(?P<who>\w+) +)?(?P<way>>>?|<<?)(?: (?P<text>.*))?")
_CLOSED = re.compile(r"(?:(?P<who>\w+) +)?\[closed(?: (?P<code>\d+))?\]")


@dataclass(slots=True)
class Line:
    """One frame, or the end of a connection."""

    who: str
    way: str
    text: str
    column: int = 0


def lines(block: Block) -> Iterator[Line]:
    """Take a block apart."""
    last: Line | None = None
    for each in block.text.splitlines():
        found, closed = _LINE.fullmatch(each), _CLOSED.fullmatch(each)
        if found is not None:
            if last is not None:
                yield last
            last = Line(found["who"] or "", found["way"], found["text"] or "", found.start("text"))
        elif closed is not None:
            if last is not None:
                yield last
            last = Line(closed["who"] or "", "closed", closed["code"] or "")
        elif last is not None and last.column > 0 and (not each or each.startswith(" " * last.column)):
            last.text += f"\n{each[last.column :]}"
        else:
            raise AssertionError(f"{block.place}: {each!r} is no frame")
    if last is not None:
        yield last


class Wires:
    """The connections of one page."""

    def __init__(self, place: str, known: dict[str, str]) -> None:
        """Be ready to connect.

        Args:
            place: where the hub is, `host:port`.
            known: what the names of the page stand for.
        """
        self._place = place
        self._known = known
        self._runner = asyncio.Runner()
        self._peers: dict[str, WirePeer] = {}
        self._heard: set[str] = set()
        """What NQ has said, and may say again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for who in list(self._peers):
            self._runner.run(self._leave(who))
        self._runner.close()

    def play(self, block: Block) -> None:
        """Say what the block says, and hear what it shows."""
        self._runner.run(self._play(block))

    async def _play(self, block: Block) -> None:
        words = shlex.split(matching.filled(block.details, self._known))
        headers = dict(word.split(": ", 1) for word in words if ": " in word)
        for word in words:
            if ": " not in word:
                await self._connect(word, headers)
        for line in lines(block):
            peer = self._peers.get(line.who)
            assert peer is not None, f"{block.place}: nobody is called {line.who!r}"
            await self._one(peer, line, block.place)

    async def _connect(self, word: str, headers: dict[str, str]) -> None:
        who, _, path = word.rpartition("=")
        await self._leave(who)
        self._peers[who] = await connected(f"ws://{self._place}{path}", headers)

    async def _leave(self, who: str) -> None:
        """Be gone, and let the loop see to it."""
        peer = self._peers.pop(who, None)
        if peer is not None:
            peer.leave()
            await asyncio.sleep(0)

    async def _one(self, peer: WirePeer, line: Line, place: str) -> None:
        text = line.text.partition("  #")[0] if line.way in {">>", "<<"} else line.text
        if line.way in {">>", "<<"}:
            said_to_be(line.text, place)
        match line.way:
            case ">":
                peer.text(matching.filled(text, self._known))
            case ">>":
                peer.binary(bytes.fromhex(text))
            case "<":
                self._check(text, await self._new(peer), place)
            case "<<":
                self._check(text.strip(), (await peer.data()).hex(" "), place)
            case _:
                assert await asyncio.wait_for(peer.frames.get(), PATIENCE) is None, place
                assert text in {"", str(getattr(peer.close_code, "value", None))}, (
                    f"{place}: closed with {peer.close_code}"
                )

    async def _new(self, peer: WirePeer) -> str:
        """Return the next text that is no repeat: NQ says things again on a machine that is slow enough."""
        while True:
            came = await peer.heard()
            messages = _messages_of_nq(came)
            if not messages or not messages <= self._heard:
                self._heard |= messages
                return came

    def _check(self, shown: str, came: str, place: str) -> None:
        assert matching.matched(shown, came, self._known), f"{place} shows\n{shown}\nand this came:\n{came}"


def _messages_of_nq(text: str) -> set[str]:
    """Return the messages of a packet of NQ, as texts; none if it is something else."""
    if not text.startswith(('{"', '[{"')):
        return set()
    heard = json.loads(text)
    return {json.dumps(each) for each in (heard if isinstance(heard, list) else [heard])}


def said_to_be(text: str, place: str) -> None:
    """Check what a line says about its bytes."""
    data, mark, meaning = text.partition("  #")
    if mark and "..." not in data:
        assert cbor2.loads(bytes.fromhex(data)) == json.loads(meaning), f"{place}: {data} is not {meaning}"
