"""Users, tokens and what is written down about them, on a real lake."""

from __future__ import annotations

import httpx

from served import PASSWORD, Client, MakeUser, Server, logged_in


def succeeded(client: Client, session: str, sql: str) -> str:
    statement = client.run(session, sql)
    assert statement["status"] == "SUCCEED", statement["error"]
    return str(statement["job_id"])


def test_a_user_sees_what_was_granted(make_user: MakeUser, admin: Client, schema: str) -> None:
    session = admin.session(schema=schema)
    succeeded(admin, session, "CREATE TABLE open AS SELECT 1 AS n")
    succeeded(admin, session, "CREATE TABLE closed AS SELECT 2 AS n")
    ann = make_user("analyst", f"SELECT ON TABLE {schema}.open")
    own = ann.session()
    assert ann.rows(succeeded(ann, own, f"SELECT * FROM {schema}.open"))["rows"] == [[1]]
    refused = ann.run(own, f"SELECT * FROM {schema}.closed")
    assert (refused["status"], refused["error"]["code"]) == ("FAILED", "FORBIDDEN")
    assert ann.http.get(f"/v1/statements/{refused['job_id']}/rows").status_code == 403
    names = ann.http.get("/v1/names").json()["names"]
    assert "open" in names
    assert "closed" not in names


def test_a_refusal_is_written_down(make_user: MakeUser, server: Server) -> None:
    ann = make_user("analyst")
    ann.run(ann.session(), "CREATE USER eve WITH PASSWORD 'canary canary'")
    entry = next(e for e in server.service.lake.store.users.audited(20) if e.action == "REFUSED")
    assert entry.user.startswith("analyst_")
    assert entry.address == "127.0.0.1"
    assert "CREATE USER eve" in entry.detail
    assert "canary" not in entry.detail


def test_passwords_are_shown_nowhere(admin: Client, make_user: MakeUser) -> None:
    make_user("analyst")
    session = admin.session()
    job = succeeded(admin, session, "SHOW JOBS LIMIT 50")
    assert PASSWORD not in admin.http.get(f"/v1/statements/{job}/rows").text


def test_a_new_password(server: Server, make_user: MakeUser, admin: Client) -> None:
    ann = make_user("analyst")
    name = ann.name
    succeeded(admin, admin.session(), f"ALTER USER {name} SET PASSWORD 'another password'")
    assert ann.http.get("/v1/sessions").status_code == 401
    wrong = httpx.post(f"{server.url}/v1/login", json={"username": name, "password": PASSWORD})
    assert wrong.status_code == 401
    assert logged_in(server.url, name, "another password").http.get("/v1/sessions").status_code == 200


def test_a_dropped_user(make_user: MakeUser, admin: Client) -> None:
    ann = make_user("developer")
    succeeded(admin, admin.session(), f"DROP USER {ann.name}")
    assert ann.http.get("/v1/sessions").status_code == 401


def test_an_api_token(server: Server, make_user: MakeUser) -> None:
    ann = make_user("analyst")
    session = ann.session()
    job = succeeded(ann, session, "CREATE TOKEN 'robot' EXPIRES IN 1 DAY")
    told = str(ann.rows(job)["rows"])
    token = next(word.strip("'\"[].,") for word in told.split() if "hr_" in word)
    robot = Client(server.url, token)
    assert robot.http.get("/v1/sessions").json()["sessions"] == [], "a login's sessions are not a token's"
    own = robot.session()
    refused = robot.run(own, "CREATE TOKEN 'another'")
    assert (refused["status"], refused["error"]["code"]) == ("FAILED", "FORBIDDEN")
    refused = robot.run(own, f"ALTER USER {ann.name} SET PASSWORD 'long enough'")
    assert (refused["status"], refused["error"]["code"]) == ("FAILED", "FORBIDDEN")
    succeeded(ann, session, "DROP TOKEN 'robot'")
    assert robot.http.get("/v1/sessions").status_code == 401


def test_a_token_of_a_lesser_role(server: Server, make_user: MakeUser, admin: Client, schema: str) -> None:
    dev = make_user("developer", f"ALL ON SCHEMA {schema}")
    session = dev.session(schema=schema)
    succeeded(dev, session, "CREATE TABLE t AS SELECT 1 AS n")
    job = succeeded(dev, session, "CREATE TOKEN 'reader' ROLE analyst")
    token = dev.rows(job)["rows"][0][1]
    reader = Client(server.url, token)
    own = reader.session(schema=schema)
    assert reader.rows(succeeded(reader, own, "SELECT * FROM t"))["rows"] == [[1]]
    refused = reader.run(own, "INSERT INTO t VALUES (2)")
    assert (refused["status"], refused["error"]["code"]) == ("FAILED", "FORBIDDEN")
    succeeded(admin, admin.session(), f"DROP TOKEN 'reader' OF {dev.name}")
    assert reader.http.get("/v1/sessions").status_code == 401


def test_a_dynamic_table_is_not_written(make_user: MakeUser, schema: str) -> None:
    dev = make_user("developer", f"ALL ON SCHEMA {schema}")
    session = dev.session(schema=schema)
    succeeded(dev, session, "CREATE TABLE t AS SELECT 1 AS n")
    succeeded(dev, session, "CREATE DYNAMIC TABLE d AS SELECT n, count(*) AS rows FROM t GROUP BY n")
    for sql in ("INSERT INTO d VALUES (1, 2)", "UPDATE d SET rows = 1", "DELETE FROM d"):
        refused = dev.run(session, sql)
        assert refused["error"]["code"] == "NOT_ALLOWED", refused["error"]
        assert "its rows are what its query says" in refused["error"]["message"]
    succeeded(dev, session, "REFRESH DYNAMIC TABLE d")
    assert dev.rows(succeeded(dev, session, "VERIFY DYNAMIC TABLE d"))["rows"][0][1] == "EQUAL"
