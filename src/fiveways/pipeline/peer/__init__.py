"""Spark as a peer of a hub: topics are read as rows, and rows are published on topics.

`spark.dataSource.register(FivewaysDataSource)` makes the format `fiveways` known; docs/spark-peer.md tells its options,
its columns, and what is promised.
"""

from fiveways.pipeline.peer.source import FivewaysDataSource

__all__ = ["FivewaysDataSource"]
