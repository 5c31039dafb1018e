"""`headrace doctor`: is everything here that a lake needs? Starts no Spark and changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.faults import ENVIRONMENT
from headrace.cli.lakes import LakeOption
from headrace.cli.output import Format, FormatOption, Table, write_result
from headrace.cli.watch import watching
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.settings import Settings

_LITTLE_DISK = 5_000_000_000
_NO_DISK = 500_000_000


@dataclass(frozen=True)
class Finding:
    what: str
    state: str
    details: str


def doctor(
    prepare: Annotated[
        bool, typer.Option("--prepare", help="First fetch Delta's jars and make later starts of Spark quicker.")
    ] = False,
    form: FormatOption = Format.table,
    lake: LakeOption = None,
) -> None:
    """Check Java, Delta's jars, the disk, the operations database and the lake's lock; show every setting's origin.

    Ends with 3 when something must be mended before the lake can be opened.
    """
    from headrace import settings

    chosen = settings.load(lake)
    if prepare:
        from headrace.storage.archive import make_archive

        with watching("Preparing") as watch:
            make_archive(chosen, watch.say)
    findings = [_guarded(what, check, chosen) for what, check in _CHECKS.items()]
    rows: list[tuple[str, str, str]] = [(finding.what, finding.state, finding.details) for finding in findings]
    if form is Format.table:
        write_result(Table(["check", "state", "details"], rows), form)
        typer.echo()
        described = [(setting.name, setting.value, setting.origin) for setting in chosen.describe()]
        write_result(Table(["setting", "value", "origin"], described), form)
    else:
        settings_rows = [(f"setting {s.name}", "ok", f"{s.value} ({s.origin})") for s in chosen.describe()]
        write_result(Table(["check", "state", "details"], rows + settings_rows), form)
    if any(finding.state == "fail" for finding in findings):
        raise typer.Exit(ENVIRONMENT)


def _guarded(what: str, check: Callable[[Settings], Finding], settings: Settings) -> Finding:
    try:
        return check(settings)
    except HeadraceError as error:
        return Finding(what, "fail", f"{error.message} {error.hint or ''}".strip())
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return Finding(what, "fail", first)


def _java(settings: Settings) -> Finding:
    from headrace.storage.java import check_java

    found = check_java()
    return Finding("Java", "ok", f"{found.version} at {found.path}")


def _packages(settings: Settings) -> Finding:
    from importlib import metadata

    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("pyspark", "delta-spark", "deltalake"))
    return Finding("packages", "ok", versions)


def _jars(settings: Settings) -> Finding:
    from headrace.storage.jars import find_jars, installed_release

    release = installed_release()
    jars = find_jars(settings.jars, release)
    if jars is None:
        details = f"{release.coordinates} is not in {settings.jars} yet; the first start fetches it (13 MB)"
        return Finding("jars", "warn", details)
    return Finding("jars", "ok", f"{release.coordinates}: {len(jars)} jars in {jars[0].parent}")


def _quick_start(settings: Settings) -> Finding:
    from headrace.storage.archive import find_archive
    from headrace.storage.jars import find_jars
    from headrace.storage.java import check_java

    jars = find_jars(settings.jars)
    found = find_archive(settings.jars, jars, check_java()) if jars else None
    if found is None:
        return Finding("quick start", "warn", "not prepared; `headrace doctor --prepare` makes starts a third quicker")
    return Finding("quick start", "ok", str(found))


def _disk(settings: Settings) -> Finding:
    folder = next(iter(_existing(settings.warehouse)))
    if not os.access(folder, os.W_OK):
        return Finding("disk", "fail", f"{folder} cannot be written; mend its permissions or choose another folder")
    free = shutil.disk_usage(folder).free
    state = "fail" if free < _NO_DISK else "warn" if free < _LITTLE_DISK else "ok"
    return Finding("disk", state, f"{free / 1e9:.1f} GB free for {settings.warehouse}")


def _memory(settings: Settings) -> Finding:
    wanted = int(settings.driver_memory[:-1]) * 1024 ** ("kmgt".index(settings.driver_memory[-1].lower()) + 1)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    details = f"Spark may take {settings.driver_memory}; the machine has {there / 1024**3:.0f} GB"
    return Finding("memory", "ok" if wanted <= there * 0.8 else "warn", details)


def _database(settings: Settings) -> Finding:
    from sqlalchemy import create_engine, make_url, text

    from headrace.settings import masked

    shown = masked(settings.database_url)
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        folder = next(iter(_existing(Path(url.database))))
        state = "ok" if os.access(folder, os.W_OK) else "fail"
        return Finding("database", state, f"{shown} will be made at the first start")
    engine = create_engine(settings.database_url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
    except ModuleNotFoundError:
        return Finding("database", "fail", "psycopg is not installed: pip install 'headrace[postgres]'")
    finally:
        engine.dispose()
    return Finding("database", "ok", shown)


def _lock(settings: Settings) -> Finding:
    from headrace.storage.lock import holder

    if not settings.path.exists():
        return Finding("lock", "ok", f"{settings.path} does not exist yet; the first start makes it")
    found = holder(settings.path)
    return Finding("lock", "warn", f"held by {found}") if found else Finding("lock", "ok", "nobody has the lake open")


def _existing(path: Path) -> Iterator[Path]:
    """The path or the nearest folder above it that exists."""
    return (candidate for candidate in (path, *path.parents) if candidate.exists())


_CHECKS: dict[str, Callable[[Settings], Finding]] = {
    "Java": _java,
    "packages": _packages,
    "jars": _jars,
    "quick start": _quick_start,
    "disk": _disk,
    "memory": _memory,
    "database": _database,
    "lock": _lock,
}
