"""The SQL with which the tests of dbt's suite prepare and look at tables, from Postgres' words into Spark's."""

from __future__ import annotations

import logging
import re

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # It tells of every statement that it leaves as it is.

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_NEW_COLUMN = re.compile(
    r"(alter table (?P<table>\S+)\s+add column (?P<column>\w+) )(varchar(\(\d+\))?|text)( default (?P<value>.+?))?;?",
    re.IGNORECASE,
)
_MATERIALIZED_VIEW = re.compile(r"\bcreate materialized view (?P<name>\S+) as\b", re.IGNORECASE)
_WORDS = (
    (re.compile(r"::text\b"), "::string"),
    (re.compile(r', "varchar"\)'), ', "string")'),
    (re.compile(r"\bdata_type: text\b"), "data_type: string"),
    (re.compile(r"\bdata_type: integer\b"), "data_type: int"),
)


class _PostgresWithBackQuotes(Postgres):
    """The adapter writes names in back quotes into what is Postgres' otherwise."""

    class Tokenizer(Postgres.Tokenizer):
        IDENTIFIERS = ['"', "`"]  # noqa: RUF012


def to_spark(sql: str) -> str:
    """The statements of a text; what sqlglot does not know stays as it is.

    >>> to_spark("select \\"id\\"::text from `main`.s.t")
    'SELECT CAST(`id` AS STRING) FROM `main`.s.t'
    >>> to_spark("alter table s.t add column c varchar(9) default 'x'")
    "alter table s.t add column c string;\\nUPDATE s.t SET c = 'x'"
    >>> to_spark("create materialized view s.v as (select 1)")
    'create dynamic table s.v as (select 1)'
    """
    if _MATERIALIZED_VIEW.search(sql):
        return _MATERIALIZED_VIEW.sub(r"create dynamic table \g<name> as", sql.strip())
    if found := _NEW_COLUMN.fullmatch(sql.strip()):
        value = found["value"]
        filled = f";\nUPDATE {found['table']} SET {found['column']} = {value}" if value and value != "null" else ""
        return f"{found[1]}string{filled}"
    try:
        parsed = [tree for tree in sqlglot.parse(sql, read=_PostgresWithBackQuotes) if tree]
    except sqlglot.ParseError:
        return sql
    if any(isinstance(tree, exp.Command) for tree in parsed):
        return sql
    return ";\n".join(_plain(tree).sql(dialect="spark") for tree in parsed)


def _plain(tree: exp.Expression) -> exp.Expression:
    for kind in list(tree.find_all(exp.DataType)):
        # TIMESTAMP is what seeds and snapshots have; Postgres' text has no length.
        if kind.this in (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ):
            kind.set("this", exp.DataType.Type.TIMESTAMPTZ)
        elif kind.this in (exp.DataType.Type.VARCHAR, exp.DataType.Type.CHAR, exp.DataType.Type.BPCHAR):
            kind.replace(exp.DataType.build("text"))
    if isinstance(tree, exp.Insert):
        # Spark does not take a text for a time.
        for text in list(tree.find_all(exp.Literal)):
            if text.is_string and _MOMENT.fullmatch(text.this) and not isinstance(text.parent, exp.Cast):
                text.replace(exp.cast(text.copy(), exp.DataType.Type.TIMESTAMPTZ))
    return tree


def in_files(text: str) -> str:
    """What stands in the files of a project: the few words of Postgres that models and contracts have."""
    for postgres, spark in _WORDS:
        text = postgres.sub(spark, text)
    return text
