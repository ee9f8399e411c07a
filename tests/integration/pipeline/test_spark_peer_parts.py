"""Parts of the Spark data source that run without Spark."""

from typing import Any
from urllib.parse import urlsplit

import pytest

import fiveways
from tests.support import hubs

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from fiveways.pipeline.peer.options import BadOption, DataSourceOptions
from fiveways.pipeline.peer.row_buffer import RowBuffer
from fiveways.pipeline.peer.rows import TopicRow, decode_rows, encode_rows, to_json
from fiveways.pipeline.peer.topic_follower import TopicFollower
from fiveways.pipeline.peer.topic_reader import Offset, TopicStreamReader

TIMEOUT = 300.0
URL = "lrpm+ws://localhost:7500"
ROW = TopicRow("a", "1", 5, 0, False, "r", 1)


def fill(buffer: RowBuffer, *numbers: int) -> None:
    for number in numbers:
        buffer.put("t", str(number), number)


def rows_of(partitions: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    return [row for partition in partitions for batch in decode_rows(partition.value) for row in batch.to_pylist()]


def test_buffer_keeps_rows_until_they_are_discarded() -> None:
    buffer = RowBuffer("r", 10, 1 << 20)
    fill(buffer, 1, 2, 3)
    assert [row.data for row in buffer.between(1, 3)] == ["2", "3"]
    buffer.discard(2)
    assert buffer.latest == 3
    assert [row.seq for row in buffer.between(0, 3)] == [3]
    buffer.discard(99)
    assert (buffer.latest, buffer.between(0, 99)) == (3, [])


def test_full_buffer_counts_dropped_rows_in_the_next_row() -> None:
    buffer = RowBuffer("r", 2, 1 << 20)
    fill(buffer, 1, 2, 3)
    buffer.put("t", "4", 4, missed=5, gap=True)
    buffer.discard(1)
    fill(buffer, 5, 6)
    last = buffer.between(2, 3)[0]
    assert (last.data, last.missed, last.gap, last.seq) == ("5", 1 + 6, True, 3)
    buffer.discard(3)
    fill(buffer, 7)
    assert [(row.missed, row.gap) for row in buffer.between(3, 4)] == [(1, False)]
    assert buffer.dropped == 3


def test_buffer_is_bounded_by_bytes_but_takes_one_row_of_any_size() -> None:
    buffer = RowBuffer("r", 100, 1000)
    buffer.put("t", "x" * 5000, 1)
    fill(buffer, 2)
    assert buffer.latest == 1
    buffer.discard(1)
    fill(buffer, 3)
    assert buffer.between(1, 2)[0].missed == 1


def test_decoded_rows_equal_encoded_rows() -> None:
    rows = [ROW, ROW._replace(seq=2, data='"ä"', gap=True)]
    assert [tuple(row.values()) for batch in decode_rows(encode_rows(rows)) for row in batch.to_pylist()] == rows


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ("ä", '"ä"'),
        (b"ab", '{"$base64":"YWI="}'),
        (float("nan"), '{"$number":"NaN"}'),
        ([1, {}], "[1,{}]"),
    ],
)
def test_every_value_has_a_json_form(value: object, text: str) -> None:
    assert to_json(value) == text


class HubLessReader(TopicStreamReader):
    """Stream reader without a hub; the test fills its buffer."""

    def __init__(self, **options: str) -> None:
        super().__init__(DataSourceOptions.parse({"url": URL, "topic": "t", **options}))
        self._follower.open = lambda: None  # type: ignore[method-assign]

    def receive(self, *numbers: int) -> None:
        fill(self._buffer, *numbers)


def test_stream_reader_gives_the_same_rows_again_until_commit() -> None:
    reader = HubLessReader(partition_rows="2")
    start: Any = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    reader.receive(1, 2, 3)
    end: Any = reader.latestOffset(start, ReadAllAvailable())
    first, second = reader.partitions(start, end), reader.partitions(start, end)
    assert len(first) == 2
    assert [row["data"] for row in rows_of(first)] == ["1", "2", "3"]
    assert rows_of(first) == rows_of(second)
    assert reader.partitions(end, end) == []
    reader.commit(end)
    reader.receive(4)
    assert [row["seq"] for row in rows_of(reader.partitions(end, reader.latestOffset(end, ReadAllAvailable())))] == [4]


def test_micro_batch_respects_the_read_limit() -> None:
    reader = HubLessReader()
    start: Any = reader.initialOffset()
    reader.receive(*range(10))
    assert reader.latestOffset(start, ReadMaxRows(4))["seq"] == 4
    assert reader.getDefaultReadLimit() == ReadMaxRows(100_000)
    assert reader.reportLatestOffset() == {**start, "seq": 10}


def test_full_buffer_has_room_after_spark_asks_for_more() -> None:
    reader = HubLessReader(buffer_rows="2")
    start: Any = reader.initialOffset()
    reader.receive(1, 2, 3)
    end: Any = reader.latestOffset(start, ReadAllAvailable())
    # Spark commits `end` only when there are more rows, so the reader discards it before.
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    reader.receive(4)
    rows = rows_of(reader.partitions(end, reader.latestOffset(end, ReadAllAvailable())))
    assert [(row["data"], row["missed"]) for row in rows] == [("4", 1)]


def test_new_reader_reports_rows_lost_by_the_previous_reader() -> None:
    old: Offset = {"reader": "before", "seq": 7}
    reader = HubLessReader()
    for _ in range(2):  # Spark may ask repeatedly
        assert reader.partitions({"reader": "before", "seq": 4}, old) == []
    reader.receive(1, 2)
    end: Any = reader.latestOffset(old, ReadAllAvailable())
    rows = rows_of(reader.partitions(old, end))
    assert [(row["missed"], row["gap"], row["seq"]) for row in rows] == [(3, True, 1), (0, False, 2)]


def test_error_is_raised_after_all_rows_were_read() -> None:
    reader = HubLessReader()
    start: Any = reader.initialOffset()
    reader.receive(1)
    reader._follower.error = BadOption("over")
    end: Any = reader.latestOffset(start, ReadAllAvailable())
    assert end["seq"] == 1
    with pytest.raises(BadOption, match="over"):
        reader.latestOffset(end, ReadAllAvailable())


def test_follower_resubscribes_after_hub_restart() -> None:
    with hubs.serving() as hub:
        url = hub.url("lrpm")
        port = str(urlsplit(url).port)
        buffer = RowBuffer("r", 100, 1 << 20)
        follower = TopicFollower(DataSourceOptions.parse({"url": url, "topic": "t.*"}), buffer)
        follower.open()
        follower.open()  # the second call does nothing
        try:
            publish(url, "t.x", 1)
            assert buffer.wait_for(1, TIMEOUT)
            hub.end()
            again = hubs.Hub(hubs.start("serve", "--port", port))
            try:
                # Publications before the new subscription are lost.
                number = 1
                while buffer.latest < 2 and number < 600:
                    number += 1
                    publish(url, "t.x", number)
                    buffer.wait_for(2, 0.1)
            finally:
                again.end()
        finally:
            follower.close()
    rows = buffer.between(0, 2)
    assert [(row.topic, row.missed, row.gap) for row in rows] == [("t.x", 0, False), ("t.x", 0, True)]
    assert follower.error is None


def publish(url: str, topic: str, data: object) -> None:
    with fiveways.connect_sync(url) as peer:
        peer.publish(topic, data)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"timeout": "soon"}, "timeout must be a positive number of seconds, not 'soon'"),
        ({"count": "-1"}, "count must be a whole number, 1 or more, not '-1'"),
        ({"buffer_rows": "0"}, "buffer_rows must be a whole number, 1 or more, not '0'"),
        ({"retain": "yes"}, "retain must be true or false, not 'yes'"),
        ({"when_full": "block"}, "when_full must be one of skip, close, unsubscribe, not 'block'"),
        ({"identity": "me"}, "`identity` and `secret` must be used together"),
        ({"url": f"{URL}?encoding=json", "encoding": "cbor"}, "the URL says json, but the option encoding says cbor"),
        ({"path": "x"}, "unknown option 'path' of the format fiveways"),
    ],
)
def test_invalid_option_is_rejected_with_its_value(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadOption) as raised:
        DataSourceOptions.parse({"url": URL, **options})
    assert str(raised.value).startswith(sentence)


def test_option_names_are_case_insensitive() -> None:
    options = DataSourceOptions.parse(
        {"URL": URL, "Encoding": "cbor", "checkpointLocation": "/x", "Count": "3", "ids": "True"}
    )
    assert (options.url, options.count, options.ids) == (f"{URL}?encoding=cbor", 3, True)
    assert "secret" not in repr(DataSourceOptions.parse({"url": URL, "identity": "me", "secret": "s3cret"}))


@pytest.mark.parametrize("topic", ["", "a..b**"])
def test_reader_without_valid_topic_is_rejected(topic: str) -> None:
    with pytest.raises(BadOption, match="topic"):
        DataSourceOptions.parse({"url": URL, "topic": topic}).topic_pattern()
