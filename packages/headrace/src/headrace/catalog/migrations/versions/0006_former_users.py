"""The names of users that were dropped: what they made must not read on as if it were the lake's owner's."""

from __future__ import annotations

import json
import re

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_DROPPED = re.compile(r"\s*DROP\s+USER\s+(?:IF\s+EXISTS\s+)?[`'\"]?([^\s`'\";]+)", re.IGNORECASE)


def upgrade() -> None:
    former = op.create_table("former_users", sa.Column("name", sa.String(255), primary_key=True))
    # Those that were dropped before this table was there; a name that somebody has again does no harm in it.
    log = sa.table("audit_log", sa.column("payload", sa.Text()))
    names = set()
    for (payload,) in op.get_bind().execute(sa.select(log.c.payload).where(log.c.payload.contains("DROP_USER"))):
        entry = json.loads(payload)
        found = _DROPPED.match(entry["detail"]) if entry["action"] == "DROP_USER" else None
        if found is not None:
            names.add(found[1].lower())
    op.bulk_insert(former, [{"name": name} for name in sorted(names)])
