"""The dbt adapter without a lake: profiles, dynamic tables' differences, sessions, seeds."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from dbt.adapters.contracts.connection import ConnectionState
from dbt_common.clients.agate_helper import from_csv
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.headrace.connections import HeadraceConnectionManager
from dbt.adapters.headrace.credentials import HeadraceCredentials
from dbt.adapters.headrace.impl import HeadraceAdapter
from dbt.adapters.headrace.pool import Sessions
from dbt.adapters.headrace.relation import HeadraceRelation, HeadraceRelationType
from dbt.adapters.headrace.relation_configs import DynamicTableChanges, DynamicTableConfig, changes_of, column_changes
from dbt.adapters.headrace.seeds import read
from dbt.adapters.headrace.sessions import Session, Turns
from headrace.errors import Cancelled, Forbidden, HeadraceError, NotFound, QueryFailed, RefreshRunning, SessionReset
from headrace.result import Result, done, from_rows

LOGIN = {"service": "127.0.0.1:8910", "username": "ann", "password": "secret", "schema": "dev"}


def credentials(**values: Any) -> HeadraceCredentials:
    data = HeadraceCredentials.translate_aliases({key: value for key, value in values.items() if value is not None})
    HeadraceCredentials.validate(data)
    return HeadraceCredentials.from_dict(data)


# Profiles


def test_a_profile_in_the_words_of_headrace() -> None:
    found = credentials(**LOGIN, workspace="sales", vcluster="etl", instance="x")
    assert (found.database, found.service, found.vcluster) == ("sales", "http://127.0.0.1:8910", "etl")
    shown = dict(found.connection_info())
    assert shown["workspace"] == "sales"
    assert "secret" not in str(shown)
    assert "secret" not in str(target := dict(found.connection_info(with_aliases=True)))
    assert (target["database"], target["dbname"], target["user"]) == ("sales", "sales", "ann")


def test_the_workspace_is_main_unless_it_is_named() -> None:
    """In a profile; of a model's config dbt asks the same translation, and what it does not say is not said for it."""
    assert credentials(**LOGIN).database == "main"
    assert HeadraceCredentials.translate_aliases({"materialized": "view"}) == {"materialized": "view"}
    assert HeadraceCredentials.translate_aliases({"workspace": "sales"}) == {"database": "sales"}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"password": None}, "password is missing or empty: give username and password, or token."),
        ({"username": None}, "username is missing"),
        ({"schema": None}, "schema is missing"),
        ({"service": None}, "service is missing"),
        ({"service": "ftp://lake"}, "which is no address"),
        ({"service": "http://lake/path"}, "which is no address"),
        ({"service": "embedded"}, "instance must name the lake's folder"),
        ({"dialect": "trino"}, "this version knows: spark"),
        ({"query_tag": "x" * 300}, "write 1 to 255"),
    ],
)
def test_a_profile_that_cannot_be_used(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(DbtRuntimeError) as caught:
        credentials(**LOGIN | changed)
    assert words in str(caught.value)


def test_a_token_is_enough() -> None:
    assert credentials(service="https://lake:8910", token="hr_x", schema="dev").token == "hr_x"


# Names


def test_names_have_three_levels_and_no_case() -> None:
    relation = HeadraceRelation.create(
        database="main", schema="Dev", identifier="odd`name", type=HeadraceRelationType.DynamicTable
    )
    assert relation.render() == "`main`.`Dev`.`odd``name`"
    assert relation.matches(database="MAIN", schema="dev", identifier="ODD`NAME")
    assert relation.is_dynamic_table
    assert not relation.is_table


# Dynamic tables

SQL = "select kind, sum(price) as total from t group by kind"


def asked(sql: str = SQL, description: str | None = None, **config: Any) -> DynamicTableConfig:
    return DynamicTableConfig.asked(config, sql, description)


def described(config: DynamicTableConfig, **facts: str) -> list[dict[str, str]]:
    """DESC EXTENDED of a table that was made with this."""
    properties = {"refresh_vc": "default", **config.properties, "dbt_query": config.query, "dbt_layout": config.layout}
    block = {
        "comment": config.comment or "",
        "properties": "(" + ",".join(f'("{key}","{value}")' for key, value in sorted(properties.items())) + ")",
        "refresh_interval_second": "" if config.interval_seconds is None else str(config.interval_seconds),
        "target_lag_second": "" if config.target_lag is None else str(config.target_lag),
        "refresh_vc": config.vcluster or "default",
        "refresh_mode": config.refresh_mode,
        **facts,
    }
    rows = [("kind", "string"), ("comment", "string"), ("detailed table information:", ""), *block.items()]
    return [{"column_name": name, "data_type": kind} for name, kind in rows]


def changes(old: DynamicTableConfig, new: DynamicTableConfig) -> DynamicTableChanges:
    return DynamicTableChanges.between(DynamicTableConfig.found(described(old)), new, "d")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {}),
        ({"refresh_interval": "60 seconds"}, {"refresh_interval": "1 MINUTE"}),
        ({"refresh_interval": "1 hour", "refresh_vc": "ETL"}, {"refresh_interval": "60 minutes", "refresh_vc": "etl"}),
        ({"target_lag": "downstream"}, {"target_lag": "DOWNSTREAM"}),
        ({"partition_by": "a", "clustered_by": ["b"]}, {"partition_by": ["A"], "clustered_by": "b"}),
        ({"properties": {"a": "1", "b": "x,y"}}, {"properties": {"b": "x,y", "a": 1}}),
        ({"refresh_vc": "default"}, {}),
    ],
)
def test_what_is_the_same(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert changes(asked(**old), asked(SQL.replace(" from", "\n  -- why\nfrom"), **new)).is_empty


@pytest.mark.parametrize(
    ("old", "new", "alters"),
    [
        ({}, {"refresh_interval": "5 MINUTE"}, ["ALTER DYNAMIC TABLE d SET REFRESH INTERVAL 5 MINUTE"]),
        ({}, {"target_lag": "90 seconds"}, ["ALTER DYNAMIC TABLE d SET TARGET_LAG = '90 SECOND'"]),
        ({"refresh_vc": "a"}, {"refresh_vc": "b"}, ["ALTER DYNAMIC TABLE d SET VCLUSTER `b`"]),
        ({"refresh_vc": "a"}, {}, ["ALTER DYNAMIC TABLE d SET VCLUSTER `default`"]),
        ({}, {"refresh_mode": "full"}, ["ALTER DYNAMIC TABLE d SET REFRESH_MODE = FULL"]),
        (
            {"properties": {"a": "1", "b": "2"}},
            {"properties": {"a": "3"}},
            [
                "ALTER DYNAMIC TABLE d SET PROPERTIES ('a'='3')",
                "ALTER DYNAMIC TABLE d UNSET PROPERTIES IF EXISTS ('b')",
            ],
        ),
    ],
)
def test_what_is_altered(old: dict[str, Any], new: dict[str, Any], alters: list[str]) -> None:
    found = changes(asked(**old), asked(**new))
    assert list(found.alters) == alters
    assert not found.needs_replace
    assert not found.is_empty


def test_another_query_is_a_change() -> None:
    found = changes(asked(), asked(SQL + " having total > 0"))
    assert found.replace_query
    assert found.told == ("the query",)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ([("kind", "STRING"), ("total", "decimal(10, 2)")], None),
        ([], None),
        ([("KIND", "string"), ("total", "decimal(10,2)"), ("day", "date")], "the columns: new day"),
        ([("kind", "string")], "the columns: without total"),
        ([("kind", "int"), ("total", "decimal(10,2)")], "the columns: kind int instead of string"),
        ([("total", "decimal(10,2)"), ("kind", "string")], "the columns: in another order"),
    ],
)
def test_the_same_query_may_give_other_columns(query: list[tuple[str, str]], words: str | None) -> None:
    names = ["kind", "total", "detailed table information:", "comment"]
    kinds = ["string", "decimal(10,2)", "", ""]
    there = [{"column_name": name, "data_type": kind} for name, kind in zip(names, kinds, strict=True)]
    told = column_changes(there, query)
    assert told == words
    found = DynamicTableChanges.between(DynamicTableConfig.found(described(asked())), asked(), "d", told)
    assert found.needs_replace == (words is not None)
    assert found.told == (() if words is None else (words,))


@pytest.mark.parametrize(
    ("precondition", "sql", "asks"),
    [
        ("a source has changes", SQL, False),
        ("every operator has an incremental rule", SQL, False),
        ("main.raw.t is the same table as before", SQL, True),
        ("the columns read from main.raw.t are unchanged", SQL, True),
        ("the views and functions in the query are unchanged", SQL, True),
        ("a source has changes", "select * from t", True),
    ],
)
def test_columns_are_asked_for_only_where_they_may_be_others(precondition: str, sql: str, asks: bool) -> None:
    ran: list[str] = []

    def ask(text: str) -> list[dict[str, Any]]:
        ran.append(text)
        if text.startswith("EXPLAIN"):
            return [{"section": "precondition", "item": precondition, "value": "no"}]
        if text.startswith("DESCRIBE QUERY"):
            return [{"col_name": "kind", "data_type": "string"}, {"col_name": "more", "data_type": "int"}]
        return [row for row in described(asked(sql)) if row["column_name"] != "comment" or not row["data_type"]]

    found = changes_of(ask, "d", asked(sql), sql)
    assert any(text.startswith("DESCRIBE QUERY") for text in ran) == asks
    assert found.told == (("the columns: new more",) if asks else ())


def test_a_schedule_that_is_taken_away_keeps_the_rows() -> None:
    found = changes(asked(refresh_interval="5 MINUTE"), asked())
    assert (found.replace_query, found.replace_settings) == (False, True)
    assert "interval" not in found.clauses


def test_a_table_that_dbt_did_not_make_is_replaced() -> None:
    rows = described(asked(), properties='(("refresh_vc","default"))')
    assert DynamicTableChanges.between(DynamicTableConfig.found(rows), asked(), "d").replace_query


def test_a_comment_of_somebody_else_stays() -> None:
    there = replace(asked(), comment="mine")
    assert changes(there, asked()).is_empty
    assert "comment 'mine'" in changes(there, asked(SQL + " limit 1")).clauses
    assert changes(there, asked(description="dbt's")).alters == (r"ALTER DYNAMIC TABLE d SET COMMENT 'dbt\'s'",)


def test_the_clauses_of_a_new_table() -> None:
    config = asked(refresh_interval="5 MINUTE", refresh_vc="default", partition_by="day", target_lag="1 hour")
    assert config.clauses.splitlines() == [
        "partitioned by (`day`)",
        f"  properties ('dbt_query'='{config.query}', 'dbt_layout'='{config.layout}')",
        "  refresh interval 5 MINUTE vcluster `default`",
        "  target_lag = '1 HOUR'",
    ]


@pytest.mark.parametrize("config", [{"refresh_interval": "often"}, {"target_lag": "5"}, {"refresh_mode": "SOMETIMES"}])
def test_configs_that_cannot_be_used(config: dict[str, str]) -> None:
    with pytest.raises(DbtRuntimeError, match=str(next(iter(config.values()))).upper()[:3] + "|often|5"):
        asked(**config)


# Constraints


def test_constraints_are_properties() -> None:
    columns = {
        "id": {"name": "id", "constraints": [{"type": "not_null"}, {"type": "check", "expression": "id > 0"}]},
        "name": {"name": "name", "constraints": []},
    }
    model = [{"type": "check", "expression": "name <> ''", "name": "Has a name", "columns": ["name"]}]
    assert HeadraceAdapter.constraint_properties(columns, model) == {
        "delta.constraints.id_not_null": "`id` IS NOT NULL",
        "delta.constraints.id_check": "id > 0",
        "delta.constraints.has_a_name": "name <> ''",
    }


# Sessions


class FakeSession(Session):
    """Answers with what it was given, one after the other."""

    def __init__(self, *answers: Result | Exception) -> None:
        super().__init__(credentials(**LOGIN))
        self.answers = list(answers)
        self.ran: list[str] = []
        self.cancels = 0
        self.hold = threading.Event()
        self.hold.set()

    def _run(self, text: str) -> Result:
        self.ran.append(text)
        self.hold.wait(5)
        answer = self.answers.pop(0) if self.answers else done("Done.")
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _cancel(self) -> None:
        self.cancels += 1
        self.answers.insert(0, Cancelled("The job was cancelled."))
        self.hold.set()

    def close(self) -> None:
        self.ran.append("closed")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbt.adapters.headrace.sessions.time.sleep", lambda seconds, wait=time.sleep: wait(0.001))


LOST = QueryFailed("[DELTA_CONCURRENT_APPEND] Files were added")


def test_a_lost_race_of_commits_is_run_again() -> None:
    session = FakeSession(LOST, LOST, done("Done."))
    session.run("INSERT INTO t SELECT 1")
    assert session.ran == ["INSERT INTO t SELECT 1"] * 3
    session = FakeSession(*[LOST] * 6)
    with pytest.raises(QueryFailed):
        session.run("INSERT INTO t SELECT 1")
    assert len(session.ran) == 6


def test_who_lost_a_race_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbt.adapters.headrace.sessions.TURNS", turns := Turns())
    assert turns.of("INSERT INTO a.t SELECT 1") is None
    FakeSession(LOST).run("INSERT INTO a.t SELECT 1")
    turn = turns.of("MERGE INTO A.`T` USING s ON false WHEN NOT MATCHED THEN INSERT *")
    assert turn is not None
    assert turns.of("INSERT INTO a.other SELECT 1") is None
    assert turns.of("SELECT * FROM a.t") is None
    other = FakeSession()
    with turn:
        thread = threading.Thread(target=other.run, args=("INSERT INTO a.t SELECT 2",))
        thread.start()
        thread.join(0.05)
        assert other.ran == []
    thread.join(5)
    assert other.ran == ["INSERT INTO a.t SELECT 2"]


def test_a_session_that_the_server_has_ended() -> None:
    """The statement was not run: it is, in a new one, unless the node had left something in the old one."""
    session = FakeSession(SessionReset("gone"))
    insert = "INSERT INTO t SELECT 1"
    session.run(insert)
    assert session.ran == [insert, "USE `main`.`dev`", "SET move_streams = true", insert]
    session = FakeSession(SessionReset("gone"), done("Used."), done("Set."), done("Done."), SessionReset("gone"))
    session.run("SET time zone 'UTC'")
    with pytest.raises(SessionReset):
        session.run("SELECT 1")


def test_streams_stay_only_for_the_node_that_wants_it() -> None:
    """It is said before the first statement that could move one."""
    session = FakeSession()
    session.run("INSERT 1")
    session.leaves_streams = True
    session.run("SELECT 2")
    session.run("INSERT 3")
    session.run("INSERT 4")
    session.begin_node()
    session.run("select 5")
    session.run("INSERT 6")
    assert session.ran == [
        "INSERT 1", "SELECT 2", "SET move_streams = false", "INSERT 3", "INSERT 4", "USE `main`.`dev`", "select 5",
        "SET move_streams = true", "INSERT 6",
    ]  # fmt: skip


def test_a_refresh_waits_for_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbt.adapters.headrace.sessions._REFRESH_PAUSE", 0.001)
    session = FakeSession(RefreshRunning("running"), RefreshRunning("running"), done("Done."))
    session.run("REFRESH DYNAMIC TABLE d")
    assert len(session.ran) == 3


def test_who_waits_for_a_refresh_can_be_cancelled() -> None:
    session = FakeSession(*[RefreshRunning("running") for _ in range(1000)])
    caught: list[BaseException] = []

    def work() -> None:
        try:
            session.run("REFRESH DYNAMIC TABLE d")
        except Cancelled as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not session.ran:
        time.sleep(0.001)
    session.cancel()
    thread.join(5)
    assert len(caught) == 1


def test_what_clears_away_after_a_cancel_waits_for_no_refresh() -> None:
    session = FakeSession(*[RefreshRunning("running") for _ in range(1000)])
    session.tell_cancelled()
    with session.tidying(), pytest.raises(RefreshRunning):
        session.run("DROP DYNAMIC TABLE d")
    assert len(session.ran) == 1


def test_a_cancel_that_takes_long_goes_on_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbt.adapters.headrace.sessions._CANCEL_SECONDS", 0.01)
    session = FakeSession()
    session.hold.clear()
    cancel, waiting = session._cancel, threading.Event()

    def late() -> None:
        if waiting.is_set():
            cancel()

    monkeypatch.setattr(session, "_cancel", late)
    caught: list[BaseException] = []

    def work() -> None:
        try:
            session.run("SELECT long")
        except Cancelled as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not session.ran:
        time.sleep(0.001)
    session.cancel()
    assert thread.is_alive()
    waiting.set()
    thread.join(5)
    assert len(caught) == 1
    for each in threading.enumerate():
        if each.name == "cancel":
            each.join(5)
            assert not each.is_alive()


def test_other_errors_are_told_at_once() -> None:
    session = FakeSession(QueryFailed("[DIVIDE_BY_ZERO] no"))
    with pytest.raises(QueryFailed):
        session.run("SELECT 1/0")
    assert len(session.ran) == 1


def test_cancel_from_another_thread() -> None:
    session = FakeSession()
    session.hold.clear()
    caught: list[BaseException] = []

    def work() -> None:
        try:
            session.run("SELECT long")
        except Cancelled as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not session.ran:
        time.sleep(0.001)
    session.cancel()
    thread.join(5)
    assert session.cancels >= 1
    assert len(caught) == 1


def test_what_lost_a_race_does_not_begin_again_after_a_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    session = FakeSession(LOST)
    monkeypatch.setattr("dbt.adapters.headrace.sessions.time.sleep", lambda seconds: session.tell_cancelled())
    with pytest.raises(Cancelled):
        session.run("INSERT INTO t SELECT 1")
    assert session.ran == ["INSERT INTO t SELECT 1"]


def test_an_interrupt_is_told_to_all_before_one_is_waited_for() -> None:
    class Connections(HeadraceConnectionManager):
        def __init__(self, *held: FakeSession) -> None:
            self.lock = threading.RLock()  # type: ignore[assignment]
            self.sessions = Sessions()  # type: ignore[misc]
            self.thread_connections = {
                number: SimpleNamespace(handle=session, state=ConnectionState.OPEN, name=f"model.{number}")
                for number, session in enumerate(held)
            }  # type: ignore[assignment]

        def cancel(self, connection: Any) -> None:
            assert all(each.handle._cancelled for each in self.thread_connections.values())
            super().cancel(connection)

    held = [FakeSession(), FakeSession()]
    assert Connections(*held).cancel_open() == ["model.0", "model.1"]


def test_nothing_begins_after_a_cancel_but_tidying() -> None:
    session = FakeSession()
    session.cancel()
    assert session.cancels == 0
    with pytest.raises(Cancelled):
        session.run("MERGE INTO t")
    with session.tidying():
        session.run("DROP VIEW v")
        session.cancel()
    assert (session.ran, session.cancels) == (["DROP VIEW v"], 0)
    session.begin_node()
    session.run("SELECT 1")
    assert session.ran[-1] == "SELECT 1"


def test_a_cursor_runs_scripts_and_counts_rows() -> None:
    changed = from_rows([("num_affected_rows", pa.int64()), ("num_inserted_rows", pa.int64())], [(3, 3)])
    refreshed = from_rows(
        [("refresh_mode", pa.string()), ("stats", pa.string())],
        [("INCREMENTAL", '{"rows_deleted":"2","rows_inserted":"1"}')],
    )
    cursor = FakeSession(changed, done("Done."), refreshed).cursor()
    cursor.execute("SET x = 1; INSERT INTO t VALUES (1); -- ends here")
    assert cursor.rowcount == -1
    cursor.execute("REFRESH DYNAMIC TABLE d")
    assert cursor.rowcount == 3
    cursor = FakeSession(changed).cursor()
    cursor.execute('/* {"app": "dbt"} */ MERGE INTO t USING s ON false WHEN NOT MATCHED THEN INSERT *')
    assert (cursor.rowcount, cursor.description) == (3, None)
    cursor = FakeSession(from_rows([("status", pa.string())], [("x",)])).cursor()
    cursor.execute("/* c */ SELECT status FROM t WHERE a = %s", ["O'Brien"])
    assert cursor.fetchall() == [("x",)]
    assert cursor.description is not None


@pytest.mark.parametrize("answer", [NotFound("There is no schema main.dev."), Forbidden("Nothing was granted in it.")])
def test_a_session_is_taken_up_again(monkeypatch: pytest.MonkeyPatch, answer: HeadraceError) -> None:
    sessions = Sessions()
    made: list[FakeSession] = []

    def begun(_: HeadraceCredentials) -> Session:
        made.append(FakeSession(answer))
        return made[-1]

    monkeypatch.setattr(sessions, "_begun", begun)
    profile = credentials(**LOGIN)
    first = sessions.take(profile)
    sessions.give_back(profile, first)
    again = sessions.take(profile)
    other = sessions.take(profile)
    assert again is first
    assert other is not first
    # The schema was not there yet when the first one began, and is used as soon as it is.
    assert made[0].ran == ["USE `main`.`dev`"] * 2
    for session in (again, other):
        sessions.give_back(profile, session)
    sessions.close_all()
    assert [session.ran[-1] for session in made] == ["closed", "closed"]


class FakeSessions(Sessions):
    """Makes sessions that answer with what it was given."""

    def __init__(self, *answers: Result | Exception) -> None:
        super().__init__()
        self.answers = answers
        self.made: list[FakeSession] = []

    def _begun(self, credentials: HeadraceCredentials) -> Session:
        self.made.append(FakeSession(*self.answers))
        return self.made[-1]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("SELECT 1", True),
        ("CREATE OR REPLACE VIEW v AS SELECT 1", True),
        ("-- why\nset time zone 'UTC'", False),
        ("use other", False),
        ("CREATE OR REPLACE GLOBAL TEMPORARY VIEW v AS SELECT 1", False),
        ("CREATE TEMP FUNCTION f() RETURN 1", False),
        ("DECLARE VARIABLE x INT", False),
        ("CACHE TABLE t", False),
    ],
)
def test_what_a_node_leaves_ends_with_its_session(text: str, kept: bool) -> None:
    sessions, profile = FakeSessions(), credentials(**LOGIN)
    session = sessions.take(profile)
    session.cursor().execute(f'/* {{"app": "dbt"}} */ {text}')
    sessions.give_back(profile, session)
    assert (sessions.take(profile) is session) == kept
    assert ("closed" in sessions.made[0].ran) != kept


def test_views_that_the_adapter_drops_itself_keep_no_session_from_the_next_node() -> None:
    sessions, profile = FakeSessions(), credentials(**LOGIN)
    session = sessions.take(profile)
    session.run("/* x */ create or replace temporary view `m__dbt_tmp` as select 1")
    assert session.has_state
    session.run("/* x */ drop view if exists `m__dbt_tmp`")
    assert not session.has_state
    session.run("create or replace temporary view `m` as select 1")
    session.run("drop view if exists `m`")
    assert session.has_state, "somebody else's"


def test_columns_are_remembered_until_something_changes() -> None:
    session = FakeSession()
    session.remembered["`t`"] = [("a", "int")]
    for text in ("/* x */ DESC TABLE t", "select 1", "with a as (select 1) select * from a", "show tables"):
        session.run(text)
    assert session.remembered
    session.run("alter table t add columns (b int)")
    assert not session.remembered


def test_cancelling_a_connection_that_was_just_given_back() -> None:
    manager = HeadraceConnectionManager.__new__(HeadraceConnectionManager)
    manager.cancel(SimpleNamespace(handle=None))  # type: ignore[arg-type]


def test_a_session_that_cannot_begin_is_closed() -> None:
    sessions = FakeSessions(QueryFailed("no"))
    with pytest.raises(QueryFailed):
        sessions.take(credentials(**LOGIN))
    assert sessions.made[0].ran[-1] == "closed"


def test_after_an_interrupt_only_the_main_thread_gets_sessions() -> None:
    sessions, profile = FakeSessions(), credentials(**LOGIN)
    sessions.interrupt()
    assert sessions.take(profile)
    caught: list[BaseException] = []

    def node() -> None:
        try:
            sessions.take(profile)
        except Cancelled as error:
            caught.append(error)

    for _ in range(2):
        thread = threading.Thread(target=node)
        thread.start()
        thread.join(5)
        sessions.close_all()
    assert len(caught) == 1


def test_who_loses_all_keeps_what_is_asked_for() -> None:
    asked: dict[str, list[str] | str] = {"select": ["ann", "bob"], "all": ["eve"]}
    again = HeadraceAdapter.granted_again
    assert again({"all": ["eve"]}, asked, {"all": ["Ann"]}) == {"all": ["eve"], "select": ["ann"]}
    assert again({"select": ["ann"]}, asked, {"all": ["ann"]}) == {"select": ["ann"]}
    assert again({}, {"select": "ann"}, {}) == {}


def test_nodes_that_only_look() -> None:
    class Looking(HeadraceConnectionManager):
        def __init__(self, **args: Any) -> None:
            self.profile = SimpleNamespace(args=SimpleNamespace(**args))  # type: ignore[assignment]

    assert not Looking(EMPTY=False, SAMPLE=None).only_looks("model.shop.m")
    assert Looking(EMPTY=False).only_looks("test.shop.not_null_m")
    assert Looking(EMPTY=True).only_looks("model.shop.m")
    assert Looking(SAMPLE="3 days").only_looks("model.shop.m")


# The package


def test_the_wheel_has_every_file(tmp_path: Path) -> None:
    """Macros are no Python: a package that leaves them out imports well, and builds nothing."""
    package = Path(__file__).parent.parent.parent / "packages" / "dbt-headrace"
    quiet = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "wheel", *quiet, "--wheel-dir", str(tmp_path), str(package)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(next(tmp_path.glob("dbt_headrace-*.whl"))) as wheel:
        found = {name for name in wheel.namelist() if name.startswith("dbt/")}
    files = [file for file in (package / "src").rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert found == {str(file.relative_to(package / "src")) for file in files}
    assert len([name for name in found if name.endswith(".sql")]) > 20
    assert not [name for name in found if name in ("dbt/__init__.py", "dbt/adapters/__init__.py")]


# Seeds


def test_empty_texts_and_nulls_of_a_seed(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text('id,name,note,size\n1,O\'Brien,"",1.5\n2,"",,\n9007199254740993,,"",""\n')
    table = from_csv(str(file), text_columns=[])
    model = {"root_path": str(tmp_path), "original_file_path": "people.csv"}
    seed = read(table, model, {"size": "float"}, lambda place: HeadraceAdapter.convert_agate_type(table, place))
    assert seed.types == ["bigint", "string", "string", "float"]
    assert seed.batches == [r"(1, 'O\'Brien', '', 1.5D), (2, '', NULL, NULL), (9007199254740993, NULL, '', NULL)"]


def test_a_long_seed_takes_several_statements(tmp_path: Path) -> None:
    file = tmp_path / "long.csv"
    file.write_text("id,name\n" + "".join(f"{number},{'x' * 1000}\n" for number in range(1000)))
    table = from_csv(str(file), text_columns=[])
    seed = read(table, {}, {}, lambda place: HeadraceAdapter.convert_agate_type(table, place))
    assert len(seed.batches) == 3
    assert sum(batch.count("(") for batch in seed.batches) == 1000
