"""What streams ask of Spark: a statement's plan before it runs, a plan as text, and a view with another text."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from headrace.names import TableName
from headrace.plan.jvm import Jvm, kind, optional


def provider_of(analysed: Any) -> str:
    """The format of the table that a CREATE TABLE … AS makes."""
    if kind(analysed) not in ("CreateTableAsSelect", "ReplaceTableAsSelect"):
        return "delta"
    return str(optional(analysed.tableSpec().provider()) or "delta").lower()


def plan_of(rows: DataFrame) -> str:
    """A DataFrame's resolved plan as text."""
    return str(rows._jdf.queryExecution().analyzed().toString())


def analysed_plan(jvm: Jvm, text: str) -> Any:
    """A statement's resolved plan; it is not run."""
    skip = jvm.object("org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
    return jvm.state.executePlan(jvm.parse(text), skip).analyzed()


def plan_text(analysed: Any) -> str:
    """As text, with the query of a MERGE, which is no child of its node."""
    text = str(analysed.toString())
    return text + str(analysed.source().toString()) if "Merge" in kind(analysed) else text


def set_view_text(jvm: Jvm, name: TableName, home: str, text: str) -> None:
    """Another text for a view with the same columns. CREATE OR REPLACE VIEW would read the query once more."""
    catalog = jvm.state.catalog().externalCatalog()
    view = catalog.getTable(name.database(home), name.table)
    fields = {str(view.productElementName(place)): view.productElement(place) for place in range(view.productArity())}
    fields["viewText"] = jvm.root.scala.Some(text)
    catalog.alterTable(view.copy(*fields.values()))
