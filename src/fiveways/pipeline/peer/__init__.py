"""Spark as a peer of a hub: topics are read as rows, and rows are published on topics.

`spark.dataSource.register(FivewaysDataSource)` makes the format `fiveways` known. Options, columns and guarantees:
https://github.com/fiveways/fiveways/blob/main/docs/spark-peer.md
"""

from fiveways.extras import require

require("pipeline", __name__)

from fiveways.pipeline.peer.data_source import FivewaysDataSource  # noqa: E402  it imports pyspark

__all__ = ["FivewaysDataSource"]
