"""Which files Spark's queries read and how many rows came out of them, from its own record of executed plans.

The record is Spark's own, for its web pages; it is asked in three calls for each query, as one JSON text, because every
call into the JVM costs. Where it cannot be had, nothing is told.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_METRIC = re.compile(r"(\d+) -> (?:total \([^\n]*\n)?([\d.,]+)(?: ([KMGT]?i?B))?")
_LOCATION = re.compile(r"Location: [^\[]*\[([^\]]*)")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@dataclass(frozen=True)
class Scan:
    """One read of files: where they lie (the first of them), the rows that came out, the size of the files."""

    location: str
    rows: int
    size: int


def scans_of(spark: SparkSession, jobs: Iterable[int]) -> list[Scan] | None:
    """All file scans of the queries that these jobs belong to; None when Spark does not tell."""
    try:
        session: Any = spark
        store = session._jsparkSession.sharedState().statusStore()
        writer = _json_writer(spark, session._jvm)
        found: list[Scan] = []
        for execution in sorted(_executions(spark, jobs)):
            graph = json.loads(gzip.decompress(bytes(writer.serialize(store.planGraph(execution)))))
            found += _scans(graph, metrics_in(str(store.executionMetrics(execution))))
        return found
    except (Py4JError, AttributeError, KeyError, ValueError, OSError):
        return None


def metrics_in(text: str) -> dict[int, int]:
    """Spark's metrics by their ids, from the text of a map.

    >>> metrics_in("HashMap(7 -> 1,234, 8 -> total (min, med, max (stageId: taskId))\\n1.5 KiB (0.0 B, 1.5 KiB))")
    {7: 1234, 8: 1536}
    """
    return {
        int(number): round(float(amount.rstrip(",").replace(",", "")) * _UNITS.get(unit, 1))
        for number, amount, unit in _METRIC.findall(text)
    }


def _executions(spark: SparkSession, jobs: Iterable[int]) -> set[int]:
    store: Any = spark.sparkContext._jsc.sc().statusStore()
    found = (store.jobWithAssociatedSql(job)._2() for job in jobs)
    return {int(each.get()) for each in found if each.isDefined()}


def _json_writer(spark: SparkSession, jvm: Any) -> Any:
    """What Spark itself writes these records to disk with."""
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    name = "org.apache.spark.status.KVUtils$KVStoreScalaSerializer"
    constructor = jvm.java.lang.Class.forName(name, True, loader).getDeclaredConstructors()[0]
    constructor.setAccessible(True)
    gateway: Any = spark.sparkContext._gateway
    return constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0))


def _scans(graph: dict[str, Any], metrics: dict[int, int]) -> Iterator[Scan]:
    for node in _nodes(graph["nodes"]):
        place = _LOCATION.search(node["desc"])
        if not node["name"].startswith("Scan ") or place is None:
            continue
        values = {metric["name"]: metrics.get(metric["accumulatorId"], 0) for metric in node["metrics"]}
        yield Scan(place[1], values.get("number of output rows", 0), values.get("size of files read", 0))


def _nodes(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Some nodes are clusters of others."""
    for node in nodes:
        yield node
        yield from _nodes(node.get("nodes", []))
