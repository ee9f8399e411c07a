"""Registry of tables: completeness, order and documentation."""

import inspect

import pytest
from pyspark.sql import SparkSession

from fiveways.pipeline import spark_schemas
from fiveways.pipeline.tables import TABLES, Table, as_page, order
from tests.integration.pipeline.table_rows import empty
from tests.support.paths import ROOT

GOLD = """slo latency_breakdown errors retries starved orphans slow_consumers delivery_audit traffic top_talkers
    bridge_matrix service_graph sessions_summary security_audit unused capacity"""
SCHEMAS = {
    "messages": spark_schemas.MESSAGES,
    "quarantine": spark_schemas.QUARANTINE,
    "late": spark_schemas.LATE,
    "calls": spark_schemas.CALLS,
    "orphans": spark_schemas.ORPHANS,
    "deliveries": spark_schemas.DELIVERIES,
    "sessions": spark_schemas.SESSIONS,
}
COMPUTED = [table for table in TABLES.values() if table.inputs]
FROM_PARTIAL_CALLS = ("calls", "orphans")


def test_all_gold_tables_are_registered() -> None:
    assert {table.name for table in TABLES.values() if table.layer == "gold"} == set(GOLD.split())


def test_every_table_follows_its_inputs() -> None:
    known = {"_shared", "_marks"}
    for table in TABLES.values():
        assert set(table.inputs) <= known, table.name
        known.add(table.name)


@pytest.mark.parametrize("table", COMPUTED, ids=lambda table: str(table.name))
def test_function_parameters_are_the_registered_inputs(table: Table) -> None:
    parameters = inspect.signature(table.function).parameters
    assert list(parameters) == [name.lstrip("_") for name in table.inputs]


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: str(table.name))
def test_every_table_documents_question_grain_and_columns(table: Table) -> None:
    assert table.question.endswith("?")
    assert "One row per" in table.grain
    assert all(table.columns.values())
    if table.name in SCHEMAS:
        assert list(table.columns) == SCHEMAS[table.name].fieldNames()


@pytest.mark.parametrize(
    "table", [table for table in COMPUTED if table.name not in FROM_PARTIAL_CALLS], ids=lambda table: str(table.name)
)
def test_columns_of_every_table_are_documented(spark: SparkSession, table: Table) -> None:
    table_frame = empty(spark, table.name)
    assert table_frame.columns == list(table.columns)
    assert table_frame.columns[0] == "date"
    if table.name in SCHEMAS:
        assert table_frame.dtypes == [(field.name, field.dataType.simpleString()) for field in SCHEMAS[table.name]]


def test_order_returns_requested_tables_and_their_inputs() -> None:
    assert [table.name for table in order(["slo"])] == ["calls", "slo"]
    assert [table.name for table in order(["unused"])] == ["messages", "_names", "calls", "retries", "unused"]
    assert order() == list(TABLES.values())


def test_tables_page_is_generated_from_the_code() -> None:
    page = (ROOT / "docs/tables.md").read_text(encoding="utf-8")
    assert page == as_page(), "run: python -m fiveways.pipeline.tables > docs/tables.md"
