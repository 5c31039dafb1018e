"""Whatever a statement fails with when Spark's Java process dies under it, the user is told that, and no riddle."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.core.context import SparkContext
from pyspark.errors import AnalysisException, PySparkException

from headrace.engine import Lake
from headrace.errors import EnvironmentFault, QueryFailed
from headrace.lake_session import told
from headrace.result import Result
from headrace.security.roles import Principal


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the place of Java's."""
    process = subprocess.Popen(["sleep", "60"])
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("kind", [AssertionError, AttributeError, RuntimeError, TypeError, KeyError])
def test_an_odd_error_because_java_was_killed(java: subprocess.Popen[bytes], kind: type[Exception]) -> None:
    def work() -> Result:
        java.kill()
        raise kind("no")

    with pytest.raises(EnvironmentFault, match="Java process ended"):
        told(work)


def test_java_ends_a_moment_after_its_connections(java: subprocess.Popen[bytes]) -> None:
    def work() -> Result:
        threading.Timer(0.3, java.kill).start()
        raise TypeError("no")

    with pytest.raises(EnvironmentFault, match="Java process ended"):
        told(work)


def test_another_java_has_its_place_already(java: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> Result:
        monkeypatch.setattr(SparkContext, "_gateway", None)
        raise AttributeError("no")

    with pytest.raises(EnvironmentFault, match="Java process ended"):
        told(work)


def test_a_mistake_of_ours_stays_one(java: subprocess.Popen[bytes]) -> None:
    def work() -> Result:
        raise TypeError("ours")

    with pytest.raises(TypeError, match="ours"):
        told(work)
    assert java.poll() is None


class Catalog:
    """Spark's, with a schema that is dropped while it is listed."""

    def __init__(self, fault: Exception) -> None:
        self._fault = fault

    def listDatabases(self) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(name=name) for name in ("gone", "public")]

    def listTables(self, schema: str) -> list[Any]:  # noqa: N802
        if schema == "gone":
            raise self._fault
        return [SimpleNamespace(name="orders")]


def a_lake(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> Lake:
    lake = object.__new__(Lake)
    context = SimpleNamespace(name_of=lambda *parts: parts, user=SimpleNamespace(is_admin=True))
    monkeypatch.setattr(lake, "_closed", False, raising=False)
    monkeypatch.setattr(lake, "_context", context, raising=False)
    monkeypatch.setattr(lake, "spark", SimpleNamespace(catalog=Catalog(fault)), raising=False)
    monkeypatch.setattr("headrace.statements.permitting.viewer", lambda _: lambda name: True)
    return lake


def test_a_schema_that_is_dropped_while_names_are_listed(
    java: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = a_lake(monkeypatch, AnalysisException("[SCHEMA_NOT_FOUND] The schema cannot be found."))
    assert lake.names() == ["orders", "public"]


@pytest.mark.parametrize("fault", [Py4JNetworkError("Answer from Java side is empty"), TypeError("no")])
def test_names_and_sessions_when_java_was_killed(
    java: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    lake = a_lake(monkeypatch, fault)
    monkeypatch.setattr(lake, "require_spark", lambda: java.kill(), raising=False)
    monkeypatch.setattr(lake, "generation", 0, raising=False)

    def no_session() -> None:
        raise fault

    monkeypatch.setattr(lake, "_context", SimpleNamespace(new_session=no_session), raising=False)
    with pytest.raises(EnvironmentFault, match="Java process ended"):
        lake.session(Principal("ann", "analyst"))
    monkeypatch.setattr("headrace.statements.permitting.viewer", lambda _: no_session())
    with pytest.raises(EnvironmentFault, match="Java process ended"):
        lake.names()


def test_an_error_of_spark_is_no_riddle_either(java: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    lake = a_lake(monkeypatch, PySparkException("[INTERNAL_ERROR] Something is wrong."))
    with pytest.raises(QueryFailed, match="Something is wrong"):
        lake.names()
    java.kill()
    java.wait()
    with pytest.raises(EnvironmentFault, match="Java process ended"):
        lake.names()
