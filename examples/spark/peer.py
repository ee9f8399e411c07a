"""Spark as a peer of a hub: it publishes rows, and turns a stream of readings into a stream of means.

fiveways serve                          in one terminal python examples/spark/peer.py           in another one; it needs
`pip install 'fiveways[pipeline]'` and Java 17
"""

import sys
import tempfile
import time

from pyspark.sql import DataFrame, functions

import fiveways
from fiveways import FivewaysError
from fiveways.client.sync import SyncPeer
from fiveways.pipeline import spark_session
from fiveways.pipeline.peer import FivewaysDataSource

HUB = "localhost:7500"


def wait_for_subscribers(peer: SyncPeer, number: int) -> None:
    """Wait for this number of subscriptions: earlier publications would be lost."""
    while (stats := peer.call("hub.stats")) and isinstance(stats, dict) and stats["subscriptions"] < number:
        time.sleep(0.1)


def main(hub: str) -> None:
    """Publish readings, compute means with Spark, and subscribe to the means."""
    url = f"lrpm+ws://{hub}"
    with (
        fiveways.connect_sync(url) as peer,  # before Spark, which needs some seconds to start
        spark_session.open_spark(spark_session.SparkSettings("local[2]", name="peer")) as spark,
        tempfile.TemporaryDirectory() as place,
    ):
        spark.dataSource.register(FivewaysDataSource)
        readings = spark.range(0, 100, 1, 1).selectExpr(
            "concat('sensors.room', id % 4, '.temperature') as topic", "string(20 + id % 7) as data"
        )
        stream = spark.readStream.format("fiveways").options(url=url, topic="sensors.*.temperature", count="100").load()
        means = (
            stream.groupBy("topic")
            .agg(functions.avg("data").alias("mean"))
            .selectExpr("concat('means.', split(topic, '[.]')[1]) as topic", "struct(mean) as data")
        )

        def publish(rows: DataFrame, _batch: int = 0) -> None:
            rows.write.format("fiveways").option("url", url).mode("append").save()

        # A Python data source supports streaming writes in append mode only; foreachBatch also writes updates.
        writing = means.writeStream.outputMode("update").foreachBatch(publish)
        with peer.subscribe("means.*") as events:
            query = writing.option("checkpointLocation", place).trigger(availableNow=True).start()
            wait_for_subscribers(peer, 2)
            publish(readings)
            query.awaitTermination()
            for _ in range(4):
                event = events.next(timeout=10.0)
                assert event is not None
                print(event.topic, event.data)


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else HUB)
    except FivewaysError as exc:
        sys.exit(f"peer.py: {exc}")
