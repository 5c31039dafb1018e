"""A lake whose catalog is an external Hive metastore: a real one, from PySpark's own files, with a database of its own.

As in `test_standalone`, this file is also the program that it starts: `test_metastore.py LAKE URI PART`.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

import headrace
from headrace import Lake
from headrace.storage.java import check_java


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    from cluster.conftest import until

    folder = tmp_path_factory.mktemp("metastore")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    database = f"jdbc:derby:;databaseName={folder / 'database'};create=true"
    settings = {
        "javax.jdo.option.ConnectionURL": database,
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(folder / "warehouse"),
    }
    given = [word for key, value in settings.items() for word in ("--hiveconf", f"{key}={value}")]
    jars = Path(pyspark.__file__).parent / "jars"
    program = "org.apache.hadoop.hive.metastore.HiveMetaStore"
    # Hive's way to log needs a library that Spark does without.
    plain = "-Dhive.async.log.enabled=false"
    command = [str(check_java().path), "-Xmx512m", plain, "-cp", f"{jars}/*", program, "-p", str(port), *given]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def listens() -> bool:
        assert process.poll() is None, (folder / "log").read_text("utf-8", "replace")[-3000:]
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(listens, lambda: (folder / "log").read_text("utf-8", "replace")[-3000:])
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def ran(lake: Path, uri: str, part: str) -> dict[str, Any]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HEADRACE_", "SPARK_"))}
    done = subprocess.run(
        [sys.executable, __file__, str(lake), uri, part],
        capture_output=True, text=True, env=environment, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(600)
def test_tables_are_in_the_metastore(metastore: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    made = ran(lake, metastore, "make")
    assert made == {"refreshed": ["SUCCEED", "INCREMENTAL"], "verified": "EQUAL", "tables": ["d", "t"]}
    assert not (lake / "metastore").exists(), "the embedded one is not used"
    # Another process, and so another client of the metastore: everything is found again, and moves on.
    again = ran(lake, metastore, "again")
    assert again == {"rows": [["a", "3"], ["b", "1"]], "verified": "EQUAL", "tables": ["d", "t"]}


def make(lake: Lake) -> dict[str, Any]:
    lake.sql("CREATE TABLE t (k STRING, v INT); INSERT INTO t VALUES ('a', 1), ('b', 1)")
    lake.sql("CREATE DYNAMIC TABLE d AS SELECT k, sum(v) AS s FROM t GROUP BY k; INSERT INTO t VALUES ('a', 1)")
    (row,) = lake.sql("REFRESH DYNAMIC TABLE d").to_arrow().to_pylist()
    return {"refreshed": [row["state"], row["refresh_mode"]], **_seen(lake)}


def again(lake: Lake) -> dict[str, Any]:
    lake.sql("INSERT INTO t VALUES ('a', 1); REFRESH DYNAMIC TABLE d")
    rows = lake.sql("SELECT k, s FROM d ORDER BY k").to_arrow().to_pylist()
    return {"rows": [[row["k"], str(row["s"])] for row in rows], **_seen(lake)}


def _seen(lake: Lake) -> dict[str, Any]:
    tables = lake.sql("SHOW TABLES").to_arrow().to_pylist()
    return {
        "verified": lake.sql("VERIFY DYNAMIC TABLE d").rows[0][1],
        "tables": sorted(row["table_name"] for row in tables),
    }


def main(lake: str, uri: str, part: str) -> None:
    assert re.fullmatch(r"thrift://127\.0\.0\.1:\d+", uri)
    settings = {
        "spark.hadoop.hive.metastore.uris": uri,
        "spark.sql.hive.metastore.version": "2.3.10",
        "spark.sql.hive.metastore.jars": "builtin",
        "spark.sql.shuffle.partitions": "1",
    }
    with headrace.open(lake, spark_master="local[2]", driver_memory="1g", spark_settings=settings) as opened:
        found = {"make": make, "again": again}[part](opened)
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
