"""A Headrace server as a program of its own for the tests of dbt, and dbt projects that use it."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from headrace.client.lake import RemoteLake, connect

PASSWORD = "a password for tests"
WORKSPACE = "main"
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "1",
    # Generating and compiling Java for a handful of rows takes a third of the time.
    "spark.sql.codegen.wholeStage": "false",
}
_servers: list[subprocess.Popen[bytes]] = []
_START_SECONDS = 240
_STOP_SECONDS = 60


@dataclass
class DbtServer:
    """The running program; `url` and `token` let an administrator in."""

    url: str
    token: str = field(repr=False)
    lake: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    def connected(self, **wanted: Any) -> RemoteLake:
        return connect(self.url, token=self.token, **wanted)

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Of a statement run by an administrator, in a session of its own."""
        with self.connected() as lake:
            return [tuple(row) for row in lake.sql(text).rows]

    def records(self, text: str) -> list[dict[str, Any]]:
        with self.connected() as lake:
            result = lake.sql(text)
            return [dict(zip(result.columns, row, strict=True)) for row in result.rows]

    def verified(self, table: str) -> str:
        return str(self.records(f"VERIFY DYNAMIC TABLE {table}")[0]["result"])

    def temporary(self, schema: str) -> list[str]:
        """What dbt made for its own use and did not take away."""
        return [row["table_name"] for row in self.records(f"SHOW TABLES IN {schema}") if "__dbt_" in row["table_name"]]

    def target(self, schema: str, **other: Any) -> dict[str, Any]:
        """One output of profiles.yml."""
        return {
            "type": "headrace",
            "service": self.url,
            "instance": "tests",
            "workspace": WORKSPACE,
            "vcluster": "default",
            "username": "dbt",
            "password": PASSWORD,
            "schema": schema,
            "threads": 4,
        } | other


@contextmanager
def running(lake: Path, **settings: str) -> Iterator[DbtServer]:
    """`headrace up` on a free port, with the user `dbt`, who may do everything."""
    lake.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "HEADRACE_PATH": str(lake),
        "HEADRACE_PORT": "0",
        "HEADRACE_DRIVER_MEMORY": "3g",
        "HEADRACE_SPARK_MASTER": "local[2]",
        "HEADRACE_CODE_TASKS": "true",  # For Python models.
        "HEADRACE_SPARK_SETTINGS": json.dumps(QUICK),
        **settings,
    }
    output = lake.parent / f"{lake.name}.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "up"],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    _servers.append(process)
    try:
        url, token = _address(process, lake, output)
        server = DbtServer(url, token, lake, process)
        if not server.rows("SHOW USERS LIKE 'dbt'"):
            server.rows(f"CREATE USER dbt WITH PASSWORD '{PASSWORD}' ROLE admin")
        yield server
    finally:
        stop_all()


def stop_all() -> None:
    """All servers that still run."""
    while _servers:
        process = _servers.pop()
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], lake: Path, output: Path) -> tuple[str, str]:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            found = json.loads((lake / "server.json").read_text("utf-8"))
            if found["pid"] == process.pid and httpx.get(f"{found['url']}/health", trust_env=False).status_code == 200:
                return found["url"], found["token"]
        except (FileNotFoundError, httpx.HTTPError):
            pass
        time.sleep(0.1)
    raise AssertionError(f"The server did not start:\n{output.read_text('utf-8', 'replace')[-3000:]}")


@dataclass(frozen=True)
class Ran:
    """A dbt command that ended."""

    code: int
    output: str

    def __contains__(self, text: str) -> bool:
        return text in self.output


@dataclass
class Project:
    """A dbt project in a folder, used through the program `dbt`, as people do; or in this process, which is quicker."""

    folder: Path
    profiles: Path
    in_process: bool = False

    @classmethod
    def new(cls, folder: Path, targets: Mapping[str, Mapping[str, Any]], **config: Any) -> Project:
        """The first target is the one that is used unless another is asked for."""
        folder.mkdir(parents=True)
        project = cls(folder, folder, in_process=True)
        project.write("profiles.yml", {"shop": {"target": next(iter(targets)), "outputs": dict(targets)}})
        project.write("dbt_project.yml", {"name": "shop", "version": "1.0", "profile": "shop"} | config)
        return project

    def write(self, path: str, content: str | Mapping[str, Any]) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else yaml.safe_dump(dict(content)), "utf-8")

    def begun(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command(*arguments), cwd=self.folder, env=self._environment(environment),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def dbt(self, *arguments: str, given: str = "", **environment: str) -> Ran:
        if self.in_process and not given:
            return self._here(arguments)
        # Without a terminal, the prompt for a password reads what is given.
        ended = subprocess.run(
            self._command(*arguments), cwd=self.folder, env=self._environment(environment), input=given,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, start_new_session=True,
        )  # fmt: skip
        return Ran(ended.returncode, ended.stdout)

    def _here(self, arguments: tuple[str, ...]) -> Ran:
        from dbt.cli.main import dbtRunner

        quiet = ["--no-use-colors", "--no-send-anonymous-usage-stats", "--no-version-check"]
        places = ["--project-dir", str(self.folder), "--profiles-dir", str(self.profiles)]
        output = io.StringIO()
        with redirect_stdout(output):
            ended = dbtRunner().invoke([*quiet, "--log-path", str(self.folder / "logs"), *arguments, *places])
        told = output.getvalue() + (f"\n{ended.exception}" if ended.exception else "")
        return Ran(0 if ended.success else 1, told)

    def succeeds(self, *arguments: str, **environment: str) -> Ran:
        ran = self.dbt(*arguments, **environment)
        assert ran.code == 0, ran.output
        return ran

    def fails(self, *arguments: str, **environment: str) -> Ran:
        ran = self.dbt(*arguments, **environment)
        assert ran.code != 0, ran.output
        return ran

    def artifact(self, name: str) -> Any:
        return json.loads((self.folder / "target" / name).read_text("utf-8"))

    def _command(self, *arguments: str) -> list[str]:
        program = shutil.which("dbt", path=str(Path(sys.executable).parent))
        assert program, "dbt is not installed next to Python."
        return [program, "--no-use-colors", *arguments]

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("DBT_")}
        return kept | {
            "DBT_PROFILES_DIR": str(self.profiles),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            "DBT_VERSION_CHECK": "false",
            "NO_PROXY": "127.0.0.1",
        } | more  # fmt: skip


def config(**values: Any) -> str:
    """The first line of a model."""
    return "{{ config(" + ", ".join(f"{key}={value!r}" for key, value in values.items()) + ") }}\n"


def described(server: DbtServer, table: str) -> dict[str, str]:
    """What DESC EXTENDED says."""
    return {str(row[0]): str(row[1]) for row in server.rows(f"DESC EXTENDED {table}")}


def sessions(server: DbtServer, query_tag: str) -> set[str]:
    """Those that the jobs with this tag ran in."""
    with server.connected() as lake:
        jobs = [row[0] for row in lake.sql(f"SHOW JOBS WHERE query_tag = '{query_tag}'").rows]
        facts = [{row[1]: row[2] for row in lake.sql(f"DESC JOB '{job}'").rows} for job in jobs]
    return {each["session"] for each in facts}
