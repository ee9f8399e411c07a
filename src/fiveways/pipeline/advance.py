"""One step of the tables: from what they were made from so far to that and some segments more."""

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
from fiveways.pipeline import compacting, settling
from fiveways.pipeline.digest import SCHEMAS, SEQS, Summary, Task
from fiveways.pipeline.errors import BadInput
from fiveways.pipeline.making import GROUP, WRITTEN, Making, Plan, location
from fiveways.pipeline.output import END, Output
from fiveways.pipeline.progress import Teller
from fiveways.pipeline.seqs import Seqs
from fiveways.pipeline.state import Part, Read, State
from fiveways.pipeline.tables import TABLES

__all__ = ["GROUP", "Step", "nothing"]

_LATE: Final = "~late"
"""Behind the name of a part that has what was too late at first."""
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]")
_TIMED: Final = ("calls", "deliveries", "sessions")
"""Tables that count the durations which came out negative."""
_TOGETHER: Final = ("publish", "event")
"""Messages of publications, which `_pieces` does not know."""


def nothing(journal: str, from_at: int | None, to_at: int | None) -> State:
    """Return where tables begin."""
    return State(journal=journal, from_at=from_at, to_at=to_at)


class Step:
    """One step, from `begin` to `end`; what goes wrong between them leaves the tables as they were."""

    def __init__(self, spark: SparkSession, output: Output, before: State) -> None:
        self._spark = spark
        self._output = output
        self._before = before

    def begin(self, *, keep_late: bool = False) -> None:
        """Lay out the next tables: all that was read before is there, but for what was too late, if not wanted."""
        self._output.begin()
        for table in SCHEMAS:
            names = (f"{part.name}{END}" for part in self._before.parts if part.rows.get(table))
            self._output.keep(table, names if keep_late or table != "late" else ())

    def task(self, segment: Segment, watermark: int | None = None) -> Task:
        """Return how a new segment is to be read."""
        before = self._before
        return Task(segment.path, _plain(segment.name), str(self._output.next), before.from_at, before.to_at, watermark)

    def late_task(self, segment: Segment, read: Read) -> Task:
        """Return how one is to be read of which some was too late."""
        task = self.task(segment, read.watermark)
        return Task(task.path, f"{task.part}{_LATE}", task.into, task.from_at, task.to_at, task.watermark, True)

    def repeats(self, tasks: Sequence[Task]) -> dict[int, Task]:
        """Return, by their places, the tasks of segments with records that another one has too, without these."""
        folder = self._output.next / SEQS
        seen = Seqs.read(folder / f"{part.name}{END}" for part in self._before.parts)
        if any(task.late_only for task in tasks):
            # These are read once more, so that they do not count as read.
            seen = seen.minus(self._late())
        again = {}
        for place, task in enumerate(tasks):
            mine = Seqs.read([folder / f"{task.part}{END}"])
            if common := mine.common(seen):
                again[place] = replace(task, without=common)
            seen.add(mine)
        return again

    def _late(self) -> Seqs:
        found = Seqs()
        for name in self._output.files("late"):
            for batch in parquet.read_table(self._output.path / "late" / name).to_batches():
                found.take(batch, Seqs())
        return found

    def end(self, found: Sequence[tuple[Segment, Summary]], teller: Teller, *, keep_late: bool = False) -> State:
        """Make all tables with what was found, and put them in place."""
        fresh = [_part(summary) for _, summary in found if summary.dates or summary.late]
        kept = self._before.parts if keep_late else list(map(_without_late, self._before.parts))
        dates = sorted({date for part in [*kept, *fresh] for date in part.dates})
        if not dates:
            raise BadInput(f"{self._before.journal} has no records{self._within()}")
        days = {date for part in fresh for date in part.dates}
        links, touched = self._links(kept, fresh, dates)
        old = [part.name for part in kept]
        division = settling.divided(self._output.next, old, [part.name for part in fresh])
        touched.update(date for part in kept if part.name in division.changed for date in part.dates)
        linked = touched.union(*(links.get(date, ()) for date in touched)) if links is not None else set(dates)
        parts = compacting.compact(self._spark, self._output.next, [*kept, *fresh])
        names = [part.name for part in parts]
        known = set(names).intersection(old) - division.changed
        settling.keep(self._output, known)
        settling.settle(self._spark, self._output.next, [name for name in names if name not in known], division)
        plan = Plan(dates, days, touched, linked)
        making = Making(self._spark, self._output, parts, plan)
        teller.begin("making tables", sum(bool(table.inputs) for table in TABLES.values()))
        teller.follow(self._spark.sparkContext)
        rows = making.run(lambda _: teller.done())
        teller.follow(None)
        state = self._state(found, parts, rows, links, keep_late=keep_late)
        self._output.finish(state)
        return state

    def _within(self) -> str:
        has_bounds = self._before.from_at is not None or self._before.to_at is not None
        return " between --from and --to" if has_bounds else ""

    def _state(
        self,
        found: Sequence[tuple[Segment, Summary]],
        parts: list[Part],
        rows: dict[str, int],
        links: dict[str, list[str]] | None,
        *,
        keep_late: bool,
    ) -> State:
        reads = {each.name: each if keep_late else _in_time(each) for each in self._before.segments}
        for segment, summary in found:
            if segment.name not in reads:
                reads[segment.name] = _read(segment, summary)
        return msgspec.structs.replace(
            self._before,
            finished_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            late=rows["late"],
            repeated=sum(each.repeated for each in reads.values()),
            negative_durations=sum(each.negative_durations for each in reads.values())
            + sum(self._output.total(name, "negative_durations") for name in _TIMED if name in rows),
            quarantined=rows["quarantine"],
            rows={name: count for name, count in sorted(rows.items()) if not name.startswith("_")},
            segments=list(reads.values()),
            parts=parts,
            links=links,
        )

    def _links(
        self, kept: Sequence[Part], fresh: Sequence[Part], dates: Sequence[str]
    ) -> tuple[dict[str, list[str]] | None, set[str]]:
        """Return which days have operations in common, and which days the new records touch.

        An operation that is asked for on one day and answered on another belongs to the first of them: that is made
        anew when the answer comes, and cannot be made without looking at the second.
        """
        days = {date for part in fresh for date in part.dates}
        if len(dates) == 1 or not kept:
            # Nobody need know yet: all is made anew. The next step will ask.
            return None, set(dates)
        links: dict[str, set[str]] = {}
        if self._before.links is None:
            _link(links, self._together(kept))
        else:
            links = {date: set(others) for date, others in self._before.links.items()}
        touched = set(days)
        for part in fresh:
            _link(links, [set(part.dates)])
        older = [part for part in kept if not days.issuperset(part.dates)]
        for name in self._sharing(fresh, older):
            others = set(next(part.dates for part in older if part.name == name))
            touched |= others
            _link(links, [days | others])
        return {date: sorted(others) for date, others in sorted(links.items())}, touched

    def _sharing(self, fresh: Sequence[Part], older: Sequence[Part]) -> list[str]:
        """Return which of the older parts have operations of the new ones."""
        if not older or not fresh:
            return []
        new = self._keys(fresh).select("run", "key").distinct()
        shared = self._keys(older).join(new, on=["run", "key"], how="left_semi").select("part").distinct()
        return sorted(row["part"] for row in shared.collect())

    def _together(self, parts: Sequence[Part]) -> list[set[str]]:
        """Return the days that each pair of these parts has, if an operation is in both of them."""
        days = {part.name: set(part.dates) for part in parts}
        found = [set(part.dates) for part in parts]
        if len({date for part in parts for date in part.dates}) > 1:
            groups = self._keys(parts).groupBy("run", "key").agg(F.sort_array(F.collect_set("part")).alias("parts"))
            rows = groups.filter(F.size("parts") > 1).select("parts").distinct().collect()
            found += [set[str]().union(*(days[name] for name in row["parts"])) for row in rows]
        return found

    def _keys(self, parts: Sequence[Part]) -> DataFrame:
        """Return what each operation in these parts is known by, and the part that it is in."""
        file = F.regexp_extract(F.col("_metadata.file_name"), rf"^(.*){END}$", 1).alias("part")
        frames: list[DataFrame] = []
        keys: dict[str, Column] = {
            "_pieces": F.coalesce(F.col("op"), F.concat_ws("\n", F.lit(""), "leg", "scope", "id")),
            "messages": F.col("op"),
            "_marks": F.col("op"),
        }
        for table, key in keys.items():
            names = [f"{part.name}{END}" for part in parts if part.rows.get(table)]
            if not names:
                continue
            paths = [location(self._output.next / table / name) for name in names]
            frame = self._spark.read.schema(WRITTEN[table]).parquet(*paths)
            if table == "messages":
                frame = frame.filter(F.col("kind").isin(*_TOGETHER))
            frames.append(frame.select("run", key.alias("key"), file).filter(F.col("key").isNotNull()))
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole


def _link(links: dict[str, set[str]], groups: Iterable[Collection[str]]) -> None:
    for group in groups:
        for date in group:
            links.setdefault(date, set()).update(set(group) - {date})


def _plain(name: str) -> str:
    """Return a file's name that means the same to everybody: Spark reads some characters as patterns."""
    plain = _ODD.sub("-", name)
    return name if plain == name else f"{plain}-{blake2b(name.encode(), digest_size=4).hexdigest()}"


def _part(summary: Summary) -> Part:
    return Part(name=summary.part, segments=1, dates=summary.dates, rows=summary.rows, size=summary.size)


def _without_late(part: Part) -> Part:
    return msgspec.structs.replace(part, rows={**part.rows, "late": 0})


def _in_time(read: Read) -> Read:
    return msgspec.structs.replace(read, late=0, watermark=None)


def _read(segment: Segment, summary: Summary) -> Read:
    return Read(
        name=segment.name,
        size=segment.size,
        records=summary.records,
        first_at=summary.first_at,
        last_at=summary.last_at,
        late=summary.late,
        repeated=summary.repeated,
        negative_durations=summary.negative,
        watermark=summary.watermark if summary.late else None,
    )
