"""Who may do what: every route and every kind of statement, for nobody and for each role.

The routes come from the application and the kinds of statement from their classes, so a new one fails here until
somebody has said, in the tables below, who may use it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.security.roles import LEAST_ROLE_FOR_VERB
from headrace.server.app import build
from headrace.server.service import Service
from headrace.settings import Settings
from headrace.sql import statements as sql
from headrace.sql.parser import parse

PASSWORD = "correct horse 7"
FINISHED = ("SUCCEED", "FAILED", "CANCELLED")
NOBODY, ADMIN = "nobody", "admin"
ANALYST, DEVELOPER, OPERATOR, STRANGER = "access_analyst", "access_developer", "access_operator", "access_stranger"
USERS = (ANALYST, DEVELOPER, OPERATOR, STRANGER, ADMIN)
"""The analyst may read the schema `shop`, the developer and the operator have all of it, the stranger is a developer
without a grant."""
EVERYBODY = USERS
READERS = (ANALYST, DEVELOPER, OPERATOR, ADMIN)
BUILDERS = (DEVELOPER, OPERATOR, ADMIN)
DEVELOPERS = (DEVELOPER, OPERATOR, STRANGER, ADMIN)
ADMINS = (ADMIN,)

pytestmark = pytest.mark.timeout(900)


class User:
    """Somebody at the server, logged in, with a session; or nobody."""

    def __init__(self, url: str, name: str, password: str | None) -> None:
        self.name = name
        self.password = password
        self.http = httpx.Client(base_url=url, trust_env=False, timeout=180)
        self._session: str | None = None
        if password is not None:
            answer = self.http.post("/v1/login", json={"username": name, "password": password})
            assert answer.status_code == 200, answer.text
            self.http.headers["Authorization"] = f"Bearer {answer.json()['token']}"

    @property
    def session(self) -> str:
        if self._session is None:
            answer = self.http.post("/v1/sessions", json={})
            assert answer.status_code == 200, answer.text
            self._session = str(answer.json()["session_id"])
        return self._session

    def run(self, text: str) -> dict[str, Any]:
        """The statement when it has ended; one that is refused at once as if it had failed."""
        answer = self.http.post(f"/v1/sessions/{self.session}/statements", json={"sql": text, "wait_seconds": 30})
        deadline = time.monotonic() + 300
        while answer.status_code == 200 and answer.json()["status"] not in FINISHED:
            assert time.monotonic() < deadline, answer.text
            answer = self.http.get(f"/v1/statements/{answer.json()['job_id']}?wait_seconds=30")
        assert answer.status_code < 500, f"{text}: {answer.text}"
        found: dict[str, Any] = answer.json() if answer.status_code == 200 else {"status": "FAILED", **answer.json()}
        return found

    def must(self, text: str) -> dict[str, Any]:
        found = self.run(text)
        assert found["status"] == "SUCCEED", f"{self.name}: {text}: {found}"
        return found


@pytest.fixture(scope="module")
def users(server: Any) -> Iterator[dict[str, User]]:
    """Everybody, in a lake with a schema `shop`, on a server that allows code."""
    context = server.service.lake._context
    before = context.settings
    context.settings = before.model_copy(update={"code_tasks": True})
    admin = User(server.url, ADMIN, server.admin_password)
    for text in (
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.items (id INT, kind STRING)",
        "INSERT INTO shop.items VALUES (1, 'a'), (2, 'b')",
        "CREATE TABLE shop.copies (id INT, kind STRING)",
        "CREATE DYNAMIC TABLE shop.counts AS SELECT kind, count(*) AS n FROM shop.items GROUP BY kind",
        "CREATE TABLE STREAM shop.changes ON TABLE shop.items",
        "CREATE VIEW shop.seen AS SELECT id FROM shop.items",
        f"CREATE USER {ANALYST} WITH PASSWORD '{PASSWORD}' ROLE analyst",
        f"CREATE USER {DEVELOPER} WITH PASSWORD '{PASSWORD}' ROLE developer",
        f"CREATE USER {STRANGER} WITH PASSWORD '{PASSWORD}' ROLE developer",
        f"GRANT SELECT ON SCHEMA shop TO {ANALYST}",
        f"GRANT ALL ON SCHEMA shop TO {DEVELOPER}",
        f"CREATE USER {OPERATOR} WITH PASSWORD '{PASSWORD}' ROLE operator",
        f"GRANT ALL ON SCHEMA shop TO {OPERATOR}",
        "CREATE TASK shop.nightly SCHEDULE = 'USING CRON 0 3 * * * UTC' AS SELECT 1",
        "ALTER TASK shop.nightly SUSPEND",
    ):
        admin.must(text)
    found = {name: User(server.url, name, PASSWORD) for name in (ANALYST, DEVELOPER, OPERATOR, STRANGER)}
    nobody = User(server.url, NOBODY, None)
    yield found | {ADMIN: admin, NOBODY: nobody}
    for name in (ANALYST, DEVELOPER, OPERATOR, STRANGER):
        admin.must(f"DROP USER {name}")
    admin.must("DROP SCHEMA shop CASCADE")
    for kind, drop in MADE.items():
        for number in range(len(USERS)):
            admin.must(drop.format(n=f"{list(KINDS).index(kind)}_{number}"))
    context.settings = before


# ---------------------------------------------------------------------- routes


@dataclass(frozen=True)
class Route:
    """What a route answers. `{session_id}` and `{job_id}` in its path become ids of the user who asks; with those of
    somebody else it answers 404."""

    user: int
    nobody: int = 401
    body: Any = None
    lines: bytes | None = None
    """The body of a route that takes JSON lines."""
    name: str = "swagger-ui.css"
    """What `{name}` in its path becomes."""
    may: tuple[str, ...] | None = None
    """Who may do what the body asks for, where that is not for everybody. The others get 403, or a job that fails with
    FORBIDDEN."""


WRITE = {
    "plan": {"format": 1, "nodes": [{"op": "query", "text": "SELECT 9 AS id, 'z' AS kind"}]},
    "action": {"name": "insert_into", "arguments": ["shop.copies", False, {"dict": []}, []]},
    "wait_seconds": 60,
}
CODE = {"code": "x = 1", "name": "a model", "wait_seconds": 60}

ROUTES = {
    ("GET", "/"): Route(307, nobody=307),
    ("GET", "/health"): Route(200, nobody=200),
    ("GET", "/openapi.json"): Route(200, nobody=200),
    ("GET", "/docs"): Route(200, nobody=200),
    ("GET", "/docs/start.js"): Route(200, nobody=200),
    ("GET", "/docs/openapi.json"): Route(200, nobody=200),
    ("GET", "/docs/{name}"): Route(200, nobody=200),
    ("POST", "/v1/login"): Route(200, nobody=200, body={"username": ANALYST, "password": PASSWORD}),
    ("POST", "/v1/logout"): Route(204),
    ("POST", "/v1/sessions"): Route(200, body={}),
    ("GET", "/v1/sessions"): Route(200),
    ("GET", "/v1/sessions/{session_id}"): Route(200),
    ("DELETE", "/v1/sessions/{session_id}"): Route(204),
    ("POST", "/v1/sessions/{session_id}/statements"): Route(200, body={"sql": "SELECT 1"}),
    ("POST", "/v1/sessions/{session_id}/frames"): Route(200, body=WRITE, may=BUILDERS),
    ("POST", "/v1/sessions/{session_id}/python"): Route(200, body=CODE, may=(OPERATOR, ADMIN)),
    ("POST", "/v1/statements"): Route(200, body={"sql": "SELECT 1"}),
    ("GET", "/v1/statements/{job_id}"): Route(200),
    ("GET", "/v1/statements/{job_id}/rows"): Route(200),
    ("GET", "/v1/statements/{job_id}/arrow"): Route(200),
    ("POST", "/v1/statements/{job_id}/cancel"): Route(200),
    # Who may send rows is told that these are none.
    ("POST", "/v1/tables/{name}/rows"): Route(400, lines=b"\n", name="shop.copies", may=BUILDERS),
    ("GET", "/v1/names"): Route(200),
    ("GET", "/metrics"): Route(200),
}


def _routes(found: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every method and path, also those of routers that are included as they are."""
    for route in found:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from _routes(included.routes, prefix + getattr(route.include_context, "prefix", ""))
            continue
        assert getattr(route, "methods", None), f"{route!r} has no methods: nobody could say who may use it"
        for method in route.methods - {"HEAD"}:
            yield method, prefix + route.path


def test_every_route_is_in_the_table(tmp_path: Path) -> None:
    assert set(_routes(build(Service(Settings(path=tmp_path))).routes)) == set(ROUTES)


def _ask(by: User, method: str, path: str, route: Route, session: str, job: str) -> int:
    """The status of the answer; 403 also where it is about a job that was refused."""
    filled = path.format(session_id=session, job_id=job, name=route.name)
    if route.lines is not None:
        sent: dict[str, Any] = {"content": route.lines, "headers": {"Content-Type": "application/x-ndjson"}}
    else:
        sent = {"json": route.body}
    answer = by.http.request(method, filled, **sent)
    if answer.status_code == 200 and route.may is not None:
        error = answer.json()["error"] or {}
        assert error.get("code") in (None, "FORBIDDEN"), answer.text
        return 403 if error else 200
    return answer.status_code


def test_every_route_for_nobody_and_for_each_role(server: Any, users: dict[str, User]) -> None:
    found, expected = {}, {}
    jobs = {name: user.must("SELECT 1")["job_id"] for name, user in users.items() if name != NOBODY}
    for name, user in users.items():
        for (method, path), route in ROUTES.items():
            # What ends a login or a session gets one of its own.
            by = user
            if name != NOBODY and (path == "/v1/logout" or method == "DELETE"):
                by = User(server.url, name, user.password)
            session, job = ("none", "none") if name == NOBODY else (by.session, jobs[name])
            found[name, method, path] = _ask(by, method, path, route, session, job)
            allowed = route.user if route.may is None or name in route.may else 403
            expected[name, method, path] = route.nobody if name == NOBODY else allowed
    assert found == expected


def test_what_belongs_to_another_is_not_there(users: dict[str, User]) -> None:
    """Not even for an administrator: sessions and results are their owners' own."""
    found = {}
    owner = users[DEVELOPER]
    session, job = owner.session, owner.must("SELECT 1")["job_id"]
    for name in (ANALYST, STRANGER, ADMIN):
        for (method, path), route in ROUTES.items():
            if "_id}" in path:
                found[name, method, path] = _ask(users[name], method, path, route, session, job)
    assert found
    assert {key: status for key, status in found.items() if status != 404} == {}
    assert owner.must("SELECT 1"), "its session is still there"


def test_a_token_that_is_none(users: dict[str, User]) -> None:
    nobody = users[NOBODY].http
    for header in ("Bearer", "Bearer x", "Basic YWRtaW46YWRtaW4=", "bearer hr_" + "x" * 43, "x" * 5000):
        assert nobody.get("/v1/sessions", headers={"Authorization": header}).status_code == 401, header


# ---------------------------------------------------------------------- kinds of statement


@dataclass(frozen=True)
class Kind:
    """An example, and who may run it. `{who}` becomes the user's name, and `{n}` a number of its own."""

    text: str
    may: tuple[str, ...]


KINDS: dict[type[sql.Statement], Kind] = {
    sql.CreateDynamicTable: Kind("CREATE DYNAMIC TABLE shop.made_{n} AS SELECT id FROM shop.items", BUILDERS),
    sql.RefreshDynamicTables: Kind("REFRESH DYNAMIC TABLE shop.counts", BUILDERS),
    sql.AlterDynamicTable: Kind("ALTER DYNAMIC TABLE shop.counts SET COMMENT 'x'", BUILDERS),
    sql.DropDynamicTable: Kind("DROP DYNAMIC TABLE IF EXISTS shop.gone", BUILDERS),
    sql.ExplainRefresh: Kind("EXPLAIN REFRESH DYNAMIC TABLE shop.counts", READERS),
    sql.ExplainIncremental: Kind("EXPLAIN INCREMENTAL SELECT id FROM shop.items", READERS),
    sql.VerifyDynamicTable: Kind("VERIFY DYNAMIC TABLE shop.counts", READERS),
    sql.ShowDynamicTables: Kind("SHOW DYNAMIC TABLES", EVERYBODY),
    sql.ShowRefreshHistory: Kind("SHOW DYNAMIC TABLE REFRESH HISTORY", EVERYBODY),
    sql.ShowTables: Kind("SHOW TABLES", EVERYBODY),
    sql.ShowCreateTable: Kind("SHOW CREATE TABLE shop.items", READERS),
    sql.SelectFromShow: Kind("SELECT * FROM (SHOW DYNAMIC TABLES)", EVERYBODY),
    sql.CreateStream: Kind("CREATE TABLE STREAM shop.made_{n} ON TABLE shop.items", BUILDERS),
    sql.AlterStream: Kind("ALTER TABLE STREAM shop.changes SET COMMENT 'x'", BUILDERS),
    sql.DropStream: Kind("DROP TABLE STREAM IF EXISTS shop.gone", BUILDERS),
    sql.DescribeStream: Kind("DESC TABLE STREAM shop.changes", READERS),
    sql.ShowStreams: Kind("SHOW TABLE STREAMS", EVERYBODY),
    sql.DescribeTable: Kind("DESC shop.items", READERS),
    sql.DescribeHistory: Kind("DESC HISTORY shop.items", READERS),
    sql.DescribeJob: Kind("DESC JOB 'no-such-job'", EVERYBODY),
    sql.RestoreTable: Kind("RESTORE TABLE shop.copies TO VERSION AS OF 0", BUILDERS),
    sql.Vacuum: Kind("VACUUM shop.copies DRY RUN", BUILDERS),
    sql.DropTable: Kind("DROP TABLE IF EXISTS shop.gone", BUILDERS),
    sql.UseSchema: Kind("USE shop", READERS),
    sql.CreateSchema: Kind("CREATE SCHEMA made_{n}", DEVELOPERS),
    sql.DropSchema: Kind("DROP SCHEMA IF EXISTS gone", ADMINS),
    sql.CreateVcluster: Kind("CREATE VCLUSTER made_{n}", ADMINS),
    sql.AlterVcluster: Kind("ALTER VCLUSTER default SET MAX_CONCURRENCY = 8", ADMINS),
    sql.DropVcluster: Kind("DROP VCLUSTER IF EXISTS gone", ADMINS),
    sql.UseVcluster: Kind("USE VCLUSTER default", EVERYBODY),
    sql.DescribeVcluster: Kind("DESC VCLUSTER default", EVERYBODY),
    sql.ShowVclusters: Kind("SHOW VCLUSTERS", EVERYBODY),
    sql.ShowJobs: Kind("SHOW JOBS", EVERYBODY),
    sql.CancelJob: Kind("CANCEL JOB 'no-such-job'", EVERYBODY),
    sql.SetQueryTag: Kind("SET query_tag = 'x'", EVERYBODY),
    sql.SetMoveStreams: Kind("SET move_streams = true", EVERYBODY),
    sql.CreateUser: Kind("CREATE USER made_{n} WITH PASSWORD 'long enough'", ADMINS),
    sql.AlterUser: Kind("ALTER USER access_nobody_{n} SET PASSWORD 'long enough'", ADMINS),
    sql.DropUser: Kind("DROP USER IF EXISTS gone", ADMINS),
    sql.ShowUsers: Kind("SHOW USERS", ADMINS),
    sql.GrantPrivilege: Kind("GRANT SELECT ON TABLE shop.items TO access_stranger_{n}", ADMINS),
    sql.ShowGrants: Kind("SHOW GRANTS TO {who}", EVERYBODY),
    sql.CreateToken: Kind("CREATE TOKEN 'made_{n}'", EVERYBODY),
    sql.DropToken: Kind("DROP TOKEN 'no such token'", EVERYBODY),
    sql.ShowTokens: Kind("SHOW TOKENS", EVERYBODY),
    sql.SparkStatement: Kind("SELECT count(*) FROM shop.items", READERS),
    sql.CreateTask: Kind("CREATE TASK shop.made_{n} AS SELECT 1", BUILDERS),
    sql.AlterTask: Kind("ALTER TASK shop.nightly SET COMMENT = 'x'", BUILDERS),
    sql.DropTask: Kind("DROP TASK IF EXISTS shop.gone", BUILDERS),
    sql.ExecuteTask: Kind("EXECUTE TASK shop.nightly PREVIEW", BUILDERS),
    sql.DescribeTask: Kind("DESC TASK shop.nightly", READERS),
    sql.ShowTasks: Kind("SHOW TASKS", EVERYBODY),
    sql.ShowTaskHistory: Kind("SHOW TASK HISTORY", EVERYBODY),
    sql.ShowFreshness: Kind("SHOW FRESHNESS", EVERYBODY),
    sql.CreateAlert: Kind("CREATE ALERT made_{n} ON FAILURE FOR ALL NOTIFY 'https://hooks.example.com/x'", DEVELOPERS),
    sql.AlterAlert: Kind("ALTER ALERT made_{n} SUSPEND", DEVELOPERS),
    sql.DropAlert: Kind("DROP ALERT IF EXISTS gone", DEVELOPERS),
    sql.ShowAlerts: Kind("SHOW ALERTS", EVERYBODY),
    sql.ShowAlertHistory: Kind("SHOW ALERT HISTORY", EVERYBODY),
    sql.CopyInto: Kind("COPY INTO shop.copies FROM '/no/such/file.csv' FILE_FORMAT = CSV", BUILDERS),
}

VERBS = (
    Kind("SELECT count(*) FROM shop.counts", READERS),
    Kind("SELECT 1", EVERYBODY),
    Kind("VALUES (1), (2)", EVERYBODY),
    Kind("TABLE shop.items", READERS),
    Kind("EXPLAIN SELECT * FROM shop.items", READERS),
    Kind("DESCRIBE SELECT * FROM shop.items", READERS),
    Kind("DESCRIBE QUERY SELECT * FROM shop.items", READERS),
    Kind("DESCRIBE DETAIL shop.items", READERS),
    Kind("DESCRIBE SCHEMA shop", READERS),
    Kind("DESCRIBE DATABASE shop", READERS),
    Kind("DESCRIBE NAMESPACE shop", READERS),
    Kind("DESCRIBE FUNCTION upper", EVERYBODY),
    Kind("SHOW COLUMNS IN shop.items", READERS),
    Kind("SHOW TBLPROPERTIES shop.items", READERS),
    Kind("SHOW PARTITIONS shop.items", READERS),
    Kind("SHOW VIEWS IN shop", READERS),
    Kind("SHOW TABLE EXTENDED IN shop LIKE 'items'", READERS),
    Kind("SHOW SCHEMAS", EVERYBODY),
    Kind("SHOW DATABASES", EVERYBODY),
    Kind("SHOW NAMESPACES", EVERYBODY),
    Kind("SHOW CATALOGS", EVERYBODY),
    Kind("SHOW CURRENT NAMESPACE", EVERYBODY),
    Kind("SHOW FUNCTIONS IN shop", READERS),
    Kind("SHOW ALL FUNCTIONS IN shop", READERS),
    Kind("SHOW SYSTEM FUNCTIONS IN shop", READERS),
    Kind("SHOW USER FUNCTIONS IN shop", READERS),
    Kind("SET spark.sql.shuffle.partitions = 4", EVERYBODY),
    Kind("RESET spark.sql.shuffle.partitions", EVERYBODY),
    Kind("DECLARE VARIABLE made_{n} INT DEFAULT 1", EVERYBODY),
    Kind("DROP VARIABLE gone", EVERYBODY),
    Kind("DROP TEMPORARY FUNCTION IF EXISTS gone", EVERYBODY),
    Kind("CREATE TEMPORARY FUNCTION made_{n}() RETURNS INT RETURN 1", EVERYBODY),
    Kind("CREATE TEMPORARY VIEW made_{n} AS SELECT id FROM shop.items", READERS),
    Kind("CREATE VIEW shop.made_{n} AS SELECT id FROM shop.items", BUILDERS),
    Kind("CREATE FUNCTION shop.made_{n}() RETURNS INT RETURN 1", BUILDERS),
    Kind("CREATE TABLE shop.made_{n} (id INT)", BUILDERS),
    Kind("REPLACE TABLE shop.copies (id INT, kind STRING)", BUILDERS),
    Kind("INSERT INTO shop.copies SELECT * FROM shop.items", BUILDERS),
    Kind("UPDATE shop.copies SET kind = 'c' WHERE id = 1", BUILDERS),
    Kind("DELETE FROM shop.copies WHERE id = 1", BUILDERS),
    Kind("MERGE INTO shop.copies c USING shop.items i ON c.id = i.id WHEN NOT MATCHED THEN INSERT *", BUILDERS),
    Kind("TRUNCATE TABLE shop.copies", BUILDERS),
    Kind("ALTER TABLE shop.copies SET TBLPROPERTIES ('note' = 'x')", BUILDERS),
    Kind("ALTER VIEW shop.seen SET TBLPROPERTIES ('note' = 'x')", BUILDERS),
    Kind("ALTER SCHEMA shop SET DBPROPERTIES ('note' = 'x')", BUILDERS),
    Kind("ALTER DATABASE shop SET DBPROPERTIES ('note' = 'x')", BUILDERS),
    Kind("ALTER NAMESPACE shop SET PROPERTIES ('note' = 'x')", BUILDERS),
    Kind("ANALYZE TABLE shop.copies COMPUTE STATISTICS", BUILDERS),
    Kind("ANALYZE TABLES IN shop COMPUTE STATISTICS NOSCAN", BUILDERS),
    Kind("CACHE TABLE shop.copies", BUILDERS),
    Kind("CACHE LAZY TABLE shop.copies", BUILDERS),
    Kind("UNCACHE TABLE IF EXISTS shop.copies", BUILDERS),
    Kind("COMMENT ON TABLE shop.copies IS 'x'", BUILDERS),
    Kind("OPTIMIZE shop.copies", BUILDERS),
    Kind("REORG TABLE shop.copies APPLY (PURGE)", BUILDERS),
    Kind("REFRESH TABLE shop.copies", BUILDERS),
    Kind("REFRESH FUNCTION shop.gone", BUILDERS),
    Kind("DROP FUNCTION IF EXISTS shop.gone", BUILDERS),
    # What lets its user out of SQL is for nobody, not even an administrator, unless the server is told to allow it.
    Kind("ADD JAR '/tmp/no-such.jar'", ()),
    Kind("CREATE FUNCTION shop.made_{n} AS 'java.lang.String'", ()),
    Kind("LOAD DATA INPATH '/etc/passwd' INTO TABLE shop.copies", ()),
    Kind("INSERT OVERWRITE DIRECTORY '/tmp/no-such-folder' USING csv SELECT 1", ()),
    Kind("SELECT java_method('java.lang.System', 'getProperty', 'user.home')", ()),
    Kind("SELECT * FROM csv.`/etc/passwd`", ()),
    Kind("SELECT named_struct('not', 1).not distinct FROM csv.passwd", ()),
    Kind("CREATE TABLE shop.values (id INT) WITH PROPERTIES ('a' = 'b') USING csv LOCATION '/etc'", ()),
    Kind("SELECT TRANSFORM (id) USING 'cat' FROM shop.items", ()),
    Kind("SET spark.hadoop.fs.defaultFS = file:///", ()),
)
"""What Spark runs, by example."""

MADE = {
    sql.CreateSchema: "DROP SCHEMA IF EXISTS made_{n} CASCADE",
    sql.CreateUser: "DROP USER IF EXISTS made_{n}",
    sql.CreateVcluster: "DROP VCLUSTER IF EXISTS made_{n}",
    sql.CreateAlert: "DROP ALERT IF EXISTS made_{n}",
}
"""How to be rid of what the examples make outside the schema `shop`."""

OWN_WORDS = {
    "(", "CREATE TEMPORARY VIEW", "CREATE TEMPORARY FUNCTION", "CREATE PERMANENT VIEW", "CREATE PERMANENT FUNCTION",
    "RUN CODE",
}  # fmt: skip
"""Verbs of the roles' table that the parser never gives: finer ones, for the check itself."""

REFUSED = ("FORBIDDEN", "NOT_ALLOWED", "UNSAFE")


def _leaves(kind: type[sql.Statement]) -> Iterator[type[sql.Statement]]:
    below = kind.__subclasses__()
    if not below:
        yield kind
    for each in below:
        yield from _leaves(each)


def test_every_kind_of_statement_is_in_the_table() -> None:
    assert set(_leaves(sql.Statement)) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_examples_are_of_their_kinds(kind: type[sql.Statement]) -> None:
    assert type(parse(KINDS[kind].text.format(n=1, who="x"))) is kind


def test_every_verb_has_an_example() -> None:
    found = [parse(kind.text.format(n=1, who="x")) for kind in VERBS]
    assert [statement for statement in found if not isinstance(statement, sql.SparkStatement)] == []
    verbs = {statement.verb for statement in found if isinstance(statement, sql.SparkStatement)}
    assert set(LEAST_ROLE_FOR_VERB) - verbs == OWN_WORDS


def _refusals(users: dict[str, User], kinds: dict[str, Kind], codes: tuple[str, ...]) -> dict[str, list[str]]:
    """Who was refused what. Other errors are none of this test's: a job that does not exist is not found."""
    found: dict[str, list[str]] = {}
    for kind_number, (name, kind) in enumerate(kinds.items()):
        found[name] = []
        for number, who in enumerate(USERS):
            ended = users[who].run(kind.text.format(n=f"{kind_number}_{number}", who=who))
            error = ended.get("error") or {}
            assert error.get("code") not in ("BUG", "ERROR"), f"{who}: {kind.text}: {ended}"
            if error.get("code") in codes:
                found[name].append(who)
                assert error["hint"], f"{who}: {kind.text}: {ended}"
    return found


def _expected(kinds: dict[str, Kind]) -> dict[str, list[str]]:
    return {name: [who for who in USERS if who not in kind.may] for name, kind in kinds.items()}


def test_every_kind_of_statement_for_each_role(users: dict[str, User]) -> None:
    kinds = {kind.__name__: example for kind, example in KINDS.items()}
    assert _refusals(users, kinds, ("FORBIDDEN",)) == _expected(kinds)


def test_every_verb_for_each_role(users: dict[str, User]) -> None:
    kinds = {kind.text: kind for kind in VERBS}
    assert _refusals(users, kinds, REFUSED) == _expected(kinds)


def test_a_refusal_says_what_to_grant(users: dict[str, User]) -> None:
    error = users[STRANGER].run("SELECT * FROM shop.items")["error"]
    assert error["code"] == "FORBIDDEN"
    assert "GRANT SELECT ON" in error["hint"]
    assert STRANGER in error["hint"]


def test_what_one_may_not_see_is_not_listed(users: dict[str, User]) -> None:
    names = {who: set(users[who].http.get("/v1/names").json()["names"]) for who in USERS}
    for who in READERS:
        assert "items" in names[who], who
    assert not {"items", "counts", "copies"} & names[STRANGER]
    for who, seen in ((ANALYST, True), (STRANGER, False)):
        job = users[who].must("SHOW DYNAMIC TABLES")["job_id"]
        rows = users[who].http.get(f"/v1/statements/{job}/rows").json()["rows"]
        assert any("counts" in row for row in rows) is seen, (who, rows)
