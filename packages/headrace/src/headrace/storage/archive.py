"""Quick starts: Spark's classes, already loaded and checked, in one file that the JVM maps into memory.

Java calls it a class-data archive. It is made once, by a short run of Spark on a lake that is thrown away, and it takes
40 % off the processor time of every later start. A JVM to which it does not fit ignores it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from headrace.errors import EnvironmentFault
from headrace.settings import Settings
from headrace.storage.jars import Progress, ensure_jars, spark_jars
from headrace.storage.java import JavaFound, check_java

_GIVE_UP_SECONDS = 600
_KEPT = 3
_TRAINING = (
    "CREATE SCHEMA IF NOT EXISTS training",
    "CREATE TABLE training.t (a INT, b STRING, c DECIMAL(10,2))",
    "INSERT INTO training.t VALUES (1, 'x', 1.5), (2, 'y', 2.5)",
    "SELECT b, count(*), sum(c), max(a) FROM training.t GROUP BY b",
    "UPDATE training.t SET c = 3 WHERE a = 1",
    "SELECT a, count(*) FROM table_changes('training.t', 1) GROUP BY a",
    "SELECT * FROM training.t VERSION AS OF 1 JOIN training.t AS u USING (a)",
    "DESCRIBE DETAIL training.t",
    "SHOW TABLES IN training",
)


def archive_file(folder: Path, jars: Sequence[Path], java: JavaFound) -> Path:
    """Where the archive for exactly this Java, this Spark and these jars is or would be."""
    core = next(iter(spark_jars().glob("spark-core_*.jar")), spark_jars())
    parts = [str(java.home), java.version, str(core)]
    parts += [f"{path}:{path.stat().st_mtime_ns}" for path in (core, *jars)]
    return folder / f"archive-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}.jsa"


def find_archive(folder: Path, jars: Sequence[Path], java: JavaFound) -> Path | None:
    """The archive, when it has been made."""
    file = archive_file(folder, jars, java)
    return file if file.is_file() else None


def make_archive(settings: Settings, progress: Progress) -> Path:
    """Make the archive unless it is there: about half a minute, and 200 MB beside the jars."""
    java = check_java()
    jars = ensure_jars(settings.jars, progress, java=java)
    file = archive_file(settings.jars, jars, java)
    if file.is_file():
        return file
    with tempfile.TemporaryDirectory(prefix=".archive-", dir=settings.jars) as work:
        raw = Path(work) / "new.jsa"
        command = [sys.executable, "-m", "headrace.storage.archive", work, str(settings.jars), str(raw)]
        output = Path(work) / "output"
        with output.open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            try:
                _wait(process, progress)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if process.returncode != 0 or not raw.is_file():
            last = (output.read_text("utf-8", "replace").strip().splitlines() or ["no reason was given"])[-1]
            raise EnvironmentFault(
                f"Spark's quick start could not be prepared: {last}.",
                hint="Headrace works without it; its starts only take longer.",
            )
        for old in _older(settings.jars)[_KEPT - 1 :]:
            old.unlink(missing_ok=True)
        os.replace(raw, file)
    return file


def _older(folder: Path) -> list[Path]:
    """Archives of other environments on this machine, the newest first."""
    return sorted(folder.glob("archive-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)


def _wait(process: subprocess.Popen[bytes], progress: Progress) -> None:
    started = time.monotonic()
    while True:
        seconds = time.monotonic() - started
        progress(f"Preparing quick starts of Spark, once: {seconds:.0f} s")
        try:
            process.wait(timeout=0.5)
            return
        except subprocess.TimeoutExpired:
            if seconds > _GIVE_UP_SECONDS:
                return


def _train(work: Path, folder: Path, raw: Path) -> None:
    """The short run whose classes go into the archive, in a process of its own."""
    from headrace.storage.spark import JAVA_OPTIONS, start_spark, stop_spark

    settings = Settings(
        path=work / "lake",
        jars=folder,
        driver_memory="1g",
        spark_settings={JAVA_OPTIONS: shlex.join(["-XX:TieredStopAtLevel=1", f"-XX:ArchiveClassesAtExit={raw}"])},
    )
    session = start_spark(settings, ensure_jars(folder))
    for statement in _TRAINING:
        session.sql(statement).collect()
    stop_spark(patience=_GIVE_UP_SECONDS)


if __name__ == "__main__":
    _train(*map(Path, sys.argv[1:4]))
