"""Spark data source of a hub: reads topics as rows and publishes rows on topics.

`spark.dataSource.register(FivewaysDataSource)` registers the format `fiveways`. Options, columns and guarantees:
https://github.com/fiveways/fiveways/blob/main/docs/spark-peer.md
"""

from fiveways.extras import require

require("pipeline", __name__)

from fiveways.pipeline.peer.data_source import FivewaysDataSource  # noqa: E402  imports pyspark

__all__ = ["FivewaysDataSource"]
