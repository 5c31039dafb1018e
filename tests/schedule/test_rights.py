"""In whose name the schedule works, and on which virtual cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import Forbidden
from headrace.security.roles import Principal

if TYPE_CHECKING:
    from schedule.conftest import Scheduled

DEV = Principal("dev_by_clock", "developer")


def rows(scheduled: Scheduled, text: str) -> list[dict[str, Any]]:
    result = scheduled.sql(text)
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


@pytest.fixture
def as_dev(guarded: Scheduled, schema: str) -> Iterator[Callable[[str], Any]]:
    """A developer who may do everything in this schema and nothing in another; and a virtual cluster beside `default`.
    Runs statements in this user's name."""
    guarded.sql(
        f"""CREATE SCHEMA {schema}_closed; CREATE TABLE {schema}_closed.secret (n INT);
        CREATE VCLUSTER beside_by_clock;
        CREATE USER {DEV.name} WITH PASSWORD 'long enough' ROLE developer;
        GRANT ALL ON SCHEMA {schema} TO {DEV.name}"""
    )
    session = guarded.lake.session(DEV, schema=schema)

    def run(text: str) -> Any:
        job = session.submit(text)
        job.wait(60)
        if job.error is not None:
            raise job.error
        return job.result

    yield run
    session.close()
    guarded.sql(
        f"""DROP TASK IF EXISTS writes; DROP DYNAMIC TABLE IF EXISTS d; DROP VCLUSTER beside_by_clock;
        DROP USER {DEV.name}; DROP SCHEMA {schema}_closed CASCADE"""
    )


def test_a_task_may_what_its_maker_may(guarded: Scheduled, schema: str, as_dev: Callable[[str], Any]) -> None:
    secret = f"{schema}_closed.secret"
    as_dev("CREATE TABLE own (n INT)")
    with pytest.raises(Forbidden):
        as_dev(f"INSERT INTO {secret} VALUES (1)")
    as_dev("CREATE TASK writes SCHEDULE = '1 minute' VCLUSTER beside_by_clock AS INSERT INTO own VALUES (1)")
    as_dev(f"CREATE TASK reaches SCHEDULE = '1 minute' AS INSERT INTO {secret} VALUES (1)")
    as_dev(f"CREATE TASK reads SCHEDULE = '1 minute' AS INSERT INTO own SELECT n FROM {secret}")
    guarded.minutes(1)
    found = {row["name"]: row for row in rows(guarded, f"SHOW TASK HISTORY WHERE schema_name = '{schema}'")}
    assert {name: row["state"] for name, row in found.items()} == {
        "writes": "SUCCEED", "reaches": "FAILED", "reads": "FAILED",
    }, [(row["name"], row["error_message"], row["reason"]) for row in found.values()]  # fmt: skip
    assert guarded.sql("SELECT n FROM own").rows == [(1,)]
    assert guarded.sql(f"SELECT n FROM {secret}").rows == []
    for name in ("reaches", "reads"):
        job = guarded.lake.store.jobs.get(found[name]["job_id"])
        assert job is not None
        assert (job.error_code, job.creator) == ("FORBIDDEN", DEV.name)
        assert f"{schema}_closed" in found[name]["error_message"]
        assert "GRANT " in found[name]["error_message"], "and what to do about it"
    (job_row,) = rows(guarded, f"SHOW JOBS WHERE job_id = '{found['writes']['job_id']}'")
    assert (job_row["vcluster_name"], job_row["creator"]) == ("beside_by_clock", DEV.name)
    # What is granted later counts at the next run.
    guarded.sql(f"GRANT ALL ON TABLE {secret} TO {DEV.name}")
    guarded.minutes(1)
    assert guarded.sql(f"SELECT n FROM {secret}").rows == [(1,)]


def test_a_table_may_what_its_maker_may(guarded: Scheduled, schema: str, as_dev: Callable[[str], Any]) -> None:
    secret = f"{schema}_closed.secret"
    guarded.sql(f"GRANT SELECT ON TABLE {secret} TO {DEV.name}; INSERT INTO {secret} VALUES (1)")
    as_dev(f"CREATE DYNAMIC TABLE d REFRESH INTERVAL 1 MINUTE VCLUSTER beside_by_clock AS SELECT n FROM {secret}")
    guarded.sql(f"INSERT INTO {secret} VALUES (2)")
    guarded.minutes(1)
    wanted = f"SHOW DYNAMIC TABLE REFRESH HISTORY WHERE schema_name = '{schema}' AND name = 'd' LIMIT 1"
    (last,) = rows(guarded, wanted)
    assert (last["state"], last["refresh_mode"], last["virtual_cluster"]) == (
        "SUCCEED", "INCREMENTAL", "BESIDE_BY_CLOCK",
    )  # fmt: skip
    (job,) = rows(guarded, f"SHOW JOBS WHERE job_id = '{last['job_id']}'")
    assert (job["vcluster_name"], job["creator"]) == ("beside_by_clock", DEV.name)

    guarded.sql(f"REVOKE SELECT ON TABLE {secret} FROM {DEV.name}; INSERT INTO {secret} VALUES (3)")
    guarded.minutes(1)
    (last,) = rows(guarded, wanted)
    assert last["state"] == "FAILED"
    assert f"{DEV.name}, whose query main.{schema}.d is, may not read main.{secret} any more." in last["error_message"]
    assert f"GRANT SELECT ON TABLE main.{secret} TO {DEV.name}" in last["error_message"]
    assert sorted(guarded.sql("SELECT n FROM d").rows) == [(1,), (2,)]
    guarded.sql(f"GRANT SELECT ON TABLE {secret} TO {DEV.name}")
    guarded.minutes(1)
    assert sorted(guarded.sql("SELECT n FROM d").rows) == [(1,), (2,), (3,)]
    assert guarded.sql("VERIFY DYNAMIC TABLE d").rows[0][1] == "EQUAL"
