"""Tables in the form that the pipeline writes, with a few rows and a known summary."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

DAY = "2026-05-02"
BEFORE = "2026-05-01"
MS = 1_000_000
AT = 1_777_716_000 * 1_000_000_000
HOSTILE = "<img src=x onerror=hit()>"

TABLES: dict[str, list[dict[str, Any]]] = {
    "slo": [
        {"method": "math.add", "calls": 10, "errors": 0, "p99_ns": 5 * MS},
        {"method": "math.add", "calls": 30, "errors": 2, "p99_ns": 9 * MS},
        {"method": "image.scale", "calls": 4, "errors": 1, "p99_ns": 2500 * MS},
        {"method": "never.answered", "calls": 1, "errors": 1, "p99_ns": None},
    ],
    "errors": [
        {
            "method": "image.scale",
            "reason": "timeout",
            "caller_protocol": "umq",
            "callee_protocol": "nq",
            "calls": 1,
            "last_at": AT,
        },
        {
            "method": HOSTILE,
            "reason": "no_such_method",
            "caller_protocol": "nq",
            "callee_protocol": None,
            "calls": 7,
            "last_at": AT,
        },
    ],
    "starved": [{"method": "image.scale", "caller_protocol": "nq", "forwards": 3, "waited_ns": 90_000 * MS}],
    "slow_consumers": [
        {
            "peer": None,
            "session": "ab12cd34ef56",
            "protocol": "umq",
            "events": 100,
            "dropped": 40,
            "queued_p95_ns": 3 * MS,
        },
        {"peer": "quick", "session": "s2", "protocol": "nq", "events": 100, "dropped": 0, "queued_p95_ns": MS},
    ],
    "bridge_matrix": [
        {"caller_protocol": "umq", "callee_protocol": "nq", "calls": 40, "errors": 4, "p95_ns": 8 * MS},
        {"caller_protocol": "nq", "callee_protocol": None, "calls": 5, "errors": 0, "p95_ns": MS},
    ],
}
TYPES = {
    **dict.fromkeys(("calls", "errors", "forwards", "events", "dropped", "last_at"), pa.int64()),
    **dict.fromkeys(("p99_ns", "p95_ns", "waited_ns", "queued_p95_ns"), pa.int64()),
}


def written(out: Path, *, finished_at: str = "2026-05-02T10:00:00.125Z", **changes: object) -> Path:
    """Write all tables, with a second, earlier day; `changes` are for the run's state."""
    for name, rows in TABLES.items():
        put(out / name / f"{DAY}-000.parquet", rows)
        put(out / name / f"{BEFORE}-000.parquet", [{**row, **_other(row)} for row in rows])
    run = {
        "version": 1,
        "finished_at": finished_at,
        "late": 2,
        "quarantined": 3,
        "rows": {"calls": 45, "messages": 123, "_names": 5},
        "segments": [{"name": f"{number}.parquet"} for number in range(6)],
    }
    (out / "_run.json").write_text(json.dumps(run | changes))
    return out


def _other(row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the earlier day, which must not appear in a summary of the last one."""
    key = "method" if "method" in row else "caller_protocol" if "caller_protocol" in row else "session"
    return {key: "yesterday"}


def put(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {name: pa.array([row[name] for row in rows], TYPES.get(name, pa.string())) for name in rows[0]}
    pq.write_table(pa.table(columns), path)
