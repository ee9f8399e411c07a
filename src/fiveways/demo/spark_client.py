"""Client of the Spark worker process, which builds the tables and the report of the demo."""

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
"""Timeout of a response in seconds; generous for busy machines."""
_EXIT_TIMEOUT: Final = 10.0
"""Seconds for the worker to stop Java and to remove temporary files."""
_FLUSH_TIMEOUT: Final = 0.5
"""Seconds after which a record is certainly in a segment."""
_CLOSE_TIMEOUT: Final = 30.0
_RESPONSE_KEYS: Final = frozenset({"order", "note"})
"""Each response of the worker has one of these keys."""


class AnalysisFailed(FivewaysError):
    """Spark failed to build the tables or the report."""


def missing_requirement() -> str:
    """Return a sentence about a missing requirement of Spark; empty if Spark can start."""
    try:
        spark_session.require_spark()
    except FivewaysError as exc:
        return str(exc)
    return ""


class SparkClient:
    """The Spark worker process: `async with SparkClient(folder, on_status) as spark:`."""

    def __init__(self, folder: RunFolder, on_status: Callable[[str], None]) -> None:
        """Create a client; `on_status` receives the status of Spark."""
        self._folder = folder
        self._on_status = on_status
        self._process: Process | None = None
        self._skips_warm_up = False
        self._warm_up_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        folder = self._folder
        paths = [str(path.absolute()) for path in (folder.journal, folder.tables, folder.report)]
        command = [sys.executable, "-m", "fiveways.demo.spark_worker", *paths]
        # On SIGTERM the worker stops Java and removes its temporary files.
        self._process = await processes.start(command, folder.log, has_stdin=True)
        self._warm_up_task = asyncio.create_task(self._warm_up(), name="fiveways.demo.spark")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._warm_up_task is not None:
            self._warm_up_task.cancel()
            await asyncio.gather(self._warm_up_task, return_exceptions=True)
        if self._process is not None:
            await processes.stop(self._process, _EXIT_TIMEOUT)

    async def _warm_up(self) -> None:
        """Wait for Spark, and build tables from the first segment: the second run takes a third of the time."""
        self._on_status("starting")
        await self._read_response()
        self._on_status("waits for the journal")
        while not any(self._folder.journal.glob("*.parquet")):  # noqa: ASYNC110  no notification available
            await asyncio.sleep(_POLL_INTERVAL)
        if self._skips_warm_up:
            return
        self._on_status("first tables")
        with suppress(AnalysisFailed):  # an error here is harmless, or occurs again in make_tables
            await self._request("tables")
        self._on_status("ready")

    def skip_warm_up(self) -> None:
        """Skip the first tables if they have not been started, because the traffic is over."""
        self._skips_warm_up = True

    async def make_tables(self) -> Mapping[str, Any]:
        """Build the tables from all closed segments, and return the statistics; AnalysisFailed if that fails."""
        assert self._warm_up_task is not None  # noqa: S101  set by __aenter__
        await self._warm_up_task
        return await self._request("tables")

    async def make_report(self) -> None:
        """Build the report; AnalysisFailed if that fails."""
        await self._request("report")
        self._on_status("done")

    async def _request(self, request: str) -> Mapping[str, Any]:
        assert self._process is not None  # noqa: S101
        assert self._process.stdin is not None  # noqa: S101  started with a pipe
        self._process.stdin.write(f"{request}\n".encode())
        return await self._read_response()

    async def _read_response(self) -> Mapping[str, Any]:
        assert self._process is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        while True:
            try:
                line = await asyncio.wait_for(self._process.stdout.readline(), _RESPONSE_TIMEOUT)
            except TimeoutError as exc:
                raise AnalysisFailed(f"Spark did not respond within {_RESPONSE_TIMEOUT:g} s") from exc
            except ValueError:  # a line beyond the limit, not a response
                continue
            if not line:
                raise AnalysisFailed(f"Spark has ended; see {self._folder.log}")
            response = _parse_response(line)
            if response is None:
                with self._folder.log.open("ab") as log:  # output of Java or of a library
                    log.write(line)
            elif "error" in response:
                raise AnalysisFailed(str(response["error"]))
            elif "note" in response:
                self._on_status(str(response["note"]))
            else:
                return response


def _parse_response(line: bytes) -> Mapping[str, Any] | None:
    """Return the response in a line; None if the line is other output."""
    try:
        response = json.loads(line)
    except ValueError:
        return None
    return response if isinstance(response, dict) and not _RESPONSE_KEYS.isdisjoint(response) else None


async def wait_for_closed_segments(folder: RunFolder) -> None:
    """Wait until all records up to now are in closed segments, which Spark can read."""
    await asyncio.sleep(_FLUSH_TIMEOUT)
    pending = set(folder.journal.glob("*.arrow"))
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT):
            while any(segment.exists() for segment in pending):  # noqa: ASYNC110  no notification available
                await asyncio.sleep(_POLL_INTERVAL)
    except TimeoutError as exc:
        raise AnalysisFailed(f"the journal did not close a segment within {_CLOSE_TIMEOUT:g} s") from exc
