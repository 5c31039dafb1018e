"""A real server that works by the clock: rows come over HTTP, it is killed, and all of them are in the tables once."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.loading.committer import COMMIT_ROWS
from server_program import Server, program, started, until

DEFINITIONS = (
    "CREATE TABLE events (id BIGINT, kind STRING)",
    "CREATE TABLE seen (at TIMESTAMP)",
    "CREATE DYNAMIC TABLE by_kind REFRESH INTERVAL 1 MINUTE AS SELECT kind, count(*) AS n FROM events GROUP BY kind",
    "CREATE DYNAMIC TABLE totals AS SELECT count(*) AS n FROM events",
    "CREATE TASK tell SCHEDULE = '1 minute' AS INSERT INTO seen VALUES (SCHEDULED_TIME())",
)
# So many are committed at once, and not a minute later.
BATCH = "\n".join(f'{{"id": {number}, "kind": "k{number % 3}"}}' for number in range(COMMIT_ROWS)).encode()
BY_CLOCK = (
    "SELECT count(*) FROM (SHOW DYNAMIC TABLE REFRESH HISTORY) "
    "WHERE name = '{}' AND refresh_trigger = '{}' AND state = 'SUCCEED' AND refresh_mode <> 'NO_DATA'"
)


def counted(server: Server) -> list[list[int]]:
    return server.rows("SELECT count(*), count(DISTINCT id) FROM events")


@pytest.mark.timeout(600)
def test_killed_after_it_took_rows_it_loses_none_and_goes_on_by_the_clock(tmp_path: Path) -> None:
    with started(tmp_path, "1") as server:
        server.login_as_owner()
        for statement in DEFINITIONS:
            server.rows(statement)
        receipt = server.send("public.events", "b1", BATCH)
        server.process.kill()
        assert (receipt["accepted"], receipt["state"], receipt["duplicate"]) == (COMMIT_ROWS, "RECEIVED", False)
        server.process.wait()

    with started(tmp_path, "2") as server:
        server.login_as_owner()
        assert server.send("public.events", "b1", BATCH)["duplicate"], "who saw no answer sends it again"
        until(lambda: counted(server) == [[COMMIT_ROWS, COMMIT_ROWS]], server.told, 60)
        until(lambda: server.rows("SELECT sum(n) FROM by_kind") == [[COMMIT_ROWS]], server.told, 100)
        assert server.rows(BY_CLOCK.format("by_kind", "SYSTEM_SCHEDULED")) >= [[1]]
        until(lambda: server.rows("SELECT count(*) FROM seen") >= [[1]], server.told, 30)

        # By hand, as cron and as Airflow do it.
        cron = program(server, "refresh", "public.totals")
        assert (cron.returncode, cron.stderr) == (0, ""), cron.stderr
        assert server.rows("SELECT n FROM totals") == [[COMMIT_ROWS]]
        server.rows("INSERT INTO events VALUES (-1, 'one more')")
        asked = {"sql": "REFRESH DYNAMIC TABLE public.totals", "wait_seconds": 60}
        ended = server.answered("POST", "/v1/statements", asked)
        assert (ended["status"], ended["error"]) == ("SUCCEED", None), ended
        assert server.rows("SELECT n FROM totals") == [[COMMIT_ROWS + 1]]
        assert server.rows(BY_CLOCK.format("totals", "MANUAL")) >= [[2]]

        assert server.send("public.events", "b1", BATCH)["state"] == "COMMITTED"
        assert counted(server) == [[COMMIT_ROWS + 1, COMMIT_ROWS + 1]], "each row once"
        for name in ("by_kind", "totals"):
            ((_, verdict, *_),) = server.rows(f"VERIFY DYNAMIC TABLE {name}")
            assert verdict == "EQUAL", name
