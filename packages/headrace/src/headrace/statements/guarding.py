"""Statements that reach beyond the lake: into the machine's files, its programs, or the process that holds everything.

In an embedded lake they are the user's own business, but for functions that run Java code. A server refuses them,
unless the setting `allow_unsafe_sql` is on and an administrator asks. A statement's words are looked at first, which
is cheap and tells the place; then Spark's own plan, which no odd spelling deceives: for administrators here, by
`reaching`, for others by `permitting`, which also knows whose tables they may touch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pyspark.errors import ParseException

from headrace.errors import Dangerous, Position
from headrace.plan.jvm import Jvm
from headrace.sql import statements as sql
from headrace.sql.table_names import dotted_names
from headrace.sql.tokens import Kind, Token, position_at, scan
from headrace.statements.context import Context
from headrace.statements.judging import parsed_text
from headrace.statements.reaching import FILE_FUNCTIONS, FORMATS, is_inside, names_files, reached
from headrace.storage.spark import SUBSTITUTE

SETTINGS = frozenset((
    "spark.databricks.delta.schema.automerge.enabled",
    "spark.sql.adaptive.coalescepartitions.enabled",
    "spark.sql.adaptive.enabled",
    "spark.sql.adaptive.skewjoin.enabled",
    "spark.sql.ansi.enabled",
    "spark.sql.autobroadcastjointhreshold",
    "spark.sql.broadcasttimeout",
    "spark.sql.crossjoin.enabled",
    "spark.sql.decimaloperations.allowprecisionloss",
    "spark.sql.files.maxpartitionbytes",
    "spark.sql.groupbyordinal",
    "spark.sql.legacy.timeparserpolicy",
    "spark.sql.mapkeydeduppolicy",
    "spark.sql.orderbyordinal",
    "spark.sql.session.timezone",
    "spark.sql.shuffle.partitions",
    "spark.sql.sources.partitionoverwritemode",
    "spark.sql.storeassignmentpolicy",
))  # fmt: skip
"""Spark settings that concern a session's own queries only, in lower case."""

_JAVA_CODE = frozenset(("reflect", "try_reflect", "java_method"))
_READS_FILES = frozenset(
    ("from_xml", "schema_of_xml", "from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf")
)
"""Their options name schema files, which Spark then reads from anywhere."""
_VERBS = {
    "ADD": "ADD brings files and programs into the process that holds the lake",
    "BEGIN": "A script of statements cannot be checked before it runs",
    "CALL": "CALL runs a procedure that nothing is known about",
    "CONVERT": "CONVERT takes in files by their path",
    "COPY": "COPY reads files by their path",
    "DFS": "DFS works on files by their path",
    "EXECUTE": "A statement in a text cannot be checked before it runs",
    "EXPORT": "EXPORT writes files by their path",
    "GENERATE": "GENERATE writes files for other programs",
    "IMPORT": "IMPORT reads files by their path",
    "LIST": "LIST tells about the files of the process that holds the lake",
    "LOAD": "LOAD reads files by their path",
    "MAP": "MAP runs a program of the machine",
    "REDUCE": "REDUCE runs a program of the machine",
}
_SETTING = re.compile(r"(SET|RESET)(?:\s+(?:`([^`]+)`|([\w.:\\-]+))\s*(=.*)?)?\s*", re.IGNORECASE | re.DOTALL)
_TO_THE_QUERY = ("AS", "SELECT", "WITH", "FROM", "VALUES")
_WITHOUT_SPARK = (
    sql.AlterUser, sql.AlterVcluster, sql.CancelJob, sql.CreateToken, sql.CreateUser, sql.CreateVcluster,
    sql.DescribeJob, sql.DescribeVcluster, sql.DropToken, sql.DropUser, sql.DropVcluster, sql.GrantPrivilege,
    sql.SetMoveStreams, sql.SetQueryTag, sql.ShowGrants, sql.ShowJobs, sql.ShowTokens, sql.ShowUsers,
    sql.ShowVclusters, sql.UseVcluster,
)  # fmt: skip
_REFLECT = "reflect"


@dataclass(frozen=True)
class Danger:
    """What is refused, and the word that shows it."""

    what: str
    at: Token


def refuse_dangerous(context: Context, statement: sql.Statement) -> None:
    """Raise for a statement that reaches beyond the lake, where that is not allowed."""
    tokens = scan(statement.text)
    java = next(_java_calls(tokens), None)
    if java is not None:
        raise Dangerous(
            f"{java.text}() is not allowed: it runs Java code in the process that holds the lake.",
            hint="Use an SQL function or a Python function.",
            position=position_at(statement.text, java.start),
        )
    if not context.guarded or (context.user.is_admin and context.settings.allow_unsafe_sql):
        return
    found = danger_in(statement, context.user.is_admin, context.settings.warehouse)
    if found is not None:
        raise _refusal(found.what, position_at(statement.text, found.at.start))
    if not isinstance(statement, _WITHOUT_SPARK) or getattr(statement, "where", None) is not None:
        _harden(context)
        if context.user.is_admin:
            _refuse_by_plan(context, statement)


def _refusal(what: str, position: Position | None) -> Dangerous:
    plain = "Schemas and tables have names of letters, digits and underscores. " if "by their path" in what else ""
    return Dangerous(
        f"{what}: a server refuses that.",
        hint=f"{plain}An administrator can run it when the server is started with allow_unsafe_sql = true.",
        position=position,
    )


def _refuse_by_plan(context: Context, statement: sql.Statement) -> None:
    """What Spark's parser makes of the statement, or of the expressions in one of ours. The query of a dynamic table is
    not among them: its reader takes tables only. What cannot be parsed here cannot be run, and is refused as that."""
    if isinstance(statement, sql.SparkStatement):
        _refuse_reaching(context, parsed_text(context, statement, lambda _: True), statement.text)
    for moment in (getattr(statement, name, None) for name in _MOMENTS):
        if isinstance(moment, str):
            _refuse_reaching(context, f"SELECT CAST({moment} AS TIMESTAMP)")
    condition = getattr(statement, "where", None)
    if isinstance(condition, str):
        with suppress(ParseException):  # Who evaluates it says so, and which columns there are.
            _refuse_reaching(context, f"SELECT {condition}")


def _refuse_reaching(context: Context, text: str, written: str | None = None) -> None:
    """`written` is the text as its user has it: where the two differ, a place in one says nothing about the other."""
    jvm = Jvm(context.spark)
    found = reached(jvm, jvm.parse(text), context.settings.warehouse)
    if found is not None:
        raise _refusal(found.what, position_at(text, found.start) if text == written and found.start else None)


_TASKS = (sql.CreateTask, sql.AlterTask, sql.DropTask, sql.ExecuteTask, sql.DescribeTask)
_MOMENTS = ("start_with", "timestamp", "at", "start", "end")
"""Parts of statements that Spark computes a time from."""


def danger_in(statement: sql.Statement, is_admin: bool, warehouse: Path) -> Danger | None:
    """The first thing in a statement that reaches beyond the lake."""
    text, tokens = statement.text, scan(statement.text)
    looks: list[Callable[[], Iterator[Danger]]] = [
        # Of a task each statement is looked at when it is made, and at each run; its name may look like a path.
        lambda: iter(()) if isinstance(statement, _TASKS) else _paths(tokens),
        lambda: _functions(tokens),
        lambda: _programs(tokens),
    ]
    if isinstance(statement, sql.CreateSchema) and statement.parts[-1].lower() in FORMATS:
        return Danger(f"{statement.parts[-1]} as a schema could not be told from files of that format", tokens[-1])
    if isinstance(statement, sql.SparkStatement):
        looks += [
            lambda: _verb(statement.verb, tokens),
            lambda: _setting(text, tokens, is_admin),
            lambda: _definition(statement.verb, tokens, is_admin, warehouse),
        ]
    return next((found for look in looks for found in look()), None)


def _harden(context: Context) -> None:
    """Once for a session: `${…}` in a statement stays as it is (Spark would put settings, system properties and
    variables of the environment there, after every check of words), and functions that run Java code or read files
    are unknown."""
    jvm = Jvm(context.spark)
    functions = jvm.state.functionRegistry()
    if not functions.functionExists(jvm.function_identifier(_REFLECT)):
        return
    context.spark.conf.set(SUBSTITUTE, "false")
    for name in sorted((_JAVA_CODE | _READS_FILES) - {_REFLECT}):
        functions.dropFunction(jvm.function_identifier(name))
    functions.dropFunction(jvm.function_identifier(_REFLECT))


def _java_calls(tokens: tuple[Token, ...]) -> Iterator[Token]:
    for token, following in pairwise(tokens):
        if token.is_name and token.value.lower() in _JAVA_CODE and following.text == "(":
            yield token


def _paths(tokens: tuple[Token, ...]) -> Iterator[Danger]:
    """parquet.`/etc/x`, and the class of a format in the place of its name."""
    for name in dotted_names(tokens):
        if len(name.parts) < 2 or (name.first and tokens[name.first - 1].text == "."):
            continue
        *schema, table = name.parts
        looks_so = len(schema) == 1 and schema[0].lower() in FORMATS and re.fullmatch(r"\w+", table) is None
        if looks_so or (name.is_table and names_files(name.parts)):
            yield Danger(f"{'.'.join(schema)}.`{table}` names files by their path", tokens[name.first])


def _functions(tokens: tuple[Token, ...]) -> Iterator[Danger]:
    for index, (token, following) in enumerate(pairwise(tokens)):
        if following.text != "(" or not token.is_name:
            continue
        if token.value.lower() in FILE_FUNCTIONS:
            yield Danger(f"{token.value}() reads files by their path", token)
        if token.upper == "IDENTIFIER":
            yield from _identifier(tokens, index)


def _identifier(tokens: tuple[Token, ...], index: int) -> Iterator[Danger]:
    """IDENTIFIER('name') is as good as the name; what is computed, or called, could be anything."""
    token, name = tokens[index], tokens[index + 2 : index + 4]
    if _is_called(tokens, index + 1) or len(name) < 2 or name[0].kind is not Kind.STRING or name[1].text != ")":
        yield Danger("IDENTIFIER with a name that is computed, or of a function, cannot be checked", token)
    elif next(_paths(scan(f"FROM {name[0].value}")), None) is not None:
        yield Danger(f"{name[0].text} names files by their path", token)


def _is_called(tokens: tuple[Token, ...], opening: int) -> bool:
    """Whether what follows the closing parenthesis is another opening one: IDENTIFIER('f')(1)."""
    depth = 0
    for index in range(opening, len(tokens)):
        depth += (tokens[index].text == "(") - (tokens[index].text == ")")
        if depth == 0:
            return index + 1 < len(tokens) and tokens[index + 1].text == "("
    return True


def _programs(tokens: tuple[Token, ...]) -> Iterator[Danger]:
    """SELECT TRANSFORM (a) USING 'cat': the only place where a text follows USING."""
    for token, following in pairwise(tokens):
        if token.upper == "USING" and following.kind is Kind.STRING:
            yield Danger("USING with a text runs a program of the machine", token)


def _verb(verb: str, tokens: tuple[Token, ...]) -> Iterator[Danger]:
    first = tokens[0]
    reason = _VERBS.get(verb.split()[0] if verb else "")
    if reason is not None:
        yield Danger(reason, first)
    if verb.split()[0] in ("REFRESH", "VACUUM", "OPTIMIZE", "DESCRIBE", "RESTORE", "FSCK", "REORG"):
        paths = [token for token in tokens[1:4] if token.kind is Kind.STRING]
        if paths:
            yield Danger(f"{verb} of {paths[0].text} names files by their path", paths[0])
    for before, token in pairwise(tokens):
        if token.upper == "DIRECTORY" and before.upper in ("OVERWRITE", "LOCAL"):
            yield Danger("INSERT OVERWRITE DIRECTORY writes files by their path", token)


def _setting(text: str, tokens: tuple[Token, ...], is_admin: bool) -> Iterator[Danger]:
    """SET and RESET of what is not a session's own. To look at a setting is an administrator's right."""
    words = [token.upper for token in tokens[:3]]
    if words[0] not in ("SET", "RESET"):
        return
    sign = tokens[2].text if len(tokens) > 2 else ""
    if words[:3] == ["SET", "TIME", "ZONE"] or (words[1:2] in (["VAR"], ["VARIABLE"]) and sign not in ("=", "")):
        return
    found = _SETTING.fullmatch(text[tokens[0].start :].rstrip(" ;\n\t\r"))
    key = "" if found is None else (found[2] or found[3] or "").lower()
    if found is not None and words[0] == "SET" and found[4] is None and is_admin:
        return
    if key not in SETTINGS:
        what = f"The setting {key}" if key else f"{words[0]} without the name of one setting"
        yield Danger(f"{what} is not a session's own", tokens[min(1, len(tokens) - 1)])


def _definition(verb: str, tokens: tuple[Token, ...], is_admin: bool, warehouse: Path) -> Iterator[Danger]:
    """Tables and views over files or other systems, and functions that are no SQL."""
    words = verb.split()
    if words[0] not in ("CREATE", "REPLACE", "ALTER"):
        return
    own = list(_before_the_query(tokens))
    for token, following in zip(own, [*own[1:], tokens[-1]], strict=True):
        word = token.upper
        if word == "USING" and words[-1] in ("TABLE", "VIEW") and following.value.lower() != "delta":
            yield Danger(f"USING {following.value} makes a table that is no Delta table", token)
        elif word == "LOCATION" and following.kind is Kind.STRING:
            if is_admin and is_inside(following.value, warehouse):
                continue
            yield Danger("LOCATION names files by their path", token)
        elif word == "OPTIONS" and following.text == "(":
            yield Danger("OPTIONS can name files by their path", token)
        elif word == "STORED" or (word == "ROW" and following.upper == "FORMAT") or word == "SERDE":
            yield Danger(f"{word} makes a table that is no Delta table", token)
    if words[-1] == "FUNCTION":
        yield from _function(tokens)


def _before_the_query(tokens: tuple[Token, ...]) -> Iterator[Token]:
    """The words of a definition outside parentheses, up to its query. A name's own words are not among them."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token.text == "(") - (token.text == ")")
        before, after = tokens[index - 1] if index else None, tokens[index + 1] if index + 1 < len(tokens) else None
        beside = {each.text for each in (before, after) if each is not None}
        is_name = "." in beside or (before is not None and before.upper in ("TABLE", "VIEW", "EXISTS"))
        has_properties = token.upper == "WITH" and after is not None and after.upper == "PROPERTIES"
        if depth == 0 and index > 1 and token.upper in _TO_THE_QUERY and not is_name and not has_properties:
            return
        if depth == (1 if token.text == "(" else 0) and "." not in beside:
            yield token


def _function(tokens: tuple[Token, ...]) -> Iterator[Danger]:
    for token, following in pairwise(tokens):
        if token.upper == "AS" and following.kind is Kind.STRING:
            yield Danger("CREATE FUNCTION … AS a class runs Java code in the process that holds the lake", token)
        if token.upper == "USING" and following.upper in ("JAR", "FILE", "ARCHIVE"):
            yield Danger("CREATE FUNCTION … USING brings programs into the process that holds the lake", token)
        if token.upper == "LANGUAGE" and following.upper != "SQL":
            yield Danger("A function that is not written in SQL runs code on the machine", token)
