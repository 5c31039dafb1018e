"""What streams ask of Spark: a statement's plan before it runs, a plan as text, and a view with another text."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import DataFrame

from headrace.errors import NotAllowed
from headrace.names import TableName
from headrace.plan.jvm import Jvm, items, kind, optional


def provider_of(analysed: Any) -> str:
    """The format of the table that a CREATE TABLE … AS makes."""
    if "Create" not in kind(analysed) and "Replace" not in kind(analysed):
        return "delta"
    # Spark has five nodes for it, by format and catalog; the table's description is a field of each.
    for place in range(analysed.productArity()):
        field = str(analysed.productElementName(place))
        if field in ("tableSpec", "tableDesc") or (field == "table" and "DataSource" in kind(analysed)):
            return str(optional(analysed.productElement(place).provider()) or "delta").lower()
    return "delta"


def plan_of(rows: DataFrame) -> str:
    """A DataFrame's resolved plan as text."""
    return _whole(str(rows._jdf.queryExecution().analyzed().toString()))


def analysed_plan(jvm: Jvm, text: str) -> Any:
    """A statement's resolved plan; it is not run."""
    skip = jvm.object("org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
    return jvm.state.executePlan(jvm.parse(text), skip).analyzed()


def plan_text(analysed: Any) -> str:
    """As text, with the query of a MERGE, which is no child of its node, and the subqueries of an UPDATE, which are
    not printed with it."""
    parts = [analysed, *items(analysed.subqueriesAll())]
    if "Merge" in kind(analysed):
        parts += [analysed.source(), *items(analysed.source().subqueriesAll())]
    return "\n".join(_whole(str(part.toString())) for part in parts)


def _whole(text: str) -> str:
    """The text of a plan, which Spark cuts off where a setting says so: then nobody could tell what it reads."""
    if re.search(r"(\.\.\. \d+ more characters|Truncated plan of \d+ characters)\s*$", text):
        raise NotAllowed(
            "Spark has cut off the text of this statement's plan: it cannot be told which table streams it reads.",
            hint="RESET spark.sql.maxPlanStringLength, then run it again.",
        )
    return text


class ViewRecord:
    """A view's entry in Spark's catalog, kept so that another text for the same columns costs one write and no read.
    CREATE OR REPLACE VIEW would read the query once more."""

    def __init__(self, jvm: Jvm, name: TableName, home: str) -> None:
        self._view = jvm.state.catalog().externalCatalog().getTable(name.database(home), name.table)
        names = [str(self._view.productElementName(place)) for place in range(self._view.productArity())]
        self._fields = {field: self._view.productElement(place) for place, field in enumerate(names)}

    def set_text(self, jvm: Jvm, text: str) -> None:
        changed = {**self._fields, "viewText": jvm.root.scala.Some(text)}
        jvm.state.catalog().externalCatalog().alterTable(self._view.copy(*changed.values()))
