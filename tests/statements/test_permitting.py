"""Who may do what, tried on real tables: grants, roles, and the ways round them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from headrace import Lake
from headrace.catalog.records import DynamicTable, Occasion
from headrace.errors import Forbidden, HeadraceError, NotAllowed, NotFound, QueryFailed, RefreshFailed
from headrace.names import TableName
from headrace.plan.jvm import Jvm
from headrace.plan.query import Definition
from headrace.result import Result
from headrace.security.roles import Principal
from headrace.session.replaying import work_of
from headrace.statements import dispatch, permitting
from headrace.statements.context import Context

Run = Callable[[str], Result]


@pytest.fixture(scope="module")
def prepared(shared_lake: Lake) -> Iterator[Lake]:
    shared_lake.sql(
        """
        CREATE SCHEMA shop; CREATE SCHEMA secret; CREATE SCHEMA own;
        CREATE TABLE shop.orders (id INT, amount INT); INSERT INTO shop.orders VALUES (1, 10), (2, 20);
        CREATE TABLE secret.pay (person STRING, salary INT); INSERT INTO secret.pay VALUES ('ann', 5);
        CREATE TABLE secret.shared (a INT); INSERT INTO secret.shared VALUES (1);
        CREATE VIEW shop.totals AS SELECT sum(salary) AS total FROM secret.pay;
        CREATE DYNAMIC TABLE shop.sums AS SELECT id, sum(amount) AS amount FROM shop.orders GROUP BY id;
        CREATE DYNAMIC TABLE secret.sums AS SELECT person, sum(salary) AS salary FROM secret.pay GROUP BY person;
        CREATE TABLE STREAM secret.pay_changes ON TABLE secret.pay;
        CREATE FUNCTION shop.top() RETURNS INT RETURN (SELECT max(salary) FROM secret.pay);
        CREATE USER dev WITH PASSWORD 'long enough' ROLE developer;
        CREATE USER ann WITH PASSWORD 'long enough' ROLE analyst;
        CREATE USER boss WITH PASSWORD 'long enough' ROLE admin;
        GRANT SELECT ON SCHEMA shop TO dev; GRANT ALL ON SCHEMA own TO dev; GRANT SELECT ON TABLE secret.shared TO dev;
        GRANT SELECT ON SCHEMA shop TO ann; GRANT ALL ON SCHEMA own TO ann
        """
    )
    yield shared_lake
    shared_lake.sql(
        """
        DROP USER dev; DROP USER ann; DROP FUNCTION shop.top; DROP SCHEMA own CASCADE; DROP SCHEMA shop CASCADE;
        DROP SCHEMA secret CASCADE
        """
    )


def _session(lake: Lake, user: Principal, *, guarded: bool = True) -> Context:
    context = lake._context.new_session()
    context.user = user
    context.guarded = guarded
    context.spark.catalog.setCurrentDatabase("own")
    return context


def _runner(context: Context) -> Run:
    return lambda text: dispatch.execute(context, text)


@pytest.fixture
def dev(prepared: Lake) -> Run:
    return _runner(_session(prepared, Principal("dev", "developer")))


@pytest.fixture
def unguarded(prepared: Lake) -> Run:
    """So that the plan, and not the words, must tell."""
    return _runner(_session(prepared, Principal("dev", "developer"), guarded=False))


@pytest.fixture
def ann(prepared: Lake) -> Run:
    return _runner(_session(prepared, Principal("ann", "analyst")))


@pytest.fixture
def boss(prepared: Lake) -> Run:
    return _runner(_session(prepared, Principal("boss", "admin")))


def _rows(result: Result) -> list[Any]:
    return result.to_arrow().to_pylist()


# What is allowed


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM shop.orders",
        "SELECT * FROM main.shop.orders",
        "SELECT * FROM spark_catalog.shop.orders",
        "SELECT * FROM `shop`.`orders` AS o JOIN shop.sums AS s USING (id)",
        "SELECT * FROM IDENTIFIER('shop.orders')",
        "WITH o AS (SELECT * FROM shop.orders), p AS (SELECT * FROM o) SELECT (SELECT max(amount) FROM p) FROM o",
        "SELECT * FROM shop.totals",
        "SELECT * FROM shop.sums",
        "SELECT * FROM shop.sums VERSION AS OF 1",
        "SELECT * FROM shop.orders VERSION AS OF 0",
        "SELECT * FROM table_changes('shop.orders', 0)",
        "SELECT explode(array(1, 2)), current_date()",
        "SELECT * FROM range(3)",
        "VALUES (1), (2)",
        "TABLE shop.orders",
        "FROM shop.orders SELECT id",
        "SELECT * FROM shop.orders o, LATERAL (SELECT o.id + 1 AS next)",
        "SELECT * FROM shop.orders PIVOT (sum(amount) FOR id IN (1, 2))",
        "SELECT id, row_number() OVER (ORDER BY id) AS n FROM shop.orders QUALIFY n = 1",
        "SELECT id FROM shop.orders UNION SELECT amount FROM shop.sums ORDER BY 1 LIMIT 3",
        "FROM shop.orders |> WHERE id > 1 |> SELECT amount",
        "EXPLAIN SELECT * FROM shop.orders",
        "DESCRIBE QUERY SELECT * FROM shop.orders",
        "DESC shop.orders",
        "DESC EXTENDED shop.sums",
        "DESCRIBE DETAIL shop.orders",
        "DESC HISTORY shop.orders",
        "DESCRIBE shop.orders id",
        "SHOW COLUMNS IN shop.orders",
        "SHOW TBLPROPERTIES shop.orders",
        "SHOW VIEWS IN shop",
        "SHOW TABLES IN shop",
        "SHOW FUNCTIONS IN shop",
        "DESCRIBE FUNCTION abs",
        "DESCRIBE SCHEMA shop",
        "SHOW SCHEMAS",
        "SELECT * FROM (SHOW TABLES IN shop) WHERE is_dynamic",
        "SHOW TABLES IN shop WHERE table_name = 'orders'",
        "EXPLAIN REFRESH DYNAMIC TABLE shop.sums",
        "EXPLAIN INCREMENTAL SELECT * FROM shop.orders",
        "VERIFY DYNAMIC TABLE shop.sums",
        "SET spark.sql.shuffle.partitions = 1",
        "USE shop",
        "SHOW GRANTS TO ann",
        "SHOW TOKENS",
    ],
)
def test_an_analyst_reads_what_was_granted(ann: Run, text: str) -> None:
    ann(text)


def test_a_session_of_temporary_things(ann: Run) -> None:
    ann("CREATE TEMPORARY VIEW mine AS SELECT * FROM shop.orders")
    assert len(_rows(ann("SELECT * FROM mine"))) == 2
    ann("CREATE TEMPORARY FUNCTION doubled(x INT) RETURNS INT RETURN x * 2")
    ann("DECLARE VARIABLE v INT DEFAULT 1")
    ann("SET VAR v = (SELECT max(amount) FROM shop.orders)")
    assert _rows(ann("SELECT doubled(v) AS x"))[0]["x"] == 40
    ann("DROP VIEW mine")


def test_a_developer_works_in_a_schema_of_their_own(dev: Run) -> None:
    dev("CREATE TABLE work (id INT, amount INT)")
    dev("INSERT INTO work SELECT * FROM shop.orders")
    dev("WITH o AS (SELECT * FROM shop.orders) INSERT INTO work SELECT * FROM o")
    dev("SELECT * FROM work JOIN secret.shared ON id = a")
    dev("UPDATE work SET amount = amount + 1 WHERE id = 1")
    dev("DELETE FROM work WHERE id = 2")
    dev("MERGE INTO work USING shop.orders AS s ON work.id = s.id WHEN NOT MATCHED THEN INSERT *")
    dev("CREATE TABLE copied AS SELECT * FROM work")
    dev("CREATE OR REPLACE TABLE copied USING delta AS SELECT * FROM work")
    dev("ALTER TABLE copied ADD COLUMN note STRING")
    dev("ALTER TABLE copied RENAME TO own.renamed")
    dev("COMMENT ON TABLE renamed IS 'x'")
    dev("CREATE VIEW seen AS SELECT id FROM work")
    dev("CREATE DYNAMIC TABLE counted AS SELECT count(*) AS n FROM shop.orders")
    dev("REFRESH DYNAMIC TABLE counted")
    dev("CREATE TABLE STREAM changes ON TABLE shop.orders")
    dev("SELECT * FROM changes")
    dev("SELECT STREAM_HAS_DATA('changes')")
    dev("CREATE FUNCTION own.f(x INT) RETURNS INT RETURN x + (SELECT count(*) FROM shop.orders)")
    assert _rows(dev("SELECT own.f(1) AS x"))[0]["x"] == 3
    for text in (
        "OPTIMIZE work", "TRUNCATE TABLE work", "DESC HISTORY work",
        "DROP FUNCTION own.f", "DROP TABLE STREAM changes", "DROP DYNAMIC TABLE counted", "DROP VIEW seen",
        "DROP TABLE renamed", "DROP TABLE work",
    ):  # fmt: skip
        dev(text)


# What is forbidden

READS = [
    "SELECT * FROM secret.pay",
    "SELECT * FROM `SECRET`.`Pay`",
    "SELECT * FROM main.secret.pay",
    "SELECT * FROM `main`.`secret`.`pay`",
    "SELECT * FROM spark_catalog.secret.pay",
    "SELECT * FROM IDENTIFIER('secret.pay')",
    "SELECT * FROM IDENTIFIER('sec' || 'ret.pay')",
    "TABLE secret.pay",
    "FROM secret.pay SELECT *",
    "WITH p AS (SELECT * FROM secret.pay) SELECT 1",
    "SELECT (SELECT max(salary) FROM secret.pay)",
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM secret.pay)",
    "SELECT * FROM shop.orders WHERE id IN (SELECT salary FROM secret.pay)",
    "SELECT * FROM shop.orders o, LATERAL (SELECT * FROM secret.pay)",
    "SELECT * FROM shop.orders UNION ALL SELECT salary, salary FROM secret.pay",
    "SELECT * FROM secret.pay VERSION AS OF 0",
    "SELECT * FROM shop.orders TIMESTAMP AS OF (SELECT max(person) FROM secret.pay)",
    "SELECT * FROM secret.sums",
    "SELECT * FROM secret.sums VERSION AS OF 0",
    "SELECT * FROM secret.pay_changes",
    "SELECT STREAM_HAS_DATA('secret.pay_changes')",
    "SELECT * FROM table_changes('secret.pay', 0)",
    "SELECT shop.top()",
    "SELECT * FROM global_temp.anything",
    "SELECT * FROM secret.nothing_there",
    "SELECT nothing FROM secret.pay",
    "SELECT * FROM nowhere.pay",
    "EXPLAIN SELECT * FROM secret.pay",
    "EXPLAIN EXTENDED SELECT nothing FROM secret.pay",
    "EXPLAIN INSERT INTO secret.pay VALUES ('x', 1)",
    "DESCRIBE QUERY SELECT * FROM secret.pay",
    "DESC secret.pay",
    "DESC EXTENDED secret.pay",
    "DESCRIBE secret.pay salary",
    "DESCRIBE DETAIL secret.pay",
    "DESC HISTORY secret.pay",
    "DESC SCHEMA secret",
    "DESC TABLE STREAM secret.pay_changes",
    "SHOW CREATE TABLE secret.pay",
    "SHOW COLUMNS IN secret.pay",
    "SHOW COLUMNS IN pay IN secret",
    "SHOW PARTITIONS secret.pay",
    "SHOW TBLPROPERTIES secret.pay",
    "SHOW TABLES IN nowhere_at_all",
    "SHOW VIEWS IN secret",
    "SHOW TABLE EXTENDED IN secret LIKE '*'",
    "SHOW FUNCTIONS IN secret",
    "SELECT * FROM (SHOW TABLES IN shop) WHERE EXISTS (SELECT 1 FROM secret.pay)",
    "SHOW TABLES IN shop WHERE EXISTS (SELECT 1 FROM secret.pay WHERE salary > 4)",
    "SHOW JOBS WHERE (SELECT max(salary) FROM secret.pay) > 4",
    "CACHE TABLE secret.pay",
    "CACHE TABLE c AS SELECT * FROM secret.pay",
    "CREATE TEMPORARY VIEW stolen AS SELECT * FROM secret.pay",
    "CREATE TEMPORARY VIEW stolen AS SELECT nothing FROM secret.pay",
    "CREATE GLOBAL TEMPORARY VIEW stolen AS SELECT 1 AS a",
    "CREATE TEMPORARY FUNCTION stolen() RETURNS INT RETURN (SELECT max(salary) FROM secret.pay)",
    "CREATE TEMPORARY FUNCTION stolen() RETURNS TABLE (x INT) RETURN SELECT salary FROM secret.pay",
    "DECLARE VARIABLE stolen INT DEFAULT (SELECT max(salary) FROM secret.pay)",
    "SET VAR stolen = (SELECT max(salary) FROM secret.pay)",
    "EXPLAIN INCREMENTAL SELECT * FROM secret.pay",
    "EXPLAIN REFRESH DYNAMIC TABLE secret.sums",
    "VERIFY DYNAMIC TABLE secret.sums",
    "SHOW USERS",
    "SHOW GRANTS TO boss",
    "SHOW GRANTS ON TABLE shop.orders",
    "SHOW GRANTS ON SCHEMA secret",
    "ALTER USER boss SET PASSWORD 'stolen it now'",
]
WRITES = [
    "CREATE TABLE own.stolen AS SELECT * FROM secret.pay",
    "CREATE TABLE own.stolen SHALLOW CLONE secret.pay",
    "CREATE TABLE own.stolen LIKE secret.pay",
    "CREATE VIEW own.stolen AS SELECT * FROM secret.pay",
    "CREATE DYNAMIC TABLE own.stolen AS SELECT * FROM secret.pay",
    "CREATE DYNAMIC TABLE own.stolen AS SELECT nothing FROM secret.pay",
    "CREATE DYNAMIC TABLE own.stolen REFRESH START WITH (SELECT max(salary) FROM secret.pay) INTERVAL 1 MINUTE "
    "AS SELECT id FROM shop.orders",
    "CREATE TABLE STREAM own.stolen ON TABLE secret.pay",
    "CREATE TABLE STREAM own.stolen ON TABLE shop.orders TIMESTAMP AS OF (SELECT max(person) FROM secret.pay)",
    "CREATE FUNCTION own.stolen() RETURNS INT RETURN (SELECT max(salary) FROM secret.pay)",
    "CREATE TABLE shop.mine (a INT)",
    "CREATE TABLE secret.mine (a INT)",
    "CREATE DYNAMIC TABLE shop.mine AS SELECT 1 AS a",
    "CREATE VIEW shop.mine AS SELECT 1 AS a",
    "CREATE FUNCTION shop.mine() RETURNS INT RETURN 1",
    "INSERT INTO shop.orders VALUES (1, 1)",
    "INSERT INTO secret.pay VALUES ('x', 1)",
    "INSERT INTO spark_catalog.shop.orders VALUES (1, 1)",
    "INSERT INTO IDENTIFIER('shop.orders') VALUES (1, 1)",
    "FROM shop.orders INSERT INTO shop.orders SELECT *",
    "UPDATE shop.orders SET amount = 0",
    "UPDATE own.any SET a = (SELECT max(salary) FROM secret.pay)",
    "DELETE FROM own.any WHERE a IN (SELECT salary FROM secret.pay)",
    "MERGE INTO own.any USING secret.pay AS s ON any.a = s.salary WHEN MATCHED THEN DELETE",
    "INSERT INTO own.any SELECT salary FROM secret.pay",
    "WITH p AS (SELECT * FROM secret.pay) INSERT INTO own.any SELECT salary FROM p",
    "DELETE FROM shop.orders",
    "MERGE INTO shop.orders USING shop.sums AS s ON orders.id = s.id WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE shop.orders",
    "ALTER TABLE shop.orders ADD COLUMN x INT",
    "ALTER TABLE shop.orders RENAME TO own.orders",
    "ALTER VIEW shop.totals AS SELECT 1 AS total",
    "COMMENT ON TABLE shop.orders IS 'x'",
    "COMMENT ON SCHEMA shop IS 'x'",
    "ANALYZE TABLE secret.pay COMPUTE STATISTICS",
    "ANALYZE TABLES IN secret COMPUTE STATISTICS",
    "OPTIMIZE shop.orders",
    "VACUUM shop.orders",
    "RESTORE TABLE shop.orders TO VERSION AS OF 0",
    "DROP TABLE shop.orders",
    "DROP VIEW shop.totals",
    "DROP TABLE secret.nothing_there",
    "DROP FUNCTION shop.top",
    "DROP SCHEMA shop CASCADE",
    "DROP SCHEMA secret",
    "REFRESH DYNAMIC TABLE shop.sums",
    "ALTER DYNAMIC TABLE shop.sums SUSPEND",
    "DROP DYNAMIC TABLE secret.sums",
    "DROP TABLE STREAM secret.pay_changes",
    "CREATE SCHEMA another_workspace.raw",
    "CREATE USER x WITH PASSWORD 'long enough'",
    "DROP USER boss",
    "ALTER USER dev SET ROLE admin",
    "GRANT ALL ON SCHEMA secret TO dev",
    "CREATE VCLUSTER mine",
    "ALTER VCLUSTER default SUSPEND",
    "DROP VCLUSTER default",
]


@pytest.mark.parametrize(
    "text",
    [
        "SHOW TABLES IN secret", "SHOW DYNAMIC TABLES IN secret", "SHOW TABLE STREAMS IN secret", "USE secret",
        "SELECT * FROM (SHOW TABLES IN secret)", "SHOW TABLES IN nowhere_at_all", "USE nowhere_at_all",
    ],
)  # fmt: skip
def test_a_schema_where_nothing_was_granted_is_not_told_from_none(ann: Run, text: str) -> None:
    with pytest.raises(Forbidden, match="ann was granted nothing in the schema"):
        ann(text)


@pytest.mark.parametrize("text", READS)
def test_nobody_reads_what_was_not_granted(ann: Run, dev: Run, unguarded: Run, text: str) -> None:
    for run in (ann, dev, unguarded):
        with pytest.raises((Forbidden, NotAllowed, NotFound)) as caught:
            run(text)
        told = str(caught.value)
        assert "person" not in told or "person" in text, "columns are not told"


@pytest.mark.parametrize("text", WRITES)
def test_nobody_changes_what_was_not_granted(ann: Run, dev: Run, unguarded: Run, prepared: Lake, text: str) -> None:
    for run in (ann, dev, unguarded):
        with pytest.raises((Forbidden, NotAllowed)):
            run(text)
    assert len(_rows(prepared.sql("SELECT * FROM shop.orders"))) == 2


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE own.mine (a INT)", "CREATE SCHEMA mine", "CREATE VIEW own.mine AS SELECT 1 AS a",
        "CREATE DYNAMIC TABLE own.mine AS SELECT 1 AS a", "INSERT INTO own.anything VALUES (1)",
    ],
)  # fmt: skip
def test_an_analyst_with_all_still_only_reads(ann: Run, text: str) -> None:
    with pytest.raises(Forbidden, match="an analyst"):
        ann(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM delta.`{path}`",
        "SELECT * FROM delta.`{path}` VERSION AS OF 0",
        "SELECT * FROM table_changes_by_path('{path}', 0)",
        "SELECT * FROM parquet.`{path}`",
        "SELECT * FROM text.`/etc/hostname`",
        "SELECT * FROM `org.apache.spark.sql.execution.datasources.text.TextFileFormat`.`/etc/hostname`",
        "INSERT INTO delta.`{path}` VALUES (1)",
        "CREATE VIEW own.stolen AS SELECT * FROM delta.`{path}`",
        "CREATE TABLE own.stolen USING delta LOCATION '{path}'",
        "CREATE TABLE own.stolen (a STRING) USING text OPTIONS (path '/etc/hostname')",
        "CREATE TEMPORARY VIEW stolen USING text OPTIONS (path '/etc/hostname')",
        "CREATE TABLE own.stolen SHALLOW CLONE delta.`{path}`",
        "DESCRIBE DETAIL '{path}'",
        "VACUUM '{path}'",
        "OPTIMIZE delta.`{path}`",
        "INSERT OVERWRITE DIRECTORY '/tmp/stolen' USING csv SELECT 1",
        "SELECT TRANSFORM (1) USING 'cat'",
        "SELECT * FROM shop.orders WITH (path = '{path}')",
    ],
)
def test_files_are_not_reached_by_their_path(unguarded: Run, dev: Run, prepared: Lake, text: str) -> None:
    sums = prepared._context.store.table(TableName("main", "secret", "sums"))
    assert sums is not None
    for run in (unguarded, dev):
        with pytest.raises((Forbidden, NotAllowed)):
            run(text.format(path=sums.storage_path))


_FORMAT = "`org.apache.spark.sql.execution.datasources.text.TextFileFormat`"
_ODD = f"SELECT named_struct('not', value).not distinct FROM {_FORMAT}.`/etc/hostname`"


@pytest.mark.parametrize(
    "text",
    [
        _ODD,
        "SELECT named_struct('not', 1).not distinct FROM text.hostname",
        "SELECT named_struct('not', 1).not distinct FROM spark_catalog.delta.`{path}`",
        "SELECT named_struct('not', 1).not distinct FROM main.delta.`{path}`",
        f"WITH c AS ({_ODD}) SELECT * FROM c",
        f"SELECT 1 WHERE EXISTS ({_ODD})",
        f"SELECT 1 FROM shop.orders TIMESTAMP AS OF ({_ODD})",
        f"EXPLAIN {_ODD}",
        f"DESCRIBE QUERY {_ODD}",
        f"CACHE TABLE stolen AS {_ODD}",
        f"CREATE TABLE own.stolen AS {_ODD}",
        f"CREATE VIEW own.stolen AS {_ODD}",
        f"CREATE TEMPORARY VIEW stolen AS {_ODD}",
        f"CREATE FUNCTION own.stolen() RETURNS STRING RETURN ({_ODD})",
        f"CREATE FUNCTION own.stolen() RETURNS TABLE (x STRING) RETURN {_ODD}",
        f"CREATE TEMPORARY FUNCTION stolen() RETURNS STRING RETURN ({_ODD})",
        f"DECLARE VARIABLE stolen STRING DEFAULT ({_ODD})",
        f"INSERT INTO shop.orders {_ODD}",
        f"UPDATE shop.orders SET amount = 0 WHERE EXISTS ({_ODD})",
        f"DELETE FROM shop.orders WHERE EXISTS ({_ODD})",
        f"MERGE INTO shop.orders USING ({_ODD}) AS s ON false WHEN MATCHED THEN DELETE",
        f"SHOW TABLES IN shop WHERE EXISTS ({_ODD})",
        f"SHOW JOBS WHERE EXISTS ({_ODD})",
        f"CREATE TABLE STREAM own.stolen ON TABLE shop.orders TIMESTAMP AS OF ({_ODD})",
        f"CREATE DYNAMIC TABLE own.stolen REFRESH START WITH ({_ODD}) INTERVAL 1 MINUTE AS SELECT 1 AS a",
        f"SELECT * FROM (SHOW TABLES IN shop) WHERE EXISTS ({_ODD})",
        "SELECT * FROM shop.orders WITH (path = '{path}')",
        "CREATE TABLE own.values (a STRING) USING text OPTIONS (path '/etc/hostname')",
        "CREATE TABLE own.stolen (a STRING) WITH PROPERTIES ('a' = 'b') USING text LOCATION '/etc'",
        "ALTER TABLE shop.orders SET LOCATION '/etc'",
    ],
)
def test_odd_spelling_does_not_help_an_administrator(boss: Run, prepared: Lake, text: str) -> None:
    sums = prepared._context.store.table(TableName("main", "secret", "sums"))
    assert sums is not None
    with pytest.raises(NotAllowed, match="a server refuses that"):
        boss(text.replace("{path}", sums.storage_path))


def test_the_query_of_a_dynamic_table_reads_no_files(boss: Run) -> None:
    for text in (f"CREATE DYNAMIC TABLE own.stolen AS {_ODD}", f"EXPLAIN INCREMENTAL {_ODD}"):
        with pytest.raises((NotAllowed, NotFound)):
            boss(text)


def test_an_administrator_who_was_allowed_it_reads_files(prepared: Lake) -> None:
    context = _session(prepared, Principal("boss", "admin"))
    context.settings = context.settings.model_copy(update={"allow_unsafe_sql": True})
    assert len(_runner(context)("SELECT named_struct('not', value).not distinct FROM text.`/etc/passwd`")) > 0


def test_what_an_administrator_does_every_day(boss: Run, prepared: Lake) -> None:
    place = prepared._context.settings.warehouse / "placed"
    for text in (
        "CREATE TABLE own.t (id INT, amount INT) USING delta PROPERTIES ('change_tracking' = 'true')",
        f"CREATE TABLE own.placed (id INT) LOCATION '{place}'",
        "INSERT INTO own.t SELECT * FROM shop.orders",
        "WITH o AS (SELECT * FROM shop.orders) INSERT INTO own.t SELECT * FROM o",
        "UPDATE own.t SET amount = 0 WHERE id IS NOT DISTINCT FROM 1",
        "MERGE INTO own.t USING shop.orders AS s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
        "DELETE FROM own.t WHERE id = 2",
        "CREATE VIEW own.v AS SELECT * FROM own.t",
        "CREATE FUNCTION own.f(x INT) RETURNS INT RETURN x + (SELECT count(*) FROM shop.orders)",
        "CREATE FUNCTION own.g() RETURNS TABLE (x INT) RETURN SELECT id FROM shop.orders",
        "SELECT own.f(1), x FROM own.g()",
        "SELECT count(*) FROM main.shop.orders, spark_catalog.shop.orders AS again",
        "SELECT * FROM IDENTIFIER('shop.orders')",
        "SELECT next FROM shop.orders AS o, LATERAL (SELECT o.id + 1 AS next) WHERE EXISTS (TABLE shop.sums)",
        "SELECT * FROM shop.sums VERSION AS OF 1",
        "SELECT STREAM_HAS_DATA('secret.pay_changes') AS x",
        "SELECT * FROM table_changes('shop.orders', 0)",
        "SELECT * FROM (SHOW TABLES IN shop) WHERE is_dynamic",
        "SHOW TABLES IN shop WHERE table_name = 'orders'",
        "DECLARE VARIABLE v INT DEFAULT 1",
        "SET VAR v = (SELECT max(amount) FROM shop.orders)",
        "DROP TEMPORARY VARIABLE v",
        "SET spark.sql.warehouse.dir",
        "ALTER TABLE own.t ADD COLUMN note STRING",
        "ALTER TABLE own.t SET PROPERTIES ('data_retention_days' = '3')",
        "ALTER TABLE own.t RENAME TO own.u",
        "COMMENT ON TABLE own.u IS 'x'",
        "OPTIMIZE own.u",
        "DESCRIBE DETAIL own.u",
        "DESC HISTORY own.u",
        "EXPLAIN EXTENDED SELECT * FROM own.u",
        "TRUNCATE TABLE own.u",
        "DROP FUNCTION own.f",
        "DROP FUNCTION own.g",
        "DROP VIEW own.v",
        "DROP TABLE own.placed",
        "DROP TABLE own.u",
    ):
        boss(text)


def test_a_condition_that_is_none_is_told_as_before(boss: Run) -> None:
    with pytest.raises(HeadraceError, match="The condition cannot be used"):
        boss("SHOW TABLES IN shop WHERE table_name = = 'x'")


def test_a_schema_named_like_a_format_opens_no_files(prepared: Lake, unguarded: Run) -> None:
    prepared.sql("CREATE SCHEMA text; GRANT ALL ON SCHEMA text TO dev")
    try:
        for text in ("SELECT * FROM text.`/etc/hostname`", "SELECT * FROM text.hostname"):
            with pytest.raises(HeadraceError):
                unguarded(text)
    finally:
        prepared.sql("DROP SCHEMA text")


# Rights that go


def test_a_temporary_view_does_not_outlive_a_grant(prepared: Lake, ann: Run) -> None:
    prepared.sql("GRANT SELECT ON TABLE secret.pay TO ann")
    ann("CREATE TEMPORARY VIEW kept AS SELECT * FROM secret.pay")
    ann("CREATE TEMPORARY VIEW behind AS SELECT salary FROM kept")
    ann("CREATE TEMPORARY FUNCTION most() RETURNS INT RETURN (SELECT max(salary) FROM secret.pay)")
    ann("SELECT * FROM behind")
    prepared.sql("REVOKE SELECT ON TABLE secret.pay FROM ann")
    for text in (
        "SELECT * FROM kept", "SELECT * FROM behind", "SELECT count(*) FROM kept", "SELECT nothing FROM kept",
        "SELECT most()", "SHOW COLUMNS IN kept", "EXPLAIN SELECT * FROM behind",
        "CREATE TEMPORARY VIEW again AS SELECT * FROM kept",
    ):  # fmt: skip
        with pytest.raises((Forbidden, NotAllowed, NotFound)) as caught:
            ann(text)
        assert "person" not in str(caught.value)


def test_a_table_is_not_changed_through_a_temporary_view(dev: Run) -> None:
    dev("CREATE TEMPORARY VIEW through AS SELECT * FROM shop.orders")
    for text in ("UPDATE through SET amount = 0", "DELETE FROM through", "INSERT INTO through VALUES (1, 1)"):
        with pytest.raises(Forbidden):
            dev(text)


def test_a_dynamic_table_is_not_refreshed_when_its_maker_lost_a_right(prepared: Lake, dev: Run, boss: Run) -> None:
    prepared.sql("GRANT SELECT ON TABLE secret.pay TO dev")
    dev("CREATE DYNAMIC TABLE own.kept AS SELECT person FROM secret.pay")
    dev("CREATE TABLE STREAM own.kept_changes ON TABLE secret.pay")
    dev("SELECT * FROM own.kept_changes")
    prepared.sql("REVOKE SELECT ON TABLE secret.pay FROM dev; INSERT INTO secret.pay VALUES ('bob', 6)")
    for run in (dev, boss):
        with pytest.raises(Forbidden, match=r"dev, whose query main\.own\.kept is"):
            run("REFRESH DYNAMIC TABLE own.kept")
    with pytest.raises(Forbidden, match="who made the table stream"):
        dev("SELECT * FROM own.kept_changes")
    prepared.sql("GRANT SELECT ON TABLE secret.pay TO dev")
    dev("REFRESH DYNAMIC TABLE own.kept")
    prepared.sql(
        """REVOKE SELECT ON TABLE secret.pay FROM dev; DROP TABLE STREAM own.kept_changes; DROP DYNAMIC TABLE own.kept;
        DELETE FROM secret.pay WHERE person = 'bob'"""
    )


def test_dropping_a_maker_gives_no_right_back(prepared: Lake, dev: Run, boss: Run) -> None:
    prepared.sql(
        """CREATE USER eve WITH PASSWORD 'long enough' ROLE developer; GRANT ALL ON SCHEMA own TO eve;
        GRANT SELECT ON TABLE secret.pay TO eve"""
    )
    eve = _runner(_session(prepared, Principal("eve", "developer")))
    eve("CREATE DYNAMIC TABLE own.left AS SELECT person FROM secret.pay")
    eve("CREATE TABLE STREAM own.left_changes ON TABLE secret.pay")
    prepared.sql("REVOKE SELECT ON TABLE secret.pay FROM eve; INSERT INTO secret.pay VALUES ('bob', 6)")
    with pytest.raises(Forbidden, match="may not read"):
        boss("REFRESH DYNAMIC TABLE own.left")
    told = prepared.sql("DROP USER eve").rows[0][0]
    assert "1 dynamic table that they made is not refreshed any more" in told
    assert "1 table stream" in told
    for run in (dev, boss):
        with pytest.raises(Forbidden, match=r"eve, whose query main\.own\.left is, is no user any more") as refused:
            run("REFRESH DYNAMIC TABLE own.left")
        assert "CREATE OR REPLACE DYNAMIC TABLE" in str(refused.value.hint)
    with pytest.raises(Forbidden, match=r"eve, who made the table stream .*, is no user any more"):
        dev("SELECT * FROM own.left_changes")
    table = prepared._context.store.table(TableName("main", "own", "left"))
    assert table is not None
    with pytest.raises(Forbidden, match="no user any more"):  # As the scheduler asks.
        permitting.require_maker_reads(prepared._context.new_session(), table)
    boss("CREATE OR REPLACE DYNAMIC TABLE own.left AS SELECT person FROM secret.pay")
    boss("REFRESH DYNAMIC TABLE own.left")
    assert len(_rows(boss("SELECT * FROM own.left"))) == 2
    prepared.sql(
        """DROP DYNAMIC TABLE own.left; DROP TABLE STREAM own.left_changes;
        DELETE FROM secret.pay WHERE person = 'bob'"""
    )


def test_who_gets_a_name_again_reads_with_their_own_rights(prepared: Lake, boss: Run) -> None:
    for _ in range(2):
        prepared.sql("CREATE USER mo WITH PASSWORD 'long enough' ROLE developer; GRANT ALL ON SCHEMA own TO mo")
        mo = _runner(_session(prepared, Principal("mo", "developer")))
        prepared.sql("GRANT SELECT ON TABLE secret.pay TO mo")
        mo("CREATE OR REPLACE DYNAMIC TABLE own.again AS SELECT person FROM secret.pay")
        prepared.sql("DROP USER mo")
    prepared.sql("CREATE USER mo WITH PASSWORD 'long enough' ROLE developer")
    with pytest.raises(Forbidden, match=r"mo, whose query main\.own\.again is, may not read"):
        boss("REFRESH DYNAMIC TABLE own.again")
    prepared.sql("DROP USER mo; DROP DYNAMIC TABLE own.again")


def _calling(lake: Lake, text: str) -> DynamicTable:
    """A dynamic table of dev with this query. Reading such a query may refuse it; a refresh judges what it finds."""
    table = lake._context.store.table(TableName("main", "own", "calling"))
    assert table is not None
    called = Definition(kind="function", name="own.most", digest="")
    return table.model_copy(update={"query": table.query.model_copy(update={"text": text, "definitions": (called,)})})


@pytest.fixture
def calling(prepared: Lake, dev: Run) -> Iterator[None]:
    """Functions of dev over secret.pay, made when dev could read it, and a dynamic table."""
    prepared.sql("GRANT SELECT ON TABLE secret.pay TO dev")
    dev("CREATE FUNCTION own.most() RETURNS INT RETURN (SELECT max(salary) FROM secret.pay)")
    dev("CREATE FUNCTION own.more() RETURNS INT RETURN most() + 1")
    dev("CREATE FUNCTION own.people() RETURNS TABLE (person STRING) RETURN SELECT person FROM secret.pay")
    dev("CREATE FUNCTION own.plain(x INT) RETURNS INT RETURN abs(x) + 1")
    dev("CREATE DYNAMIC TABLE own.calling AS SELECT id FROM shop.orders")
    prepared.sql("CREATE VIEW shop.tops AS SELECT shop.top() AS top")
    yield
    prepared.sql("REVOKE SELECT ON TABLE secret.pay FROM dev; DROP VIEW shop.tops; DROP DYNAMIC TABLE own.calling")
    for name in ("most", "more", "people", "plain"):
        prepared.sql(f"DROP FUNCTION own.{name}")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT own.most() AS x FROM shop.orders",
        "SELECT id FROM shop.orders WHERE amount > OWN.More()",
        "SELECT id FROM shop.orders ORDER BY coalesce(id, spark_catalog.own.most())",
        "SELECT most() AS x FROM shop.orders",
        "SELECT person FROM own.people()",
        "WITH p AS (SELECT * FROM own.people()) SELECT * FROM p",
        "SELECT (SELECT count(*) FROM people()) AS x FROM shop.orders",
    ],
)
def test_the_maker_must_keep_the_right_to_what_functions_read(
    prepared: Lake, calling: None, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = prepared._context.new_session()
    monkeypatch.setattr(Jvm, "analyze", lambda *_: pytest.fail("a look at texts is enough"))
    permitting.require_maker_reads(context, _calling(prepared, text))
    prepared.sql("REVOKE SELECT ON TABLE secret.pay FROM dev")
    with pytest.raises(Forbidden, match=r"dev, whose query main\.own\.calling is, may not read main\.secret\.pay"):
        permitting.require_maker_reads(context, _calling(prepared, text))


def test_a_maker_needs_no_right_behind_a_view_or_for_plain_functions(prepared: Lake, calling: None) -> None:
    prepared.sql("REVOKE SELECT ON TABLE secret.pay FROM dev")
    for text in (
        "SELECT total FROM shop.totals",
        "SELECT top FROM shop.tops",
        "SELECT own.plain(id) + abs(id) AS x, row_number() OVER (ORDER BY id) AS n FROM shop.orders",
        "SELECT x.col FROM shop.orders LATERAL VIEW explode(array(1)) x AS col",
        "SELECT * FROM range(3)",
        "SELECT nowhere.gone() AS x, own.gone() AS y, system.builtin.abs(1) AS z FROM shop.orders",
    ):
        permitting.require_maker_reads(prepared._context.new_session(), _calling(prepared, text))


def test_nothing_is_looked_at_when_the_maker_is_an_administrator(
    prepared: Lake, calling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _calling(prepared, "SELECT own.most() AS x FROM secret.pay")
    monkeypatch.setattr(permitting, "Jvm", lambda _: pytest.fail("nothing is to be parsed"))
    for maker in ("boss", "no user of the server"):
        permitting.require_maker_reads(prepared._context, table.model_copy(update={"creator": maker}))


def test_a_grant_goes_with_its_table(prepared: Lake, dev: Run) -> None:
    prepared.sql("CREATE TABLE secret.old (a INT); GRANT SELECT ON TABLE secret.old TO dev")
    dev("SELECT * FROM secret.old")
    prepared.sql("DROP TABLE secret.old; CREATE TABLE secret.old (a INT)")
    with pytest.raises(Forbidden):
        dev("SELECT * FROM secret.old")
    prepared.sql("DROP TABLE secret.old")


# Lists, schemas, users


def test_lists_show_what_one_may_read(prepared: Lake, dev: Run, ann: Run) -> None:
    assert {row["table_name"] for row in _rows(dev("SHOW TABLES IN secret"))} == {"shared"}
    assert {row["name"] for row in _rows(ann("SHOW DYNAMIC TABLES"))} == {"sums"}
    assert {row["schema_name"] for row in _rows(ann("SHOW DYNAMIC TABLES"))} == {"shop"}
    assert not _rows(ann("SHOW TABLE STREAMS"))
    assert {row["schema_name"] for row in _rows(ann("SHOW DYNAMIC TABLE REFRESH HISTORY"))} <= {"shop", "own"}
    schemas = {next(iter(row.values())) for row in _rows(ann("SHOW SCHEMAS"))}
    assert schemas == {"shop", "own"}


def test_the_error_says_what_an_administrator_must_run(ann: Run) -> None:
    with pytest.raises(Forbidden) as caught:
        ann("SELECT * FROM secret.pay")
    assert caught.value.message == "ann may not read main.secret.pay."
    assert "GRANT SELECT ON TABLE main.secret.pay TO ann" in str(caught.value.hint)


def test_whether_a_forbidden_table_exists_is_not_told(ann: Run) -> None:
    told = []
    for name in ("pay", "nothing_there"):
        for column in ("*", "salary", "no_column"):
            with pytest.raises(Forbidden) as caught:
                ann(f"SELECT {column} FROM secret.{name}")
            told.append(str(caught.value).replace(name, "t"))
    assert len(set(told)) == 1


def test_a_schema_belongs_to_whoever_made_it(prepared: Lake, dev: Run, ann: Run) -> None:
    dev("CREATE SCHEMA devs_own")
    dev("CREATE TABLE devs_own.t (a INT)")
    with pytest.raises(Forbidden):
        ann("SELECT * FROM devs_own.t")
    dev("DROP SCHEMA devs_own CASCADE")
    dev("CREATE SCHEMA IF NOT EXISTS secret")
    with pytest.raises(Forbidden):
        dev("SELECT * FROM secret.pay")


def test_a_workspace_has_one_name(prepared: Lake, dev: Run) -> None:
    prepared.sql("CREATE SCHEMA sales.raw; CREATE TABLE sales.raw.t (a INT); GRANT SELECT ON SCHEMA sales.raw TO dev")
    for name in ("sales.raw.t", "sales__raw.t", "spark_catalog.sales__raw.t"):
        dev(f"SELECT * FROM {name}")
    prepared.sql("REVOKE SELECT ON SCHEMA sales__raw FROM dev")
    for name in ("sales.raw.t", "sales__raw.t", "main.sales__raw.t", "spark_catalog.sales__raw.t"):
        with pytest.raises(Forbidden):
            dev(f"SELECT * FROM {name}")
    prepared.sql("DROP SCHEMA sales.raw CASCADE")
    for what in ("SCHEMA nowhere.raw", "TABLE nowhere.raw.t"):
        with pytest.raises(NotFound, match=r"There is no workspace nowhere\."):
            prepared.sql(f"GRANT SELECT ON {what} TO dev")


def test_own_password_tokens_and_jobs(prepared: Lake, ann: Run, dev: Run) -> None:
    changed: list[str] = []
    context = _session(prepared, Principal("ann", "analyst"))
    context.access_changed = changed.append
    dispatch.execute(context, "ALTER USER ann SET PASSWORD 'another long one'")
    assert changed == ["ann"]
    made = _rows(ann("CREATE TOKEN 'nightly' EXPIRES IN 30 DAY"))[0]
    assert made["token"].startswith("hr_")
    assert [row["name"] for row in _rows(ann("SHOW TOKENS"))] == ["nightly"]
    assert not _rows(dev("SHOW TOKENS"))
    with pytest.raises(NotFound):
        dev("DROP TOKEN 'nightly'")
    ann("DROP TOKEN 'nightly'")
    for text in ("DESC JOB 'unknown'", "CANCEL JOB 'unknown'"):
        with pytest.raises(NotFound, match="no job 'unknown'"):
            ann(text)
    kept = [entry for entry in prepared._context.store.users.audited(50) if entry.user == "ann"]
    assert {"ALTER_USER", "CREATE_TOKEN", "DROP_TOKEN"} <= {entry.action for entry in kept}
    assert not any("another long one" in entry.detail or made["token"] in entry.detail for entry in kept)


def test_short_passwords_and_odd_names(prepared: Lake) -> None:
    for text in ("CREATE USER x WITH PASSWORD 'short'", "CREATE USER `a b` WITH PASSWORD 'long enough'"):
        with pytest.raises(HeadraceError):
            prepared.sql(text)


def test_grants_need_something_to_be_granted(prepared: Lake) -> None:
    for text in ("GRANT SELECT ON TABLE shop.nothing TO ann", "GRANT SELECT ON SCHEMA nothing TO ann"):
        with pytest.raises(NotFound):
            prepared.sql(text)
    with pytest.raises(NotFound, match="no user nobody"):
        prepared.sql("GRANT SELECT ON SCHEMA shop TO nobody")


def test_a_session_on_a_server_knows_no_java_and_no_variables(prepared: Lake) -> None:
    context = _session(prepared, Principal("boss", "admin"))
    run = _runner(context)
    assert _rows(run("SELECT '${env:HOME}' AS x"))[0]["x"] == "${env:HOME}"
    with pytest.raises(AnalysisException):
        context.spark.sql("SELECT reflect('java.lang.Math', 'abs', -1)").collect()
    assert prepared.spark.sql("SELECT 1").collect(), "the lake's own session is as it was"
    assert prepared.spark.sql("SELECT typeof(reflect('java.lang.Math', 'abs', -1))").collect()


def test_variables_in_queries_of_dynamic_tables_stay_as_they_are(prepared: Lake, dev: Run) -> None:
    """In the lake's own session, in which they are refreshed, as in the session in which they were judged."""
    dev("CREATE VIEW own.w AS SELECT id, '${env:HOME}' AS x FROM shop.orders")
    dev("CREATE DYNAMIC TABLE own.d1 AS SELECT id, '${env:HOME}' AS x FROM shop.orders")
    dev("CREATE DYNAMIC TABLE own.d2 AS SELECT id, x FROM own.w")
    # One quote of each kind: for the judge all of it is in two strings, and without it the rest would be SQL.
    hidden = """SELECT '${'||"} ' AS a, (SELECT max(salary) FROM secret.pay) AS b --" AS a, 1 AS b"""
    with suppress(HeadraceError):
        dev(f"CREATE DYNAMIC TABLE own.d3 AS {hidden}\nFROM shop.orders")
        assert {row[1] for row in prepared.sql("SELECT * FROM own.d3").rows} == {1}
    for name in ("d1", "d2"):
        prepared.sql(f"REFRESH DYNAMIC TABLE own.{name} FULL")
        assert {row[1] for row in prepared.sql(f"SELECT * FROM own.{name}").rows} == {"${env:HOME}"}
        assert prepared.sql(f"VERIFY DYNAMIC TABLE own.{name}").rows[0][1] == "EQUAL"


def test_frames_are_judged_like_queries(prepared: Lake) -> None:
    context = _session(prepared, Principal("ann", "analyst"))
    permitting.require_frame(context, context.spark.table("shop.orders"))
    permitting.require_frame(context, context.spark.createDataFrame([(1,)], "a INT"))
    with pytest.raises(Forbidden):
        permitting.require_frame(context, context.spark.table("shop.orders").join(context.spark.table("secret.pay")))
    with pytest.raises(Forbidden):
        permitting.require_read(context, TableName("main", "secret", "pay"))
    with pytest.raises(Forbidden):
        permitting.require_change(context, TableName("main", "own", "t"))


def test_a_view_shows_no_more_when_a_function_below_it_is_replaced(dev: Run) -> None:
    dev("CREATE FUNCTION own.f() RETURNS INT RETURN 1")
    dev("CREATE VIEW own.v AS SELECT own.f() AS x")
    for body in ("shop.top()", "(SELECT shop.top())"):
        with pytest.raises(Forbidden):
            dev(f"CREATE OR REPLACE FUNCTION own.f() RETURNS INT RETURN {body}")
    dev("CREATE OR REPLACE FUNCTION own.f() RETURNS INT RETURN abs(-2)")
    assert dev("SELECT * FROM own.v").rows == [(2,)]
    dev("DROP VIEW own.v")
    dev("DROP FUNCTION own.f")


def test_functions_that_read_files_are_unknown(ann: Run) -> None:
    with pytest.raises(HeadraceError, match="from_xml"):
        ann("SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', 'file:///etc/passwd'))")


def test_a_new_name_stays_in_its_schema(prepared: Lake, dev: Run) -> None:
    prepared.sql("CREATE TABLE secret.mine (a INT); GRANT ALL ON TABLE secret.mine TO dev")
    with pytest.raises(Forbidden):
        dev("ALTER TABLE secret.mine RENAME TO yours")
    prepared.sql("DROP TABLE secret.mine")


def test_an_error_tells_nothing_of_rows_that_a_view_leaves_out(prepared: Lake, ann: Run, boss: Run) -> None:
    """Spark asks a condition of the reader's before the view has joined."""
    prepared.sql(
        """CREATE TABLE secret.people (who STRING, sal INT, dept STRING);
        INSERT INTO secret.people VALUES ('bob', 777, 'open'), ('carol-hidden', 99999, 'board');
        CREATE TABLE secret.allowed (dept STRING); INSERT INTO secret.allowed VALUES ('open');
        CREATE VIEW shop.people AS SELECT who, sal FROM secret.people JOIN secret.allowed USING (dept)"""
    )
    tells = "CASE WHEN sal > 1000 THEN CAST(concat(who, '=', sal) AS INT) = 1 ELSE true END"
    query = f"SELECT * FROM shop.people WHERE {tells}"
    with pytest.raises(QueryFailed, match="carol-hidden"):
        boss(query)
    for text in (query, f"INSERT INTO own.kept {query}", f"CREATE TABLE own.kept AS {query}"):
        with pytest.raises(HeadraceError) as refused:
            ann(text)
        assert "carol" not in str(refused.value), text
    with pytest.raises(QueryFailed, match="not told"):
        ann(query)
    with pytest.raises(Forbidden, match="EXPLAIN would show"):
        ann("EXPLAIN EXTENDED SELECT * FROM shop.people")
    with pytest.raises(QueryFailed, match="no_number"):
        ann("SELECT CAST('no_number' AS INT) FROM shop.orders")
    assert _rows(ann("SELECT who FROM shop.people")) == [{"who": "bob"}]


@pytest.fixture
def hidden(prepared: Lake) -> Iterator[None]:
    """A view that leaves rows out, by a join, so that Spark asks a reader's condition of all."""
    prepared.sql(
        """CREATE TABLE secret.staff (who STRING, sal INT, dept STRING);
        INSERT INTO secret.staff VALUES ('bob', 777, 'open'), ('carol-hidden', 99999, 'board');
        CREATE TABLE secret.shown (dept STRING); INSERT INTO secret.shown VALUES ('open');
        CREATE VIEW shop.staff AS SELECT who, sal FROM secret.staff JOIN secret.shown USING (dept)"""
    )
    yield
    prepared.sql("DROP VIEW shop.staff; DROP TABLE secret.staff; DROP TABLE secret.shown")


TELLS = "CASE WHEN sal > 1000 THEN CAST(concat(who, '=', sal) AS INT) = 1 ELSE true END"


def _told(lake: Lake, name: str) -> str:
    """All that the history of a table and its jobs say."""
    table = f"SHOW DYNAMIC TABLE REFRESH HISTORY WHERE name = '{name}'"
    jobs = [row["job_id"] for row in _rows(lake.sql(table))]
    return repr([_rows(lake.sql(table)), *(_rows(lake.sql(f"DESC JOB '{job}'")) for job in jobs)])


@pytest.mark.usefixtures("hidden")
def test_a_refresh_tells_nothing_of_rows_that_a_view_leaves_out(prepared: Lake, dev: Run, boss: Run) -> None:
    said: list[str] = []
    prepared.on_progress(lambda event: said.append(event.text))
    with pytest.raises(HeadraceError) as refused:
        dev(f"CREATE DYNAMIC TABLE own.leak AS SELECT who, sal FROM shop.staff WHERE {TELLS}")
    assert "carol" not in str(refused.value)
    assert "not told" in str(refused.value)
    # One whose first refresh is still to come, and fails.
    lazily = "PROPERTIES ('initialize' = 'on_schedule')"
    dev(f"CREATE DYNAMIC TABLE own.leak {lazily} AS SELECT who, sal FROM shop.staff WHERE {TELLS}")
    table = prepared._context.store.table(TableName("main", "own", "leak"))
    assert table is not None
    for run in (
        lambda: dev("REFRESH DYNAMIC TABLE own.leak"),
        lambda: boss("REFRESH DYNAMIC TABLE own.leak"),
        lambda: dispatch.refresh_table(prepared._context, table, Occasion(trigger="SYSTEM_SCHEDULED")),
    ):
        with pytest.raises(HeadraceError, match="not told") as refused:
            run()
        assert "carol" not in str(refused.value)
    assert "carol" not in _told(prepared, "leak")
    assert "not told" in _told(prepared, "leak")
    dev("DROP DYNAMIC TABLE own.leak")
    # One that goes well as long as nobody earns so much.
    prepared.sql("UPDATE secret.staff SET sal = 5 WHERE dept = 'board'")
    dev(f"CREATE DYNAMIC TABLE own.leak AS SELECT who, sal FROM shop.staff WHERE {TELLS}")
    prepared.sql("UPDATE secret.staff SET sal = 99999 WHERE dept = 'board'")
    for text in ("REFRESH DYNAMIC TABLE own.leak", f"ALTER DYNAMIC TABLE own.leak ADD COLUMN x BOOLEAN AS {TELLS}"):
        with suppress(HeadraceError):  # What it says stands in the history.
            dev(text)
    assert "carol" not in _told(prepared, "leak")
    assert not [text for text in said if "carol" in text]
    with pytest.raises(RefreshFailed, match="carol-hidden"):  # Whoever may read all is told.
        boss(f"CREATE DYNAMIC TABLE own.all AS SELECT who, sal FROM shop.staff WHERE {TELLS}")
    dev("DROP DYNAMIC TABLE own.leak")


def test_the_history_of_a_table_tells_its_readers_of_no_other_rows(prepared: Lake, ann: Run, boss: Run) -> None:
    """Made by somebody who may read all, for people who may not."""
    prepared.sql("INSERT INTO secret.pay VALUES ('carol-hidden', NULL)")
    query = "SELECT person, CAST(if(salary IS NULL, person, '1') AS INT) AS n FROM secret.pay WHERE person <> 'x'"
    boss(f"CREATE DYNAMIC TABLE own.paid PROPERTIES ('initialize' = 'on_schedule') AS {query}")
    with pytest.raises(HeadraceError, match="not told"):
        boss("REFRESH DYNAMIC TABLE own.paid")
    history = _rows(ann("SHOW DYNAMIC TABLE REFRESH HISTORY WHERE name = 'paid'"))
    assert "not told" in history[0]["error_message"]
    assert "carol" not in repr(history)
    prepared.sql("DROP DYNAMIC TABLE own.paid; DELETE FROM secret.pay WHERE person = 'carol-hidden'")


def test_the_lakes_own_token_stays_the_administrators(prepared: Lake, boss: Run) -> None:
    prepared.sql("CREATE USER IF NOT EXISTS admin WITH PASSWORD 'long enough' ROLE admin")
    local = _runner(_session(prepared, Principal("admin", "admin")))
    local("CREATE DYNAMIC TABLE own.kept AS SELECT id FROM shop.orders")
    boss("DROP USER admin")
    local("REFRESH DYNAMIC TABLE own.kept")
    assert _rows(boss("VERIFY DYNAMIC TABLE own.kept"))[0]["result"] == "EQUAL"
    boss("DROP DYNAMIC TABLE own.kept")


@pytest.mark.usefixtures("hidden")
def test_nothing_explains_what_is_behind_a_view(prepared: Lake, dev: Run, boss: Run) -> None:
    for text in ("EXPLAIN SELECT who FROM shop.staff", "EXPLAIN INCREMENTAL SELECT who FROM shop.staff"):
        with pytest.raises(Forbidden, match="EXPLAIN would show"):
            dev(text)
        boss(text)
    dev("EXPLAIN INCREMENTAL SELECT id FROM shop.orders")
    context = _session(prepared, Principal("dev", "developer"))
    for plan in ({"op": "table", "name": "shop.staff", "consume": False}, {"op": "query", "text": "TABLE shop.staff"}):
        explain = work_of({"format": 1, "nodes": [plan]}, {"name": "explain", "arguments": [True, None]})
        with pytest.raises(Forbidden, match="EXPLAIN would show"):
            explain.run(context)
    plain = work_of(
        {"format": 1, "nodes": [{"op": "table", "name": "shop.orders", "consume": False}]},
        {"name": "explain", "arguments": [True, None]},
    )
    assert "orders" in str(plain.run(context).rows)
    dev("CREATE DYNAMIC TABLE own.staff AS SELECT who FROM shop.staff")
    with pytest.raises(Forbidden, match="EXPLAIN would show"):
        dev("EXPLAIN REFRESH DYNAMIC TABLE own.staff")
    boss("EXPLAIN REFRESH DYNAMIC TABLE own.staff")
    job = _rows(dev("SHOW DYNAMIC TABLE REFRESH HISTORY WHERE name = 'staff'"))[0]["job_id"]
    assert "secret" not in repr(_rows(dev(f"DESC JOB '{job}'")))
    assert "secret" in repr(_rows(boss(f"DESC JOB '{job}'")))
    dev("DROP DYNAMIC TABLE own.staff")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE OR REPLACE TABLE `../shop.db/orders` AS SELECT 'evil' AS id",
        "CREATE TABLE `../../../escaped/x` AS SELECT 1 AS a",
        "CREATE TABLE own.`a b` (a INT)",
        "CREATE TABLE `日本語` (a INT)",
        "CREATE VIEW `a/b` AS SELECT 1 AS a",
        "CREATE DYNAMIC TABLE `a.b` AS SELECT id FROM shop.orders",
        "ALTER TABLE own.plain RENAME TO own.`../shop.db/x`",
        "CREATE SCHEMA `a b`",
        "CREATE SCHEMA `ünïcödé`",
    ],
)
def test_names_that_the_catalog_cannot_hold_are_refused_before_anything_is_made(
    prepared: Lake, boss: Run, text: str
) -> None:
    prepared.sql("CREATE TABLE IF NOT EXISTS own.plain (a INT)")
    before = sorted(str(path) for path in prepared.settings.warehouse.parent.rglob("*_delta_log"))
    for run in (boss, prepared.sql):
        with pytest.raises(HeadraceError, match=r"cannot be the name of|by their path|reaches"):
            run(text)
    assert sorted(str(path) for path in prepared.settings.warehouse.parent.rglob("*_delta_log")) == before
    assert len(_rows(boss("SELECT * FROM shop.orders"))) == 2
