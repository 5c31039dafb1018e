"""Files that were loaded, by their paths: what was loaded from a path tells whether it holds anything new."""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("loads", sa.Column("path_digest", sa.String(64), nullable=True))
    op.create_index("ix_loads_table_id_path_digest", "loads", ["table_id", "path_digest"])
    loads = sa.table(
        "loads", sa.column("id", sa.String()), sa.column("kind", sa.String()), sa.column("payload", sa.Text()),
        sa.column("path_digest", sa.String()),
    )  # fmt: skip
    found = op.get_bind().execute(sa.select(loads.c.id, loads.c.payload).where(loads.c.kind == "FILE")).all()
    for load_id, payload in found:
        path = json.loads(payload)["key"].split(" ", 3)[-1]
        digest = hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()
        op.get_bind().execute(sa.update(loads).where(loads.c.id == load_id).values(path_digest=digest))
