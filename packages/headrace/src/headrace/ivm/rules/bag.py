"""The root of every other query: its rows are stored as they are, duplicates included.

    stored changes:  + rows of Δ with weight +1     (each gets an id of its own)
                     − for each row of Δ with weight −1, one live stored row that equals it in every column

State:    none beyond the rows; each carries a hash of its values to be found by.
Cost:     insertions append without looking at the table; removals look up the rows' hashes in it.
Requires: columns that can be compared (no maps).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace import optimisations
from headrace.ivm.changeset import WEIGHT, Changes, identical, net
from headrace.ivm.layout import BORN, KEY, ROW, Layout
from headrace.ivm.layout import WEIGHT as STORED_WEIGHT
from headrace.ivm.narrowing import in_range, one_of
from headrace.ivm.rules import partitions, top
from headrace.ivm.rules.partitions import partitions_root
from headrace.ivm.rules.top import top_root
from headrace.ivm.stages import Stages
from headrace.names import quote
from headrace.plan.nodes import Plan
from headrace.plan.types import has_floats

Live = Callable[[], DataFrame]


@dataclass(frozen=True)
class BagResult:
    """`rows` are storage rows to append; `removals` is how many of them must be tombstones (None: not known)."""

    rows: DataFrame
    removals: int | None
    appends_only: bool


def whole(rows: DataFrame, layout: Layout, sequence: int, *, searchable: bool) -> DataFrame:
    """Storage rows for all rows of the query, given under their public names."""
    key = _value_hash(layout) if searchable else "0L"
    return _stored(rows, layout, sequence, key)


def refresh(stages: Stages, plan: Plan, layout: Layout, live: Live, sequence: int) -> BagResult | None:
    """Storage rows to append for the changes since the old frontier; None when nothing changed. `live` gives the stored
    rows: where rows only come, nobody asks for them."""
    found = _root_changes(stages, plan, live)
    if found is None:
        return None
    names = [quote(column.name) for column in layout.public]
    pairs = [f"CAST({quote(unique.name)} AS {unique.type}) AS {quote(public)}" for public, unique in plan.columns]
    public = found.rows.selectExpr(*pairs, WEIGHT)
    if found.insert_only:
        return BagResult(_stored(public, layout, sequence, _value_hash(layout)), 0, True)
    netted = net(public, [column.name for column in layout.public])
    keyed = netted.selectExpr("*", f"{_value_hash(layout)} AS {KEY}")
    local = stages.local(keyed) if stages.small else None
    if local is None:
        kept = stages.cache(keyed)
        added = _stored(kept.where(f"{WEIGHT} > 0").select(*names), layout, sequence, _value_hash(layout))
        gone = _tombstones(kept.where(f"{WEIGHT} < 0"), live(), layout)
        return BagResult(added.union(gone), kept.where(f"{WEIGHT} < 0").count(), False)
    kept = stages.spark.createDataFrame(local, schema=keyed.schema).coalesce(1)
    added = _stored(kept.where(f"{WEIGHT} > 0").select(*names), layout, sequence, _value_hash(layout))
    removals = sum(1 for weight in local.column(WEIGHT).to_pylist() if weight < 0)
    if not removals:
        return BagResult(added, 0, True)
    candidates = _narrowed(live(), local, layout) if stages.uses(optimisations.PUSHED_KEYS) else live()
    gone = _tombstones(kept.where(f"{WEIGHT} < 0"), candidates, layout)
    return BagResult(added.union(gone), removals, False)


def _root_changes(stages: Stages, plan: Plan, live: Live) -> Changes | None:
    best = top_root(plan) if stages.uses(optimisations.STORED_WINNERS) else None
    if best is not None:
        return top.changes(stages, best, plan, live())
    root = partitions_root(plan)
    return stages.changes(plan.root) if root is None else partitions.changes(stages, root, plan, live())


def _narrowed(live: DataFrame, changes: pa.Table, layout: Layout) -> DataFrame:
    """The stored rows that can be among those that go: by their hash (their tombstones share it), and by the ranges of
    their own values, which rows that were written together often share."""
    gone = changes.filter(pc.less(changes.column(WEIGHT), 0))
    found = [one_of(KEY, gone.column(KEY))]
    found += [in_range(quote(column.name), gone.column(column.name)) for column in layout.public]
    return reduce(DataFrame.where, (condition for condition in found if condition is not None), live)


def _tombstones(removed: DataFrame, live: DataFrame, layout: Layout) -> DataFrame:
    """One tombstone per removed row: the n-th of several equal removals takes the n-th of the equal live rows."""
    names = [quote(column.name) for column in layout.public]
    texts = [f"CAST({quote(column.name)} AS STRING)" for column in layout.public if has_floats(column.type)]
    nth = f"row_number() OVER (PARTITION BY {', '.join([KEY, *names, *texts])} ORDER BY %s) AS __hr_nth"
    copies = [f"__hr_gone{place}" for place in range(len(names))]
    renamed = [f"{name} AS {copy}" for name, copy in zip(names, copies, strict=True)]
    wanted = removed.selectExpr(*renamed, f"{KEY} AS __hr_gone_key", nth % KEY)
    wanted = wanted.withColumnRenamed("__hr_nth", "__hr_gone_nth")
    numbered = live.selectExpr("*", nth % f"{BORN}, {ROW}")
    same = [f"__hr_gone_key = {KEY}", "__hr_gone_nth = __hr_nth"]
    same += [identical(copy, quote(c.name), c.type) for c, copy in zip(layout.public, copies, strict=True)]
    found = numbered.join(wanted, F.expr(" AND ".join(same)), "left_semi")
    return found.selectExpr(
        *(
            f"CAST(-1 AS tinyint) AS {STORED_WEIGHT}" if column.name == STORED_WEIGHT else quote(column.name)
            for column in layout.columns
        )
    )


def _stored(rows: DataFrame, layout: Layout, sequence: int, key: str) -> DataFrame:
    identity = {
        STORED_WEIGHT: "CAST(1 AS tinyint)",
        BORN: f"CAST({sequence} AS bigint)",
        ROW: "monotonically_increasing_id()",
        KEY: key,
    }
    hidden = [f"{identity[column.name]} AS {quote(column.name)}" for column in layout.hidden]
    public = [f"CAST({quote(c.name)} AS {c.type}) AS {quote(c.name)}" for c in layout.public]
    return rows.selectExpr(*hidden, *public)


def _value_hash(layout: Layout) -> str:
    return f"xxhash64({', '.join(quote(column.name) for column in layout.public)})"
