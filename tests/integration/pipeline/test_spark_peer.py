"""The Spark data source with a real hub: topics are read as rows, and rows are published."""

import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fiveways
from fiveways.client.sync import SyncPeer
from fiveways.client.sync_handles import SyncEvent, SyncSubscription
from fiveways.pipeline import spark_session
from tests.support import hubs
from tests.support.paths import ROOT
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from fiveways.pipeline.spark_session import SparkSettings

TIMEOUT = 300
PROTOCOLS = ["umq", "umq36", "lrpm", "lrpm?encoding=cbor", "nq", "nq+http"]
ROWS = "topic string, data string"

_names = count(1)


@pytest.fixture(scope="module")
def hub() -> Iterator[hubs.Hub]:
    with hubs.serving() as hub:
        yield hub


@pytest.fixture
def peer(hub: hubs.Hub) -> Iterator[SyncPeer]:
    with fiveways.connect_sync(hub.url("lrpm")) as peer:
        yield peer


@pytest.fixture(scope="module")
def engine(spark: "SparkSession") -> "SparkSession":
    """Return the Spark session with the format registered."""
    from fiveways.pipeline.peer import FivewaysDataSource  # noqa: PLC0415  imports pyspark

    spark.dataSource.register(FivewaysDataSource)
    return spark


def read(engine: "SparkSession", url: str, topic: str, **options: object) -> "list[Row]":
    return engine.read.format("fiveways").options(url=url, topic=topic, **text_values(options)).load().collect()


def text_values(options: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}


def publish(rows: "DataFrame", url: str, **options: object) -> None:
    rows.write.format("fiveways").options(url=url, **text_values(options)).mode("append").save()


def receive(events: SyncSubscription, number: int) -> list[SyncEvent]:
    received = [event for event in (events.next(TIMEOUT) for _ in range(number)) if event is not None]
    assert len(received) == number
    return received


class CollectedStream:
    """Stream that collects its rows."""

    def __init__(self, engine: "SparkSession", url: str, checkpoint: Path, **options: object) -> None:
        self.rows: list[Row] = []
        stream = engine.readStream.format("fiveways").options(url=url, **text_values(options)).load()
        self.started = stream.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(checkpoint))

    def _keep(self, batch: "DataFrame", _number: int) -> None:
        self.rows += batch.collect()

    def wait(self, number: int) -> "list[Row]":
        until_sync(lambda: len(self.rows) >= number)
        return sorted(self.rows, key=lambda row: row.at)


@contextmanager
def running(stream: CollectedStream) -> "Iterator[StreamingQuery]":
    query = stream.started.start()
    try:
        yield query
    finally:
        query.stop()


def use_shared_spark(engine: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> "list[SparkSettings]":
    """Make programs use the shared Spark session; return the settings that they ask for."""
    requested: list[SparkSettings] = []

    @contextmanager
    def running(settings: "SparkSettings") -> "Iterator[SparkSession]":
        requested.append(settings)
        yield engine

    monkeypatch.setattr(spark_session, "open_spark", running)
    return requested


def wait_for_subscription(peer: SyncPeer, query: "StreamingQuery") -> None:
    """Wait until a query has subscribed to its topic."""

    def is_true() -> bool:
        assert query.exception() is None
        stats: Any = peer.call("hub.stats")
        return bool(stats["subscriptions"])

    until_sync(is_true)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_published_rows_are_read_as_retained_values_in_every_protocol(
    engine: "SparkSession", hub: hubs.Hub, peer: SyncPeer, protocol: str
) -> None:
    place = f"every.p{next(_names)}"
    values = ['{"n":1,"x":[null,true]}', '"text"', "2.5", "[]"]
    frame = engine.createDataFrame([(f"{place}.n{n}", value) for n, value in enumerate(values)], ROWS).repartition(2)
    publish(frame, hub.url(protocol), retain="true")
    rows = read(engine, hub.url(protocol), f"{place}.*")
    assert {row.topic: row.data for row in rows} == {f"{place}.n{n}": value for n, value in enumerate(values)}
    assert [row.seq for row in rows] == [1, 2, 3, 4]
    assert {(row.missed, row.gap) for row in rows} == {(0, False)}
    for n in range(len(values)):
        peer.close_topic(f"{place}.n{n}")


def test_batch_ends_after_count_or_seconds(engine: "SparkSession", hub: hubs.Hub, peer: SyncPeer) -> None:
    for n in range(3):
        peer.publish(f"counted.n{n}", n, retain=True)
    rows = read(engine, hub.url("lrpm"), "counted.*", count=2)
    assert len(rows) == 2
    rows = read(engine, hub.url("lrpm"), "counted.*", seconds=0.5)
    assert sorted(row.data for row in rows) == ["0", "1", "2"]


def test_columns_of_any_type_are_published(engine: "SparkSession", hub: hubs.Hub, peer: SyncPeer) -> None:
    frame = engine.sql(
        "select named_struct('a', 1, 'b', array(named_struct('c', 'x'))) as data, id = 0 as retain from range(2)"
    ).coalesce(1)
    with peer.subscribe("typed") as events:
        publish(frame, hub.url("umq"), topic="typed")
        publish(engine.sql("select binary('ab') as data"), hub.url("lrpm"), topic="typed", encoding="cbor")
        data = [event.data for event in receive(events, 3)]
    assert data == [{"a": 1, "b": [{"c": "x"}]}, {"a": 1, "b": [{"c": "x"}]}, b"ab"]
    with peer.subscribe("typed") as events:
        assert receive(events, 1)[0].data == {"a": 1, "b": [{"c": "x"}]}


def test_partition_is_published_in_order(engine: "SparkSession", hub: hubs.Hub, peer: SyncPeer) -> None:
    frame = engine.range(0, 1000, 1, 1).selectExpr("'ordered' as topic", "string(id) as data")
    with peer.subscribe("ordered") as events:
        publish(frame, hub.url("lrpm"))
        assert [event.data for event in receive(events, 1000)] == list(range(1000))


def test_option_ids_adds_ids_to_publications(engine: "SparkSession", hub: hubs.Hub, peer: SyncPeer) -> None:
    frame = engine.range(0, 4, 1, 2).selectExpr("'named' as topic", "string(id) as data")
    with peer.subscribe("named") as events:
        publish(frame, hub.url("lrpm"), ids="true")
        published: list[Any] = [event.data for event in receive(events, 4)]
    runs = {item["id"].split("-")[0] for item in published}
    assert len(runs) == 1
    assert sorted((item["id"].split("-")[1:], item["data"]) for item in published) == [
        (["0", "1"], 0),
        (["0", "2"], 1),
        (["1", "1"], 2),
        (["1", "2"], 3),
    ]


def test_stream_reads_one_topic_and_publishes_on_another(
    engine: "SparkSession", hub: hubs.Hub, peer: SyncPeer, tmp_path: Path
) -> None:
    stream = engine.readStream.format("fiveways").options(url=hub.url("umq"), topic="sensors.*").load()
    doubled = stream.selectExpr("concat('doubled.', seq) as topic", "string(2 * int(data)) as data")
    writing = doubled.writeStream.format("fiveways").options(url=hub.url("nq"), ids="true")
    with peer.subscribe("doubled.*") as events:
        query = writing.option("checkpointLocation", str(tmp_path)).start()
        try:
            until_sync(lambda: dict(_stats(peer))["subscriptions"] == 2)
            for n in (1, 2, 3):
                peer.publish("sensors.roof", n)
            received = receive(events, 3)
        finally:
            query.stop()
    assert {(event.topic, _content(event)["data"]) for event in received} == {
        ("doubled.1", 2),
        ("doubled.2", 4),
        ("doubled.3", 6),
    }
    ids = {_content(event)["id"] for event in received}
    assert len(ids) == 3
    assert all(publication_id.startswith(f"{query.id}-") for publication_id in ids)


def _stats(peer: SyncPeer) -> dict[str, Any]:
    stats: Any = peer.call("hub.stats")
    return dict(stats)


def _content(event: SyncEvent) -> dict[str, Any]:
    assert isinstance(event.data, dict)
    return event.data


def test_restarted_stream_reports_lost_rows(
    engine: "SparkSession", hub: hubs.Hub, peer: SyncPeer, tmp_path: Path
) -> None:
    first = CollectedStream(engine, hub.url("lrpm"), tmp_path, topic="again")
    with running(first) as query:
        wait_for_subscription(peer, query)
        for n in (1, 2):
            peer.publish("again", n)
        rows = first.wait(2)
        query.processAllAvailable()
    assert [(row.topic, row.data, row.missed, row.gap, row.seq) for row in rows] == [
        ("again", "1", 0, False, 1),
        ("again", "2", 0, False, 2),
    ]
    # Simulate a driver that died after it planned its last batch.
    last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (tmp_path / "commits" / f".{last.name}.crc").unlink()
    until_sync(lambda: not _stats(peer)["subscriptions"])
    peer.publish("again", "nobody listens")
    second = CollectedStream(engine, hub.url("lrpm"), tmp_path, topic="again")
    with running(second) as query:
        wait_for_subscription(peer, query)
        peer.publish("again", 3)
        peer.publish("again", 4)
        after = second.wait(2)
    assert [(row.data, row.gap, row.seq) for row in after] == [("3", True, 1), ("4", False, 2)]
    assert after[0].missed in {1, 2}  # rows of the unfinished batch
    assert after[0].reader != rows[0].reader


def test_stream_resubscribes_after_its_topic_was_closed(
    engine: "SparkSession", hub: hubs.Hub, peer: SyncPeer, tmp_path: Path
) -> None:
    stream = CollectedStream(engine, hub.url("umq36"), tmp_path, topic="goes")
    with running(stream) as query:
        wait_for_subscription(peer, query)
        peer.publish("goes", 1)
        stream.wait(1)
        peer.close_topic("goes")
        until_sync(lambda: not _stats(peer)["subscriptions"])
        wait_for_subscription(peer, query)
        peer.publish("goes", 2)
        rows = stream.wait(2)
    assert [(row.data, row.gap) for row in rows] == [("1", False), ("2", True)]


def test_available_now_query_reads_all_retained_values(
    engine: "SparkSession", hub: hubs.Hub, peer: SyncPeer, tmp_path: Path
) -> None:
    for n in range(5):
        peer.publish(f"kept.n{n}", n, retain=True)
    stream = CollectedStream(engine, hub.url("lrpm"), tmp_path, topic="kept.*", count=5, batch_rows=2, partition_rows=1)
    query = stream.started.trigger(availableNow=True).start()
    assert query.awaitTermination(TIMEOUT)
    assert sorted(row.data for row in stream.rows) == ["0", "1", "2", "3", "4"]
    assert [row.seq for row in stream.rows] == [1, 2, 3, 4, 5]
    assert max(progress["numInputRows"] for progress in query.recentProgress) <= 2


def test_rows_dropped_by_a_full_buffer_are_counted_in_missed(
    engine: "SparkSession", hub: hubs.Hub, peer: SyncPeer, tmp_path: Path
) -> None:
    stream = CollectedStream(engine, hub.url("lrpm"), tmp_path, topic="flood", buffer_rows=10)
    query = stream.started.trigger(processingTime="2 seconds").start()
    try:
        wait_for_subscription(peer, query)
        number = 0

        def is_loss_reported() -> bool:
            nonlocal number
            for _ in range(50):
                number += 1
                peer.publish("flood", number)
            return any(row.missed for row in stream.rows)

        until_sync(is_loss_reported)
    finally:
        query.stop()
    rows = sorted(stream.rows, key=lambda row: int(row.data))
    # `missed` counts the rows missing directly before a row, so all numbers are accounted for.
    passed = 0
    for row in rows:
        passed += row.missed + 1
        assert passed == int(row.data)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topic": "a"}, "no URL of a hub"),
        ({"url": "ws://localhost", "topic": "a"}, "url: ws:// has no protocol"),
        ({"url": "mqtt-rpc+mqtt://localhost", "topic": "a"}, "the URL names an MQTT broker"),
        ({"url": "umq+ws://localhost"}, "no topic to read"),
        ({"url": "umq+ws://localhost", "topic": "a", "encoding": "cbor"}, "this protocol has only one"),
        ({"url": "umq+ws://localhost", "topic": "a", "topics": "b"}, "unknown option 'topics' of the format fiveways"),
    ],
)
def test_invalid_option_fails_at_load(engine: "SparkSession", options: dict[str, str], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        engine.read.format("fiveways").options(**options).load()


def test_unreachable_hub_fails_batch_and_stream(engine: "SparkSession", tmp_path: Path) -> None:
    away = "lrpm+ws://127.0.0.1:9"
    from pyspark.errors import AnalysisException  # noqa: PLC0415  imports pyspark

    # The error occurs while the query is planned: no task runs, and the error has no Java stack trace.
    tracker = engine.sparkContext.statusTracker()
    jobs = set(tracker.getJobIdsForGroup())
    with pytest.raises(AnalysisException, match=r"127\.0\.0\.1:9"):
        read(engine, away, "a")
    with pytest.raises(AnalysisException, match=r"127\.0\.0\.1:9"):
        publish(engine.createDataFrame([("a", "1")], ROWS), away)
    assert set(tracker.getJobIdsForGroup()) == jobs
    query = CollectedStream(engine, away, tmp_path, topic="a").started.start()
    with pytest.raises(Exception, match=r"127\.0\.0\.1:9"):
        query.awaitTermination(TIMEOUT)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("'t' as topic", "there is no column data to publish"),
        ("'1' as data", "no column topic"),
        ("'t' as topic, '1' as data, 3 as when", "column when would be lost"),
        ("7 as topic, '1' as data", "column topic is int, not string"),
        ("'t' as topic, '1' as data, 1 as retain", "column retain is int, not boolean"),
        ("'t' as topic, '{oops' as data", "row 1 of its partition: data is not JSON"),
        ("string(null) as topic, '1' as data", "row 1 of its partition has no topic"),
        ("'a..b*' as topic, '1' as data", "row 1 of its partition, on a..b*, was not published"),
    ],
)
def test_unpublishable_rows_fail_the_job(engine: "SparkSession", hub: hubs.Hub, columns: str, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence.replace("*", r"\*")):
        publish(engine.sql(f"select {columns}"), hub.url("lrpm"))


BLOCKS = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "spark-peer.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=[f"block {number}" for number, _ in enumerate(BLOCKS, 1)])
def test_code_block_of_the_docs_prints_the_documented_output(
    engine: "SparkSession",
    hub: hubs.Hub,
    peer: SyncPeer,
    block: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = hub.url("lrpm").removeprefix("lrpm+ws://").removesuffix("/lrpm")
    use_shared_spark(engine, monkeypatch)
    exec(block.replace("localhost:7500", place), {})  # noqa: S102  own docs
    assert capsys.readouterr().out.splitlines() == re.findall(r"# prints (.*)", block)
    for topic in ("sensors.roof", "sensors.cellar"):
        peer.close_topic(topic)


def test_example_prints_means_of_all_rooms(
    engine: "SparkSession", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run the example with the shared Spark session."""
    requested = use_shared_spark(engine, monkeypatch)
    with hubs.serving() as hub:
        place = hub.url("lrpm").removeprefix("lrpm+ws://").removesuffix("/lrpm")
        monkeypatch.setattr(sys, "argv", ["peer.py", place])
        runpy.run_path(str(ROOT / "examples" / "spark" / "peer.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert sorted(line.split()[0] for line in shown.splitlines()) == [f"means.room{n}" for n in range(4)]
    assert [settings.master for settings in requested] == ["local[2]"]


def test_example_reports_unreachable_hub_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, engine: "SparkSession"
) -> None:
    requested = use_shared_spark(engine, monkeypatch)
    monkeypatch.setattr(sys, "argv", ["peer.py", "127.0.0.1:9"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "examples" / "spark" / "peer.py"), run_name="__main__")
    assert re.fullmatch(r"peer\.py: [^\n]*127\.0\.0\.1:9[^\n]*", str(ended.value.code))
    assert requested == []


def test_query_plan_does_not_show_the_token(
    engine: "SparkSession", hub: hubs.Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"url": hub.url("lrpm"), "topic": "a", "token": "my-own-token"}
    frame = engine.read.format("fiveways").options(**options).load()
    frame.explain(extended=True)
    shown = capsys.readouterr().out
    assert "fiveways" in shown
    assert "my-own-token" not in shown


def test_overwrite_mode_is_rejected(engine: "SparkSession", hub: hubs.Hub) -> None:
    rows = engine.createDataFrame([("a", "1")], ROWS)
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        rows.write.format("fiveways").option("url", hub.url("lrpm")).mode("overwrite").save()


def test_denied_publication_and_subscription_fail_their_queries(engine: "SparkSession", tmp_path: Path) -> None:
    config = tmp_path / "fiveways.toml"
    config.write_text(
        '[auth]\nanonymous = "never"\n[[auth.identity]]\nname = "spark"\ntoken = "a-token-for-spark-alone"\n'
        'publish = ["open.*"]\nsubscribe = ["open.*"]\n',
        encoding="utf-8",
    )
    with hubs.serving("--config", str(config)) as guarded:
        url = guarded.url("lrpm")
        with pytest.raises(Exception, match="authentication required: no token was given"):
            read(engine, url, "open.a")
        token = {"token": "a-token-for-spark-alone"}
        rows = engine.createDataFrame([("open.a", "1"), ("shut.b", "2")], ROWS).coalesce(1)
        with pytest.raises(
            Exception, match=r"row 2 of its partition, on shut\.b, was not published: .*may not publish"
        ):
            publish(rows, url, retain="true", **token)
        assert [row.data for row in read(engine, url, "open.*", **token)] == ["1"]
        query = CollectedStream(engine, url, tmp_path / "checkpoint", topic="shut.*", **token).started.start()
        with pytest.raises(Exception, match="may not subscribe"):
            query.awaitTermination(TIMEOUT)
