"""Table streams in SQL: what they show, and when they move."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import Lake
from headrace.errors import AlreadyExists, BadSetting, NotAllowed, NotFound, Position, StaleStream, UserError
from headrace.session import Session

ALL = "SELECT __change_type, __commit_version, id, name FROM s ORDER BY 2, 1, 3"


@pytest.fixture
def orders(lake: Lake) -> Lake:
    """A table of two rows in version 1, and a stream on it."""
    lake.sql("CREATE TABLE t (id INT, name STRING); INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    lake.sql("CREATE TABLE STREAM s ON TABLE t")
    lake.sql("CREATE TABLE target (kind STRING, id INT, name STRING)")
    return lake


def change(lake: Lake) -> None:
    lake.sql("INSERT INTO t VALUES (3, 'c'); UPDATE t SET name = 'A' WHERE id = 1; DELETE FROM t WHERE id = 2")


CHANGES = [
    ("INSERT", 2, 3, "c"),
    ("UPDATE_AFTER", 3, 1, "A"),
    ("UPDATE_BEFORE", 3, 1, "a"),
    ("DELETE", 4, 2, "b"),
]
CONSUME = "INSERT INTO target SELECT __change_type, id, name FROM s"


def described(lake: Lake, name: str = "s") -> dict[str, str]:
    return dict(lake.sql(f"DESC TABLE STREAM {name}").rows)


def taken(lake: Lake) -> list[tuple[Any, ...]]:
    return lake.sql("SELECT * FROM target ORDER BY 1, 2, 3").rows


def test_shows_all_changes_since_its_creation(orders: Lake) -> None:
    assert orders.sql(ALL).rows == []
    change(orders)
    assert orders.sql(ALL).rows == CHANGES
    assert orders.sql("SELECT * FROM s").columns == [
        "__change_type", "__commit_version", "__commit_timestamp", "id", "name",
    ]  # fmt: skip
    assert orders.sql(ALL).rows == CHANGES, "a SELECT moves nothing"


def test_moves_with_the_statement_that_writes(orders: Lake) -> None:
    change(orders)
    orders.sql(CONSUME)
    assert taken(orders) == sorted((kind, key, name) for kind, _, key, name in CHANGES)
    assert orders.sql(ALL).rows == []
    orders.sql(CONSUME)
    assert len(taken(orders)) == 4
    orders.sql("INSERT INTO t VALUES (9, 'z')")
    assert orders.sql(ALL).rows == [("INSERT", 5, 9, "z")]


def test_streams_on_one_table_are_independent(orders: Lake) -> None:
    orders.sql("CREATE TABLE STREAM other ON TABLE t")
    change(orders)
    orders.sql(CONSUME)
    assert len(orders.sql("SELECT * FROM other").rows) == 4
    assert orders.sql("SELECT * FROM s").rows == []


def test_append_only_shows_inserted_rows(orders: Lake) -> None:
    orders.sql("CREATE TABLE STREAM a ON TABLE t WITH PROPERTIES ('TABLE_STREAM_MODE' = 'APPEND_ONLY')")
    change(orders)
    orders.sql("UPDATE t SET name = 'later' WHERE id = 3; DELETE FROM t WHERE id = 3")
    assert orders.sql("SELECT __change_type, id, name FROM a").rows == [("INSERT", 3, "c")]


def test_initial_rows_come_once(orders: Lake) -> None:
    orders.sql("CREATE TABLE STREAM i ON TABLE t WITH PROPERTIES ('SHOW_INITIAL_ROWS' = 'TRUE')")
    orders.sql("INSERT INTO t VALUES (3, 'c')")
    wanted = [("INSERT", 1, 1, "a"), ("INSERT", 1, 2, "b"), ("INSERT", 2, 3, "c")]
    assert orders.sql(ALL.replace("FROM s", "FROM i")).rows == wanted
    orders.sql("INSERT INTO target SELECT __change_type, id, name FROM i")
    assert len(taken(orders)) == 3
    assert orders.sql("SELECT * FROM i").rows == []


def test_can_start_at_a_version_or_a_timestamp(orders: Lake) -> None:
    orders.sql("CREATE TABLE STREAM v ON TABLE t VERSION AS OF 0")
    assert orders.sql("SELECT id FROM v ORDER BY id").rows == [(1,), (2,)]
    moment = orders.sql("SELECT max(__commit_timestamp) AS at FROM v").rows[0][0]
    change(orders)
    orders.sql(f"CREATE TABLE STREAM w ON TABLE t TIMESTAMP AS OF '{moment}' COMMENT 'from then'")
    assert orders.sql(ALL.replace("FROM s", "FROM w")).rows == CHANGES
    assert described(orders, "w")["comment"] == "from then"
    with pytest.raises(UserError, match="no version 77"):
        orders.sql("CREATE TABLE STREAM x ON TABLE t VERSION AS OF 77")
    with pytest.raises(UserError, match="history begins"):
        orders.sql("CREATE TABLE STREAM x ON TABLE t TIMESTAMP AS OF '2001-01-01'")


def test_rewinds(orders: Lake) -> None:
    change(orders)
    orders.sql(CONSUME)
    orders.sql("ALTER TABLE STREAM s SET OFFSET VERSION AS OF 3")
    assert orders.sql(ALL).rows == CHANGES[3:]
    with pytest.raises(UserError, match="no version 99"):
        orders.sql("ALTER TABLE STREAM s SET OFFSET VERSION AS OF 99")


WRITES = (
    "MERGE INTO target t USING (SELECT * FROM s WHERE __change_type <> 'UPDATE_BEFORE') c ON t.id = c.id "
    "WHEN MATCHED THEN UPDATE SET name = c.name WHEN NOT MATCHED THEN INSERT (kind, id, name) "
    "VALUES (c.__change_type, c.id, c.name)",
    "INSERT OVERWRITE target SELECT __change_type, id, name FROM s",
    "INSERT INTO target SELECT 'one', id, name FROM t WHERE id IN (SELECT id FROM s)",
    "INSERT INTO target WITH c AS (SELECT * FROM s) SELECT __change_type, id, name FROM c WHERE false",
    "INSERT INTO target SELECT a.__change_type, a.id, b.name FROM s a JOIN s b USING (id, __change_type)",
    "CREATE TABLE made AS SELECT * FROM s",
    "CREATE OR REPLACE TABLE made AS SELECT * FROM s",
)


def test_every_kind_of_write_moves_it(orders: Lake) -> None:
    for number, statement in enumerate(WRITES):
        orders.sql(f"INSERT INTO t VALUES ({10 + number}, 'x')")
        assert len(orders.sql("SELECT * FROM s").rows) == 1, statement
        orders.sql(statement)
        assert orders.sql("SELECT * FROM s").rows == [], statement
    assert orders.sql("SELECT id FROM made").rows == [(16,)]


def test_a_merge_over_a_view_over_the_stream(orders: Lake, schema: str) -> None:
    """As dbt does it: through a temporary view; and through a view in the catalog."""
    merge = (
        "MERGE INTO target t USING v ON false WHEN NOT MATCHED THEN INSERT (kind, id, name) VALUES ('x', v.id, v.name)"
    )
    orders.sql("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT id, name FROM s WHERE __change_type = 'INSERT'")
    orders.sql("INSERT INTO t VALUES (3, 'c')")
    orders.sql(merge)
    assert taken(orders) == [("x", 3, "c")]
    orders.sql("DROP VIEW v")
    orders.sql(f"CREATE VIEW w AS SELECT id, name FROM {schema}.s; CREATE VIEW v AS SELECT * FROM w")
    orders.sql("INSERT INTO t VALUES (4, 'd')")
    assert orders.sql("SELECT * FROM v").rows == [(4, "d")]
    orders.sql(merge)
    assert taken(orders) == [("x", 3, "c"), ("x", 4, "d")]
    assert orders.sql("SELECT * FROM s").rows == []
    orders.sql(merge)
    assert len(taken(orders)) == 2
    orders.sql("INSERT INTO t VALUES (5, 'e')")
    assert orders.sql("TABLE v").rows == [(5, "e")]


def test_a_statement_that_reads_two_streams_moves_both(orders: Lake) -> None:
    orders.sql("CREATE TABLE u (id INT, name STRING); CREATE TABLE STREAM r ON TABLE u")
    orders.sql("INSERT INTO t VALUES (3, 'c'); INSERT INTO u VALUES (7, 'u')")
    orders.sql("INSERT INTO target SELECT 's', id, name FROM s UNION ALL SELECT 'r', id, name FROM r")
    assert taken(orders) == [("r", 7, "u"), ("s", 3, "c")]
    assert orders.sql("SELECT id FROM s UNION ALL SELECT id FROM r").rows == []


def test_a_session_that_leaves_streams_where_they_are(orders: Lake, schema: str) -> None:
    change(orders)
    kept = sorted((kind, key, name) for kind, _, key, name in CHANGES)
    assert "leave the table streams" in orders.sql("SET move_streams = false").rows[0][0]
    try:
        orders.sql(CONSUME)
        orders.sql("CREATE TABLE copy AS SELECT __change_type AS kind, id, name FROM s")
        assert taken(orders) == kept
        assert orders.sql("SELECT * FROM copy ORDER BY 1, 2, 3").rows == kept
        assert orders.sql(ALL).rows == CHANGES
        Session(orders).table("s").collect()
        assert orders.sql(ALL).rows == CHANGES
        other = orders.session(orders._context.user, schema=schema)
        job = other.submit("INSERT INTO copy SELECT __change_type, id, name FROM s")
        job.wait()
        assert job.error is None
        assert orders.sql(ALL).rows == [], "another session moves them"
    finally:
        orders.sql("SET move_streams = true")
    orders.sql("INSERT INTO t VALUES (9, 'z')")
    orders.sql(CONSUME)
    assert orders.sql(ALL).rows == []


def test_the_streams_that_a_query_reads(orders: Lake, schema: str) -> None:
    orders.sql("CREATE TABLE STREAM other ON TABLE t")
    orders.sql("CREATE VIEW v AS SELECT id FROM s; CREATE VIEW w AS SELECT * FROM v")

    def read_by(query: str) -> list[str]:
        found = orders.sql(f"SHOW TABLE STREAMS READ BY {query}")
        assert found.columns == orders.sql("SHOW TABLE STREAMS").columns
        return [row[2] for row in found.rows]

    assert read_by("SELECT * FROM t") == []
    assert read_by(f"SELECT * FROM main.{schema}.w WHERE id IN (SELECT id FROM other)") == ["other", "s"]
    assert read_by("WITH s AS (SELECT 1 AS id) SELECT * FROM s -- other") == []
    with pytest.raises(NotAllowed, match="needs a query"):
        read_by("DROP TABLE t")
    with pytest.raises(NotFound) as caught:
        read_by("SELECT *\nFROM nowhere")
    assert caught.value.position == Position(2, 6)


def test_a_failed_statement_moves_nothing(orders: Lake) -> None:
    change(orders)
    for wrong in (
        "INSERT INTO target SELECT __change_type, id, raise_error('no') FROM s",
        "INSERT INTO nowhere SELECT * FROM s",
        "INSERT INTO target SELECT missing, id, name FROM s",
    ):
        with pytest.raises(UserError):
            orders.sql(wrong)
    assert orders.sql(ALL).rows == CHANGES
    assert orders._context.store.streams.unfinished() == []
    orders.sql(CONSUME)
    assert len(taken(orders)) == 4


def test_what_cannot_move_with_a_commit_is_refused(orders: Lake, tmp_path: Any) -> None:
    change(orders)
    orders.sql("CREATE TABLE files (id INT) USING parquet")
    with pytest.raises(NotAllowed, match="no Delta table"):
        orders.sql("INSERT INTO files SELECT id FROM s")
    with pytest.raises(NotAllowed, match="no Delta table"):
        orders.sql("CREATE TABLE more USING parquet AS SELECT id FROM s")
    assert not orders.spark.catalog.tableExists("more")
    orders.sql("CREATE TEMPORARY VIEW over AS SELECT * FROM target")
    with pytest.raises(NotFound, match="temporary view"):
        orders.sql("MERGE INTO over USING s ON over.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)")
    orders.sql("DROP VIEW over")
    with pytest.raises(NotAllowed, match="exactly one"):
        orders.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}/x' USING parquet SELECT id FROM s")
    assert orders.sql(ALL).rows == CHANGES
    assert orders._context.store.streams.unfinished() == []
    database = orders.spark.catalog.currentDatabase()
    orders.sql(f"INSERT INTO spark_catalog.{database}.target SELECT __change_type, id, name FROM s")
    assert len(taken(orders)) == 4
    assert orders.sql(ALL).rows == []


def test_a_stream_on_a_dynamic_table(orders: Lake) -> None:
    orders.sql("CREATE DYNAMIC TABLE d AS SELECT name, count(*) AS n FROM t GROUP BY name HAVING count(*) < 3")
    orders.sql("CREATE TABLE STREAM ds ON TABLE d")
    orders.sql("INSERT INTO t VALUES (3, 'a'), (4, 'c'); REFRESH DYNAMIC TABLE d")
    shown = "SELECT __change_type, name, n FROM ds ORDER BY name, n"
    assert orders.sql(shown).rows == [("DELETE", "a", 1), ("INSERT", "a", 2), ("INSERT", "c", 1)]
    orders.sql("CREATE TABLE log AS SELECT * FROM ds")
    assert orders.sql(shown).rows == []
    orders.sql("INSERT INTO t VALUES (5, 'a'); ALTER DYNAMIC TABLE d SET REFRESH_MODE = FULL; REFRESH DYNAMIC TABLE d")
    assert orders.sql(shown).rows == [("DELETE", "a", 2)], "what a full refresh writes again is no change"
    assert orders.sql("VERIFY DYNAMIC TABLE d").rows[0][1] == "EQUAL"
    orders.sql("CREATE TABLE STREAM da ON TABLE d WITH PROPERTIES ('TABLE_STREAM_MODE' = 'APPEND_ONLY')")
    orders.sql("ALTER DYNAMIC TABLE d SET REFRESH_MODE = AUTO; DELETE FROM t WHERE id = 4; REFRESH DYNAMIC TABLE d")
    assert orders.sql("SELECT STREAM_HAS_DATA('da')").rows == [(False,)], "a row that goes is appended to the storage"


def test_days_that_were_left_out_of_the_calendar(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (d DATE, ts TIMESTAMP); CREATE TABLE STREAM s ON TABLE t")
    lake.sql("INSERT INTO t VALUES (DATE'1582-10-10', TIMESTAMP'1582-10-10 01:00:00')")
    shown = lake.sql("SELECT CAST(d AS STRING), CAST(ts AS STRING) FROM s").rows
    assert shown == [("1582-10-10", "1582-10-10 01:00:00")]


def test_a_stream_on_a_dynamic_table_tells_the_sign_of_zero(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (x DOUBLE, a ARRAY<FLOAT>); CREATE DYNAMIC TABLE d AS SELECT x, a FROM t")
    lake.sql("CREATE TABLE STREAM s ON TABLE d; INSERT INTO t VALUES (-0.0D, array(0.0F)), (0.0D, array(-0.0F))")
    lake.sql("REFRESH DYNAMIC TABLE d")
    shown = "SELECT __change_type, CAST(x AS STRING), CAST(a AS STRING) FROM s ORDER BY 1, 2"
    assert lake.sql(shown).rows == [("INSERT", "-0.0", "[0.0]"), ("INSERT", "0.0", "[-0.0]")]
    lake.sql("DELETE FROM t WHERE CAST(x AS STRING) = '0.0'; REFRESH DYNAMIC TABLE d")
    assert lake.sql(shown).rows[0] == ("DELETE", "0.0", "[-0.0]")


def test_dynamic_tables_cannot_read_streams(orders: Lake) -> None:
    with pytest.raises(NotAllowed, match="table stream"):
        orders.sql("CREATE DYNAMIC TABLE d AS SELECT id FROM s")


def test_show_and_describe(orders: Lake, schema: str) -> None:
    shown = f"SELECT name, table_name, mode, offset, has_data, stale FROM (SHOW TABLE STREAMS IN {schema})"
    assert orders.sql(shown).rows == [("s", f"main.{schema}.t", "STANDARD", 1, False, False)]
    change(orders)
    assert orders.sql(shown).rows[0][4] is True
    told = described(orders)
    assert (told["mode"], told["offset"], told["changes_waiting"]) == ("STANDARD", "version 1", "4")
    assert told["stale"] == "false"
    assert told["stale_after"] > told["created_time"]
    orders.sql("ALTER TABLE STREAM s SET COMMENT 'mine'")
    assert described(orders)["comment"] == "mine"
    assert described(orders)["last_read_into"] == ""
    orders.sql("CREATE TABLE copied AS SELECT id FROM s")
    assert described(orders)["last_read_into"] == f"main.{schema}.copied"
    orders.sql("ALTER TABLE STREAM s SET OFFSET VERSION AS OF 1")
    assert orders.sql(f"SELECT last_read_into FROM (SHOW TABLE STREAMS IN {schema})").rows == [(None,)]
    assert orders.sql(f"SHOW TABLES IN {schema} LIKE 's'").rows == []
    assert orders.sql(f"SHOW TABLE STREAMS IN {schema} LIKE 'x%'").rows == []


def test_has_data(orders: Lake) -> None:
    orders.sql("CREATE TABLE STREAM a ON TABLE t WITH PROPERTIES ('TABLE_STREAM_MODE' = 'APPEND_ONLY')")
    has = "SELECT STREAM_HAS_DATA('s'), stream_has_data('a') AS only_inserts"
    result = orders.sql(has)
    assert (result.columns, result.rows) == (["STREAM_HAS_DATA('s')", "only_inserts"], [(False, False)])
    orders.sql("UPDATE t SET name = 'x' WHERE id = 1")
    assert orders.sql(has).rows == [(True, False)]
    orders.sql("INSERT INTO t VALUES (3, 'c')")
    assert orders.sql(has).rows == [(True, True)]
    assert orders.sql("SELECT if(STREAM_HAS_DATA('s'), STREAM_HAS_DATA('a'), false) AS both").rows == [(True,)]
    with pytest.raises(NotFound, match="no table stream"):
        orders.sql("SELECT STREAM_HAS_DATA('nothing')")
    with pytest.raises(NotAllowed, match="in a view"):
        orders.sql("CREATE VIEW h AS SELECT STREAM_HAS_DATA('s') AS h")


def test_create_drop_and_names(orders: Lake) -> None:
    change(orders)
    with pytest.raises(AlreadyExists, match="exists already"):
        orders.sql("CREATE TABLE STREAM s ON TABLE t")
    orders.sql("CREATE TABLE STREAM IF NOT EXISTS s ON TABLE t")
    assert orders.sql(ALL).rows == CHANGES
    orders.sql("CREATE OR REPLACE TABLE STREAM s ON TABLE t")
    assert orders.sql(ALL).rows == []
    with pytest.raises(AlreadyExists, match="no table stream"):
        orders.sql("CREATE TABLE STREAM target ON TABLE t")
    with pytest.raises(NotFound, match="no table"):
        orders.sql("CREATE TABLE STREAM x ON TABLE nowhere")
    with pytest.raises(NotAllowed, match="itself a table stream"):
        orders.sql("CREATE TABLE STREAM x ON TABLE s")
    with pytest.raises(BadSetting, match="SIDEWAYS"):
        orders.sql("CREATE TABLE STREAM x ON TABLE t WITH PROPERTIES ('TABLE_STREAM_MODE' = 'SIDEWAYS')")
    for refused in ("DROP VIEW s", "DROP TABLE s", "INSERT INTO s VALUES (1)", "CREATE OR REPLACE VIEW s AS SELECT 1"):
        with pytest.raises(NotAllowed, match="a table stream"):
            orders.sql(refused)
    orders.sql("DROP TABLE STREAM s; DROP TABLE STREAM IF EXISTS s")
    with pytest.raises(NotFound):
        orders.sql("SELECT * FROM s")
    with pytest.raises(NotFound, match="no table stream"):
        orders.sql("DROP TABLE STREAM s")


def test_needs_change_tracking(orders: Lake) -> None:
    orders.sql("CREATE TABLE dark (id INT) TBLPROPERTIES ('change_tracking' = 'false')")
    with pytest.raises(NotAllowed, match="does not track") as fault:
        orders.sql("CREATE TABLE STREAM x ON TABLE dark")
    assert "ALTER TABLE" in str(fault.value.hint)
    orders.sql("ALTER TABLE dark SET PROPERTIES ('change_tracking' = 'true'); CREATE TABLE STREAM x ON TABLE dark")
    orders.sql("INSERT INTO dark VALUES (1)")
    assert orders.sql("SELECT id FROM x").rows == [(1,)]


def test_added_columns_are_shown(orders: Lake) -> None:
    orders.sql("INSERT INTO t VALUES (3, 'c'); ALTER TABLE t ADD COLUMNS (more INT); INSERT INTO t VALUES (4, 'd', 5)")
    assert orders.sql("SELECT id, more FROM s ORDER BY id").rows == [(3, None), (4, 5)]


def test_a_replaced_table_makes_it_stale(orders: Lake) -> None:
    orders.sql("DROP TABLE t; CREATE TABLE t (id INT, name STRING); INSERT INTO t VALUES (8, 'new')")
    for read in (ALL, CONSUME):
        with pytest.raises(StaleStream, match="dropped and created again") as fault:
            orders.sql(read)
        assert "CREATE OR REPLACE TABLE STREAM" in str(fault.value.hint)
    assert orders.sql("SHOW TABLE STREAMS LIKE 's'").rows[0][8] is True
    assert "true" in described(orders)["stale"]
    assert orders.sql("SELECT 's' AS s").rows == [("s",)], "a word is not a read"
    orders.sql("CREATE OR REPLACE TABLE STREAM s ON TABLE t; INSERT INTO t VALUES (9, 'z')")
    assert orders.sql("SELECT id FROM s").rows == [(9,)]


def test_vacuum_is_held_back_and_missing_files_are_told(orders: Lake) -> None:
    change(orders)
    orders.sql("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
    assert orders.sql("VACUUM t RETAIN 0 HOURS").rows[0][2] == f"the table stream {described(orders)['workspace']}." + (
        f"{described(orders)['schema']}.s"
    )
    assert orders.sql(ALL).rows == CHANGES
    path = orders._context.store.streams.all()[0].source_path
    orders.spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    orders.sql("SET spark.databricks.delta.retentionDurationCheck.enabled = true")
    for read in (ALL, CONSUME):
        with pytest.raises(StaleStream, match="files with changes"):
            orders.sql(read)


def test_a_restored_target_says_what_it_lost(orders: Lake) -> None:
    change(orders)
    orders.sql(CONSUME)
    told = orders.sql("RESTORE TABLE target TO VERSION AS OF 0").rows[0][0]
    assert "SET OFFSET VERSION AS OF 1" in told
    orders.sql(told[told.index("ALTER TABLE STREAM") : -1])
    orders.sql(CONSUME)
    assert len(taken(orders)) == 4
    orders.sql("CREATE TABLE STREAM i ON TABLE t WITH PROPERTIES ('SHOW_INITIAL_ROWS' = 'TRUE')")
    orders.sql("INSERT INTO target SELECT __change_type, id, name FROM i")
    told = orders.sql("RESTORE TABLE target TO VERSION AS OF 0").rows[0][0]
    orders.sql(told[told.index("CREATE OR REPLACE TABLE STREAM") : -1])
    assert len(orders.sql("SELECT * FROM i").rows) == 2


def test_change_tracking_that_was_off_for_a_while_makes_it_stale(orders: Lake) -> None:
    orders.sql("ALTER TABLE t SET PROPERTIES ('change_tracking' = 'false'); INSERT INTO t VALUES (5, 'e')")
    with pytest.raises(StaleStream, match="switched off"):
        orders.sql(ALL)
    orders.sql("ALTER TABLE t SET PROPERTIES ('change_tracking' = 'true'); INSERT INTO t VALUES (6, 'f')")
    for read in (ALL, CONSUME):
        with pytest.raises(StaleStream, match="cannot tell"):
            orders.sql(read)


def test_a_table_that_is_there_is_left_alone_and_so_is_the_stream(orders: Lake) -> None:
    change(orders)
    orders.sql("CREATE TABLE IF NOT EXISTS target AS SELECT __change_type, id, name FROM s")
    assert taken(orders) == []
    assert orders.sql(ALL).rows == CHANGES
    database = orders.spark.catalog.currentDatabase()
    orders.sql(f"CREATE TABLE IF NOT EXISTS spark_catalog.{database}.target AS SELECT __change_type, id, name FROM s")
    assert orders.sql(ALL).rows == CHANGES
    assert orders._context.store.streams.unfinished() == []
    orders.sql("CREATE TABLE IF NOT EXISTS another AS SELECT __change_type, id, name FROM s")
    assert orders.sql(ALL).rows == []


def test_a_stream_and_time_travel_mean_the_same_moment(orders: Lake) -> None:
    """Delta's clock is the commit file's; what is written in the commit is some milliseconds earlier."""
    change(orders)
    told = dict(orders.sql("SELECT DISTINCT __commit_version, __commit_timestamp FROM s").rows)
    for commit in orders._context.logs.history(orders._context.store.streams.all()[0].source_path):
        if commit.version in told:
            orders.sql(f"CREATE OR REPLACE TABLE STREAM at ON TABLE t TIMESTAMP AS OF '{told[commit.version]}'")
            assert described(orders, "at")["offset"] == f"version {commit.version}"
    orders.sql("CREATE OR REPLACE TABLE STREAM at ON TABLE t WITH PROPERTIES ('SHOW_INITIAL_ROWS' = 'TRUE')")
    assert orders.sql("SELECT DISTINCT __commit_timestamp FROM at").rows == [(told[4],)]
    with pytest.raises(UserError, match="future"):
        orders.sql("CREATE OR REPLACE TABLE STREAM at ON TABLE t TIMESTAMP AS OF '2999-01-01'")


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("INSERT INTO s VALUES (1)", "the table that it reads is"),
        ("DROP TABLE s", "DROP TABLE STREAM"),
        ("CREATE TABLE s (id INT)", "another name"),
        ("CREATE TABLE STREAM other ON TABLE s", "the table that it reads"),
        ("CREATE STREAM other ON TABLE t", "CREATE TABLE STREAM"),
        ("SHOW STREAMS", "SHOW TABLE STREAMS"),
        ("RESTORE TABLE s TO VERSION AS OF 0", "the table that it reads is"),
        ("SELECT * FROM stream_that_is_not_there", "SHOW TABLE STREAMS"),
    ],
)
def test_what_is_wrong_and_what_to_do(orders: Lake, statement: str, hint: str) -> None:
    with pytest.raises(UserError) as refused:
        orders.sql(statement)
    assert hint in (refused.value.hint or "")


def test_an_update_that_asks_a_stream_moves_it(orders: Lake) -> None:
    change(orders)
    orders.sql("INSERT INTO target VALUES ('x', 0, 'n')")
    orders.sql("UPDATE target SET id = id + (SELECT CAST(count(*) AS INT) FROM s)")
    assert taken(orders) == [("x", 4, "n")]
    assert orders.sql(ALL).rows == []


@pytest.mark.parametrize("option", ["userMetadata", "txnAppId"])
def test_options_that_hide_the_commit_are_refused(orders: Lake, option: str) -> None:
    change(orders)
    with pytest.raises(NotAllowed, match=option):
        orders.sql(f"INSERT INTO target WITH ('{option}' = 'x') SELECT __change_type, id, name FROM s")
    orders.sql(f"INSERT INTO target WITH ('{option}' = 'x') SELECT 'plain', 1, 'n'" if option == "userMetadata" else "")
    assert orders.sql(ALL).rows == CHANGES


def test_a_plan_that_spark_cuts_off_is_refused(orders: Lake) -> None:
    change(orders)
    orders.sql("SET spark.sql.maxPlanStringLength = 100")
    try:
        with pytest.raises(NotAllowed, match="cut off"):
            orders.sql(CONSUME)
    finally:
        orders.sql("RESET spark.sql.maxPlanStringLength")
    orders.sql(CONSUME)
    assert len(taken(orders)) == 4


def test_initial_rows_of_a_table_that_got_a_column(orders: Lake) -> None:
    orders.sql("CREATE TABLE STREAM i ON TABLE t WITH PROPERTIES ('SHOW_INITIAL_ROWS' = 'TRUE')")
    orders.sql("ALTER TABLE t ADD COLUMN more INT")
    assert sorted(orders.sql("SELECT id, more FROM i").rows) == [(1, None), (2, None)]
    orders.sql("INSERT INTO t VALUES (3, 'c', 7)")
    orders.sql("CREATE TABLE copied AS SELECT id, more FROM i")
    assert sorted(orders.sql("SELECT * FROM copied").rows) == [(1, None), (2, None), (3, 7)]
    assert len(orders.sql("SHOW TABLE STREAMS").rows) >= 2


def test_a_start_before_changes_were_tracked_is_refused(orders: Lake) -> None:
    orders.sql("CREATE TABLE quiet (id INT) PROPERTIES ('change_tracking' = 'false'); INSERT INTO quiet VALUES (1)")
    orders.sql("INSERT INTO quiet VALUES (2); ALTER TABLE quiet SET PROPERTIES ('change_tracking' = 'true')")
    orders.sql("INSERT INTO quiet VALUES (3)")
    with pytest.raises(NotAllowed, match="did not track"):
        orders.sql("CREATE TABLE STREAM q ON TABLE quiet VERSION AS OF 0")
    orders.sql("CREATE TABLE STREAM q ON TABLE quiet VERSION AS OF 3")
    assert orders.sql("SELECT id FROM q").rows == [(3,)]
    with pytest.raises(NotAllowed, match="did not track"):
        orders.sql("ALTER TABLE STREAM q SET OFFSET VERSION AS OF 1")


def test_restores_in_a_row_say_what_they_take(orders: Lake) -> None:
    change(orders)
    path = orders._context.locate(orders.spark.catalog.currentDatabase(), "target")
    assert path is not None
    orders.sql(f"INSERT INTO delta.`file://{path.source.path}/` SELECT __change_type, id, name FROM s")
    assert "SET OFFSET" in orders.sql("RESTORE TABLE target TO VERSION AS OF 0").rows[0][0]
    orders.sql("RESTORE TABLE target TO VERSION AS OF 1")
    assert len(taken(orders)) == 4
    assert "SET OFFSET" in str(orders.sql("RESTORE TABLE target TO VERSION AS OF 2").rows[0][0])
    assert taken(orders) == []


def test_initial_rows_of_a_renamed_column_are_stale_not_null(orders: Lake) -> None:
    orders.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    orders.sql("CREATE TABLE STREAM i ON TABLE t WITH PROPERTIES ('SHOW_INITIAL_ROWS' = 'TRUE')")
    orders.sql("ALTER TABLE t RENAME COLUMN name TO title")
    with pytest.raises(StaleStream, match="renamed"):
        orders.sql("SELECT * FROM i")
