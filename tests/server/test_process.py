"""`headrace up` as a real program, with its own lake and port: started, stopped, killed, robbed of Java, database and
disk.

Every start of the program starts Spark. So the tests of this file share a lake and go on where the one before them
stopped, in the order in which they stand here.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from server_program import Server, healthy, program, started, until

# One task that ends some day: the other core stays free.
LONG = "SELECT max(id % 7) FROM range(0, 100000000000000, 1, 1)"
PASSWORD = re.compile(r"the password (\S+)$", re.MULTILINE)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up")


def test_first_start_status_statements_and_a_clean_stop(folder: Path) -> None:
    with started(folder, "1") as server:
        assert server.url in server.said()
        found = PASSWORD.findall(server.said())
        assert len(found) == 1, f"the first password, once:\n{server.said()}"
        password = found[0]
        (folder / "password").write_text(password, "utf-8")
        mine = (server.lake / "server.json").stat()
        assert mine.st_mode & 0o777 == 0o600

        status = program(server, "status")
        assert status.returncode == 0, status.stderr
        assert server.url in status.stdout
        assert str(server.process.pid) in status.stdout

        refused = server.request("POST", "/v1/login", {"username": "admin", "password": password + "x"})
        assert refused.status_code == 401, refused.text
        server.login(password)
        assert server.rows("SELECT 1 AS one, 'x' AS x") == [[1, "x"]]
        for text in (
            "CREATE TABLE raw (id INT, kind STRING)",
            "INSERT INTO raw SELECT id, concat('k', id % 3) FROM range(30)",
            "CREATE DYNAMIC TABLE counts AS SELECT kind, count(*) AS n FROM raw GROUP BY kind",
        ):
            server.rows(text)
        through_program = program(server, "sql", "SELECT sum(n) AS n FROM counts", "--format", "csv")
        assert through_program.returncode == 0, through_program.stderr
        assert through_program.stdout.split() == ["n", "30"], "the lake is held, so the command asks the server"

        statement = server.running(LONG)
        began = time.monotonic()
        down = program(server, "down")
        took = time.monotonic() - began
        assert down.returncode == 0, f"{down.stdout} {down.stderr}\n{server.told()}"
        assert server.process.wait(5) == 0, server.told()
        assert took < 35, f"{took:.1f} s, of which the command itself takes one or two"
        assert not (server.lake / "server.json").exists()
        assert "Traceback" not in server.said(), server.said()
        assert password not in server.told().replace(server.said(), ""), "the password is in no log"
        (folder / "job").write_text(statement["job_id"], "utf-8")

        status = program(server, "status")
        assert status.returncode == 1, status.stdout


def test_java_killed_then_the_server_killed(folder: Path) -> None:
    # The second refresh that gets so far is the one below that is meant to die; the first is made after Java's death.
    with started(folder, "2", HEADRACE_FAILPOINT="after-compute:2") as server:
        assert not PASSWORD.findall(server.said()), "told at the first start only"
        server.login((folder / "password").read_text("utf-8"))
        assert server.job_status((folder / "job").read_text("utf-8")) in ("CANCELLED", "FAILED")

        looked = server.answered("POST", "/v1/sessions", {})["session_id"]
        server.rows("CREATE TEMPORARY VIEW mine AS SELECT 1 AS one", session=looked)
        statement = server.running(LONG)
        java = int((server.lake / "logs" / "spark.pid").read_text("utf-8"))
        os.kill(java, signal.SIGKILL)
        began = time.monotonic()
        ended = server.finished(statement, seconds=60)
        took = time.monotonic() - began
        assert ended["status"] == "FAILED", ended
        assert ended["error"]["code"] != "BUG", ended
        assert took < 30, f"{took:.1f} s"

        until(lambda: healthy(server), server.told)
        assert int((server.lake / "logs" / "spark.pid").read_text("utf-8")) != java
        assert server.rows("SHOW JOBS WHERE job_id = 'none'", session=looked) == [], "what waits for nobody, first"
        reset = server.finished(server.submit("SELECT * FROM mine", 30, session=looked))
        assert reset["error"]["code"] == "SESSION_RESET", "told once, that the view is gone"
        assert server.rows("SELECT 2", session=looked) == [[2]]
        assert server.rows("SELECT count(*) FROM raw") == [[30]], "in the session from before, with its schema"
        server.rows("INSERT INTO raw VALUES (100, 'k0')")
        server.rows("REFRESH DYNAMIC TABLE counts")
        assert _verdict(server) == "EQUAL"

        statement = server.running(LONG)
        server.rows("INSERT INTO raw VALUES (101, 'k1')")
        session = server.answered("POST", "/v1/sessions", {})["session_id"]
        with suppress(httpx.HTTPError):
            # The server is gone before or after it answers.
            server.request("POST", f"/v1/sessions/{session}/statements", {"sql": "REFRESH DYNAMIC TABLE counts"})
        assert server.process.wait(120) == -signal.SIGKILL, server.told()
        (folder / "job").write_text(statement["job_id"], "utf-8")


def _verdict(server: Server) -> str:
    return str(server.rows("VERIFY DYNAMIC TABLE counts")[0][1])


def test_after_a_kill_the_jobs_are_settled_and_the_lake_is_whole(folder: Path) -> None:
    assert (folder / "lake" / "server.json").exists(), "left behind by the killed server, and not believed"
    with started(folder, "3") as server:
        server.login((folder / "password").read_text("utf-8"))
        assert server.job_status((folder / "job").read_text("utf-8")) == "FAILED"
        unfinished = server.rows(
            "SELECT job_id FROM (SHOW JOBS) WHERE status NOT IN ('SUCCEED', 'FAILED', 'CANCELLED')"
        )
        assert len(unfinished) <= 1, f"this very statement at most: {unfinished}"
        states = server.rows("SELECT DISTINCT state FROM (SHOW DYNAMIC TABLE REFRESH HISTORY)")
        assert {state for (state,) in states} <= {"SUCCEED", "FAILED"}
        assert _verdict(server) == "EQUAL"
        server.rows("REFRESH DYNAMIC TABLE counts")
        assert server.rows("SELECT sum(n) FROM counts") == [[32]]
        assert _verdict(server) == "EQUAL"

        _database_locked(server)

        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(35) == 0, server.told()


def _database_locked(server: Server) -> None:
    """Another program has the operations database open for writing, for longer than the server waits."""
    session = server.session()
    path = f"/v1/sessions/{session}/statements"
    blocker = sqlite3.connect(server.lake / "headrace.db", isolation_level=None)
    try:
        blocker.execute("BEGIN IMMEDIATE")
        assert healthy(server)
        answer = server.request("POST", path, {"sql": "SELECT 1", "wait_seconds": 0})
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["Retry-After"]) >= 1
        assert "locked" in answer.json()["error"]["message"]
        assert healthy(server), "what needs no database is answered"
    finally:
        blocker.rollback()
        blocker.close()
    assert server.rows("SELECT count(*) FROM counts") == [[3]]


def _small_disk(place: Path) -> str:
    return f"mount -t tmpfs -o size=48m tmpfs {shlex.quote(str(place))}"


def _may_mount(place: Path) -> str | None:
    """Why no disk can be mounted here; None if one can."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _small_disk(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip()


def test_a_full_disk(tmp_path: Path) -> None:
    """The warehouse is on a small disk of its own, in a mount namespace that ends with the server."""
    disk = tmp_path / "disk"
    disk.mkdir()
    reason = _may_mount(disk)
    if reason is not None:
        pytest.skip(f"no file system can be mounted here: {reason}")
    with started(tmp_path, "1", before=_small_disk(disk), HEADRACE_WAREHOUSE=str(disk / "warehouse")) as server:
        server.login(PASSWORD.findall(server.said())[0])
        for text in (
            "CREATE TABLE raw (id INT, kind STRING)",
            "INSERT INTO raw SELECT id, concat('k', id % 3) FROM range(30)",
            "CREATE DYNAMIC TABLE counts AS SELECT kind, count(*) AS n FROM raw GROUP BY kind",
            "INSERT INTO raw VALUES (100, 'k0')",
        ):
            server.rows(text)
        # The server's disk as the server sees it.
        filler = Path(f"/proc/{server.process.pid}/root{disk}/filler")
        _fill(filler)
        for text in ("REFRESH DYNAMIC TABLE counts", "INSERT INTO raw VALUES (101, 'k1')"):
            ended = server.finished(server.submit(text, 30))
            assert ended["status"] == "FAILED", ended
            assert ended["error"]["code"] not in ("BUG", "ERROR"), ended
            assert re.search("disk|space", ended["error"]["message"], re.IGNORECASE), ended
        assert server.rows("SELECT sum(n) FROM counts") == [[30]], "still readable, as it was"
        assert healthy(server)
        filler.unlink()
        server.rows("REFRESH DYNAMIC TABLE counts")
        assert server.rows("SELECT sum(n) FROM counts") == [[31]]
        assert _verdict(server) == "EQUAL"
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(35) == 0, server.told()


def _fill(file: Path) -> None:
    """Take every byte that is left, the last ones one by one."""
    block = 1 << 20
    with file.open("ab", buffering=0) as filler:
        while block:
            try:
                filler.write(b"x" * block)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                block //= 2
