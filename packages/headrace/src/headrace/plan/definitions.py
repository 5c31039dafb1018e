"""Views and SQL functions that a query is written with: what they said when it was read, and whether they still do."""

from __future__ import annotations

import hashlib
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.plan.jvm import Jvm, items, optional
from headrace.plan.query import Definition


def view_definition(name: str, metadata: Any) -> Definition:
    """`metadata` is what Spark's catalog knows about the view."""
    said = [str(optional(metadata.viewText())), str(metadata.viewCatalogAndNamespace())]
    said += [str(column) for column in items(metadata.viewQueryColumnNames())]
    said += [str(column) for column in metadata.schema().fieldNames()]
    return Definition(kind="view", name=name, digest=_digest(said))


def function_definition(jvm: Jvm, name: str) -> Definition | None:
    """A function of the catalog, by `database.name`; None for any other, such as one of this session only."""
    database, _, function = name.rpartition(".")
    if not database:
        return None
    found = jvm.state.catalog().externalCatalog().getFunction(database, function)
    said = [f"{part.resourceType()} {part.uri()}" for part in items(found.resources())]
    return Definition(kind="function", name=name, digest=_digest(said))


def redefined(spark: SparkSession, definitions: tuple[Definition, ...]) -> str | None:
    """Which of these says something else now, as a sentence; None when none does."""
    if not definitions:
        return None
    jvm = Jvm(spark)
    for before in definitions:
        try:
            now = _now(jvm, before)
        except (PySparkException, Py4JJavaError):
            now = None
        if now != before:
            return f"The {before.kind} {before.name} was {'dropped' if now is None else 'replaced'}."
    return None


def _now(jvm: Jvm, before: Definition) -> Definition | None:
    if before.kind == "function":
        return function_definition(jvm, before.name)
    database, _, view = before.name.rpartition(".")
    identifier = jvm.catalyst.TableIdentifier(view, jvm.root.scala.Some(database))
    return view_definition(before.name, jvm.state.catalog().getTableMetadata(identifier))


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
