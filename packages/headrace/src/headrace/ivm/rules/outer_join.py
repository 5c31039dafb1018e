"""Outer join.

    A  =  the rows of L_old that match a row of ΔR
    Δ(L ⟕ R)  =  ΔL ⟕ R_new  +  A ⋈ ΔR  −  (a, NULL) for the rows of A that get their first match
                                        +  (a, NULL) for those that lose their last
    many rows:   ΔL ⟕ R_new  +  (A ⟕ R_new)  −  (A ⟕ R_old)
    full:     +  Δ(R ▷ L), with NULL for the columns of L

State:    over big sources, the keys of R with their numbers of rows, as for semi joins; otherwise none.
Cost:     one join for a changed left side; for a changed right side, one with its changes and one with the keys that
          come and go. Without a state table, one to find A and one that starts from it (two when A is large). A full
          join does the same once more, from the other side.
Requires: a deterministic condition.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from headrace.ivm.changeset import WEIGHT, Changes, net_if_comparable
from headrace.ivm.evaluate import join, joined
from headrace.ivm.matching import unmatched_right
from headrace.ivm.rules.semi_join import AFTER, BEFORE, flips, linear_in_left
from headrace.ivm.stages import Stages, names_of
from headrace.names import quote
from headrace.plan.nodes import OuterJoin


def changes(stages: Stages, node: OuterJoin) -> Changes | None:
    right = stages.materialized(node.right)
    # The other side of a full join works on the changes of both.
    left = stages.materialized(node.left) if node.full else stages.changes_beside(node.left, [node.right])
    terms = linear_in_left(
        stages,
        node,
        left,
        right,
        apply=lambda rows, other: joined(rows, other, node, "left"),
        from_matches=lambda matches, rows, changes: _from_matches(matches, rows, changes, node),
    )
    columns = [*names_of(node), WEIGHT]
    found = [term.select(*columns) for term in terms]
    if node.full:
        unmatched = unmatched_right(node)
        others = linear_in_left(
            stages,
            unmatched,
            right,
            left,
            apply=lambda rows, other: join(rows, other, unmatched),
            from_matches=lambda matches, _rows, _changes: [flips(matches, unmatched)],
        )
        nulls = [f"CAST(NULL AS {column.type}) AS {quote(column.name)}" for column in node.left.output]
        found += [term.selectExpr(*nulls, *names_of(node.right), WEIGHT) for term in others]
    if not found:
        return None
    rows = reduce(DataFrame.union, found)
    if right is None and not node.full:
        return Changes(rows, insert_only=left is not None and left.insert_only)
    return Changes(net_if_comparable(rows, node.output), insert_only=False)


def _from_matches(matches: DataFrame, rows: DataFrame, changes: Changes, node: OuterJoin) -> list[DataFrame]:
    alone = matches.where(f"{BEFORE} <> {AFTER}")
    nulls = [f"CAST(NULL AS {column.type}) AS {quote(column.name)}" for column in node.right.output]
    weight = f"CAST({BEFORE} AS INT) - CAST({AFTER} AS INT) AS {WEIGHT}"
    return [
        joined(rows, changes.rows, node, "inner"),
        alone.selectExpr(*names_of(node.left), *nulls, weight),
    ]
