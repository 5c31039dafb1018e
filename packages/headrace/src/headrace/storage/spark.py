"""The one Spark session of this process: how it is set up, started quietly and stopped whole.

A JVM takes its class path, its system properties and Derby's home once, when it starts. A second lake in the same
process therefore needs a second JVM, and the first one must be gone by then.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import EnvironmentFault, NotAllowed
from headrace.storage.archive import find_archive
from headrace.storage.java import JavaFound, check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.settings import Settings

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
SUBSTITUTE = "spark.sql.variable.substitute"
"""Whether `${…}` in a statement is replaced by settings, system properties and variables of the environment. In a lake
it is not: a dynamic table's query would mean something else in each session, and not be what was checked."""
_STOP_SECONDS = 30
_METASTORE_KEYS = (
    "spark.hadoop.javax.jdo.option.",
    "spark.hadoop.hive.metastore.uris",
    "spark.sql.catalogImplementation",
    "spark.sql.hive.metastore.",
)
_lock = threading.RLock()
_open_lake: Path | None = None


def start_spark(settings: Settings, jars: Sequence[Path], *, java: JavaFound | None = None) -> SparkSession:
    """Start Spark for the lake at `settings.path`; call it only while holding that lake's lock.

    All of Spark's output goes to `settings.log_file` and, for what the JVM says before its logging is up, to `jvm.log`
    beside it.
    """
    global _open_lake
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
    warnings.filterwarnings("ignore", category=UserWarning, module=r"pyspark\.")
    from pyspark.core.context import SparkContext
    from pyspark.sql import SparkSession

    with _lock:
        _refuse_second_session(SparkContext)
        java = java or check_java()
        lake = settings.path.absolute()
        log_file = settings.log_file.absolute()
        try:
            log_file.parent.mkdir(parents=True, exist_ok=True)
            (lake / "logs").mkdir(parents=True, exist_ok=True)
            end_orphan(lake)
            _write_log_settings(lake, log_file)
        except OSError as fault:
            raise EnvironmentFault(
                f"The lake folder {lake} cannot be written: {fault.strerror or fault}.",
                hint="Choose another folder, or mend its permissions or the disk.",
            ) from fault
        configuration = spark_configuration(settings, jars, find_archive(settings.jars, jars, java))
        _launch(configuration, lake, log_file, java)
        try:
            builder = SparkSession.builder
            for key, value in configuration.items():
                builder = builder.config(key, value)
            session = builder.getOrCreate()
        except BaseException as fault:
            _end_gateway(SparkContext)
            if isinstance(fault, Exception):
                raise _did_not_start(_first_line(str(fault)), log_file) from fault
            raise
        _without_checksum_files(session)
        _log_to(log_file)
        _open_lake = lake
        return session


def _without_checksum_files(session: SparkSession) -> None:
    """Hadoop puts a hidden `.crc` file beside every file it writes to this machine, and starts a `chmod` for it."""
    jvm: Any = session._jvm
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(session._jsc.hadoopConfiguration()).setWriteChecksum(False)


def stop_spark(*, patience: float = _STOP_SECONDS) -> None:
    """Stop the session and its JVM, and wait until the JVM is gone: then Derby's lock is free again.

    A JVM that has not ended after `patience` seconds is killed.
    """
    global _open_lake
    with _lock:
        if "pyspark" not in sys.modules:
            return
        from pyspark.core.context import SparkContext
        from pyspark.sql import SparkSession

        session = SparkSession._instantiatedSession
        if session is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    session.stop()
                except Exception:  # A JVM that died cannot be stopped; ending its gateway below is what is left to do.
                    SparkSession._instantiatedSession = None
                    SparkContext._active_spark_context = None
        _end_gateway(SparkContext, patience)
        if _open_lake is not None:
            _pid_file(_open_lake).unlink(missing_ok=True)
        _open_lake = None
        _log_to(None)


def java_process() -> subprocess.Popen[bytes] | None:
    """The Java process of this process' Spark."""
    from pyspark.core.context import SparkContext

    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process


def java_process_has_ended() -> bool:
    """Whether the Java process of this process' Spark is gone; False when none was started."""
    process = java_process()
    return process is not None and process.poll() is not None


def ended_since(process: subprocess.Popen[bytes] | None, *, patience: float) -> bool:
    """Whether this Java process is gone, or another has its place. One that is killed closes its connections a moment
    before it ends, so that moment is waited for."""
    if process is None:
        return False
    if process is not java_process():
        return True
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        return False
    return True


def has_stopped(spark: SparkSession) -> bool:
    """Whether a session can do nothing any more: its Java process is gone, or its master ended the application."""
    from py4j.protocol import Py4JError

    if java_process_has_ended():
        return True
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except (Py4JError, OSError, AttributeError):
        return java_process_has_ended()


def open_lake() -> Path | None:
    """The lake whose Spark runs in this process."""
    return _open_lake


def spark_configuration(settings: Settings, jars: Sequence[Path], archive: Path | None = None) -> dict[str, str]:
    """Every Spark setting of a lake, ours and then the user's, which win."""
    lake = settings.path.absolute()
    master = settings.spark_master
    local = master.startswith("local")
    user = {str(key): str(value) for key, value in settings.spark_settings.items()}
    days = f"interval {settings.data_retention_days} days"
    class_path = [str(path) for path in jars]
    ours = {
        "spark.master": master,
        "spark.app.name": "headrace",
        "spark.driver.memory": settings.driver_memory,
        "spark.sql.session.timeZone": settings.timezone,
        "spark.sql.warehouse.dir": _as_file(settings.warehouse),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.sources.default": "delta",
        "spark.sql.legacy.createHiveTableByDefault": "false",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Delta's change feed passes every row through Java's classes: the old ones have no 10th of October 1582, and
        # make the 15th of it.
        "spark.sql.datetime.java8API.enabled": "true",
        # Delta answers count(*), min and max without reading files, and takes the days among them for Java's old class:
        # it made the 15th of these, too, and fails on the new one. Counting 20 million rows takes 0.18 s, not 0.07.
        "spark.databricks.delta.optimizeMetadataQuery.enabled": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Of every query, Spark writes down its plan for a web page that is off; at length, that took 4 % of its time.
        "spark.sql.ui.explainMode": "simple",
        # The default of 50 makes every look at a small table's log a 50-task job: measured at 5 to 7 times the time.
        "spark.databricks.delta.snapshotPartitions": "1",
        # Whole paths in the record of executed plans: the profile of a refresh goes by them.
        "spark.sql.maxMetadataStringLength": "1000",
        # Files are named one by one where they are on this machine: looking at a few hundred takes no job.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "512",
        # Otherwise Delta ignores every RETAIN of VACUUM but 0 HOURS, and with it what dynamic tables still need.
        "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
        # Optional beside each commit; without it a small commit took 0.18 s, not 0.30, and the next read 1.0, not 1.5.
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        "spark.databricks.delta.properties.defaults.enableChangeDataFeed": "true",
        "spark.databricks.delta.properties.defaults.deletedFileRetentionDuration": days,
        "spark.databricks.delta.properties.defaults.logRetentionDuration": days,
    }
    if local:
        ours |= _short_tasks(_cores(master))
        # VACUUM lists files with as many tasks; the default of 10,000 made it take a minute on an empty table.
        ours["spark.sql.sources.parallelPartitionDiscovery.parallelism"] = str(4 * _cores(master))
        # Reading ahead in threads of its own, Parquet would hide nine tenths of the bytes from Spark's count of them.
        ours["spark.hadoop.parquet.hadoop.vectored.io.enabled"] = "false"
        # The store that Delta takes otherwise starts four `readlink` processes for every commit.
        ours["spark.delta.logStore.file.impl"] = "io.delta.storage.LocalLogStore"
        ours["spark.driver.host"] = "127.0.0.1"
        ours["spark.driver.bindAddress"] = "127.0.0.1"
        ours[_CLASS_PATH] = os.pathsep.join(class_path)
    else:
        ours["spark.jars"] = ",".join(class_path)
    if not any(key.startswith(_METASTORE_KEYS) for key in user):
        ours |= _embedded_metastore(lake)
    ours[JAVA_OPTIONS] = shlex.join(_java_options(lake, archive))
    for key, between in ((JAVA_OPTIONS, " "), (_CLASS_PATH, os.pathsep)):
        if key in ours and key in user:  # These two are lists: the user's part comes after ours.
            user[key] = f"{ours[key]}{between}{user[key]}"
    return ours | user | {SUBSTITUTE: "false"}


def _short_tasks(cores: int) -> dict[str, str]:
    """A task is never interrupted: on a few cores a short question waits until one of a heavy refresh ends. Much work
    is cut into many short tasks for this, and little work into few: Spark joins small ones.

    Measured on two cores, beside two refreshes over 20 million rows: a short question took up to 56 s, and takes up to
    2.8 s. What is small takes about what it took (docs/adr/0021).
    """
    size = 8 * 1024 * 1024
    return {
        "spark.hadoop.parquet.block.size": str(size),  # A file can be read in as many parts as it has row groups.
        "spark.sql.files.maxPartitionBytes": str(size),
        "spark.sql.files.openCostInBytes": str(size // 16),
        "spark.sql.shuffle.partitions": str(16 * cores),
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(size // 2),
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    }


def _embedded_metastore(lake: Path) -> dict[str, str]:
    """A Derby database in the lake folder. Its URL is relative to Derby's home: no path can break its syntax."""
    return {
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName=metastore;create=true",
        "spark.hadoop.javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        "spark.hadoop.hive.exec.scratchdir": _as_file(lake / "logs" / "scratch"),
    }


def _java_options(lake: Path, archive: Path | None) -> list[str]:
    options = [
        f"-Dheadrace.lake={lake}",
        f"-Dderby.system.home={lake}",
        f"-Dderby.stream.error.file={lake / 'logs' / 'derby.log'}",
        f"-Dlog4j2.configurationFile={_log_settings_file(lake).as_uri()}",
        "-XX:+UseParallelGC",
    ]
    return [*options, f"-XX:SharedArchiveFile={archive}"] if archive else options


def _cores(master: str) -> int:
    """How many tasks a local master runs at once.

    >>> _cores("local[3]"), _cores("local[3,2]"), _cores("local")
    (3, 3, 1)
    """
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:\s*,.*)?\])?", master)
    if match is None or match.group(1) is None:
        return 1
    if match.group(1) == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(match.group(1))


def _as_file(path: Path) -> str:
    """A local path as Hadoop writes it: with its scheme, and (unlike in a URL) with nothing escaped."""
    return f"file://{path.absolute().as_posix()}"


def _refuse_second_session(context: Any) -> None:
    if _open_lake is not None:
        raise NotAllowed(
            f"This process has the lake {_open_lake} open, and a process can have one lake at a time.",
            hint="Close it first with lake.close(), or use another process.",
        )
    if context._active_spark_context is not None:
        raise NotAllowed(
            "This process has a Spark session of its own, and Headrace must start Spark with its own settings.",
            hint="Stop it first with spark.stop(), open the lake, and use lake.spark instead.",
        )


def _launch(configuration: Mapping[str, str], lake: Path, log_file: Path, java: JavaFound) -> None:
    """Start the JVM ourselves, with its output in a file: left alone, PySpark lets it write to the user's screen."""
    from pyspark import SparkConf, java_gateway
    from pyspark.core.context import SparkContext
    from pyspark.errors import PySparkRuntimeError

    launch_gateway: Any = java_gateway.launch_gateway

    SparkContext._gateway = None
    SparkContext._jvm = None
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(configuration.items()))
    raw_log = _raw_log(log_file)
    with raw_log.open("wb") as output, _environment(java):
        try:
            gateway = launch_gateway(conf, popen_kwargs={"stdout": output, "stderr": output})
        except PySparkRuntimeError as fault:
            raise _did_not_start(_last_complaint(raw_log), log_file) from fault
    if gateway.proc is not None:
        _pid_file(lake).write_text(str(gateway.proc.pid), "utf-8")
    SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _environment(java: JavaFound) -> Iterator[None]:
    """The variables Spark's start script reads, for the moment of the launch.

    A SPARK_HOME of another installation would start a Spark that does not fit this PySpark.
    """
    import pyspark

    package = Path(pyspark.__file__).parent
    ours = {"JAVA_HOME": str(java.home), "SPARK_HOME": str(package)}
    home = os.environ.get("SPARK_HOME")
    if home and next(iter(Path(home, "jars").glob(f"spark-core_*-{pyspark.__version__}.jar")), None):
        ours["SPARK_HOME"] = home
    before = {name: os.environ.get(name) for name in ours}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _end_gateway(context: Any, patience: float = _STOP_SECONDS) -> None:
    """Shut the gateway and wait for its JVM: it ends by itself when its standard input closes."""
    gateway = context._gateway
    context._gateway = None
    context._jvm = None
    if gateway is None:
        return
    process: subprocess.Popen[bytes] | None = gateway.proc
    if process is None:
        return
    try:
        gateway.shutdown()
    except Exception:  # The connection may be gone already; closing its standard input below ends the JVM anyway.
        pass
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_orphan(lake: Path) -> None:
    """End a JVM that outlived its Python process, which was killed: it holds Derby's lock, and might still commit."""
    try:
        pid = int(_pid_file(lake).read_text("utf-8"))
    except (OSError, ValueError):
        return
    deadline = time.monotonic() + _STOP_SECONDS
    while f"-Dheadrace.lake={lake}" in _command_line(pid):
        if time.monotonic() > deadline:
            raise EnvironmentFault(
                f"A Spark process of an earlier run (process {pid}) still works on {lake} and does not end.",
                hint=f"End it with `kill -9 {pid}`, then try again.",
            )
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            break
        time.sleep(0.05)
    _pid_file(lake).unlink(missing_ok=True)


def _command_line(pid: int) -> str:
    """A process' arguments, or nothing when it is gone."""
    entry = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self").exists():
        try:
            return entry.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            return ""
    answer = subprocess.run(
        ["ps", "-ww", "-p", str(pid), "-o", "command="], capture_output=True, text=True, check=False
    )
    return answer.stdout


def _log_to(log_file: Path | None) -> None:
    """Where PySpark's own loggers write: left alone, they print every failed statement on the screen, in JSON."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logger = PySparkLogger.getLogger(name)
        logger.propagate = False
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.addHandler(logging.FileHandler(log_file, delay=True) if log_file else logging.NullHandler())


def _write_log_settings(lake: Path, log_file: Path) -> None:
    _log_settings_file(lake).write_text(
        f"""# Written by Headrace at every start.
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {_escaped(log_file)}
appender.file.filePattern = {_escaped(log_file)}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
# One line a statement about settings that are as they should be.
logger.conf.name = org.apache.hadoop.hive.conf.HiveConf
logger.conf.level = error
logger.store.name = org.apache.hadoop.hive.metastore
logger.store.level = error
logger.plan.name = org.apache.spark.sql.catalyst.util.SparkStringUtils
logger.plan.level = error
""",
        "utf-8",
    )


def _escaped(path: Path) -> str:
    """A path for a Java properties file that Log4j reads."""
    return str(path).replace("\\", "\\\\").replace("$", "$$")


def _did_not_start(reason: str, log_file: Path) -> EnvironmentFault:
    hint = f"The logs tell more: {_raw_log(log_file)} and {log_file}."
    if "object heap" in reason or "memory" in reason.lower():
        hint = f"Lower the driver's memory (driver_memory, HEADRACE_DRIVER_MEMORY). {hint}"
    return EnvironmentFault(f"Spark did not start: {reason.rstrip('.')}.", hint=hint)


def _last_complaint(raw_log: Path) -> str:
    lines = [line.strip() for line in raw_log.read_text("utf-8", "replace").splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line or "Exception" in line]
    return (telling or lines or ["the JVM ended without a word"])[0 if telling else -1]


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if "Exception: " in line or "Error: " in line]
    return (causes or lines or ["no reason was given"])[0]


def _log_settings_file(lake: Path) -> Path:
    return lake / "logs" / "log4j2.properties"


def _raw_log(log_file: Path) -> Path:
    return log_file.with_name("jvm.log")


def _pid_file(lake: Path) -> Path:
    return lake / "logs" / "spark.pid"
