"""What the SQL functions name that a query calls, and those that these call in turn.

Told from their texts, as the catalog has them: nothing is analysed. A view in such a text is named as itself, for it
shows what its maker could read. Names of one part are found in the caller's schema: that is how Spark does it.
"""

from __future__ import annotations

from typing import Any

from headrace.plan.jvm import Jvm, items
from headrace.statements.relations import Named, Parts, kind, named_in, nodes_in, parts_of, returned_by

_SQL_FUNCTION = "org.apache.spark.sql.catalyst.catalog.SQLFunction"


def named_by_functions(jvm: Jvm, plan: Any) -> Named:
    """The names in the texts of all SQL functions of the catalog that a parsed query leads to."""
    found = Named()
    seen: set[Parts] = set()
    waiting = [plan]
    while waiting:
        for function in _called_in(jvm, waiting.pop()) - seen:
            seen.add(function)
            for text in _texts(jvm, function):
                body = jvm.parse(f"SELECT {text}")
                named = named_in(jvm, body)
                found.reads |= named.reads
                found.unknown |= named.unknown
                waiting.append(body)
    return found


def _called_in(jvm: Jvm, plan: Any) -> set[Parts]:
    """The functions that a parsed query calls, in lower case, those of Spark included."""
    found: set[Parts] = set()
    call = jvm.pattern("UNRESOLVED_FUNCTION")
    for node in nodes_in(jvm, plan):
        if kind(node) == "UnresolvedTableValuedFunction":
            found.add(_folded(node.name()))
        waiting = items(node.expressions())
        while waiting:
            expression = waiting.pop()
            if expression.containsPattern(call):
                found |= {_folded(expression.nameParts())} if kind(expression) == "UnresolvedFunction" else set()
                waiting += items(expression.children())
    return found


def _folded(names: Any) -> Parts:
    parts = tuple(part.lower() for part in parts_of(names))
    return parts[1:] if len(parts) == 3 and parts[0] == "spark_catalog" else parts


def _texts(jvm: Jvm, function: Parts) -> list[str]:
    """What a function of the catalog returns, as an expression; nothing for any other, such as one of Spark's own."""
    catalog = jvm.state.catalog()
    if len(function) > 2 or (len(function) == 1 and _is_built_in(jvm, function[0])):
        return []
    database = function[0] if len(function) == 2 else str(catalog.getCurrentDatabase())
    known = catalog.externalCatalog()
    if not (catalog.databaseExists(database) and known.functionExists(database, function[-1])):
        return []
    stored, sql_functions = known.getFunction(database, function[-1]), jvm.object(_SQL_FUNCTION)
    if not sql_functions.isSQLFunction(stored.className()):
        return []
    return returned_by(sql_functions.fromCatalogFunction(stored, jvm.state.sqlParser()))


def _is_built_in(jvm: Jvm, name: str) -> bool:
    registries = (jvm.state.functionRegistry(), jvm.state.tableFunctionRegistry())
    return any(registry.functionExists(jvm.function_identifier(name)) for registry in registries)
