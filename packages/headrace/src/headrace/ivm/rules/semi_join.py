"""Semi join and anti join (EXISTS, IN, NOT EXISTS, NOT IN, INTERSECT, EXCEPT), and EXISTS as a value.

    A  =  the rows of L_old that match a row of ΔR
    n  =  how many rows of R_old each of them matches,    n'  =  n + how many of ΔR
    Δ(L ⋉ R)  =  ΔL ⋉ R_new  +  the rows of A with n = 0, n' > 0  −  those with n > 0, n' = 0
    the same with ▷ for the anti join, signs reversed
    many rows:   ΔL ⋉ R_new  +  (A ⋉ R_new)  −  (A ⋉ R_old)
    kept keys:   ΔL ⋉ δ(R)_new  +  L_old ⋈ Δδ(R)               (ivm/matching.py)
    keys once:   the same, and Δδ(R) is what of π(ΔR) does not cancel out: nothing is kept for it

State:    over big sources, the keys of R with their numbers of rows, in a state table; otherwise none.
Cost:     one join for a changed left side; for a changed right side, one with the keys that come and go. Without a
          state table, one to find A and one that starts from it (two when A is large).
Requires: a deterministic condition. It needs no equality: the null-aware condition of NOT IN is a condition like
          any other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from headrace.ivm.changeset import WEIGHT, Changes, net, net_if_comparable, weighted
from headrace.ivm.evaluate import join, joined
from headrace.ivm.matching import has_each_key_once, matched_keys
from headrace.ivm.stages import Stages, names_of
from headrace.names import quote
from headrace.optimisations import COUNTED_MATCHES
from headrace.plan.nodes import OuterJoin, SemiJoin

BEFORE, AFTER = "__hr_before", "__hr_after"
_ID = "__hr_id"

Apply = Callable[[DataFrame, DataFrame], DataFrame]
FromMatches = Callable[[DataFrame, DataFrame, Changes], list[DataFrame]]
"""The terms that come from ΔR, from three things: rows of L_old with BEFORE and AFTER (whether they have a match), at
least those for which the two differ; rows of L_old, at least those that match a row of ΔR; ΔR."""


def changes(stages: Stages, node: SemiJoin) -> Changes | None:
    left, right = stages.changes_beside(node.left, [node.right]), stages.materialized(node.right)
    terms = linear_in_left(
        stages,
        node,
        left,
        right,
        apply=lambda rows, other: join(rows, other, node),
        from_matches=lambda matches, _rows, _changes: [flips(matches, node)],
    )
    if not terms:
        return None
    columns = [*names_of(node), WEIGHT]
    rows = reduce(DataFrame.union, (term.select(*columns) for term in terms))
    if right is None:
        return Changes(rows, insert_only=left is not None and left.insert_only)
    return Changes(net_if_comparable(rows, node.output), insert_only=False)


def flips(matches: DataFrame, node: SemiJoin) -> DataFrame:
    """The rows that get their first match, or lose their last."""
    flipped = matches.where(f"{BEFORE} <> {AFTER}")
    if node.flag is None:
        enters, leaves = (BEFORE, AFTER) if node.anti else (AFTER, BEFORE)
        return flipped.withColumn(WEIGHT, F.expr(f"CAST({enters} AS INT) - CAST({leaves} AS INT)"))
    # Every row is in the result, with its flag: the old one goes, the new one comes.
    old = flipped.withColumn(node.flag.name, F.expr(BEFORE)).withColumn(WEIGHT, F.lit(-1))
    return old.union(flipped.withColumn(node.flag.name, F.expr(AFTER)).withColumn(WEIGHT, F.lit(1)))


def linear_in_left(
    stages: Stages,
    node: SemiJoin | OuterJoin,
    left: Changes | None,
    right: Changes | None,
    *,
    apply: Apply,
    from_matches: FromMatches,
) -> list[DataFrame]:
    """The changes of an operator that, with its right side fixed, treats each row of its left side by itself."""
    keys = matched_keys(node) if stages.uses(COUNTED_MATCHES) else None
    # Where the right side is as it was, its keys are worth having only if they are there already.
    if keys is not None and not (stages.is_kept(keys) or (right is not None and stages.state_table(keys) is not None)):
        keys = None
    nulls = bool(node.null_safe_equalities)
    # First of all: the new keys are the stored ones and these.
    moved = stages.materialized(keys) if keys is not None else None
    terms: list[DataFrame] = []
    if left is not None:
        other = keys if keys is not None and isinstance(node, SemiJoin) else node.right
        side = stages.matching(other, node.right_keys, left, node.left_keys, old=False, nulls=nulls)
        terms.append(apply(left.rows, side))
    if right is None:
        return terms
    candidates = stages.matching(node.left, node.left_keys, right, node.right_keys, old=True, nulls=nulls)
    if keys is not None:
        return terms + from_matches(_flipped(stages, node, moved, candidates), candidates, right)
    touched = stages.materialize(Changes(weighted(joined(candidates, right.rows, node, "left_semi"), 1), True))
    if touched is None:
        return terms
    if stages.uses(COUNTED_MATCHES) and has_each_key_once(node):
        names = [quote(key) for key in dict.fromkeys(node.right_keys)]
        comes_or_goes = Changes(net(right.rows.select(*names, WEIGHT), list(dict.fromkeys(node.right_keys))), False)
        rows = touched.rows.drop(WEIGHT)
        return terms + from_matches(_flipped(stages, node, comes_or_goes, rows), rows, right)
    old = stages.matching(node.right, node.right_keys, touched, node.left_keys, old=True, nulls=nulls)
    if touched.local is not None and stages.uses(COUNTED_MATCHES):
        matches = _matches(stages, node, touched, old, right)
        return terms + from_matches(matches, matches, right)
    new = stages.matching(node.right, node.right_keys, touched, node.left_keys, old=False, nulls=nulls)
    rows = touched.rows.drop(WEIGHT)
    return [*terms, apply(weighted(rows, 1), new), apply(weighted(rows, -1), old)]


def _flipped(stages: Stages, node: SemiJoin | OuterJoin, changed: Changes | None, candidates: DataFrame) -> DataFrame:
    """The rows of the left side whose key comes or goes on the right."""
    columns = [*names_of(node.left), f"{WEIGHT} < 0 AS {BEFORE}", f"{WEIGHT} > 0 AS {AFTER}"]
    if changed is None:
        return candidates.limit(0).withColumn(WEIGHT, F.lit(0)).selectExpr(*columns)
    some = stages.narrowed(candidates, node.left_keys, changed, node.right_keys)
    return joined(some, changed.rows, node, "inner").selectExpr(*columns)


def _matches(stages: Stages, node: SemiJoin | OuterJoin, touched: Changes, old: DataFrame, right: Changes) -> DataFrame:
    """The touched rows, each with whether it matches a row of the right side, before and after."""
    assert touched.local is not None
    # Rows that stay in the driver keep their numbers, however often Spark evaluates a part of the plan.
    numbers = pa.array(range(touched.local.num_rows), type=pa.int64())
    schema = StructType([*touched.rows.schema.fields, StructField(_ID, LongType())])
    numbered = stages.spark.createDataFrame(touched.local.append_column(_ID, numbers), schema=schema)
    rows = numbered.drop(WEIGHT).coalesce(1)
    found = joined(rows, old, node, "inner").groupBy(_ID).agg(F.count("*").alias("__hr_n"))
    moved = joined(rows, right.rows, node, "inner").groupBy(_ID).agg(F.sum(WEIGHT).alias("__hr_d"))
    counted = rows.join(found, _ID, "left").join(moved, _ID, "left")
    before = "coalesce(__hr_n, 0L)"
    after = f"{before} + coalesce(__hr_d, 0L)"
    return counted.selectExpr(*names_of(node.left), f"{before} > 0 AS {BEFORE}", f"{after} > 0 AS {AFTER}")
