"""Statements as Spark SQL."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy.sql import compiler
from sqlalchemy.sql.elements import quoted_name

from headrace.dbapi.literals import literal
from headrace.names import parse_parts, quote

NOTHING = "-- There are no indexes here"
"""A statement of which nothing is left to run."""


class IdentifierPreparer(compiler.IdentifierPreparer):
    """Every name in backquotes: then none can be taken for a keyword."""

    def __init__(self, dialect: Any, **options: Any) -> None:
        super().__init__(dialect, initial_quote="`", final_quote="`", escape_quote="`", **options)

    def _requires_quotes(self, value: str) -> bool:
        return True

    def quote_identifier(self, value: str) -> str:
        quoted = quote(value)
        return quoted.replace("%", "%%") if self._double_percents else quoted

    def quote_schema(self, schema: str, force: Any = None) -> str:
        """A schema's name has one part, or two with the workspace first."""
        if isinstance(schema, quoted_name) and schema.quote:
            return self.quote_identifier(schema)
        parts = schema.split(".") if re.fullmatch(r"\w+(\.\w+)?", schema) else _parts(schema)
        return ".".join(map(self.quote_identifier, parts))

    def format_schema(self, name: str) -> str:
        return self.quote_schema(name)


def _parts(schema: str) -> tuple[str, ...]:
    return parse_parts(schema) if "`" in schema else (schema,)


class Compiler(compiler.SQLCompiler):
    """Queries and changes."""

    def render_literal_value(self, value: Any, type_: Any) -> str:
        """A value inside a statement's text: written by the same hand as bound ones. SQLAlchemy's own would leave
        backslashes as they are, and Spark reads them as escapes."""
        processor = type_._cached_bind_processor(self.dialect)
        text = literal(value if processor is None else processor(value))
        return text.replace("%", "%%") if self.preparer._double_percents else text

    def limit_clause(self, select: Any, **options: Any) -> str:
        text = ""
        if select._limit_clause is not None:
            text += "\n LIMIT " + self.process(select._limit_clause, **options)
        if select._offset_clause is not None:
            text += "\n OFFSET " + self.process(select._offset_clause, **options)
        return text

    def for_update_clause(self, select: Any, **options: Any) -> str:
        return ""

    def visit_empty_set_expr(self, element_types: Any, **options: Any) -> str:
        columns = ", ".join("NULL" for _ in element_types or (None,))
        return f"SELECT {columns} WHERE 1 != 1"

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **options: Any) -> str:
        return self._generate_generic_binary(binary, " RLIKE ", **options)

    def visit_not_regexp_match_op_binary(self, binary: Any, operator: Any, **options: Any) -> str:
        return f"NOT {self.visit_regexp_match_op_binary(binary, operator, **options)}"

    def visit_regexp_replace_op_binary(self, binary: Any, operator: Any, **options: Any) -> str:
        value = self.process(binary.left, **options)
        return f"regexp_replace({value}, {self.process(binary.right, **options)})"


class DDLCompiler(compiler.DDLCompiler):
    """Tables and schemas. Keys, checks and indexes are not kept."""

    def create_table_constraints(self, table: Any, _include_foreign_key_constraints: Any = None, **options: Any) -> str:
        return ""

    def get_column_specification(self, column: Any, **options: Any) -> str:
        kind = self.dialect.type_compiler_instance.process(column.type, type_expression=column)
        text = f"{self.preparer.format_column(column)} {kind}"
        # A key need not be there for every row: nothing here would make one up.
        if not column.nullable and not column.primary_key:
            text += " NOT NULL"
        if column.comment is not None:
            text += f" COMMENT {self._text(column.comment)}"
        return text

    def post_create_table(self, table: Any) -> str:
        return f"\nCOMMENT {self._text(table.comment)}" if table.comment is not None else ""

    def visit_create_index(self, create: Any, *arguments: Any, **options: Any) -> str:
        return NOTHING

    def visit_drop_index(self, drop: Any, **options: Any) -> str:
        return NOTHING

    def _text(self, value: str) -> str:
        text = literal(value)
        return text.replace("%", "%%") if self.preparer._double_percents else text
