"""Increment: the step that extends the tables by some segments."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final

import msgspec
from pyarrow import parquet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from fiveways.journal.reader import Segment
from fiveways.pipeline import compaction, finalization
from fiveways.pipeline.errors import BadInput
from fiveways.pipeline.progress import ProgressReporter
from fiveways.pipeline.record_ranges import RecordRanges
from fiveways.pipeline.segment_decoder import RECORD_RANGES_TABLE, SCHEMAS, DecodeTask, SegmentSummary
from fiveways.pipeline.state import Part, PipelineState, SegmentRecord
from fiveways.pipeline.table_builder import DECODED_SCHEMAS, JOB_GROUP, RebuildPlan, TableBuilder, spark_path
from fiveways.pipeline.table_directory import PARQUET_SUFFIX, TableDirectory
from fiveways.pipeline.tables import TABLES

__all__ = ["JOB_GROUP", "Increment", "empty_state"]

_LATE_SUFFIX: Final = "~late"
"""Suffix of a part that has the late records of a segment."""
_UNSAFE_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9._-]")
_TABLES_WITH_DURATIONS: Final = ("calls", "deliveries", "sessions")
"""Tables that count negative durations in a column."""
_PUBLICATION_KINDS: Final = ("publish", "event")
"""Kinds of messages of publications; `_pieces` does not contain them."""


def empty_state(journal: str, from_at: int | None, to_at: int | None) -> PipelineState:
    """Return the state before the first increment."""
    return PipelineState(journal=journal, from_at=from_at, to_at=to_at)


class Increment:
    """One increment, from `begin` to `commit`; an error in between leaves the tables unchanged."""

    def __init__(self, spark: SparkSession, output: TableDirectory, before: PipelineState) -> None:
        self._spark = spark
        self._output = output
        self._previous_state = before

    def begin(self, *, keep_late: bool = False) -> None:
        """Begin the next tables with all decoded parts; late records are dropped unless `keep_late`."""
        self._output.begin_next()
        for table in SCHEMAS:
            names = (f"{part.name}{PARQUET_SUFFIX}" for part in self._previous_state.parts if part.rows.get(table))
            self._output.carry_over(table, names if keep_late or table != "late" else ())

    def decode_task(self, segment: Segment, watermark: int | None = None) -> DecodeTask:
        """Return the task that decodes a new segment."""
        before = self._previous_state
        return DecodeTask(
            segment.path,
            _safe_file_name(segment.name),
            str(self._output.next_path),
            before.from_at,
            before.to_at,
            watermark,
        )

    def late_decode_task(self, segment: Segment, read: SegmentRecord) -> DecodeTask:
        """Return the task that decodes only the late records of a segment."""
        task = self.decode_task(segment, read.watermark)
        return replace(task, part=f"{task.part}{_LATE_SUFFIX}", late_only=True)

    def tasks_with_duplicates(self, tasks: Sequence[DecodeTask]) -> dict[int, DecodeTask]:
        """Return by index the tasks of segments with records that another segment has too; they exclude these."""
        folder = self._output.next_path / RECORD_RANGES_TABLE
        seen = RecordRanges.read(folder / f"{part.name}{PARQUET_SUFFIX}" for part in self._previous_state.parts)
        if any(task.late_only for task in tasks):
            # Late records are decoded again now, so they must not count as duplicates.
            seen = seen.difference(self._late_records())
        again = {}
        for index, task in enumerate(tasks):
            ranges = RecordRanges.read([folder / f"{task.part}{PARQUET_SUFFIX}"])
            if common := ranges.intersection(seen):
                again[index] = replace(task, excluded=common)
            seen.update(ranges)
        return again

    def _late_records(self) -> RecordRanges:
        ranges = RecordRanges()
        for name in self._output.files("late"):
            for batch in parquet.read_table(self._output.path / "late" / name).to_batches():
                ranges.add_new(batch, RecordRanges())
        return ranges

    def commit(
        self, decoded: Sequence[tuple[Segment, SegmentSummary]], progress: ProgressReporter, *, keep_late: bool = False
    ) -> PipelineState:
        """Build all tables from the decoded segments and replace the existing tables; return the new state."""
        new = [_part_of_summary(summary) for _, summary in decoded if summary.dates or summary.late]
        kept = self._previous_state.parts if keep_late else list(map(_without_late, self._previous_state.parts))
        dates = sorted({date for part in [*kept, *new] for date in part.dates})
        if not dates:
            raise BadInput(f"{self._previous_state.journal} has no records{self._time_bounds_text()}")
        new_dates = {date for part in new for date in part.dates}
        links, touched = self._linked_days(kept, new, dates)
        old = [part.name for part in kept]
        shared = finalization.find_shared_buckets(self._output.next_path, old, [part.name for part in new])
        touched.update(date for part in kept if part.name in shared.changed_parts for date in part.dates)
        linked = touched.union(*(links.get(date, ()) for date in touched)) if links is not None else set(dates)
        parts = compaction.compact(self._spark, self._output.next_path, [*kept, *new])
        names = [part.name for part in parts]
        unchanged = set(names).intersection(old) - shared.changed_parts
        finalization.carry_over_finalized(self._output, unchanged)
        finalization.finalize(
            self._spark, self._output.next_path, [name for name in names if name not in unchanged], shared
        )
        plan = RebuildPlan(dates, new_dates, touched, linked)
        builder = TableBuilder(self._spark, self._output, parts, plan)
        progress.start_phase("building tables", sum(bool(table.inputs) for table in TABLES.values()))
        progress.watch_spark(self._spark.sparkContext)
        rows = builder.run(lambda _: progress.advance())
        progress.watch_spark(None)
        state = self._next_state(decoded, parts, rows, links, keep_late=keep_late)
        self._output.commit(state)
        return state

    def _time_bounds_text(self) -> str:
        has_bounds = self._previous_state.from_at is not None or self._previous_state.to_at is not None
        return " between --from and --to" if has_bounds else ""

    def _next_state(
        self,
        decoded: Sequence[tuple[Segment, SegmentSummary]],
        parts: list[Part],
        rows: dict[str, int],
        links: dict[str, list[str]] | None,
        *,
        keep_late: bool,
    ) -> PipelineState:
        records = {
            record.name: record if keep_late else _without_late_count(record)
            for record in self._previous_state.segments
        }
        for segment, summary in decoded:
            if segment.name not in records:
                records[segment.name] = _segment_record(segment, summary)
        return msgspec.structs.replace(
            self._previous_state,
            finished_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            late=rows["late"],
            repeated=sum(record.repeated for record in records.values()),
            negative_durations=sum(record.negative_durations for record in records.values())
            + sum(
                self._output.sum_column(name, "negative_durations") for name in _TABLES_WITH_DURATIONS if name in rows
            ),
            quarantined=rows["quarantine"],
            rows={name: count for name, count in sorted(rows.items()) if not name.startswith("_")},
            segments=list(records.values()),
            parts=parts,
            links=links,
        )

    def _linked_days(
        self, kept: Sequence[Part], new: Sequence[Part], dates: Sequence[str]
    ) -> tuple[dict[str, list[str]] | None, set[str]]:
        """Return which days have operations in common, and the days that the new records touch.

        An operation belongs to the day of its request. If the response comes on another day, the first day is rebuilt
        from the records of both.
        """
        new_dates = {date for part in new for date in part.dates}
        if len(dates) == 1 or not kept:
            # All tables are built from scratch; the next increment computes the links if it needs them.
            return None, set(dates)
        links: dict[str, set[str]] = {}
        if self._previous_state.links is None:
            _add_links(links, self._operation_day_groups(kept))
        else:
            links = {date: set(others) for date, others in self._previous_state.links.items()}
        touched = set(new_dates)
        for part in new:
            _add_links(links, [set(part.dates)])
        older = [part for part in kept if not new_dates.issuperset(part.dates)]
        for name in self._parts_sharing_operations(new, older):
            others = set(next(part.dates for part in older if part.name == name))
            touched |= others
            _add_links(links, [new_dates | others])
        return {date: sorted(others) for date, others in sorted(links.items())}, touched

    def _parts_sharing_operations(self, new: Sequence[Part], older: Sequence[Part]) -> list[str]:
        """Return the older parts that have operations in common with the new ones."""
        if not older or not new:
            return []
            return []
        new_keys = self._operation_keys(new).select("run", "key").distinct()
        shared = self._operation_keys(older).join(new_keys, on=["run", "key"], how="left_semi").select("part")
        return sorted(row["part"] for row in shared.distinct().collect())

    def _operation_day_groups(self, parts: Sequence[Part]) -> list[set[str]]:
        """Return the days of each part, and the days of each set of parts that have an operation in common."""
        days = {part.name: set(part.dates) for part in parts}
        day_groups = [set(part.dates) for part in parts]
        if len({date for part in parts for date in part.dates}) > 1:
            groups = (
                self._operation_keys(parts)
                .groupBy("run", "key")
                .agg(F.sort_array(F.collect_set("part")).alias("parts"))
            )
            rows = groups.filter(F.size("parts") > 1).select("parts").distinct().collect()
            day_groups += [set[str]().union(*(days[name] for name in row["parts"])) for row in rows]
        return day_groups

    def _operation_keys(self, parts: Sequence[Part]) -> DataFrame:
        """Return the key of each operation in these parts, with its part."""
        file = F.regexp_extract(F.col("_metadata.file_name"), rf"^(.*){PARQUET_SUFFIX}$", 1).alias("part")
        frames: list[DataFrame] = []
        keys: dict[str, Column] = {
            "_pieces": F.coalesce(F.col("op"), F.concat_ws("\n", F.lit(""), "leg", "scope", "id")),
            "messages": F.col("op"),
            "_marks": F.col("op"),
        }
        for table, key in keys.items():
            names = [f"{part.name}{PARQUET_SUFFIX}" for part in parts if part.rows.get(table)]
            if not names:
                continue
            paths = [spark_path(self._output.next_path / table / name) for name in names]
            frame = self._spark.read.schema(DECODED_SCHEMAS[table]).parquet(*paths)
            if table == "messages":
                frame = frame.filter(F.col("kind").isin(*_PUBLICATION_KINDS))
            frames.append(frame.select("run", key.alias("key"), file).filter(F.col("key").isNotNull()))
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole


def _add_links(links: dict[str, set[str]], groups: Iterable[Collection[str]]) -> None:
    for group in groups:
        for date in group:
            links.setdefault(date, set()).update(set(group) - {date})


def _safe_file_name(name: str) -> str:
    """Return a name without characters that Spark reads as patterns; a changed name gets a hash to stay unique."""
    safe = _UNSAFE_CHARACTERS.sub("-", name)
    return name if safe == name else f"{safe}-{blake2b(name.encode(), digest_size=4).hexdigest()}"


def _part_of_summary(summary: SegmentSummary) -> Part:
    return Part(name=summary.part, segments=1, dates=summary.dates, rows=summary.rows, size=summary.size)


def _without_late(part: Part) -> Part:
    return msgspec.structs.replace(part, rows={**part.rows, "late": 0})


def _without_late_count(record: SegmentRecord) -> SegmentRecord:
    return msgspec.structs.replace(record, late=0, watermark=None)


def _segment_record(segment: Segment, summary: SegmentSummary) -> SegmentRecord:
    return SegmentRecord(
        name=segment.name,
        size=segment.size,
        records=summary.records,
        first_at=summary.first_at,
        last_at=summary.last_at,
        late=summary.late,
        repeated=summary.repeated,
        negative_durations=summary.negative_durations,
        watermark=summary.watermark if summary.late else None,
    )
