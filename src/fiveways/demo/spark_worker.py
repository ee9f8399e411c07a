"""The process that has Spark: `python -m fiveways.demo.spark_worker JOURNAL TABLES REPORT`.

It starts Spark at once, so that nobody waits for that later. Then it reads orders from stdin, a word on a line, and
answers each with a line of JSON: `tables` brings the tables up to the journal, `report` makes the page. How far it is
stands in lines before that. Whatever else is printed here, by Java too, goes where stderr goes. When stdin ends, so
does it: whoever started it may be gone.
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
"""Says something to whoever gave the orders."""
NICENESS: Final = 5
"""Those who talk go first: their answers are looked at, Spark's start is not."""
_SETTINGS: Final = spark_session.SparkSettings(
    conf={
        "spark.driver.memory": "1g",
        # Code that runs for half a minute is not worth the better of Java's compilers; and without that, Java has too
        # little room for Spark's code unless it is told to have more.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
        " -Djava.net.preferIPv4Stack=true",
    },
    name="fiveways demo",
)


def main(journal: str, tables: str, report: str) -> None:
    """Have Spark, and do what is ordered until nobody orders any more."""
    os.nice(NICENESS)
    answer, began = claim_stdout(), time.monotonic()
    try:
        with spark_session.open_spark(_SETTINGS) as spark:
            answer({"order": "start", "seconds": time.monotonic() - began})

            def make_tables() -> dict[str, object]:
                done = batch_run.run(
                    batch_run.RunOptions(journal, Path(tables), _SETTINGS), _ProgressSender(answer), spark
                )
                return {"records": done.records, "rows": done.state.rows, "unreadable": done.state.quarantined}

            _serve_requests({"tables": make_tables, "report": lambda: _make_report(Path(tables), Path(report))}, answer)
    except FivewaysError as exc:
        answer({"order": "start", "error": str(exc)})


class _ProgressSender(NoProgress):
    """Tells how far the work is. Fulfils `Teller`."""

    def __init__(self, answer: SendResponse) -> None:
        self._answer = answer
        self._text, self._total, self._done = "", 0, 0

    def start_phase(self, text: str, total: int | None = None) -> None:
        """Tell what is done now."""
        self._text, self._total, self._done = text, total or 0, 0
        self._send_progress()

    def advance(self, pieces: int = 1) -> None:
        """Tell that more of it is done."""
        self._done += pieces
        self._send_progress()

    def _send_progress(self) -> None:
        self._answer({"note": f"{self._text} {self._done}/{self._total}" if self._total else self._text})


def _make_report(tables: Path, report: Path) -> dict[str, object]:
    from fiveways.pipeline.report.page import render_directory  # noqa: PLC0415  it is not needed before

    made = render_directory(tables).encode()
    # Beside the tables the hub looks for it, and shows it under /report.
    for path in (report, tables / report.name):
        with open(path, "wb", opener=OWNER_ONLY.open) as file:
            file.write(made)
    return {"bytes": len(made)}


def _serve_requests(orders: dict[str, Callable[[], dict[str, object]]], answer: SendResponse) -> None:
    for line in sys.stdin:
        order, began = line.strip(), time.monotonic()
        try:
            done = orders[order]()
        except FivewaysError as exc:
            traceback.print_exc()  # into the demo's log, for who wants to know more than a sentence
            done = {"error": str(exc)}
        answer({"order": order, "seconds": time.monotonic() - began, **done})


def claim_stdout() -> SendResponse:
    """Take stdout for answers alone, and return how to give one; what others print is for the log from now on."""
    stdout, stderr = sys.stdout.fileno(), sys.stderr.fileno()
    channel = os.dup(stdout)  # which no child gets
    os.dup2(stderr, stdout)

    def answer(told: dict[str, object]) -> None:
        left = json.dumps(told).encode() + b"\n"
        while left:
            left = left[os.write(channel, left) :]

    return answer


if __name__ == "__main__":
    main(*sys.argv[1:])
