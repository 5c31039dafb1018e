"""Bind a query's text to its sources: find every place where a table is named, and what that name means.

Spark's parser tells where the names are; a name of a CTE in scope is not a table. Views are followed down to tables.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import NonDeterministic, NotAllowed, NotFound, Position, SyntaxFault, UserError
from headrace.names import quote
from headrace.plan.definitions import view_definition
from headrace.plan.jvm import Jvm, items, kind, optional, position_at, span, spark_errors
from headrace.plan.query import BoundText, Definition, Slot, Source, ViewSlot
from headrace.sql.table_names import dotted_names, table_aliases
from headrace.sql.tokens import scan

# Names that stand for "files of this format at this path" when they are not a schema: parquet.`/x`.
_FILE_FORMATS = {"parquet", "delta", "csv", "json", "orc", "text", "avro", "binaryfile", "xml"}

# Settings that change what a query means; a view remembers those it was created under.
_MEANING = re.compile(r"spark\.sql\.(ansi\.|session\.timeZone|caseSensitive|legacy\.|decimalOperations\.|mapKeyDedup)")

# The name that Spark's own catalog has as the first of three parts.
_SPARK_CATALOG = "spark_catalog"


@dataclass(frozen=True)
class Located:
    """What a name in Spark's catalog stands for, when it is a Delta table or a dynamic table."""

    source: Source


Locate = Callable[[str, str], "Located | None"]
"""(Spark database, table) to what it is; None when it is neither a Delta table nor a dynamic table."""

DatabaseOf = Callable[[str, str], "str | None"]
"""(workspace, schema) to the Spark database that holds it."""


@dataclass(frozen=True)
class Reference:
    """One place in a text where a table or view is named."""

    start: int
    stop: int
    parts: tuple[str, ...]
    aliased: bool


@dataclass
class Binding:
    """A bound text and what was met on the way."""

    bound: BoundText
    resolved_text: str
    plan_text: str
    """The text for Spark to analyse: as written, but with names of other workspaces in Spark's form."""
    edits: tuple[tuple[int, int, int], ...]
    """(start in the plan text, length there, length as written) of each place where the two differ."""
    sources: list[Source] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    """`db`.`table` to the index of its source."""
    mentions: Counter[str] = field(default_factory=Counter)
    views: tuple[Definition, ...] = ()
    """The views that are written out in `bound`."""

    def place(self, text: str, position: Position) -> Position:
        """A position in the plan text, as a position in what the user wrote."""
        lines = self.plan_text.split("\n")
        index = sum(len(line) + 1 for line in lines[: position.line - 1]) + position.column - 1
        return position_at(text, self.written(index))

    def written(self, index: int) -> int:
        """An offset in the plan text, as an offset in what the user wrote."""
        shift = 0
        for start, length, length_written in self.edits:
            if start + length <= index:
                shift += length_written - length
        return index + shift


def bind(jvm: Jvm, text: str, locate: Locate, database_of: DatabaseOf | None) -> Binding:
    """Bind the text of one query."""
    text = _query_text(jvm, text)
    binder = _Binder(jvm, locate, database_of)
    namespace = str(jvm.state.catalog().getCurrentDatabase())
    references = binder.references(text)
    pieces: list[str | Slot | ViewSlot] = []
    resolved: list[str] = []
    plan_text = ""
    edits: list[tuple[int, int, int]] = []
    at = 0
    places: list[tuple[int, int, Reference | str]] = [(each.start, each.stop, each) for each in references]
    places += binder.column_prefixes(text, references, namespace)
    for start, stop, named in sorted(places, key=lambda place: place[0]):
        between, written = text[at:start], text[start:stop]
        plan_text += between
        if isinstance(named, Reference):
            slot, full_name = binder.slot(named, text, namespace, in_view=None)
            pieces += [_as_from(between), slot]
            name = binder.plan_name(named, written)
        else:
            pieces += [between, named]
            full_name, name = written, named
        resolved += [between, full_name]
        if name != written:
            edits.append((len(plan_text), len(name), len(written)))
        plan_text += name
        at = stop
    return Binding(
        bound=BoundText(pieces=_joined([*pieces, text[at:]])),
        resolved_text="".join(resolved) + text[at:],
        plan_text=plan_text + text[at:],
        edits=tuple(edits),
        sources=binder.sources,
        names=binder.names,
        mentions=binder.mentions,
        views=tuple(binder.views.values()),
    )


def _query_text(jvm: Jvm, text: str) -> str:
    """The text without a closing semicolon, once it is certain that it is one query and nothing else."""
    if "${" in text and jvm.root.org.apache.spark.sql.internal.VariableSubstitution().substitute(text) != text:
        raise NotAllowed(
            "The query contains a ${…} variable, which Spark would replace by a setting of this session.",
            hint="Write the value itself.",
            position=position_at(text, text.index("${")),
        )
    with spark_errors():
        jvm.parse(text)
    # Only a query can stand in a WITH clause: SHOW, INSERT, WITH … INSERT and the like cannot. (Parentheses after FROM
    # would not do: `FROM (SHOW TABLES)` reads the table SHOW under the name TABLES.)
    candidates = [text]
    if ";" in text:
        candidates.append(text[: text.rindex(";")])
    for candidate in candidates:
        try:
            with spark_errors():
                jvm.parse(f"WITH __q AS ({candidate}\n) SELECT * FROM __q")
        except SyntaxFault:
            continue
        return candidate.rstrip() if candidate is not text else text
    raise SyntaxFault(
        "This is a statement, not a query.",
        hint="A dynamic table is defined by a query: SELECT, WITH … SELECT, VALUES or TABLE.",
        position=position_at(text, len(text) - len(text.lstrip())),
    )


def _joined(pieces: list[str | Slot | ViewSlot]) -> tuple[str | Slot | ViewSlot, ...]:
    """Texts that follow one another as one."""
    found: list[str | Slot | ViewSlot] = []
    for piece in pieces:
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        elif piece != "":
            found.append(piece)
    return tuple(found)


def _as_from(piece: str) -> str:
    """`TABLE t` is short for `SELECT * FROM t`; only the long form takes a version or a subquery."""
    return re.sub(r"(?i)\btable(\s+)$", r"SELECT * FROM\1", piece)


class _Binder:
    def __init__(self, jvm: Jvm, locate: Locate, database_of: DatabaseOf | None) -> None:
        self.jvm = jvm
        self.locate = locate
        self.database_of = database_of
        self.catalog: Any = jvm.state.catalog()
        self.sources: list[Source] = []
        self.names: dict[str, int] = {}
        self.mentions: Counter[str] = Counter()
        self.views: dict[str, Definition] = {}
        self.open_views: list[str] = []

    # -- where the names are -------------------------------------------------------------------------------------

    def references(self, text: str) -> list[Reference]:
        """Every place where the text names a table or view, from left to right."""
        found: list[Reference] = []
        with spark_errors():
            self._collect(self.jvm.parse(text), text, frozenset(), False, found)
        return sorted(found, key=lambda reference: reference.start)

    def _collect(self, plan: Any, text: str, ctes: frozenset[str], aliased: bool, found: list[Reference]) -> None:
        name = kind(plan)
        if name == "UnresolvedRelation":
            self._collect_relation(plan, text, ctes, aliased, found)
            return
        _refuse(plan, name, text)
        if name == "UnresolvedWith":
            # A CTE sees those before it, and itself only when it is recursive. The main query sees them all.
            recursive = plan.allowRecursion()
            for entry in items(plan.cteRelations()):
                own = str(entry._1()).lower()
                self._collect(entry._2(), text, ctes | {own} if recursive else ctes, False, found)
                ctes = ctes | {own}
        for subplan in items(plan.subqueries()):
            self._collect(subplan, text, ctes, False, found)
        for child in items(plan.children()):
            # `t AS u(a, b)` is an alias over column aliases over the table.
            below = name == "SubqueryAlias" or (name == "UnresolvedSubqueryColumnAliases" and aliased)
            self._collect(child, text, ctes, below, found)

    def _collect_relation(
        self, plan: Any, text: str, ctes: frozenset[str], aliased: bool, found: list[Reference]
    ) -> None:
        parts = tuple(str(part) for part in items(plan.multipartIdentifier()))
        place = span(plan)
        if len(parts) == 1 and parts[0].lower() in ctes:
            return
        if place is None:
            raise NotAllowed(
                f"The place of '{'.'.join(parts)}' in the text is not known.", hint="Write its name plainly."
            )
        position = position_at(text, place[0])
        if plan.isStreaming():
            raise NotAllowed(
                "STREAM reads a table as a stream; a dynamic table reads tables.",
                hint="Leave STREAM out: Headrace itself reads only what changed.",
                position=position,
            )
        if not plan.options().isEmpty():
            raise NotAllowed("Options on a table are not allowed here.", hint="Leave out WITH (…).", position=position)
        found.append(Reference(place[0], place[1] + 1, parts, aliased))

    # -- what the names mean -------------------------------------------------------------------------------------

    def slot(self, reference: Reference, text: str, namespace: str, in_view: str | None) -> tuple[Slot | ViewSlot, str]:
        """The slot for one reference, and its full name for people."""
        where = position_at(text, reference.start) if in_view is None else None
        named = ".".join(reference.parts)
        about = f"'{named}'" if in_view is None else f"'{named}', which the view {in_view} reads,"
        if in_view is None:
            self._refuse_temporary(reference.parts, where)
        database = self._database(reference.parts, namespace)
        if database is None:
            raise NotFound(
                f"There is no table {about[:-1] if about.endswith(',') else about}.",
                hint="SHOW TABLES lists what there is.",
                position=where,
            )
        table = reference.parts[-1].lower()
        alias = None if reference.aliased else reference.parts[-1]
        spark_name = f"{quote(database)}.{quote(table)}"
        located = self.locate(database, table)
        if located is not None:
            self.mentions[spark_name] += 1
            index = self._index(located.source, spark_name)
            source = located.source
            full_name = _plain([source.workspace, source.schema_name, source.table])
            return Slot(source=index, spark_name=spark_name, alias=alias), full_name
        metadata = self._metadata(database, table, about, reference.parts, where)
        if metadata.tableType().name() != "VIEW":
            provider = optional(metadata.provider()) or "Hive"
            raise NotAllowed(
                f"{about} is a {provider} table; a dynamic table reads Delta tables.",
                hint=f"Make a Delta table of it: CREATE TABLE … USING delta AS SELECT * FROM {named}.",
                position=where,
            )
        return self._view_slot(metadata, f"{database}.{table}", alias, where), _plain([database, table])

    def plan_name(self, reference: Reference, written: str) -> str:
        """The name as Spark can resolve it: other workspaces are schemas of Spark's one catalog."""
        if len(reference.parts) < 3 or reference.parts[0].lower() == _SPARK_CATALOG:
            return written
        database = self._database(reference.parts, "")
        return f"{quote(str(database))}.{quote(reference.parts[-1])}"

    def column_prefixes(
        self, text: str, references: list[Reference], namespace: str
    ) -> list[tuple[int, int, Reference | str]]:
        """Where the name of a workspace stands before a column's table, `workspace.schema.table.column`: from where to
        where, and what Spark can resolve."""
        tables = {f"{self._database(each.parts, namespace)}.{each.parts[-1]}".lower() for each in references}
        starts = {each.start for each in references}
        tokens = scan(text)
        aliases = table_aliases(tokens)
        found: list[tuple[int, int, Reference | str]] = []
        for name in dotted_names(tokens):
            after = [token.text for token in tokens[name.last + 1 : name.last + 3]]
            is_column = len(name.parts) > 3 or (len(name.parts) == 3 and after == [".", "*"])
            workspace = name.parts[0].lower()
            start, stop = tokens[name.first].start, tokens[min(name.first + 4, name.last)].end
            if not is_column or start in starts or workspace == _SPARK_CATALOG or workspace in aliases:
                continue
            database, table = self._database(name.parts[:3], namespace), name.parts[2]
            if f"{database}.{table}".lower() in tables:
                found.append((start, stop, f"{quote(str(database))}.{quote(table)}"))
        return found

    def _database(self, parts: tuple[str, ...], namespace: str) -> str | None:
        if len(parts) == 1:
            return namespace
        if len(parts) == 2:
            return parts[0].lower()
        if len(parts) > 3:
            return None
        if parts[0].lower() == _SPARK_CATALOG:
            return parts[1].lower()
        return self.database_of(parts[0], parts[1]) if self.database_of is not None else None

    def _index(self, source: Source, spark_name: str) -> int:
        if source not in self.sources:
            self.sources.append(source)
        index = self.sources.index(source)
        self.names[spark_name] = index
        return index

    def _refuse_temporary(self, parts: tuple[str, ...], where: Position | None) -> None:
        if self.catalog.isTempView(self.jvm.seq(parts)):
            raise NotAllowed(
                f"'{'.'.join(parts)}' is a temporary view; it is gone when its session ends.",
                hint="CREATE VIEW (without TEMPORARY), or put its query into a WITH clause.",
                position=where,
            )

    def _metadata(self, database: str, table: str, about: str, parts: tuple[str, ...], where: Position | None) -> Any:
        if not self.catalog.databaseExists(database):
            if len(parts) == 2 and parts[0].lower() in _FILE_FORMATS:
                raise NotAllowed(
                    f"{about} names files; a dynamic table reads tables that are in the catalog.",
                    hint="CREATE TABLE … USING delta LOCATION '…', then read that table.",
                    position=where,
                )
            raise NotFound(f"There is no schema '{database}'.", hint="SHOW SCHEMAS lists them.", position=where)
        identifier = self.jvm.catalyst.TableIdentifier(table, self.jvm.root.scala.Some(database))
        if not self.catalog.tableExists(identifier):
            known = [str(entry.table()) for entry in items(self.catalog.listTables(database))]
            close = difflib.get_close_matches(table, known, n=3)
            hint = f"Did you mean {' or '.join(close)}?" if close else "SHOW TABLES lists what there is."
            raise NotFound(f"There is no table or view {about.rstrip(',')}.", hint=hint, position=where)
        metadata = self.catalog.getTableMetadata(identifier)
        if optional(metadata.provider()) == "delta":
            raise NotFound(
                f"The Delta table {about.rstrip(',')} is not known to this lake.",
                hint="Create it here: CREATE TABLE … USING delta LOCATION '…'.",
                position=where,
            )
        return metadata

    def _view_slot(self, metadata: Any, view: str, alias: str | None, where: Position | None) -> ViewSlot:
        if view in self.open_views:
            raise NotAllowed(f"The view {view} reads itself.", hint="Replace it by one that does not.", position=where)
        self._refuse_other_settings(metadata, view, where)
        self.views[view] = view_definition(view, metadata)
        text = str(optional(metadata.viewText()) or "")
        namespace = items(metadata.viewCatalogAndNamespace())
        self.open_views.append(view)
        try:
            pieces: list[str | Slot | ViewSlot] = []
            at = 0
            for reference in self.references(text):
                slot, _ = self.slot(reference, text, str(namespace[-1]) if namespace else "default", in_view=view)
                pieces += [_as_from(text[at : reference.start]), slot]
                at = reference.stop
            pieces.append(text[at:])
        except UserError as error:
            error.position = where
            raise
        finally:
            self.open_views.pop()
        columns = tuple(str(name) for name in metadata.schema().fieldNames())
        queried = tuple(str(name) for name in items(metadata.viewQueryColumnNames()))
        if len({name.lower() for name in queried}) == len(queried) > 0:
            # Select by name: `SELECT *` in a view does not take in columns that its table got later.
            pieces = [f"SELECT {', '.join(map(quote, queried))} FROM (", *pieces, "\n)"]
        query = BoundText(pieces=tuple(piece for piece in pieces if piece != ""))
        return ViewSlot(query=query, columns=columns, alias=alias)

    def _refuse_other_settings(self, metadata: Any, view: str, where: Position | None) -> None:
        """A view is evaluated under the settings of its creation; written out as text it would be under ours."""
        settings = self.jvm.root.scala.jdk.javaapi.CollectionConverters.asJava(metadata.viewSQLConfigs())
        for key, value in dict(settings).items():
            if _MEANING.match(key) and optional(self.jvm.session.conf().getOption(key)) != value:
                raise NotAllowed(
                    f"The view {view} was created with {key} = {value}, which is different now.",
                    hint="Create the view again (CREATE OR REPLACE VIEW).",
                    position=where,
                )


def _refuse(plan: Any, name: str, text: str) -> None:
    """Refuse what a dynamic table's query must not contain, where the parsed query shows it best."""
    place = span(plan)
    position = position_at(text, place[0]) if place else None
    if name in ("RelationTimeTravel", "RelationChanges"):
        raise NotAllowed(
            "A dynamic table follows its sources; it cannot read one at a fixed version or time.",
            hint="Leave out VERSION AS OF / TIMESTAMP AS OF.",
            position=position,
        )
    # TABLESAMPLE (10 ROWS) is a limit for Spark's parser.
    is_sampled = name == "GlobalLimit" and place is not None and text[place[0] :][:11].upper() == "TABLESAMPLE"
    if is_sampled or name in ("Sample", "UnresolvedSample"):
        raise NonDeterministic(
            "TABLESAMPLE takes different rows each time.",
            hint="Filter on a hash of a key instead, such as WHERE pmod(hash(id), 10) = 0.",
            position=position,
        )
    if name == "PlanWithUnresolvedIdentifier":
        raise NotAllowed("IDENTIFIER(…) is not a fixed name.", hint="Write the table's name.", position=position)


def _plain(parts: list[str]) -> str:
    return ".".join(part if re.fullmatch(r"[A-Za-z_]\w*", part) else quote(part) for part in parts)
