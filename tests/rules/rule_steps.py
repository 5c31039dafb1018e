"""What the tests of rules do with a lake."""

from __future__ import annotations

from collections import Counter

from deltalake import DeltaTable
from pyspark.sql import DataFrame

from headrace import Lake
from headrace.catalog.records import DynamicTable
from headrace.ivm.layout import VISIBLE, cut_rows, layout_of, live_local, schema_text
from headrace.storage.delta import all_rows
from rules.rule_format import RuleTest, Weighted


def create(lake: Lake, test: RuleTest) -> None:
    for table in test.tables:
        lake.sql(f"CREATE TABLE {table}")
    if test.setup.strip():
        lake.sql(test.setup)
    lake.sql(f"CREATE DYNAMIC TABLE result REFRESH_MODE = INCREMENTAL AS {test.query}")


def nonzero(rows: Weighted) -> Weighted:
    return Counter({row: weight for row, weight in rows.items() if weight})


def contents_of(lake: Lake) -> Weighted:
    """The public rows as text, from storage: the view that users read is compared with them at the end of a test."""
    table = _result(lake)
    stored = live_local(all_rows(DeltaTable(table.storage_path), table.storage_path))
    if VISIBLE in stored.column_names:
        stored = stored.filter(stored.column(VISIBLE))
    rows = lake.spark.createDataFrame(stored, schema=schema_text(layout_of(table.query).columns))
    return texts(cut_rows(rows, table.query.cut), lake)


def texts(rows: DataFrame, lake: Lake) -> Weighted:
    columns = [column.name for column in _result(lake).query.columns]
    shown = rows.selectExpr(*(f"coalesce(CAST(`{name}` AS STRING), 'NULL') AS `{name}`" for name in columns))
    return Counter(tuple(row) for row in shown.collect())


def _result(lake: Lake) -> DynamicTable:
    return lake._context.require_dynamic(("result",))


def refresh(lake: Lake) -> tuple[list[str], tuple[object, ...]]:
    result = lake.sql("REFRESH DYNAMIC TABLE result")
    return result.columns, result.rows[0]


def versions_of(lake: Lake) -> int:
    return int(DeltaTable(_result(lake).storage_path).version())


def verify(lake: Lake, where: str) -> None:
    verdict = lake.sql("VERIFY DYNAMIC TABLE result").rows[0]
    assert verdict[1] == "EQUAL", f"{where}: {verdict}"
