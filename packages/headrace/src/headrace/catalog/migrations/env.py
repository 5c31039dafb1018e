"""Run by Alembic. The connection, and with it the transaction, belongs to the caller."""

from __future__ import annotations

from alembic import context

from headrace.catalog.models import Model

# Adding or changing a column on SQLite needs a copy of the table, which Alembic's batch mode makes.
context.configure(
    connection=context.config.attributes["connection"], target_metadata=Model.metadata, render_as_batch=True
)
context.run_migrations()
