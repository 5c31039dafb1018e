"""A changeset: rows with a signed weight. Weight +1 adds the row, −1 removes it; duplicates are repeated rows.

Keeping every weight at ±1 (and repeating rows) lets partial sums be formed by negation, never by multiplication:
a decimal times a weight could lose digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import FractionalType

from headrace.names import quote
from headrace.plan.nodes import Column
from headrace.plan.types import comparable, has_floats

WEIGHT = "__hr_w"


@dataclass(frozen=True)
class Changes:
    """`rows` has the node's columns and WEIGHT. `insert_only` is known before any job: no row has a negative weight.
    `local` is the same rows in the driver, once they are materialized and few; many are `cached`."""

    rows: DataFrame
    insert_only: bool
    local: pa.Table | None = None
    cached: bool = False

    def over(self, rows: DataFrame) -> Changes:
        """The same changes after a linear operator."""
        return Changes(rows, self.insert_only)


def weighted(rows: DataFrame, weight: int) -> DataFrame:
    return rows.withColumn(WEIGHT, F.lit(weight))


def identical(one: str, other: str, type_text: str) -> str:
    """The condition that two values are the same, and not only equal, as 0.0 and -0.0 are.

    >>> identical("a", "b", "int"), identical("a", "b", "double")
    ('a <=> b', 'a <=> b AND CAST(a AS STRING) <=> CAST(b AS STRING)')
    """
    same = f"{one} <=> {other}"
    return f"{same} AND CAST({one} AS STRING) <=> CAST({other} AS STRING)" if has_floats(type_text) else same


def net_if_comparable(rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """`net`, where the types of the columns allow it; a changeset is as right without."""
    if not all(comparable(column.type) for column in columns):
        return rows
    return net(rows, [column.name for column in columns])


def net(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Sum the weights of equal rows and drop what cancels out; each remaining row is repeated |weight| times, ±1."""
    types = {field.name: field.dataType for field in rows.schema.fields}
    floats = [name for name in columns if has_floats(types[name].simpleString())]
    # Grouping makes -0.0 and 0.0 the same; as text they differ, and a value survives its own minimum.
    keys = [F.col(quote(name)) for name in columns if name not in floats]
    for place, name in enumerate(floats):
        keys.append(F.col(quote(name)).cast("string").alias(f"__hr_t{place}"))
        if not isinstance(types[name], FractionalType):  # Different arrays may have one text.
            keys.append(F.col(quote(name)).alias(f"__hr_v{place}"))
    values = [F.min(quote(name)).alias(name) for name in floats]
    summed = rows.groupBy(*keys).agg(F.sum(WEIGHT).alias("__hr_net"), *values)
    kept = summed.where("__hr_net <> 0")
    return kept.selectExpr(
        *(quote(name) for name in columns),
        f"explode(array_repeat(CAST(sign(__hr_net) AS INT), CAST(abs(__hr_net) AS INT))) AS {WEIGHT}",
    )
