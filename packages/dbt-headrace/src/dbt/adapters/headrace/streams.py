"""Table streams in models: no row twice, and none lost.

A model may read a stream when it is incremental, and the stream's table when it is not. After such a full load the
stream must go on behind what was loaded. So the load reads the table at one version, and the stream's offset is set to
that version. These are two statements: the first one leaves a note of the second among the properties of the table that
it makes, in the same commit. Whoever finds the note before the next run does what is left of it.

The notes also tell which streams a table is in step with. A run that reads another one is stopped: whether its changes
are in the table already, nobody can tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.headrace.building import BESIDE, named_after
from headrace.dbapi.literals import literal
from headrace.errors import HeadraceError, NotFound, QueryFailed, SyntaxFault, UserError
from headrace.names import TableName, parse_parts, quote, quote_if_needed
from headrace.sql.table_names import DottedName, dotted_names, table_aliases
from headrace.sql.tokens import Token, scan

Rows = Callable[[str], list[dict[str, Any]]]

NOTE = "dbt_stream."
"""What the names of the properties begin with; the stream's name follows."""
IN_STEP = "in step"
"""What somebody may write who knows that the stream stands right behind what the table has."""
_TEXT = re.compile(r"made (?P<made>\S+?)(?:; for (?P<table>\S+?))?(?:; set offset (?P<offset>\d+))?")
_ASKS_THE_LAKE = re.compile(r"\b(execute|run_query|load_result)\b")
"""In the Jinja of a model: which way it takes then, a rendering that asks nothing can only guess."""
_PINNED = ("VERSION", "TIMESTAMP", "FOR")


@dataclass(frozen=True)
class Stream:
    """A stream as SHOW TABLE STREAMS tells of it."""

    name: str
    table: str
    offset: int
    made: str
    """When it was made: one of the same name that was made anew begins elsewhere."""
    read_into: str | None = None
    """The table that got the rows when it was read last; None before that, and after its offset was set."""

    def is_read_into_another(self, table: str) -> bool:
        """Whether the rows that it gave last went elsewhere than into this table, or what was built to become it.

        >>> stream = Stream("main.p.s", "main.p.t", 3, "", "main.p.a")
        >>> [stream.is_read_into_another(name) for name in ("main.p.a", "main.p.b")]
        [False, True]
        """
        if self.read_into is None:
            return False
        *place, name = parse_parts(table)
        own = (".".join(map(quote, (*place, each))) for each in (name, named_after(name, BESIDE)))
        try:
            return plain_name(self.read_into) not in map(plain_name, own)
        except UserError:  # No name: a path, or a table that may not be seen.
            return True

    @classmethod
    def shown(cls, row: Mapping[str, Any]) -> Stream:
        made = row["created_time"]
        return cls(
            str(TableName(row["workspace_name"], row["schema_name"], row["name"])),
            str(row["table_name"]),
            int(row["offset"]),
            (made.isoformat() if isinstance(made, datetime) else str(made)).replace(" ", "T"),
            row.get("last_read_into"),
        )


@dataclass(frozen=True)
class Note:
    """What a table's property says of one stream."""

    made: str | None
    """None where somebody has written it by hand: then any stream of that name is meant."""
    offset: int | None = None
    """Where the stream is still to be set."""
    table: str | None = None
    """Whose note it is: a clone has it, too, and is not in step."""

    @property
    def text(self) -> str:
        whose = "" if self.table is None else f"; for {self.table}"
        left = "" if self.offset is None else f"; set offset {self.offset}"
        return IN_STEP if self.made is None else f"made {self.made}{whose}{left}"

    @classmethod
    def read(cls, text: str) -> Note:
        """
        >>> Note.read("made 2026-11-17T09:00:00; for main.shop.t; set offset 7")
        Note(made='2026-11-17T09:00:00', offset=7, table='main.shop.t')
        >>> Note.read("in step")
        Note(made=None, offset=None, table=None)
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            return cls(None)
        return cls(found["made"], None if found["offset"] is None else int(found["offset"]), found["table"])


@dataclass(frozen=True)
class FullLoad:
    """How the table of a model is loaded as a whole."""

    sql: str
    """The query; it reads the tables of `beside` at one version."""
    table: str = ""
    """Which is loaded."""
    reads: tuple[Stream, ...] = ()
    """The streams that it reads itself: they move with its commit."""
    beside: tuple[tuple[Stream, int], ...] = ()
    """Those whose tables it reads, each with the version."""

    @property
    def properties(self) -> dict[str, str]:
        """What the table is made with."""
        found = {NOTE + stream.name: Note(stream.made, table=self.table).text for stream in self.reads}
        return found | {
            NOTE + stream.name: Note(stream.made, version, self.table).text for stream, version in self.beside
        }


def settled(read: Iterable[Stream], properties: Mapping[str, str], table: str) -> list[str]:
    """The statements that have to come before a table takes what these streams have, as the properties of the table
    tell. Raises where nobody can tell."""
    late: list[tuple[Stream, int]] = []
    for stream in read:
        told = properties.get(NOTE + stream.name)
        if told is None:
            raise DbtRuntimeError(_not_in_step(stream, table, None))
        note = Note.read(told)
        if (why := _doubt(note, stream, table)) is not None:
            raise DbtRuntimeError(_not_in_step(stream, table, why))
        if note.offset is not None:
            late.append((stream, note.offset))
    return moves(late, table)


def _doubt(note: Note, stream: Stream, table: str) -> str | None:
    """What the stream gives now and the table's rows may not go together."""
    if note.made is None:
        return None
    if note.made != stream.made:
        return "was loaded before the stream was made anew"
    if note.table not in (None, plain_name(table)):
        return f"is a copy of {note.table}, whose stream it is"
    if stream.is_read_into_another(table):
        return f"has not got what it gave last: {stream.read_into} has"
    return None


def _not_in_step(stream: Stream, table: str, why: str | None) -> str:
    by_jinja = (
        "\nHint: If the model's Jinja asks the lake for the name of its stream, name it in a comment, too: "
        "-- depends_on: {{ source('…', '…') }}."
    )
    return (
        f"The model reads the table stream {stream.name}, and the table {_bare(table)} "
        f"{why or 'was loaded without it, as with --empty and --sample'}: rows could come twice, or be missing.\n"
        "Hint: Each model needs a stream of its own, in each target. Where it has one: dbt run --full-refresh of this "
        "model. It loads the stream's table anew, if that is what the full load reads. Of a model that reads nothing "
        "but the stream it drops the rows, and of these only what the stream has now comes back.\n"
        "Hint: If you know that the stream stands right behind what the table has: "
        f"ALTER TABLE {table} SET PROPERTIES ('{NOTE}{stream.name}'='{IN_STEP}').{'' if why else by_jinja}"
    )


def moves(late: Iterable[tuple[Stream, int]], table: str) -> list[str]:
    """Set the offsets, also where a stream stands there already: its initial rows may still be waiting. Then the notes
    say that it is done. Raises where a stream is further on."""
    found = list(late)
    if not found:
        return []
    for stream, version in found:
        if stream.offset > version:
            raise DbtRuntimeError(
                f"The table {_bare(table)} was loaded up to version {version} of {stream.table}, and the table stream "
                f"{stream.name} stands at version {stream.offset} already: something else has read it, or set it, and "
                "the rows between them would be missing. Give each model a stream of its own, and run this one with "
                "--full-refresh."
            )
    note = plain_name(table)
    done = ", ".join(f"'{NOTE}{stream.name}'='{Note(stream.made, table=note).text}'" for stream, _ in found)
    return [
        *(f"ALTER TABLE STREAM {stream.name} SET OFFSET VERSION AS OF {version}" for stream, version in found),
        f"ALTER TABLE {table} SET PROPERTIES ({done})",
    ]


def _bare(table: str) -> str:
    """A rendered name as the lake's own messages have it.

    >>> _bare("`main`.`shop`.`1. load`")
    'main.shop.`1. load`'
    """
    return ".".join(map(quote_if_needed, parse_parts(table)))


def plain_name(table: str) -> str:
    """
    >>> plain_name("`main`.`Shop`.`T`")
    'main.shop.t'
    """
    return ".".join(part.lower() for part in parse_parts(table))


@dataclass(frozen=True)
class Place:
    """Where names that are not whole belong."""

    workspace: str
    schema: str
    home: str
    """The lake's own workspace: that of names with two parts."""

    def whole(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        before = {1: (self.workspace, self.schema), 2: (self.home,)}.get(len(parts), ())
        return tuple(part.lower() for part in (*before, *parts))


class StreamReader:
    """Asks the lake which streams there are, and which ones a query reads."""

    def __init__(self, rows: Rows, place: Place) -> None:
        self._rows = rows
        self.place = place

    def read_by(self, query: str) -> list[Stream]:
        """Directly or through views."""
        return [Stream.shown(row) for row in self._rows(f"SHOW TABLE STREAMS READ BY\n{query}")]

    def full_load(
        self, model: Mapping[str, Any], compiled_code: str, later_code: str | None, named: Iterable[Mapping[str, Any]]
    ) -> FullLoad:
        """`later_code` is the query of the runs after this one, where it is known; `named` are the sources that one of
        the two names and that are streams."""
        read = self._read(compiled_code)
        later = {} if later_code is None else self._read(later_code)
        for stream in self._shown(named):
            if reads(compiled_code, stream.name, self.place):
                read[stream.name] = stream
            elif later_code is None or reads(later_code, stream.name, self.place):
                later[stream.name] = stream
            elif pinned(compiled_code, stream.table, 0, self.place) is not None:
                later[stream.name] = stream  # A comment names it, and what it stands beside is loaded.
        beside = [stream for name, stream in sorted(later.items()) if name not in read]
        refuse_batches(model, [*read.values(), *beside])
        own = ".".join(str(model[key]).lower() for key in ("database", "schema", "alias"))
        place = ".".join(quote(str(model[key])) for key in ("database", "schema", "alias"))
        for stream in (*read.values(), *beside):
            self._refuse_another_s(stream, place, is_set=stream in beside)
        sql, versions = self._pinned(compiled_code, beside)
        return FullLoad(sql, own, tuple(read.values()), tuple((stream, versions[stream.table]) for stream in beside))

    def after(self, load: FullLoad, table: str) -> list[str]:
        """The statements that follow a load. The streams may have moved while it ran."""
        now = {stream.name: stream for each, _ in load.beside for stream in self._present(each)}
        return moves([(now.get(stream.name, stream), version) for stream, version in load.beside], table)

    def _present(self, stream: Stream) -> Iterator[Stream]:
        return self._shown([dict(zip(("database", "schema", "identifier"), parse_parts(stream.name), strict=True))])

    def refuse_others(self, query: str, named: Iterable[Mapping[str, Any]], table: str) -> None:
        """Stop what would take the rows of the streams that a query reads or names, where they are another table's."""
        read = self._read(query) | {stream.name: stream for stream in self._shown(named)}
        for stream in read.values():
            self._refuse_another_s(stream, table, is_set=False)

    def refuse_all(self, query: str, what: str, instead: str) -> None:
        """Stop what would take the changes of table streams and keep them only until it runs again."""
        for name in self._read(query):
            raise DbtRuntimeError(
                f"{what} reads the table stream {name}: each run would take the changes that the stream has, and the "
                f"next one would treat those that it does not have any more as gone.\nHint: {instead}"
            )

    def _refuse_another_s(self, stream: Stream, table: str, *, is_set: bool) -> None:
        """The load of a table takes what the stream has, or sets it to where the load ends: what another table has not
        taken until then, it would never get."""
        if not stream.is_read_into_another(table):
            return
        try:
            self._rows(f"DESC TABLE {stream.read_into}")
        except NotFound:
            return
        except HeadraceError:
            pass  # There is such a table, or nobody can tell.
        does = "set it to where this load ends" if is_set else "take what it has now"
        raise DbtRuntimeError(
            f"The table stream {stream.name} is read into {stream.read_into}, and loading {_bare(table)} would {does}: "
            f"{stream.read_into} would miss rows.\n"
            "Hint: Make a stream for each table (and each target of the profile), and name that one in the model.\n"
            f"Hint: If nothing else reads it any more: ALTER TABLE STREAM {stream.name} SET OFFSET VERSION AS OF "
            f"{stream.offset}."
        )

    def _read(self, query: str) -> dict[str, Stream]:
        """Those that a query reads, by name; none of one that is not analysed: because it is refused, which the load is
        as well and says why in its own text; or it needs what its sql_header makes, or a table that is not there yet.
        Of a stream that is not noted now the next run asks."""
        try:
            return {stream.name: stream for stream in self.read_by(query)}
        except (QueryFailed, SyntaxFault, NotFound):
            return {}

    def _pinned(self, sql: str, beside: Iterable[Stream]) -> tuple[str, dict[str, int]]:
        """The query with the tables of these streams read at their newest versions, and which these are."""
        versions: dict[str, int] = {}
        for stream in beside:
            if stream.table in versions:
                continue
            version = int(self._rows(f"DESC HISTORY {stream.table} LIMIT 1")[0]["version"])
            found = pinned(sql, stream.table, version, self.place)
            if found is None:
                raise DbtRuntimeError(
                    f"The model reads the table stream {stream.name} when it is incremental, and its full load reads "
                    f"neither the stream nor, by its name, the stream's table {stream.table}. So it cannot be told up "
                    "to where the table was read: the next run would take rows twice, or miss some. Let the full load "
                    "read the table as source() has it; where a view lies between them, make it ephemeral. Or read "
                    "only the stream."
                )
            sql, versions[stream.table] = found, version
        return sql, versions

    def _shown(self, sources: Iterable[Mapping[str, Any]]) -> Iterator[Stream]:
        for source in sources:
            schema, name = f"{quote(source['database'])}.{quote(source['schema'])}", str(source["identifier"])
            for row in self._rows(f"SHOW TABLE STREAMS IN {schema} LIKE {literal(name)}"):
                if str(row["name"]).lower() == name.lower():
                    yield Stream.shown(row)


def refuse_batches(model: Mapping[str, Any], read: Sequence[Stream]) -> None:
    if read and (model.get("config") or {}).get("incremental_strategy") == "microbatch":
        raise DbtRuntimeError(
            f"The model is built in batches and reads the table stream {read[0].name}: the first batch would take the "
            "changes of all. Use another strategy, or read the stream's table."
        )


def named_sources(
    model: Mapping[str, Any],
    codes: tuple[str, str | None],
    sources: Mapping[str, Mapping[str, Any]],
    place: Place,
) -> list[Mapping[str, Any]]:
    """The sources that a model's query names now, or will name when it is incremental. Where that is not known, or
    guessed, what the model says that it depends on has to do: that is of this target, too."""
    is_known = codes[1] is not None and not _ASKS_THE_LAKE.search(str(model.get("raw_code") or ""))
    depends_on = () if is_known else (model.get("depends_on") or {}).get("nodes") or ()
    texts = [code for code in codes if code is not None]

    def is_named(source: Mapping[str, Any]) -> bool:
        whole = ".".join(quote(str(source[key])) for key in ("database", "schema", "identifier"))
        return any(reads(text, whole, place) for text in texts)

    return [source for key, source in sources.items() if key in depends_on or is_named(source)]


def reads(sql: str, table: str, place: Place) -> bool:
    """Whether a query names this table, view or stream where only such a one can stand.

    >>> here = Place("main", "p", "main")
    >>> [reads(f"select 1 from {text}", "main.p.s", here) for text in ("P.S", "t -- p.s", "s2 join main.p.s")]
    [True, False, True]
    """
    return bool(_named(scan(sql), table, place))


def pinned(sql: str, table: str, version: int, place: Place) -> str | None:
    """The query, reading the table as it was at the version; None where it does not read the table by its name, or at a
    version of its own choice.

    >>> here = Place("main", "p", "main")
    >>> pinned("select 'main.p.t' from `main`.`P`.T e join main.p.t2", "main.p.t", 7, here)
    "select 'main.p.t' from `main`.`P`.T VERSION AS OF 7 e join main.p.t2"
    >>> pinned("with t as (select 1) select * from t -- main.p.t", "main.p.t", 7, here)
    """
    tokens = scan(sql)
    found = _named(tokens, table, place)
    following = [tokens[name.last + 1].upper for name in found if name.last + 1 < len(tokens)]
    if not found or any(word in _PINNED for word in following):
        return None
    pieces, done = [], 0
    for name in found:
        end = tokens[name.last].end
        pieces += [sql[done:end], f" VERSION AS OF {version}"]
        done = end
    return "".join(pieces) + sql[done:]


def _named(tokens: tuple[Token, ...], table: str, place: Place) -> list[DottedName]:
    """Where the table's name stands and only a table can; what the query gives that name itself is another."""
    wanted = tuple(part.lower() for part in parse_parts(table))
    own = table_aliases(tokens)
    return [
        name
        for name in dotted_names(tokens)
        if name.is_table
        and not (len(name.parts) == 1 and name.parts[0].lower() in own)
        and place.whole(name.parts) == wanted
    ]
