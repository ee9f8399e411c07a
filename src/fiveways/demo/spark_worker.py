"""Worker process with Spark: `python -m fiveways.demo.spark_worker JOURNAL TABLES REPORT`.

It starts Spark at once, to hide the start-up time. Then it reads requests from stdin, one word per line, and answers
each with a line of JSON: `tables` updates the tables from the journal, `report` builds the report. Progress is sent in
lines before the response. All other output, also of Java, goes to stderr. The process ends when stdin is closed.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from fiveways.errors import FivewaysError
from fiveways.journal.file_permissions import OWNER_ONLY
from fiveways.pipeline import batch_run, spark_session
from fiveways.pipeline.progress import NoProgress

SendResponse: TypeAlias = Callable[[dict[str, object]], None]
"""Sends a response to the client."""
NICENESS: Final = 5
"""The peers of the demo have priority: their latency is visible, the start of Spark is not."""
_SETTINGS: Final = spark_session.SparkSettings(
    conf={
        "spark.driver.memory": "1g",
        # C2 compilation does not pay off within half a minute. Without it, Java's default code cache is too small for
        # Spark.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
        " -Djava.net.preferIPv4Stack=true",
    },
    name="fiveways demo",
)


def main(journal: str, tables: str, report: str) -> None:
    """Start Spark, and serve requests until stdin is closed."""
    os.nice(NICENESS)
    send, started_at = claim_stdout(), time.monotonic()
    try:
        with spark_session.open_spark(_SETTINGS) as spark:
            send({"order": "start", "seconds": time.monotonic() - started_at})

            def make_tables() -> dict[str, object]:
                result = batch_run.run(
                    batch_run.RunOptions(journal, Path(tables), _SETTINGS), _ProgressSender(send), spark
                )
                return {"records": result.records, "rows": result.state.rows, "unreadable": result.state.quarantined}

            _serve_requests({"tables": make_tables, "report": lambda: _make_report(Path(tables), Path(report))}, send)
    except FivewaysError as exc:
        send({"order": "start", "error": str(exc)})


class _ProgressSender(NoProgress):
    """Sends progress as notes. Implements `ProgressReporter`."""

    def __init__(self, send: SendResponse) -> None:
        self._send_response = send
        self._text, self._total, self._done = "", 0, 0

    def start_phase(self, text: str, total: int | None = None) -> None:
        """Send the name of the new phase."""
        self._text, self._total, self._done = text, total or 0, 0
        self._send_progress()

    def advance(self, pieces: int = 1) -> None:
        """Send the number of completed pieces."""
        self._done += pieces
        self._send_progress()

    def _send_progress(self) -> None:
        self._send_response({"note": f"{self._text} {self._done}/{self._total}" if self._total else self._text})


def _make_report(tables: Path, report: Path) -> dict[str, object]:
    from fiveways.pipeline.report.page import render_directory  # noqa: PLC0415  slow import

    page = render_directory(tables).encode()
    # The hub serves a report beside the tables under /report.
    for path in (report, tables / report.name):
        with open(path, "wb", opener=OWNER_ONLY.open) as file:
            file.write(page)
    return {"bytes": len(page)}


def _serve_requests(handlers: dict[str, Callable[[], dict[str, object]]], send: SendResponse) -> None:
    for line in sys.stdin:
        request, started_at = line.strip(), time.monotonic()
        try:
            result = handlers[request]()
        except FivewaysError as exc:
            traceback.print_exc()  # details for demo.log
            result = {"error": str(exc)}
        send({"order": request, "seconds": time.monotonic() - started_at, **result})


def claim_stdout() -> SendResponse:
    """Reserve stdout for responses, and return the function that sends one; other output goes to stderr."""
    stdout, stderr = sys.stdout.fileno(), sys.stderr.fileno()
    channel = os.dup(stdout)  # not inherited by child processes
    os.dup2(stderr, stdout)

    def send(response: dict[str, object]) -> None:
        data = json.dumps(response).encode() + b"\n"
        while data:
            data = data[os.write(channel, data) :]

    return send


if __name__ == "__main__":
    main(*sys.argv[1:])
