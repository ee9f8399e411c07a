"""Spark, seen from the show: another process, started at its beginning, and asked for tables and a page at its end."""

import asyncio
import json
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Self

from fiveways.demo import children
from fiveways.demo.stage import Folder
from fiveways.errors import FivewaysError
from fiveways.pipeline import session

_LOOK_EVERY: Final = 0.2
_PATIENCE: Final = 300.0
"""Seconds for a word; a machine may be busy, but something that takes longer is stuck."""
_LEAVING: Final = 10.0
"""Seconds for it to end Java, and to clear away what that left."""
_FLUSHED_WITHIN: Final = 0.5
"""Seconds after which a record is in a segment, for certain."""
_CLOSES_WITHIN: Final = 30.0
_WORDS: Final = frozenset({"order", "note"})
"""One of them is in whatever the analyst says."""


class NoAnswer(FivewaysError):
    """Spark could not do what it was asked for."""


def lacking() -> str:
    """Return what has to be installed before Spark can start, in a sentence; nothing if all is there."""
    try:
        session.check()
    except FivewaysError as exc:
        return str(exc)
    return ""


class Analysis:
    """The process with Spark: `async with Analysis(folder) as analysis:`."""

    def __init__(self, folder: Folder, told: Callable[[str], None]) -> None:
        """Make it; `told` hears what Spark does, in a word or two."""
        self._folder = folder
        self._told = told
        self._process: Process | None = None
        self._is_late = False
        self._warming: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        folder = self._folder
        paths = [str(each.absolute()) for each in (folder.journal, folder.tables, folder.report)]
        command = [sys.executable, "-m", "fiveways.demo.analyst", *paths]
        # It ends Java when it is terminated, and removes what that has left in the temporary directory.
        self._process = await children.start(command, folder.log, hears=True)
        self._warming = asyncio.create_task(self._warm_up(), name="fiveways.demo.spark")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.gather(self._warming, return_exceptions=True)
        if self._process is not None:
            await children.end(self._process, _LEAVING)

    async def _warm_up(self) -> None:
        """Wait for Spark, and have it make tables of what there is: the second time it takes a third of the time."""
        self._told("starting")
        await self._answer()
        self._told("waits for the journal")
        while not any(self._folder.journal.glob("*.parquet")):  # noqa: ASYNC110  nobody tells of it
            await asyncio.sleep(_LOOK_EVERY)
        if self._is_late:
            return
        self._told("first tables")
        with suppress(NoAnswer):  # if that goes wrong, it is heard when all is to be made, or does no harm
            await self._order("tables")
        self._told("ready")

    def curtain(self) -> None:
        """Know that the show is over: tables of the first of it are not worth making any more."""
        self._is_late = True

    async def tables(self) -> Mapping[str, Any]:
        """Make tables of all that may be read, and return what Spark told of them; NoAnswer if that fails."""
        assert self._warming is not None  # noqa: S101  it is open
        await self._warming
        return await self._order("tables")

    async def report(self) -> None:
        """Make the page; NoAnswer if that fails."""
        await self._order("report")
        self._told("done")

    async def _order(self, order: str) -> Mapping[str, Any]:
        assert self._process is not None  # noqa: S101
        assert self._process.stdin is not None  # noqa: S101  it is a pipe
        self._process.stdin.write(f"{order}\n".encode())
        return await self._answer()

    async def _answer(self) -> Mapping[str, Any]:
        assert self._process is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        while True:
            try:
                line = await asyncio.wait_for(self._process.stdout.readline(), _PATIENCE)
            except TimeoutError as exc:
                raise NoAnswer(f"Spark said nothing for {_PATIENCE:g} s") from exc
            except ValueError:  # a line that is too long to be one of ours
                continue
            if not line:
                raise NoAnswer(f"Spark is gone; see {self._folder.log}")
            told = _read(line)
            if told is None:
                with self._folder.log.open("ab") as log:  # Java has said it, or somebody whom we do not know
                    log.write(line)
            elif "error" in told:
                raise NoAnswer(str(told["error"]))
            elif "note" in told:
                self._told(str(told["note"]))
            else:
                return told


def _read(line: bytes) -> Mapping[str, Any] | None:
    """Return what the analyst says in a line; None if it is not the analyst who speaks."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) and not _WORDS.isdisjoint(told) else None


async def closed(folder: Folder) -> None:
    """Wait until all that is written down now may be read by Spark: the segment that is open will be closed soon."""
    await asyncio.sleep(_FLUSHED_WITHIN)
    pending = set(folder.journal.glob("*.arrow"))
    try:
        async with asyncio.timeout(_CLOSES_WITHIN):
            while any(each.exists() for each in pending):  # noqa: ASYNC110  nobody tells of it
                await asyncio.sleep(_LOOK_EVERY)
    except TimeoutError as exc:
        raise NoAnswer(f"the journal did not close a segment within {_CLOSES_WITHIN:g} s") from exc
