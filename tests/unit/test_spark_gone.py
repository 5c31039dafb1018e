"""Whatever a statement fails with when Spark's Java process dies under it, the user is told that, and no riddle."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from pyspark.core.context import SparkContext

from headrace.errors import EnvironmentFault
from headrace.lake_session import told
from headrace.result import Result


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
