"""What the scheduler needs: marks, tasks and their runs, alerts and incidents, loads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "schedule_marks",
        sa.Column("object_id", sa.String(64), nullable=False),
        sa.Column("tick", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("object_id", name="pk_schedule_marks"),
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("workspace", sa.String(255), nullable=False),
        sa.Column("schema_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tasks"),
        sa.UniqueConstraint("workspace", "schema_name", "name", name="uq_tasks_workspace_schema_name_name"),
    )
    op.create_table(
        "task_runs",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("task_id", sa.String(64), nullable=False),
        sa.Column("tick", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_task_runs"),
    )
    op.create_index("ix_task_runs_task_id_tick_id", "task_runs", ["task_id", "tick", "id"])
    op.create_index("ix_task_runs_tick_id", "task_runs", ["tick", "id"])
    op.create_index("ix_task_runs_state", "task_runs", ["state"])
    op.create_table(
        "alerts",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_alerts"),
    )
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_incidents"),
    )
    op.create_index("ix_incidents_opened_at_id", "incidents", ["opened_at", "id"])
    op.create_index("ix_incidents_is_open", "incidents", ["is_open"])
    op.create_table(
        "loads",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("table_id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("key_digest", sa.String(64), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_loads"),
        sa.UniqueConstraint("table_id", "kind", "key_digest", name="uq_loads_table_id_kind_key_digest"),
    )
    op.create_index("ix_loads_state", "loads", ["state"])
    op.create_index("ix_loads_received_at", "loads", ["received_at"])
