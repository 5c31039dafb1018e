"""Statements about clusters and jobs, as far as they need no Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from catalog.examples import a_job, a_record, a_table, a_user
from headrace import running
from headrace.catalog.records import Job
from headrace.catalog.store import Store
from headrace.collecting import Limit
from headrace.compute.clusters import Compute
from headrace.errors import AlreadyExists, NotAllowed, NotFound, UserError
from headrace.result import Result, done
from headrace.security.roles import Principal
from headrace.sql.parser import parse
from headrace.statements import clusters, explaining, jobs, listing, permitting

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
            vcluster="default", query_tag=None, result_limit=None,
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


class Asked:
    """How many records a store was asked for."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = 0
        read = store.jobs._jobs

        def counted(wanted: Any) -> list[Job]:
            found = read(wanted)
            self.records += len(found)
            return found

        monkeypatch.setattr(store.jobs, "_jobs", counted)


@pytest.fixture
def many(here: Here, store: Store, compute: Compute, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Fifty jobs of two users that have ended; pages of ten; conditions without Spark."""
    monkeypatch.setattr(jobs, "PAGE", 10)
    monkeypatch.setattr(jobs, "NEWEST", 25)
    for number in range(50):
        at = START - timedelta(seconds=number)
        store.jobs.add(a_job(f"j{number:02}", at, creator="ada" if number % 2 else "eve", status="SUCCEED"))

    def narrowed(context: Any, result: Result, where: str | None, limit: int | None) -> Result:
        table = result.to_arrow()
        rare = [name in ("j07", "j41") for name in table.column("job_id").to_pylist()]
        table = table if where is None else table.filter(pa.array(rare, pa.bool_()))
        return Result(table.slice(0, limit))

    monkeypatch.setattr(listing, "narrowed", narrowed)
    return here


def names(result: Result) -> list[str]:
    return [row[0] for row in result.rows]


def test_a_long_list_of_jobs(many: Here) -> None:
    newest = many.sql("SHOW JOBS")
    assert names(newest) == [f"j{number:02}" for number in range(25)]
    assert newest.truncated
    assert names(many.sql("SHOW JOBS LIMIT 3")) == ["j00", "j01", "j02"]
    everything = many.sql("SHOW JOBS LIMIT 1000")
    assert (len(everything), everything.truncated) == (50, False)
    assert not many.sql("SHOW JOBS LIMIT 10").truncated


def test_a_long_list_is_read_only_as_far_as_it_must(
    many: Here, store: Store, compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(store, monkeypatch)
    many.sql("SHOW JOBS LIMIT 3")
    assert asked.records == 3
    assert names(many.sql("SHOW JOBS WHERE rare LIMIT 1")) == ["j07"]
    assert asked.records == 3 + 10
    assert names(many.sql("SHOW JOBS WHERE rare")) == ["j07", "j41"]
    assert names(many.sql("SHOW JOBS LIKE 'j_9' LIMIT 2")) == ["j09", "j19"]
    ada = Here(store, compute, Principal("ada", "analyst"))
    assert names(ada.sql("SHOW JOBS LIMIT 2")) == ["j01", "j03"]


def test_live_jobs_stand_among_those_that_have_ended(many: Here, compute: Compute, store: Store) -> None:
    began = threading.Event()
    live = compute.submit(lambda: until_unwanted(began), text="SELECT 1", creator="ada", vcluster="default")
    assert began.wait(PATIENCE)
    found = names(many.sql("SHOW JOBS LIMIT 1000"))
    assert len(found) == len(set(found)) == 51
    moments = [row[4] for row in many.sql("SHOW JOBS LIMIT 1000").rows]
    assert moments == sorted(moments, reverse=True)
    assert names(many.sql("SHOW JOBS WHERE status = 'RUNNING'")) == []  # As `narrowed` here has it.
    live.cancel()
    assert live.wait(PATIENCE)


def test_a_long_list_is_bounded_as_every_result(many: Here) -> None:
    many.context.result_limit = Limit(rows=12, size=10**9)
    found = many.sql("SHOW JOBS LIMIT 40")
    assert (len(found), found.truncated) == (12, True)
    many.context.result_limit = Limit(rows=100, size=many.sql("SHOW JOBS LIMIT 10").to_arrow().nbytes)
    found = many.sql("SHOW JOBS LIMIT 40")
    assert 10 <= len(found) < 20
    assert found.truncated


def test_a_long_history_of_refreshes(many: Here, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE", 10)
    monkeypatch.setattr(listing, "viewer", lambda _: lambda name: many.context.user.is_admin or name.table == "rare")
    many.context.runner = SimpleNamespace(settle_unwritten=lambda: None)
    for number in range(40):
        name = "rare" if number % 15 == 14 else "common"
        at = START - timedelta(seconds=number)
        store.finish_refresh(a_record(f"r{number:02}", name=name, start_time=at, end_time=START))
    read = store._refreshes
    asked: list[int] = []

    def counted(wanted: Any) -> Any:
        found = read(wanted)
        asked.append(len(found))
        return found

    def refreshed(text: str) -> list[str]:
        asked.clear()
        result = listing.show_history(many.context, parse(text))  # type: ignore[arg-type]
        return [str(row[result.columns.index("job_id")]) for row in result.rows]

    monkeypatch.setattr(store, "_refreshes", counted)
    assert refreshed("SHOW DYNAMIC TABLE REFRESH HISTORY LIMIT 2") == ["r00", "r01"]
    assert asked == [2]
    assert len(refreshed("SHOW DYNAMIC TABLE REFRESH HISTORY")) == 40
    assert max(asked) == 10
    many.context.user = Principal("ada", "analyst")
    assert refreshed("SHOW DYNAMIC TABLE REFRESH HISTORY LIMIT 1") == ["r14"]
    assert asked == [10, 10]
    assert refreshed("SHOW DYNAMIC TABLE REFRESH HISTORY") == ["r14", "r29"]


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
