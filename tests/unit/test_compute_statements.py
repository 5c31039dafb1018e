"""Statements about clusters and jobs, as far as they need no Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.examples import a_record, a_table, a_user
from headrace import running
from headrace.catalog.store import Store
from headrace.compute.clusters import Compute
from headrace.errors import AlreadyExists, NotAllowed, NotFound, UserError
from headrace.result import Result, done
from headrace.security.roles import Principal
from headrace.sql.parser import parse
from headrace.statements import clusters, explaining, jobs, permitting

START = datetime(2025, 3, 1, 12, tzinfo=timezone.utc)
PATIENCE = 20.0
_HANDLERS: dict[str, Any] = {
    "CreateVcluster": clusters.create, "AlterVcluster": clusters.alter, "DropVcluster": clusters.drop,
    "UseVcluster": clusters.use, "DescribeVcluster": clusters.describe, "ShowVclusters": clusters.show,
    "ShowJobs": jobs.show, "CancelJob": jobs.cancel, "SetQueryTag": jobs.set_query_tag,
    "DescribeJob": explaining.describe_job,
}  # fmt: skip


class Here:
    """A session without Spark."""

    def __init__(self, store: Store, compute: Compute, user: Principal) -> None:
        self.context: Any = SimpleNamespace(
            store=store, compute=compute, user=user, settings=SimpleNamespace(timezone="UTC"), clock=lambda: START,
            vcluster="default", query_tag=None,
        )  # fmt: skip

    def sql(self, text: str) -> Result:
        statement = parse(text)
        result: Result = _HANDLERS[type(statement).__name__](self.context, statement)
        return result

    def told(self, text: str) -> str:
        return str(self.sql(text).rows[0][0])

    def rows(self, text: str) -> list[dict[str, Any]]:
        result = self.sql(text)
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{tmp_path / 'ops.db'}")
    yield store
    store.close()


@pytest.fixture
def compute(store: Store) -> Iterator[Compute]:
    compute = Compute(store, lambda: START, spark=lambda: None, monotonic=lambda: 0.0)
    yield compute
    compute.close(PATIENCE)


@pytest.fixture
def here(store: Store, compute: Compute) -> Here:
    return Here(store, compute, Principal("root", "admin"))


def until_unwanted(began: threading.Event) -> Result:
    began.set()
    while True:
        running.require_wanted()
        threading.Event().wait(0.005)


def test_the_life_of_a_cluster(here: Here, store: Store) -> None:
    options = "VCLUSTER_SIZE = LARGE MAX_CONCURRENCY = 2 AUTO_RESUME = FALSE"
    assert here.told(f"CREATE VCLUSTER Etl {options} COMMENT 'c'") == "Virtual cluster etl created."
    with pytest.raises(AlreadyExists):
        here.sql("CREATE VCLUSTER etl")
    assert "exists already" in here.told("CREATE VCLUSTER IF NOT EXISTS etl")
    row = next(row for row in here.rows("SHOW VCLUSTERS") if row["name"] == "etl")
    assert (row["size"], row["max_concurrency"], row["auto_resume"], row["state"]) == (8, 2, False, "RUNNING")
    assert (row["creator"], row["comment"], row["running_jobs"], row["queued_jobs"]) == ("root", "c", 0, 0)
    here.sql("ALTER VCLUSTER etl SET VCLUSTER_SIZE = 3")
    here.sql("ALTER VCLUSTER etl SET PROPERTIES ('spark.master'='spark://127.0.0.1:7077')")
    here.sql("ALTER VCLUSTER etl SET COMMENT 'd'")
    assert here.told("ALTER VCLUSTER etl SUSPEND") == "Virtual cluster etl is suspended."
    described = dict(here.sql("DESC VCLUSTER etl").rows)
    assert (described["size"], described["state"]) == ("3", "SUSPENDED")
    assert described["properties"] == "spark.master=spark://127.0.0.1:7077"
    assert described["comment"] == "d"
    kept = store.clusters.named("etl")
    assert kept is not None
    assert kept.suspended
    here.sql("ALTER VCLUSTER etl RESUME")
    assert [row["state"] for row in here.rows("SHOW VCLUSTERS LIKE 'e%'")] == ["RUNNING"]
    assert here.told("USE VCLUSTER ETL") == "The virtual cluster is etl."
    assert here.context.vcluster == "etl"
    assert here.told("DROP VCLUSTER etl") == "Virtual cluster etl dropped."
    assert "nothing was done" in here.told("DROP VCLUSTER IF EXISTS etl")
    for text in ("USE VCLUSTER etl", "DESC VCLUSTER etl", "DROP VCLUSTER etl", "ALTER VCLUSTER etl RESUME"):
        with pytest.raises(NotFound):
            here.sql(text)


def test_what_keeps_a_cluster_from_being_dropped(here: Here, store: Store, compute: Compute) -> None:
    with pytest.raises(NotAllowed, match="default"):
        here.sql("DROP VCLUSTER default")
    here.sql("CREATE VCLUSTER etl")
    store.put_table(a_table(vcluster="etl"))
    with pytest.raises(NotAllowed, match=r"main\.public\.orders refresh"):
        here.sql("DROP VCLUSTER etl")
    store.drop_table("t1")
    began = threading.Event()
    job = compute.submit(lambda: until_unwanted(began), text="SELECT 1", creator="ada", vcluster="etl")
    assert began.wait(PATIENCE)
    with pytest.raises(NotAllowed, match="1 job"):
        here.sql("DROP VCLUSTER etl")
    assert "will be finished first" in here.told("ALTER VCLUSTER etl SUSPEND")
    here.sql("ALTER VCLUSTER etl SUSPEND FORCE")
    assert job.wait(PATIENCE)
    here.sql("DROP VCLUSTER etl")


def test_jobs(here: Here, store: Store, compute: Compute) -> None:
    ada, eve = (Here(store, compute, Principal(name, "analyst")) for name in ("ada", "eve"))
    assert ada.told("SET query_tag = 'nightly'").endswith("'nightly'.")
    over = compute.submit(
        lambda: done("x"), text="SELECT 2", creator="ada", vcluster="default", query_tag=ada.context.query_tag
    )
    assert over.wait(PATIENCE)
    began = threading.Event()
    live = compute.submit(lambda: until_unwanted(began), text="SELECT 1", creator="ada", vcluster="default")
    assert began.wait(PATIENCE)
    for session in (here, ada):
        rows = {row["job_id"]: row for row in session.rows("SHOW JOBS")}
        assert set(rows) == {over.id, live.id}
        assert (rows[live.id]["status"], rows[live.id]["end_time"]) == ("RUNNING", None)
        assert (rows[over.id]["status"], rows[over.id]["query_tag"]) == ("SUCCEED", "nightly")
        assert rows[over.id]["execution_time"] == timedelta(0)
    assert eve.rows("SHOW JOBS") == []
    assert [row["job_id"] for row in here.rows(f"SHOW JOBS IN VCLUSTER default LIKE '{over.id}'")] == [over.id]
    assert len(here.rows("SHOW JOBS LIMIT 1")) == 1
    with pytest.raises(NotFound):
        here.sql("SHOW JOBS IN VCLUSTER nowhere")
    for text in (f"CANCEL JOB '{live.id}'", f"DESC JOB '{live.id}'", "CANCEL JOB 'no'", "DESC JOB 'no'"):
        with pytest.raises(NotFound, match="There is no job"):
            eve.sql(text)
    assert f"Job {live.id} is" in ada.told(f"CANCEL JOB '{live.id}'")
    assert live.wait(PATIENCE)
    with pytest.raises(UserError, match="has ended already"):
        ada.sql(f"CANCEL JOB '{live.id}'")
    facts = {(section, item): value for section, item, value in ada.sql(f"DESC JOB '{live.id}'").rows}
    assert (facts["job", "status"], facts["job", "statement"]) == ("CANCELLED", "SELECT 1")
    assert facts["job", "error"] == "The job was cancelled by ada."
    ada.sql("RESET query_tag")
    assert ada.context.query_tag is None


def test_jobs_of_an_earlier_user_of_the_same_name(here: Here, store: Store, compute: Compute) -> None:
    ada = Here(store, compute, Principal("ada", "analyst"))
    began = threading.Event()
    over = compute.submit(lambda: done("x"), text="SELECT 2", creator="ada", vcluster="default")
    assert over.wait(PATIENCE)
    live = compute.submit(lambda: until_unwanted(began), text="SELECT 1", creator="ada", vcluster="default")
    made = a_user("ada", created_at=START)
    store.users.put(made, new=True)
    assert {row["job_id"] for row in ada.rows("SHOW JOBS")} == {over.id, live.id}
    assert jobs.known(ada.context, over.id) is not None
    store.users.put(made.model_copy(update={"created_at": START + timedelta(seconds=1)}), new=False)
    assert ada.rows("SHOW JOBS") == []
    for job in (over, live):
        assert jobs.known(ada.context, job.id) is None
        with pytest.raises(NotFound):
            ada.sql(f"CANCEL JOB '{job.id}'")
        with pytest.raises(NotFound):
            ada.sql(f"DESC JOB '{job.id}'")
        permitted: Any = SimpleNamespace(context=ada.context, user=ada.context.user)
        with pytest.raises(NotFound):
            permitting._own_job(permitted, parse(f"DESC JOB '{job.id}'"))  # type: ignore[arg-type]
    assert {row["job_id"] for row in here.rows("SHOW JOBS")} == {over.id, live.id}
    live.cancel()


def test_a_refresh_and_its_job_are_told_together(here: Here, store: Store, compute: Compute) -> None:
    def work() -> Result:
        job = running.current()
        assert job is not None
        store.finish_refresh(a_record(str(job.take_id()), end_time=START, technique="APPEND", rows_inserted=3))
        return done("refreshed")

    job = compute.submit(
        work, text="REFRESH DYNAMIC TABLE orders", creator="ada", vcluster="default",
        refresh=(a_record("", state="SETUP"),),
    )  # fmt: skip
    assert job.wait(PATIENCE)
    rows = here.sql(f"DESC JOB '{job.id}'").rows
    facts = {(section, item): value for section, item, value in rows}
    assert len(facts) == len(rows)  # Nothing is told twice.
    assert (facts["job", "status"], facts["job", "refresh of"]) == ("SUCCEED", "main.public.orders")
    assert (facts["job", "technique"], facts["result", "rows inserted"]) == ("APPEND", "3")


def test_a_refresh_without_a_job(here: Here, store: Store) -> None:
    store.finish_refresh(a_record("old", end_time=START, technique="APPEND"))
    facts = {(section, item): value for section, item, value in here.sql("DESC JOB 'old'").rows}
    assert facts["job", "technique"] == "APPEND"
