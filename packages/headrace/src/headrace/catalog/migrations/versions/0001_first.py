"""The first schema: dynamic tables, leases, intents, refresh history, workspaces, virtual clusters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dynamic_tables",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("workspace", sa.String(255), nullable=False),
        sa.Column("schema_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_dynamic_tables"),
        sa.UniqueConstraint("workspace", "schema_name", "name", name="uq_dynamic_tables_workspace_schema_name_name"),
    )
    op.create_table(
        "leases",
        sa.Column("table_id", sa.String(64), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("fencing", sa.BigInteger(), nullable=False),
        sa.Column("acquired_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("table_id", name="pk_leases"),
        sa.ForeignKeyConstraint(["table_id"], ["dynamic_tables.id"], name="fk_leases_table_id", ondelete="CASCADE"),
    )
    op.create_table(
        "intents",
        sa.Column("table_id", sa.String(64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("settled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "sequence", name="pk_intents"),
        sa.ForeignKeyConstraint(["table_id"], ["dynamic_tables.id"], name="fk_intents_table_id", ondelete="CASCADE"),
    )
    op.create_table(
        "refreshes",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("table_id", sa.String(64), nullable=False),
        sa.Column("start_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name="pk_refreshes"),
    )
    op.create_index("ix_refreshes_start_time_job_id", "refreshes", ["start_time", "job_id"])
    op.create_index("ix_refreshes_table_id_start_time_job_id", "refreshes", ["table_id", "start_time", "job_id"])
    op.create_index("ix_refreshes_state", "refreshes", ["state"])
    op.create_table(
        "workspaces",
        sa.Column("name", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_workspaces"),
    )
    vclusters = op.create_table(
        "vclusters",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_vclusters"),
    )
    op.bulk_insert(vclusters, [{"name": "default", "type": "GENERAL"}])
