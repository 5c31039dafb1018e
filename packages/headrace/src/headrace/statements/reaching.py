"""What a statement reaches beyond the lake, told from Spark's own parsed plan, whatever words it was written with.

`guarding` asks this for administrators, after it has looked at the words. Others are judged by `permitting`, which
refuses every name and node that it does not know; here, what is not known to reach out is let through.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.plan.jvm import Jvm, items, optional, span
from headrace.statements.relations import Parts, kind, nodes_in, parts_of, returned_by
from headrace.statements.storing import FOLDER
from headrace.storage.paths import local_path

FORMATS = frozenset(
    ("delta", "parquet", "csv", "json", "orc", "text", "avro", "binaryfile", "xml", "libsvm", "image", "jdbc", "hive")
)
"""Names that stand for "files of this format" where a schema can stand."""
FILE_FUNCTIONS = frozenset(("table_changes_by_path", "read_files", "read_file", "cloud_files", "list_files"))

_TABLES = ("UnresolvedRelation", "UnresolvedTable", "UnresolvedTableOrView", "UnresolvedView")
_NEW_TABLES = ("CreateTable", "CreateTableAsSelect", "ReplaceTable", "ReplaceTableAsSelect")
_FUNCTIONS = ("CreateUserDefinedFunction", "CreateSQLFunctionCommand")
_NEVER = {
    "CreateFunction": "CREATE FUNCTION … AS a class runs Java code in the process that holds the lake",
    "CreateFunctionCommand": "CREATE FUNCTION … AS a class runs Java code in the process that holds the lake",
    "CreateTempViewUsing": "A view USING a format reads files by their path",
    "InsertIntoDir": "INSERT OVERWRITE DIRECTORY writes files by their path",
    "LoadData": "LOAD reads files by their path",
    "PlanWithUnresolvedIdentifier": "IDENTIFIER with a name that is computed cannot be checked",
    "ScriptTransformation": "USING with a text runs a program of the machine",
}


@dataclass(frozen=True)
class Reach:
    """What reaches beyond the lake, in words, and where it begins in the text, if Spark knows that."""

    what: str
    start: int | None


def reached(jvm: Jvm, plan: Any, warehouse: Path) -> Reach | None:
    """The first thing in a parsed statement that reaches beyond the lake."""
    for node in nodes_in(jvm, plan):
        what = next(_reached_by(jvm, node, warehouse), None)
        if what is not None:
            place = span(node)
            return Reach(what, None if place is None else place[0])
    return None


def _reached_by(jvm: Jvm, node: Any, warehouse: Path) -> Iterator[str]:
    name = kind(node)
    if name in _NEVER:
        yield _NEVER[name]
    elif name in _TABLES:
        yield from _files(parts_of(node.multipartIdentifier()))
        if name == "UnresolvedRelation" and any(
            str(key).lower() in ("path", "paths") for key in node.options().keySet()
        ):
            yield "WITH (path = …) names files by their path"
    elif name == "UnresolvedIdentifier":
        yield from _files(parts_of(node.nameParts()))
    elif "PathBased" in name:
        yield "A path in the place of a table names files"
    elif name == "UnresolvedTableValuedFunction" and parts_of(node.name())[-1].lower() in FILE_FUNCTIONS:
        yield f"{parts_of(node.name())[-1]}() reads files by their path"
    elif name in _FUNCTIONS:
        for text in returned_by(node):
            inside = reached(jvm, jvm.parse(f"SELECT {text}"), warehouse)
            if inside is not None:
                yield inside.what
    yield from _places(node, name, warehouse)


def names_files(parts: Parts) -> bool:
    """Whether a table's name stands for files. Tables and schemas of the lake have plain names, and no schema is called
    like a format; what is not plain is a path, or the class of a format. The first of three parts is a workspace.

    >>> names_files(("delta", "/x")), names_files(("main", "text", "passwd")), names_files(("org.x.Format", "f"))
    (True, True, True)
    >>> names_files(("sales", "orders")), names_files(("a temporary view",))
    (False, False)
    """
    schema_and_table = parts[-2:]
    is_plain = all(re.fullmatch(r"\w+", part) for part in schema_and_table)
    return len(parts) > 1 and (not is_plain or schema_and_table[0].lower() in FORMATS)


def _files(parts: Parts) -> Iterator[str]:
    if names_files(parts):
        yield f"{'.'.join(parts[:-1])}.`{parts[-1]}` names files by their path"


def _places(node: Any, name: str, warehouse: Path) -> Iterator[str]:
    """Where a command says that files are, or are to be, and of which format."""
    places: list[Any] = []
    provider = None
    if name in _NEW_TABLES:
        spec = node.tableSpec()
        places, provider = [optional(spec.location())], optional(spec.provider())
        if items(spec.optionExpression().options()):
            yield "OPTIONS can name files by their path"
        if optional(spec.serde()) is not None:
            yield "STORED and ROW FORMAT make a table that is no Delta table"
    elif name == "CreateTableLike":
        places, provider = [optional(node.location())], optional(node.provider())
    elif name == "CloneTableStatement":
        places = [optional(node.targetLocation())]
    elif name == "SetTableLocation":
        places = [node.location()]
    elif name == "AddPartitions":
        places = [optional(part.location()) for part in items(node.parts())]
    if provider is not None and str(provider).lower() != "delta":
        yield f"USING {provider} makes a table that is no Delta table"
    if any(place is not None and not is_inside(str(place), warehouse) for place in places):
        yield "LOCATION names files by their path"


def is_inside(place: str, warehouse: Path) -> bool:
    """Whether a place is in the warehouse, and not where the dynamic tables are."""
    if re.match(r"(?!file:)\w+:", place):
        return False
    path, root = Path(os.path.realpath(local_path(place))), Path(os.path.realpath(warehouse))
    return root in path.parents and root / FOLDER not in (path, *path.parents)
