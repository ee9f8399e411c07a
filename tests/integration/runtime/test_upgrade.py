"""A hub that starts under load with a store and a journal of the oldest versions."""

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyarrow import ipc, parquet

import fiveways
from fiveways.journal.reader import check_segment, list_segments, read_batches
from fiveways.pipeline.decode import decode
from fiveways.settings.operations import JournalSettings
from fiveways.settings.sections import StoreSettings
from fiveways.store import schema
from tests.support.journal_writing import records
from tests.support.nq_peers import Message, Poster, ask
from tests.support.old_schemas import VERSION_1
from tests.support.raw_peers import hub, settings
from tests.support.running import async_test
from tests.support.store_helpers import content

# The store of version 1, as the first release wrote it.

_ASKED, _ANSWERED = 0, 1
PEERS: Final = [f"{number:032x}" for number in range(1, 5)]
OPEN, NEW = 20, 20
"""Requests of each peer: accepted and unanswered by the old hub, and never received by it."""
ANSWERED, FINISHED = 5, 5
"""Requests of each peer: answered and not acknowledged, and acknowledged."""
JOBS, DEAD, VALUES = 25, 3, 6


def old_store(path: Path, now: float) -> None:
    """Write the store of a hub of the first release."""
    pack, later, earlier = msgspec.msgpack.encode, now + 3600.0, now - 1.0
    connection = sqlite3.connect(path)
    for statement in VERSION_1.split(";"):
        connection.execute(statement)
    for peer in PEERS:
        connection.execute("INSERT INTO peer VALUES (?, '', ?)", (peer, now - 60.0))
        accepted_rows = [
            (peer, f"work#o{n}", pack(["work", "work", b"%d" % n, "", None]), later, _ASKED) for n in range(OPEN)
        ]
        result = [
            (peer, f"work#a{n}", pack(["result", b'"old %d"' % n, None]), later, _ANSWERED) for n in range(ANSWERED)
        ]
        failure = (peer, "work#f", pack(["failure", "RAISED", "broken", None, None, "", 0]), later, _ANSWERED)
        expired = (peer, "work#x", pack(["work", "work", b"-1", "", None]), earlier, _ASKED)
        rows = [*accepted_rows, *result, failure, expired]
        connection.executemany("INSERT INTO request (peer, key, word, expires_at, state) VALUES (?,?,?,?,?)", rows)
        tombs = [(peer, f"work#t{n}", later) for n in range(FINISHED)]
        connection.executemany("INSERT INTO tomb (peer, key, until) VALUES (?,?,?)", tombs)
    gone = [("gone", "work#1", later), ("gone", None, 0.0)]
    connection.executemany("INSERT INTO tomb (peer, key, until) VALUES (?,?,?)", gone)
    jobs: list[tuple[object, ...]] = [("jobs", n, b"%d" % n, n % 3, None, None) for n in range(1, JOBS + 1)]
    dead = [("jobs", n, b"%d" % n, 5, "raised: no", earlier) for n in range(101, 101 + DEAD)]
    statement = "INSERT INTO item (queue, number, word, tries, why, at) VALUES (?,?,?,?,?,?)"
    connection.executemany(statement, [*jobs, *dead])
    values = [(f'["state","v{n}"]', b"%d" % n, 300 + n) for n in range(VALUES)]
    connection.executemany("INSERT INTO retained (topic, word, publication) VALUES (?,?,?)", values)
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()


# The journal of version 1, without the later column.

_TEXTS: Final = ("node", "run", "session", "peer", "protocol", "transport", "direction", "kind", "channel", "op")
_COLUMNS: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("at", pa.int64(), nullable=False),
        *(pa.field(name, pa.string()) for name in _TEXTS),
        pa.field("payload", pa.binary()),
        pa.field("size", pa.int32()),
        pa.field("reason", pa.string()),
    ],
    metadata={"fiveways.journal": "1"},
)
OLD_RUN: Final = "20200101T000000-abcdef"
OLD_FRAMES: Final = [b'[40,%d,"old.method",[%d],{}]' % (number, number) for number in range(1, 9)]


def old_journal(directory: Path) -> None:
    """Write a closed segment, and one that its hub did not close."""
    directory.mkdir()
    half = len(OLD_FRAMES) // 2
    parquet.write_table(pa.Table.from_batches([_batch(0, half)]), directory / f"{OLD_RUN}-000001.parquet")
    with ipc.new_stream(str(directory / f"{OLD_RUN}-000002.arrow"), _COLUMNS) as stream:
        stream.write_batch(_batch(half, len(OLD_FRAMES)))


def _batch(start: int, end: int) -> pa.RecordBatch:
    usual = {"node": "n", "run": OLD_RUN, "session": "s", "protocol": "lrpm-json", "direction": "in", "kind": "text"}
    rows = [
        {**usual, "seq": number, "at": 1_577_836_800_000_000_000 + number, "op": f"{number}", "payload": frame}
        | {"size": len(frame)}
        for number, frame in list(enumerate(OLD_FRAMES, 1))[start:end]
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_COLUMNS)


# The load.


class Load:
    """Concurrent clients: NQ peers with old and new requests, callees, and workers of the queue."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.runs: Counter[int] = Counter()
        """The number of runs of the method, by argument."""
        self.answers: dict[tuple[str, str], Message] = {}
        self.jobs: Counter[int] = Counter()
        self.values: dict[str, object] = {}

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Serve the method and the queue."""
        everything = [self._work("umq"), self._work("lrpm"), self._work("nq"), self._pull(), self._pull()]
        tasks = [asyncio.create_task(each) for each in everything]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, protocol: str) -> None:
        async def work(number: int) -> int:
            self.runs[number] += 1
            await asyncio.sleep(0.001)
            return number * 2

        async with fiveways.connect(f"{protocol}+ws://127.0.0.1:{self.port}") as peer:
            await peer.register("work", work, share="round_robin")
            await asyncio.Event().wait()

    async def _pull(self) -> None:
        async with fiveways.connect(f"lrpm+ws://127.0.0.1:{self.port}") as peer:
            async for job in peer.jobs("jobs"):
                self.jobs[job.data] += 1

    async def ask(self, place: int, peer: str) -> None:
        """Resume an old peer: repeat its old requests and send new ones until each has an outcome."""
        old = [f"{kind}{n}" for kind, count in {"o": OPEN, "a": ANSWERED, "t": FINISHED}.items() for n in range(count)]
        new = [f"n{n}" for n in range(NEW)]
        messages = [ask(r, "work", _number(place, r)) for r in (*old, "f", "x", *new)]
        poster = Poster(self.port, peer)
        missing, acknowledged = {each["r"] for each in messages}, list[str]()
        while missing:
            batch = [each for each in messages if each["r"] in missing]
            heard = await poster.post(*batch, *([{"i": acknowledged}] if acknowledged else []), wait=1.0)
            acknowledged = []
            for each in heard:
                is_final = "d" in each or each.get("e", {}).get("fatal")
                if "a" in each and is_final:
                    acknowledged.append(each["a"])
                    first = self.answers.setdefault((peer, each["i"]), each)
                    assert _outcome(first) == _outcome(each)
                    missing.discard(each["i"])
        assert poster.peer == peer
        await poster.post({"i": acknowledged})
        await poster.close()

    async def push_jobs(self) -> None:
        """Push new jobs among the old ones."""
        async with fiveways.connect(f"umq+ws://127.0.0.1:{self.port}") as peer:
            for number in range(1000, 1000 + JOBS):
                await peer.push("jobs", number)

    async def follow(self) -> None:
        """Receive the retained values."""
        async with (
            fiveways.connect(f"umq36+ws://127.0.0.1:{self.port}") as peer,
            peer.subscribe("state.*") as events,
        ):
            async for event in events:
                assert event.topic not in self.values
                self.values[event.topic] = event.data
                if len(self.values) == VALUES:
                    return


def _number(place: int, r: str) -> int:
    """Return the argument of a request: the one in the old store, or a new one."""
    if r.startswith("n"):
        return 10_000 + 1000 * place + int(r[1:])
    return int(r[1:] or 0)


def _outcome(message: Message) -> tuple[object, object]:
    return message.get("d"), message.get("e", {}).get("err", message.get("e", {}).get("text"))


@async_test
async def test_upgrade_from_the_oldest_versions_loses_and_repeats_nothing(tmp_path: Path) -> None:
    path, journal = tmp_path / "store.db", tmp_path / "journal"
    old_store(path, time.time())
    old_journal(journal)
    hub_settings = replace(
        settings(), store=StoreSettings(str(path)), journal=JournalSettings(path=str(journal), flush_interval=0.01)
    )
    async with hub(hub_settings) as place:
        load = Load(place.port)
        async with load.serve():
            asking = [load.ask(number, peer) for number, peer in enumerate(PEERS)]
            await asyncio.gather(*asking, load.push_jobs(), load.follow())
            while sum(load.jobs.values()) < 2 * JOBS:  # noqa: ASYNC110  there is no event to wait for
                await asyncio.sleep(0.01)
        held = place.server.exchange.hub.queue_counts()
    _check_requests(load)
    assert load.jobs == Counter([*range(1, JOBS + 1), *range(1000, 1000 + JOBS)])
    assert held == {"jobs": {"waiting": 0, "given": 0, "dead": DEAD}}
    assert load.values == {f"state.v{n}": n for n in range(VALUES)}
    _check_store(path)
    _check_journal(journal)


def _check_requests(load: Load) -> None:
    expected = Counter({number: len(PEERS) for number in range(OPEN)})
    expected.update(_number(place, f"n{n}") for place in range(len(PEERS)) for n in range(NEW))
    assert load.runs == expected
    for place, peer in enumerate(PEERS):
        found = {r: _outcome(answer) for (name, r), answer in load.answers.items() if name == peer}
        assert found == {
            **{f"o{n}": (n * 2, None) for n in range(OPEN)},
            **{f"a{n}": (f"old {n}", None) for n in range(ANSWERED)},
            **{f"t{n}": (None, "expired") for n in range(FINISHED)},
            **{f"n{n}": (_number(place, f"n{n}") * 2, None) for n in range(NEW)},
            "f": (None, "broken"),
            "x": (None, "expired"),
        }


def _check_store(path: Path) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    connection.close()
    loaded = content(path, time.time())
    assert {each.peer for each in loaded.peers} >= set(PEERS)
    assert (loaded.requests, loaded.jobs) == ([], [])
    assert [(item.number, item.tries, dead.why) for item, dead in loaded.dead_jobs] == [
        (101 + n, 5, "raised: no") for n in range(DEAD)
    ]
    assert [(each.topic, each.payload) for each in loaded.retained] == [
        (f'["state","v{n}"]', b"%d" % n) for n in range(VALUES)
    ]
    finished = OPEN + ANSWERED + FINISHED + NEW + 2
    tombs = Counter(each.peer for each in loaded.tombstones if each.peer in PEERS)
    assert tombs == Counter(dict.fromkeys(PEERS, finished))


def _check_journal(journal: Path) -> None:
    found = list_segments(str(journal))
    assert [each.run for each in found[:2]] == [OLD_RUN] * 2
    assert len({each.run for each in found}) == 2
    assert [note for each in found for note in check_segment(each.path)] == []
    rows = records(journal)
    old, new = ([row for row in rows if (row["run"] == OLD_RUN) is is_old] for is_old in (True, False))
    assert [row["payload"] for row in old] == OLD_FRAMES
    assert all(row["queued_ns"] is None for row in old)
    everything = pa.Table.from_batches([batch for each in found for batch in read_batches(each.path)])
    decoded = decode(everything)
    methods = Counter(zip(_texts(decoded.messages, "run"), _texts(decoded.messages, "method"), strict=True))
    assert methods[OLD_RUN, "old.method"] == len(OLD_FRAMES)
    assert methods[str(new[0]["run"]), "work"] >= len(PEERS) * NEW
    assert len(decoded.quarantine) == 0
    heard = b"".join(row["payload"] or b"" for row in new if row["protocol"] == "nq")  # type: ignore[misc]
    assert all(b'"r": "n%d"' % n in heard for n in range(NEW))


def _texts(table: pa.Table, name: str) -> list[str]:
    column: list[str] = table.column(name).to_pylist()
    return column
