"""Table streams, and the statements that read them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "table_streams",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("workspace", sa.String(255), nullable=False),
        sa.Column("schema_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_table_streams"),
        sa.UniqueConstraint("workspace", "schema_name", "name", name="uq_table_streams_workspace_schema_name_name"),
    )
    op.create_table(
        "stream_readings",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("target_path", sa.Text(), nullable=True),
        sa.Column("done", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_stream_readings"),
    )
    op.create_index("ix_stream_readings_done", "stream_readings", ["done"])
    op.create_index("ix_stream_readings_target_path", "stream_readings", ["target_path"])
