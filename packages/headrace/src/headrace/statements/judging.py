"""One user's rights, asked about names and about Spark's plans.

Names are judged as a statement writes them, before anything is looked up; then what Spark's analysis finds behind them.
What is not understood is refused. Which statement needs which right is for `permitting`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.catalog.records import Privilege, User
from headrace.errors import Forbidden, NotFound
from headrace.names import TableName, quote
from headrace.plan.jvm import Jvm
from headrace.security.rights import Rights
from headrace.security.roles import LOCAL_USER, require_role
from headrace.sql import rewrite
from headrace.sql import statements as sql
from headrace.sql.tokens import scan
from headrace.statements.context import Context
from headrace.statements.reading import read
from headrace.statements.relations import PATH, Named, Parts, Read, behind_views, named_in, read_by, subject

_PLAIN_NAME = re.compile(r"\w+", re.ASCII)


def parsed_text(context: Context, statement: sql.SparkStatement, may_ask: Callable[[Parts], bool]) -> str:
    """The statement as Spark's parser can take it. A dynamic table at an earlier time is named as the table itself;
    `may_ask` says what stands for STREAM_HAS_DATA, for a stream is judged before it is looked at."""
    text = statement.text
    if statement.verb in ("CREATE TABLE", "ALTER TABLE", "REPLACE TABLE"):
        text = rewrite.table_properties(text)

    def present(parts: Parts, version: int | None, moment: str | None) -> str | None:
        table = context.dynamic(parts) if 1 <= len(parts) <= 3 else None
        return None if table is None else table.table_name.spark(context.home)

    text = rewrite.time_travel(text, present)
    return spark_text(context, rewrite.stream_has_data(text, may_ask))


def spark_text(context: Context, text: str) -> str:
    """With names of three parts in Spark's form."""
    return rewrite.spark_names(
        text, context.home, frozenset(name.lower() for name in context.workspaces()),
        lambda parts: context.resolve(parts).spark(context.home),
    )  # fmt: skip


def unexplainable() -> Forbidden:
    return Forbidden(
        "EXPLAIN would show what is behind a view of tables that you may not read.",
        hint="Whoever may read those tables can explain it.",
    )


def maker_of(context: Context, creator: str, made: str, again: str) -> User | None:
    """The user in whose name something reads; None when no right is asked for: of an administrator, and of whoever made
    it with the lake's own files and never was a user. One who was dropped has no rights at all; but the
    lake's own token is always the administrator's."""
    maker = context.store.users.user(creator)
    if maker is None and creator != LOCAL_USER and context.store.users.was_dropped(creator):
        raise Forbidden(f"{creator}, {made}, is no user any more.", hint=f"An administrator can {again}.")
    return None if maker is None or maker.role == "admin" else maker


class Judge:
    """One user's rights, and a question at a time: may this one read, change or create that?"""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.user = context.user
        self.rights = Rights(context.store.users.grants(context.user.name))

    # -- names -----------------------------------------------------------------------------------------------------

    def canonical(self, name: TableName) -> TableName:
        """The one name of a table: `sales__raw.t` is `sales.raw.t` where sales is a workspace."""
        return self.context.name_of(name.database(self.context.home), name.table)

    def name(self, parts: Parts) -> TableName:
        """A name in Spark's form. What is no name is refused: a path, and what other catalogs may have."""
        plain = parts[1:] if len(parts) == 3 and parts[0].lower() == "spark_catalog" else parts
        if not 1 <= len(plain) <= 2 or not all(_PLAIN_NAME.fullmatch(part) for part in plain):
            self.refuse(PATH if len(parts) == 2 else f"the name {'.'.join(parts)}")
        database = plain[0] if len(plain) == 2 else str(self.context.spark.catalog.currentDatabase())
        return self.context.name_of(database, plain[-1])

    def is_temporary(self, parts: Parts) -> bool:
        return self.context.is_temporary_name(parts)

    def sees(self, database: str) -> bool:
        name = self.context.name_of(database, "")
        return self.rights.sees(name.workspace, name.schema)

    # -- verdicts --------------------------------------------------------------------------------------------------

    def need(self, privilege: Privilege, name: TableName) -> None:
        name = self.canonical(name)
        if self.rights.may(privilege, name):
            return
        # The same words whether it exists or not.
        verb = "read" if privilege == "SELECT" else "change"
        raise Forbidden(
            f"{self.user.name} may not {verb} {name}.",
            hint=f"An administrator can allow it: GRANT {privilege} ON TABLE {name} TO {self.user.name}, or ON SCHEMA "
            f"{name.workspace}.{name.schema} for all that is in it.",
        )

    def need_to_create(self, name: TableName) -> None:
        """A grant on a table that is not there cannot be given: only one on its schema helps."""
        if not self.rights.may("ALL", self.canonical(name)):
            self.need_schema("ALL", name.workspace, name.schema)

    def need_schema(self, privilege: Privilege, workspace: str, schema: str) -> None:
        name = self.canonical(TableName(workspace.lower(), schema.lower(), ""))
        if not self.rights.may_in(privilege, name.workspace, name.schema):
            verb = "read all of" if privilege == "SELECT" else "change"
            raise Forbidden(
                f"{self.user.name} may not {verb} the schema {name.workspace}.{name.schema}.",
                hint=f"An administrator can allow it: GRANT {privilege} ON SCHEMA {name.workspace}.{name.schema} "
                f"TO {self.user.name}.",
            )

    def need_sight(self, parts: Parts | None) -> None:
        """Of a schema that a statement names; the current one may be named by not naming it."""
        if parts is None:
            return
        workspace, schema, database = self.context.database(parts)
        if not self.sees(database) and database != self.context.settings.schema_name.lower():
            raise Forbidden(
                f"{self.user.name} was granted nothing in the schema {workspace}.{schema}.",
                hint=f"An administrator can allow it: GRANT SELECT ON SCHEMA {workspace}.{schema} TO {self.user.name}.",
            )

    def refuse(self, what: str) -> NoReturn:
        raise Forbidden(
            f"This statement uses {what}: that is for administrators.",
            hint="Name tables of the lake, or ask an administrator.",
        )

    # -- Spark's statements, and queries in ours -------------------------------------------------------------------

    def spark(self, statement: sql.SparkStatement) -> None:
        require_role(self.user, statement.verb, statement.verb if statement.verb != "(" else "A query")
        text = parsed_text(self.context, statement, self._may_ask)
        jvm = Jvm(self.context.spark)
        plan = jvm.parse(text)
        named = self.names(named_in(jvm, plan))
        if named.is_query or named.holds_query:
            self._analysed(jvm, text, subject(plan), named, explains=statement.verb == "EXPLAIN")
        else:
            self._temporary_views(named)

    def _may_ask(self, parts: Parts) -> bool:
        self.need("SELECT", self.context.resolve(parts))
        return True

    def parsed(self, text: str) -> Named:
        jvm = Jvm(self.context.spark)
        return named_in(jvm, jvm.parse(text))

    def names(self, named: Named) -> Named:
        """Judge what a parsed statement names; gives it back."""
        for verb in sorted(named.verbs):
            require_role(self.user, verb, verb.replace("PERMANENT ", ""))
        for what in sorted(named.unknown):
            self.refuse(what)
        for parts in sorted(named.reads):
            if not self.is_temporary(parts):
                self.need("SELECT", self.name(parts))
        for parts in sorted(named.writes):
            if self.is_temporary(parts):
                self.refuse(f"the temporary view {parts[0]} as the name of the table behind it")
            self.need("ALL", self.name(parts))
        for parts in sorted(named.creates):
            self.need_to_create(self.name(parts))
        for privilege, schemas in (("SELECT", named.schemas_read), ("ALL", named.schemas_written)):
            for parts in sorted(schemas):
                name = self.name((*parts, "x"))
                self.need_schema("ALL" if privilege == "ALL" else "SELECT", name.workspace, name.schema)
        for parts in sorted(named.functions_described):
            if not (len(parts) == 1 and self._is_known_function(parts[0])):
                name = self.name(parts)
                self.need_schema("SELECT", name.workspace, name.schema)
        for body in named.bodies:
            self._body(body)
        return named

    def _is_known_function(self, name: str) -> bool:
        """Built in, or made in this session."""
        jvm = Jvm(self.context.spark)
        registries = (jvm.state.functionRegistry(), jvm.state.tableFunctionRegistry())
        found = [jvm.function_identifier(name, place) for place in ("builtin", "session")]
        return any(registry.functionExists(each) for registry in registries for each in found)

    def _body(self, text: str) -> None:
        """A function's text is judged by the names in it; what it reads in the end, whenever it is called.

        A view is not looked into, so it must not come to show more when a function below it is replaced: a function
        calls none of another schema, where it might find one that reads what its maker may not.
        """
        tokens = scan(text)
        for index, token in enumerate(tokens[:-1]):
            if not token.is_name or tokens[index + 1].text != "(":
                continue
            if index and tokens[index - 1].text == ".":
                self.refuse(f"a function of a schema ({token.value}) inside another function")
            if not self._is_known_function(token.value):
                workspace, schema = self.context.current()
                self.need_schema("ALL", workspace, schema)
        if any(token.upper in ("SELECT", "FROM", "TABLE", "VALUES", "IDENTIFIER", "WITH") for token in scan(text)):
            self.names(self.parsed(f"SELECT {spark_text(self.context, text)}"))

    def expression(self, text: str) -> None:
        """A moment that a statement of ours lets Spark compute."""
        jvm = Jvm(self.context.spark)
        query = f"SELECT CAST({text} AS TIMESTAMP)"
        plan = jvm.parse(query)
        self.names(named_in(jvm, plan))
        self.reads(read_by(jvm, jvm.analyze(plan)))

    def own_query(self, text: str, statement: str, offset: int, *, explains: bool = False) -> None:
        """The query of a dynamic table, read as its handler will read it."""
        jvm = Jvm(self.context.spark)
        with self.context.own_meaning():
            try:
                plan = jvm.parse(spark_text(self.context, text))
                named = self.names(named_in(jvm, plan))
                if not named.is_query:
                    return  # The handler says that this is no query.
                analysed = jvm.analyze(plan)
                found = read_by(jvm, analysed)
            except PySparkException:
                read(self.context, text, statement, offset)  # It tells the error in its own words.
                self.refuse("a query that cannot be checked")
            self.reads(found)
            if explains:
                self.require_explainable(analysed)

    def hides(self, analysed: Any) -> bool:
        """Whether a plan reads, through views, tables that the user may not read. The rows of a dynamic table or a
        stream are its own."""
        context = self.context

        def is_own(database: str, table: str) -> bool:
            name = context.name_of(database, table)
            return context.store.table(name) is not None or context.store.streams.named(name) is not None

        found = behind_views(analysed, is_own)
        return bool(found.unknown) or any(not self.rights.may("SELECT", self.name(each)) for each in found.tables)

    def _analysed(self, jvm: Jvm, text: str, plan: Any, named: Named, *, explains: bool) -> None:
        streams = bool(self.context.store.streams.all())
        try:
            if named.is_query:
                rows = self.context.streams.frame(text) if streams else None
                analysed = jvm.analyze(plan) if rows is None else rows._jdf.queryExecution().analyzed()
            else:
                if streams:
                    self.context.streams.refresh_named(text)
                skip = jvm.object("org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
                analysed = jvm.state.executePlan(plan, skip).analyzed()
        except (PySparkException, Py4JJavaError):
            # Spark's error may tell about the columns behind a temporary view: only to those who may read them.
            self._temporary_views(named)
            raise
        self.reads(read_by(jvm, analysed))
        if explains:
            self.require_explainable(analysed)

    def require_explainable(self, analysed: Any) -> None:
        """A plan shows the tables behind a view, and their columns and conditions."""
        if self.hides(analysed):
            raise unexplainable()

    def _temporary_views(self, named: Named) -> None:
        """Look into those that a statement names."""
        for parts in sorted(named.reads):
            if self.is_temporary(parts):
                self.temporary_view(parts)

    def temporary_view(self, parts: Parts) -> None:
        """Judge what it reads."""
        jvm = Jvm(self.context.spark)
        try:
            found = read_by(jvm, jvm.analyze(jvm.parse(f"SELECT * FROM {quote(parts[0])}")))
        except (PySparkException, Py4JJavaError):
            raise NotFound(
                f"What the temporary view {parts[0]} reads is not there any more.", hint="Create the view again."
            ) from None
        self.reads(found)

    def reads(self, found: Read) -> None:
        """Judge what an analysed plan reads."""
        for what in sorted(found.unknown):
            self.refuse(what)
        for database, table in sorted(found.tables):
            name = self.name((database, table))
            self.need("SELECT", name)
            stream = self.context.store.streams.named(name)
            if stream is not None:
                self._maker_of_stream(stream.creator, name, stream.source)

    def _maker_of_stream(self, creator: str, stream: TableName, source: TableName) -> None:
        made = f"who made the table stream {stream}"
        maker = maker_of(self.context, creator, made, "make the stream anew")
        if maker is None:
            return
        if not Rights(self.context.store.users.grants(maker.name)).may("SELECT", self.canonical(source)):
            raise Forbidden(
                f"{maker.name}, {made}, may not read its table any more.",
                hint="An administrator can allow it, or make the stream anew.",
            )
