"""A small lake: Delta tables with awkward rows, views over views, and a dynamic table as Headrace stores it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from headrace.plan.catalyst import Located
from headrace.plan.query import Source

_TABLES = {
    "a": "id int, x int, s string, arr array<int>, dec decimal(10,2), dt date, ts timestamp, f double, "
    "st struct<p:int, q:array<struct<u:int, w:string>>>, m map<string,int>",
    "b": "id int, y int, s string",
    "c": "id int, z int, `Weird-näme` string",
    "customer": "c_custkey int, c_name string, c_mktsegment string, c_nationkey int, c_acctbal decimal(12,2)",
    "orders": "o_orderkey int, o_custkey int, o_orderdate date, o_shippriority int",
    "lineitem": "l_orderkey int, l_suppkey int, l_quantity decimal(12,2), l_extendedprice decimal(12,2), "
    "l_discount decimal(12,2), l_tax decimal(12,2), l_returnflag string, l_linestatus string, l_shipdate date",
    "supplier": "s_suppkey int, s_nationkey int",
    "nation": "n_nationkey int, n_regionkey int, n_name string",
    "region": "r_regionkey int, r_name string",
}
# ruff: noqa: E501
_ROWS = {
    "a": """SELECT CAST(i % 13 AS int), CAST(nullif(i % 7, 3) AS int), element_at(array('a%b','it''s','back\\\\slash','😀é',NULL), CAST(i % 5 + 1 AS int)),
        CASE WHEN i % 6 = 0 THEN NULL WHEN i % 6 = 1 THEN array() ELSE array(CAST(i AS int), NULL, CAST(i % 3 AS int)) END,
        CAST(i * 1.37 AS decimal(10,2)), date_add(DATE'1998-01-01', CAST(i * 11 AS int)), TIMESTAMP'2024-02-28 22:10:11' + make_interval(0,0,0,0,CAST(i AS int)),
        i / 3.0, named_struct('p', CAST(i % 4 AS int), 'q', array(named_struct('u', CAST(i AS int), 'w', 'w'))), map('k', CAST(i AS int)) FROM range(40) t(i)""",
    "b": "SELECT CAST(i % 11 AS int), CAST(nullif(i % 5, 2) AS int), CAST(i % 3 AS string) FROM range(25) t(i)",
    "c": "SELECT CAST(i AS int), CAST(i % 4 AS int), 'z' FROM range(9) t(i)",
    "customer": "SELECT CAST(i AS int), concat('c', i), if(i % 2 = 0, 'BUILDING', 'AUTO'), CAST(i % 4 AS int), CAST(i * 3.5 AS decimal(12,2)) FROM range(8) t(i)",
    "orders": "SELECT CAST(i AS int), CAST(i % 8 AS int), date_add(DATE'1994-10-01', CAST(i * 9 AS int)), 0 FROM range(30) t(i)",
    "lineitem": """SELECT CAST(i % 30 AS int), CAST(i % 5 AS int), CAST(i % 50 AS decimal(12,2)), CAST(i * 7.77 AS decimal(12,2)), CAST((i % 11) / 100 AS decimal(12,2)),
        CAST((i % 9) / 100 AS decimal(12,2)), element_at(array('A','N','R'), CAST(i % 3 + 1 AS int)), if(i % 2 = 0, 'O', 'F'), date_add(DATE'1994-11-01', CAST(i * 8 AS int)) FROM range(90) t(i)""",
    "supplier": "SELECT CAST(i AS int), CAST(i % 4 AS int) FROM range(5) t(i)",
    "nation": "SELECT CAST(i AS int), CAST(i % 2 AS int), concat('n', i) FROM range(4) t(i)",
    "region": "SELECT CAST(i AS int), if(i = 0, 'ASIA', 'EUROPE') FROM range(2) t(i)",
}


class Lake:
    """A Spark database with Delta tables, views, and one dynamic table as Headrace would store it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.sources: dict[tuple[str, str], Source] = {}
        spark.sql("CREATE DATABASE lake")
        spark.sql("USE lake")
        for table, columns in _TABLES.items():
            path = str(folder / "data" / table)
            spark.sql(f"CREATE TABLE lake.{table} ({columns}) USING delta LOCATION '{path}'")
            spark.sql(f"INSERT INTO lake.{table} {_ROWS[table]}")
            self._add(table, path, "table")
        self._dynamic()
        spark.sql("CREATE VIEW v AS SELECT id, x + 1 AS x1 FROM a WHERE x > 0 -- closing comment")
        spark.sql(
            "CREATE VIEW vv (`the id`, n) AS WITH v AS (SELECT * FROM v) SELECT id, count(*) AS k FROM v GROUP BY id"
        )
        spark.sql("CREATE VIEW vstar AS SELECT * FROM b")
        spark.sql("ALTER TABLE b ADD COLUMN later int")
        spark.sql("CREATE VIEW vdyn AS SELECT id, total FROM dyn WHERE total > 3")
        spark.sql("CREATE VIEW vrand AS SELECT id, rand() AS r FROM a")
        spark.sql("CREATE TABLE plain (id int) USING parquet")
        spark.sql("CREATE TEMPORARY VIEW temp AS SELECT 1 AS one")

    def _add(self, table: str, path: str, kind: str) -> None:
        source = Source(workspace="home", schema_name="lake", table=table, path=path, kind=kind)  # type: ignore[arg-type]
        self.sources["lake", table] = source

    def _dynamic(self) -> None:
        path = str(self.folder / "data" / "dyn")
        rows = "SELECT id, sum(y) AS total, CAST(id AS string) AS __hr_row, false AS __hr_gone FROM lake.b GROUP BY id"
        self.spark.sql(f"CREATE TABLE delta.`{path}` USING delta AS {rows}")
        self.spark.sql(
            f"CREATE VIEW lake.dyn AS SELECT id, total FROM (SELECT s.* FROM delta.`{path}` s LEFT ANTI JOIN "
            f"(SELECT __hr_row FROM delta.`{path}` WHERE __hr_gone) g ON s.__hr_row = g.__hr_row)"
        )
        self._add("dyn", path, "dynamic")

    def locate(self, database: str, table: str) -> Located | None:
        source = self.sources.get((database, table))
        return None if source is None else Located(source)
