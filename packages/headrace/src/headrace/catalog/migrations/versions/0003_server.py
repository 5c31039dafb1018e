"""What a server needs: virtual clusters as whole records, jobs, users, grants, API tokens and the audit log."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _fill_vclusters()
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("vcluster", sa.String(255), nullable=False),
        sa.Column("creator", sa.String(255), nullable=False),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_submitted_at_id", "jobs", ["submitted_at", "id"])
    op.create_index("ix_jobs_creator_submitted_at_id", "jobs", ["creator", "submitted_at", "id"])
    op.create_index("ix_jobs_status", "jobs", ["status"])
    op.create_table(
        "users",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("role", sa.String(32), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_users"),
    )
    op.create_table(
        "grants",
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("object_name", sa.String(800), nullable=False),
        sa.Column("privilege", sa.String(32), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("user_name", "kind", "object_name", "privilege", name="pk_grants"),
        sa.ForeignKeyConstraint(["user_name"], ["users.name"], name="fk_grants_user_name", ondelete="CASCADE"),
    )
    op.create_index("ix_grants_kind_object_name", "grants", ["kind", "object_name"])
    op.create_table(
        "api_tokens",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("digest", sa.String(255), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_api_tokens"),
        sa.UniqueConstraint("user_name", "name", name="uq_api_tokens_user_name_name"),
        sa.UniqueConstraint("digest", name="uq_api_tokens_digest"),
        sa.ForeignKeyConstraint(["user_name"], ["users.name"], name="fk_api_tokens_user_name", ondelete="CASCADE"),
    )
    op.create_table(
        "audit_log",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_log"),
    )


def _fill_vclusters() -> None:
    """Each cluster as a record of its own, that never suspends itself: until now there was only `default`."""
    with op.batch_alter_table("vclusters") as table:
        table.add_column(sa.Column("definition", sa.Text(), nullable=True))
    vclusters = sa.table("vclusters", sa.column("name"), sa.column("type"), sa.column("definition"))
    now = datetime.now(timezone.utc).isoformat()
    connection = op.get_bind()
    for name, kind in connection.execute(sa.select(vclusters.c.name, vclusters.c.type)).all():
        record = {"name": name.lower(), "type": kind, "auto_suspend_seconds": 0, "created_at": now}
        fill = vclusters.update().where(vclusters.c.name == name)
        connection.execute(fill.values(name=name.lower(), definition=json.dumps(record)))
    with op.batch_alter_table("vclusters") as table:
        table.alter_column("definition", existing_type=sa.Text(), nullable=False)
        table.drop_column("type")
