"""Records to put into an operations database, and a time to do it at."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from headrace.catalog.records import (
    DynamicTable,
    Frontier,
    Grant,
    Intent,
    Job,
    RefreshRecord,
    SourceVersion,
    User,
    VCluster,
)
from headrace.plan.query import BoundText, Query

NOW = datetime(2025, 3, 30, 0, 59, 59, 123457, tzinfo=timezone.utc)


def a_table(table_id: str = "t1", name: str = "orders", **changes: Any) -> DynamicTable:
    query = Query(
        text="SELECT 'ü' AS a", resolved_text="", bound=BoundText(pieces=("x",)), sources=(), columns=(), plan=None
    )
    values: dict[str, Any] = {
        "id": table_id,
        "workspace": "main",
        "schema_name": "public",
        "name": name,
        "query": query,
        "storage_path": "/lake/t1",
        "created_at": NOW,
        "modified_at": NOW,
    }
    return DynamicTable(**{**values, **changes})


def a_record(job_id: str = "j1", start: datetime = NOW, **changes: Any) -> RefreshRecord:
    values: dict[str, Any] = {
        "job_id": job_id,
        "table_id": "t1",
        "workspace": "main",
        "schema_name": "public",
        "name": "orders",
        "vcluster": "default",
        "start_time": start,
        "state": "SUCCEED",
        "trigger": "MANUAL",
    }
    return RefreshRecord(**{**values, **changes})


def an_intent(sequence: int = 1, job_id: str = "j1", table_id: str = "t1") -> Intent:
    source = SourceVersion(path="/lake/raw", table_id="delta-id", version=7, schema_digest="d")
    return Intent(
        table_id=table_id,
        sequence=sequence,
        job_id=job_id,
        old=None,
        new=Frontier(sources=(source,), lineage={"/lake/raw": 7}, date="2025-03-30"),
    )


def a_cluster(name: str = "big", **changes: Any) -> VCluster:
    return VCluster(**{"name": name, "created_at": NOW, **changes})


def a_job(job_id: str = "j1", at: datetime = NOW, **changes: Any) -> Job:
    values: dict[str, Any] = {"creator": "ann", "text": "SELECT 'ü\0'", "vcluster": "default", "status": "SUCCEED"}
    return Job(**{"id": job_id, "submitted_at": at, **values, **changes})


def a_user(name: str = "ann", role: str = "analyst", **changes: Any) -> User:
    return User(**{"name": name, "role": role, "password_hash": "hash", "created_at": NOW, **changes})


def a_grant(user: str = "ann", name: str = "main.public.orders", privilege: str = "SELECT") -> Grant:
    kind = "TABLE" if name.count(".") == 2 else "SCHEMA"
    return Grant(user=user, kind=kind, object=name, privilege=privilege, granted_at=NOW)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)
