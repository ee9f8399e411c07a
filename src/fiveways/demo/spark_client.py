"""Spark, seen from the show: another process, started at its beginning, and asked for tables and a page at its end."""

import asyncio
import json
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Self

from fiveways.demo import processes
from fiveways.demo.demo_hub import RunFolder
from fiveways.errors import FivewaysError
from fiveways.pipeline import spark_session

_POLL_INTERVAL: Final = 0.2
_RESPONSE_TIMEOUT: Final = 300.0
"""Seconds for a word; a machine may be busy, but something that takes longer is stuck."""
_EXIT_TIMEOUT: Final = 10.0
"""Seconds for it to end Java, and to clear away what that left."""
_FLUSH_TIMEOUT: Final = 0.5
"""Seconds after which a record is in a segment, for certain."""
_CLOSE_TIMEOUT: Final = 30.0
_RESPONSE_KEYS: Final = frozenset({"order", "note"})
"""One of them is in whatever the analyst says."""


class AnalysisFailed(FivewaysError):
    """Spark could not do what it was asked for."""


def missing_requirement() -> str:
    """Return what has to be installed before Spark can start, in a sentence; nothing if all is there."""
    try:
        spark_session.require_spark()
    except FivewaysError as exc:
        return str(exc)
    return ""


class SparkClient:
    """The process with Spark: `async with Analysis(folder) as analysis:`."""

    def __init__(self, folder: RunFolder, told: Callable[[str], None]) -> None:
        """Make it; `told` hears what Spark does, in a word or two."""
        self._folder = folder
        self._on_status = told
        self._process: Process | None = None
        self._skips_warm_up = False
        self._warm_up_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        folder = self._folder
        paths = [str(each.absolute()) for each in (folder.journal, folder.tables, folder.report)]
        command = [sys.executable, "-m", "fiveways.demo.spark_worker", *paths]
        # It ends Java when it is terminated, and removes what that has left in the temporary directory.
        self._process = await processes.start(command, folder.log, hears=True)
        self._warm_up_task = asyncio.create_task(self._warm_up(), name="fiveways.demo.spark")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._warm_up_task is not None:
            self._warm_up_task.cancel()
            await asyncio.gather(self._warm_up_task, return_exceptions=True)
        if self._process is not None:
            await processes.stop(self._process, _EXIT_TIMEOUT)

    async def _warm_up(self) -> None:
        """Wait for Spark, and have it make tables of what there is: the second time it takes a third of the time."""
        self._on_status("starting")
        await self._read_response()
        self._on_status("waits for the journal")
        while not any(self._folder.journal.glob("*.parquet")):  # noqa: ASYNC110  nobody tells of it
            await asyncio.sleep(_POLL_INTERVAL)
        if self._skips_warm_up:
            return
        self._on_status("first tables")
        with suppress(AnalysisFailed):  # if that goes wrong, it is heard when all is to be made, or does no harm
            await self._request("tables")
        self._on_status("ready")

    def skip_warm_up(self) -> None:
        """Know that the show is over: tables of the first of it are not worth making any more."""
        self._skips_warm_up = True

    async def make_tables(self) -> Mapping[str, Any]:
        """Make tables of all that may be read, and return what Spark told of them; NoAnswer if that fails."""
        assert self._warm_up_task is not None  # noqa: S101  it is open
        await self._warm_up_task
        return await self._request("tables")

    async def make_report(self) -> None:
        """Make the page; NoAnswer if that fails."""
        await self._request("report")
        self._on_status("done")

    async def _request(self, order: str) -> Mapping[str, Any]:
        assert self._process is not None  # noqa: S101
        assert self._process.stdin is not None  # noqa: S101  it is a pipe
        self._process.stdin.write(f"{order}\n".encode())
        return await self._read_response()

    async def _read_response(self) -> Mapping[str, Any]:
        assert self._process is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        while True:
            try:
                line = await asyncio.wait_for(self._process.stdout.readline(), _RESPONSE_TIMEOUT)
            except TimeoutError as exc:
                raise AnalysisFailed(f"Spark said nothing for {_RESPONSE_TIMEOUT:g} s") from exc
            except ValueError:  # a line that is too long to be one of ours
                continue
            if not line:
                raise AnalysisFailed(f"Spark is gone; see {self._folder.log}")
            told = _parse_response(line)
            if told is None:
                with self._folder.log.open("ab") as log:  # Java has said it, or somebody whom we do not know
                    log.write(line)
            elif "error" in told:
                raise AnalysisFailed(str(told["error"]))
            elif "note" in told:
                self._on_status(str(told["note"]))
            else:
                return told


def _parse_response(line: bytes) -> Mapping[str, Any] | None:
    """Return what the analyst says in a line; None if it is not the analyst who speaks."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) and not _RESPONSE_KEYS.isdisjoint(told) else None


async def wait_for_closed_segments(folder: RunFolder) -> None:
    """Wait until all that is written down now may be read by Spark: the segment that is open will be closed soon."""
    await asyncio.sleep(_FLUSH_TIMEOUT)
    pending = set(folder.journal.glob("*.arrow"))
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT):
            while any(each.exists() for each in pending):  # noqa: ASYNC110  nobody tells of it
                await asyncio.sleep(_POLL_INTERVAL)
    except TimeoutError as exc:
        raise AnalysisFailed(f"the journal did not close a segment within {_CLOSE_TIMEOUT:g} s") from exc
