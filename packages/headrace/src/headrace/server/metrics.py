"""What Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.catalog.records import Job
from headrace.security.roles import Principal

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)

Gauges = Callable[[], Iterable[tuple[str, str, str, tuple[tuple[str, float], ...]]]]
"""Name, help, the label's name, and the present values by label; without a label's name there is one value."""


class Metrics:
    """Counters of this server, and gauges that are read when somebody looks."""

    def __init__(self, gauges: Gauges, for_administrators: Gauges) -> None:
        self._registry = CollectorRegistry()
        self._for_administrators = CollectorRegistry()
        self._statements = Counter(
            "headrace_statements", "Statements that have ended", ["status"], registry=self._registry
        )
        self._seconds = Histogram(
            "headrace_statement_seconds", "Time from submission to the end", buckets=_SECONDS, registry=self._registry
        )
        self._refreshes = Counter(
            "headrace_refreshes", "Refreshes by REFRESH statements", ["mode"], registry=self._registry
        )
        self._failed_logins = Counter("headrace_logins_failed", "Logins that were refused", registry=self._registry)
        self._registry.register(_Present(gauges))
        self._for_administrators.register(_Present(for_administrators))

    def statement_ended(self, job: Job) -> None:
        self._statements.labels(job.status).inc()
        if job.ended_at is not None:
            self._seconds.observe(max(0.0, (job.ended_at - job.submitted_at).total_seconds()))

    def refreshed(self, mode: str) -> None:
        self._refreshes.labels(mode).inc()

    def login_failed(self) -> None:
        self._failed_logins.inc()

    def text(self, user: Principal) -> bytes:
        """What this user may see."""
        told = generate_latest(self._registry)
        return told + generate_latest(self._for_administrators) if user.is_admin else told


class _Present(Collector):
    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing beforehand: the registry would otherwise ask for the values while the server is being built."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, text, label, values in self._gauges():
            family = GaugeMetricFamily(name, text, labels=[label] if label else [])
            for labelled, value in values:
                family.add_metric([labelled] if label else [], value)
            yield family
