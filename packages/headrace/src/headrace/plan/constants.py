"""Rows that are written out in the query: VALUES, range(), SELECT without FROM."""

from __future__ import annotations

from typing import Any

from headrace.plan.jvm import Jvm, items, kind
from headrace.plan.nodes import Column, Values
from headrace.plan.spelling import Speller


def read_values(jvm: Jvm, speller: Speller, plan: Any) -> Values:
    """A leaf without a table."""
    output = tuple(speller.column(attribute) for attribute in items(plan.output()))
    if kind(plan) == "OneRowRelation":
        return Values(query="SELECT 1", output=(Column(name="__hr_one", type="INT"),))
    if kind(plan) == "Range":
        return Values(query=f"SELECT id FROM range({plan.start()}, {plan.end()}, {plan.step()})", output=output)
    if kind(plan) == "LocalRelation":
        types = [attribute.dataType() for attribute in items(plan.output())]
        rows = [jvm.literals(row.toSeq(jvm.seq(types)), types) for row in items(plan.data())]
    else:
        rows = [[speller.text(each) for each in items(row)] for row in items(plan.rows())]
    names = ", ".join(f"c{place}" for place in range(len(output)))
    casts = ", ".join(f"CAST(c{place} AS {column.type})" for place, column in enumerate(output))
    if not rows:
        return Values(query=f"SELECT {', '.join(f'CAST(NULL AS {c.type})' for c in output)} WHERE false", output=output)
    listed = ", ".join(f"({', '.join(row)})" for row in rows)
    return Values(query=f"SELECT {casts} FROM VALUES {listed} AS t({names})", output=output)
