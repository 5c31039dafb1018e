"""Schema versions of the operations database. `upgrade` is all that the rest of the program needs; new versions are
written with `alembic revision` against this folder."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

HEAD = "0007"
"""The newest revision, known without reading the scripts, so that opening an up-to-date database costs one query."""

FOLDER = Path(__file__).parent


def upgrade(connection: Connection) -> None:
    """Bring the schema to `HEAD` inside the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    # Alembic reads this value as an interpolated one, where a percent sign must be doubled.
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)


def known_revisions() -> frozenset[str]:
    """Every revision that this version of the program can bring to `HEAD`."""
    from alembic.script import ScriptDirectory

    return frozenset(script.revision for script in ScriptDirectory(str(FOLDER)).walk_revisions())
