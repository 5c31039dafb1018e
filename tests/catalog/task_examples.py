"""Tasks and runs to put into an operations database."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from catalog.examples import NOW
from headrace.catalog.records import Task, TaskRun


def a_task(task_id: str = "k1", name: str = "load", **changes: Any) -> Task:
    values: dict[str, Any] = {
        "id": task_id,
        "workspace": "main",
        "schema_name": "public",
        "name": name,
        "body": "INSERT INTO t SELECT 'ü'",
        "creator": "ann",
        "created_at": NOW,
        "modified_at": NOW,
    }
    return Task(**{**values, **changes})


def a_run(run_id: str = "r1", tick: datetime = NOW, **changes: Any) -> TaskRun:
    values: dict[str, Any] = {
        "id": run_id,
        "task_id": "k1",
        "workspace": "main",
        "schema_name": "public",
        "name": "load",
        "tick": tick,
        "trigger": "SCHEDULE",
        "state": "SUCCEED",
        "created_at": tick,
    }
    return TaskRun(**{**values, **changes})
