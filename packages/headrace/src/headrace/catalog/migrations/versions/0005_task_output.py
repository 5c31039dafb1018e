"""What a task's run printed, in a column of its own: a list of runs does without. Older runs keep it where it was."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("task_runs", sa.Column("output", sa.Text(), nullable=True))
