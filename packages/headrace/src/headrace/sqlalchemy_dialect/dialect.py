"""How SQLAlchemy connects, and what it finds there."""

from __future__ import annotations

from typing import Any

from sqlalchemy import exc
from sqlalchemy.engine import default, reflection
from sqlalchemy.engine.interfaces import ReflectedColumn, ReflectedPrimaryKeyConstraint, ReflectedTableComment
from sqlalchemy.engine.url import URL
from sqlalchemy.sql import compiler

from headrace.errors import BadSetting
from headrace.names import quote, quote_text
from headrace.sqlalchemy_dialect.compiling import Compiler, DDLCompiler, IdentifierPreparer
from headrace.sqlalchemy_dialect.types import TypeCompiler, from_text

DEFAULT_PORT = 8910
_YES = ("1", "true", "yes", "on", "require")
_GONE = ("SERVICE", "SESSION_RESET", "UNAUTHENTICATED")
_OPTIONS = ("ca_file", "ssl", "vcluster")


class HeadraceDialect(default.DefaultDialect):
    """`headrace://user:password@host:port/schema?ssl=true&vcluster=…&ca_file=…`. A token takes the place of user and
    password: `headrace://:hr_…@host/schema`."""

    name = "headrace"
    driver = "http"
    default_paramstyle = "pyformat"
    statement_compiler = Compiler
    ddl_compiler = DDLCompiler
    type_compiler_cls = TypeCompiler
    preparer: type[compiler.IdentifierPreparer] = IdentifierPreparer

    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_multivalues_insert = True
    supports_default_values = False
    supports_empty_insert = False
    supports_sane_rowcount = False
    supports_sane_multi_rowcount = False
    supports_sequences = False
    supports_comments = True
    inline_comments = True
    postfetch_lastrowid = False
    insert_returning = False
    update_returning = False
    delete_returning = False
    max_identifier_length = 255

    @classmethod
    def import_dbapi(cls) -> Any:
        from headrace import dbapi

        return dbapi

    def create_connect_args(self, url: URL) -> Any:
        options = {key: value if isinstance(value, str) else value[-1] for key, value in url.query.items()}
        unknown = next((key for key in options if key not in _OPTIONS), None)
        if unknown is not None:
            raise BadSetting(
                f"There is no option '{unknown}' of a headrace:// address.", hint=f"There are: {', '.join(_OPTIONS)}."
            )
        secure = options.pop("ssl", "").lower() in _YES
        host = url.host or "127.0.0.1"
        if ":" in host:
            host = f"[{host}]"
        arguments: dict[str, Any] = {"schema": url.database or None, **options}
        if url.username:
            arguments |= {"username": url.username, "password": url.password}
        elif url.password:
            arguments["token"] = url.password
        return [f"{'https' if secure else 'http'}://{host}:{url.port or DEFAULT_PORT}"], arguments

    # ------------------------------------------------------------------ transactions, which there are none of

    def do_begin(self, dbapi_connection: Any) -> None:
        pass

    def do_commit(self, dbapi_connection: Any) -> None:
        pass

    def do_rollback(self, dbapi_connection: Any) -> None:
        """A connection that goes back to the pool is rolled back; there is nothing to roll back."""

    def do_ping(self, dbapi_connection: Any) -> bool:
        dbapi_connection.ping()
        return True

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        return getattr(e, "code", None) in _GONE

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        # A text that somebody else wrote, without values, is run as it is: its % signs are not doubled.
        written_here = context is not None and context.compiled is not None
        cursor.execute(statement, parameters if parameters or written_here else None)

    def _get_default_schema_name(self, connection: Any) -> str:
        return str(connection.exec_driver_sql("SELECT current_schema()").scalar_one())

    # ------------------------------------------------------------------ reflection

    @reflection.cache  # type: ignore[untyped-decorator, unused-ignore]
    def get_schema_names(self, connection: Any, **options: Any) -> list[str]:
        return [str(row[0]) for row in connection.exec_driver_sql("SHOW SCHEMAS")]

    @reflection.cache  # type: ignore[untyped-decorator, unused-ignore]
    def get_table_names(self, connection: Any, schema: str | None = None, **options: Any) -> list[str]:
        return [name for name, is_view in self._listed(connection, schema) if not is_view]

    @reflection.cache  # type: ignore[untyped-decorator, unused-ignore]
    def get_view_names(self, connection: Any, schema: str | None = None, **options: Any) -> list[str]:
        return [name for name, is_view in self._listed(connection, schema) if is_view]

    def has_table(self, connection: Any, table_name: str, schema: str | None = None, **options: Any) -> bool:
        try:
            found = self._listed(connection, schema, table_name)
        except exc.DBAPIError as error:
            if _is_not_found(error):  # the schema
                return False
            raise
        return any(name.lower() == table_name.lower() for name, _ in found)

    def has_schema(self, connection: Any, schema_name: str, **options: Any) -> bool:
        return schema_name.lower() in {name.lower() for name in self.get_schema_names(connection)}

    @reflection.cache  # type: ignore[untyped-decorator, unused-ignore]
    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[ReflectedColumn]:
        rows = self._described(connection, table_name, schema, extended=False)
        return [
            {
                "name": name,
                "type": from_text(kind),
                "nullable": True,
                "default": None,
                "autoincrement": False,
                "comment": comment or None,
            }
            for name, kind, comment in rows
        ]

    @reflection.cache  # type: ignore[untyped-decorator, unused-ignore]
    def get_table_comment(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> ReflectedTableComment:
        return {"text": self._facts(connection, table_name, schema).get("comment") or None}

    @reflection.cache  # type: ignore[untyped-decorator, unused-ignore]
    def get_view_definition(self, connection: Any, view_name: str, schema: str | None = None, **options: Any) -> str:
        found = self._facts(connection, view_name, schema).get("view_original_text")
        if not found:
            raise exc.NoSuchTableError(f"{schema}.{view_name}" if schema else view_name)
        return found

    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> ReflectedPrimaryKeyConstraint:
        return {"constrained_columns": [], "name": None}

    def get_foreign_keys(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[Any]:
        return []

    def get_indexes(self, connection: Any, table_name: str, schema: str | None = None, **options: Any) -> list[Any]:
        return []

    def get_unique_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[Any]:
        return []

    def get_check_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[Any]:
        return []

    # ------------------------------------------------------------------ the statements behind it

    def _listed(self, connection: Any, schema: str | None, name: str | None = None) -> list[tuple[str, bool]]:
        """Tables and dynamic tables, and views. With a name, at least those of this name."""
        within = f" IN {self._plain.quote_schema(schema)}" if schema else ""
        # A pattern is only a coarse sieve: _ stands for any character in it.
        like = f" LIKE {quote_text(name)}" if name and not set(name) & set("|*%\\'") else ""
        result = connection.exec_driver_sql(f"SHOW TABLES{within}{like}")
        return [(row.table_name, bool(row.is_view)) for row in result]

    def _facts(self, connection: Any, table: str, schema: str | None) -> dict[str, str]:
        rows = self._described(connection, table, schema, extended=True)
        names = [row[0] for row in rows]
        begin = names.index("detailed table information:") if "detailed table information:" in names else len(rows)
        return {row[0]: row[1] for row in rows[begin:]}

    def _described(self, connection: Any, table: str, schema: str | None, *, extended: bool) -> list[Any]:
        name = (f"{self._plain.quote_schema(schema)}." if schema else "") + quote(table)
        try:
            result = connection.exec_driver_sql(f"DESC TABLE {'EXTENDED ' if extended else ''}{name}")
        except exc.DBAPIError as error:
            if _is_not_found(error):
                raise exc.NoSuchTableError(f"{schema}.{table}" if schema else table) from error
            raise
        return list(result)

    @property
    def _plain(self) -> IdentifierPreparer:
        """Names for statements that are run as they are: percent signs stay single."""
        preparer = IdentifierPreparer(self)
        preparer._double_percents = False
        return preparer


def _is_not_found(error: exc.DBAPIError) -> bool:
    return getattr(error.orig, "code", None) == "NOT_FOUND"
