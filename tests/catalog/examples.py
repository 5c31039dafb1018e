"""A table, a record and an intent to put into an operations database, and a time to do it at."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from headrace.catalog.records import DynamicTable, Frontier, Intent, RefreshRecord, SourceVersion
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


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)
