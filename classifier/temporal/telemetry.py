"""The SDK's runtime: how much its core logs, and where metrics go, ours and Temporal's own."""

from __future__ import annotations

import atexit
import functools
import gc
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from temporalio.runtime import (
    LoggingConfig,
    OpenTelemetryConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

from classifier.errors import ConfigurationError
from classifier.temporal.metrics import DURATION, DURATION_BUCKETS


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where metrics go; the SDK has one exporter, so it is one of the two.

    Attributes:
        prometheus: Address and port to be scraped at, `127.0.0.1:9464` for example.
        otlp: An OpenTelemetry collector: `http://host:4317` for gRPC, `http://host:4318/v1/metrics` for HTTP.

    Raises:
        ConfigurationError: Both are given, or none.
    """

    prometheus: str | None = None
    otlp: str | None = None

    def __post_init__(self) -> None:
        if (self.prometheus is None) == (self.otlp is None):
            raise ConfigurationError("metrics go to Prometheus or to a collector (OTLP), not to both")

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Metrics | None:
        """What is in `CLASSIFIER_METRICS_PROMETHEUS` or `CLASSIFIER_METRICS_OTLP`, or None."""
        prometheus, otlp = (
            environ.get("CLASSIFIER_METRICS_PROMETHEUS") or None,
            environ.get("CLASSIFIER_METRICS_OTLP") or None,
        )
        return cls(prometheus, otlp) if prometheus or otlp else None

    def __str__(self) -> str:
        if self.otlp is None:
            return f"Prometheus at {self.prometheus}"
        parts = urlsplit(self.otlp)
        return f"OTLP to {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@functools.cache
def runtime(metrics: Metrics | None) -> Runtime:
    """The process's runtime for these metrics, made once, since each has threads and a port of its own.

    The SDK's core keeps to errors; what it warns of is mostly a completion that came too late.

    Raises:
        ConfigurationError: The address cannot be listened at, or the URL is none.
    """
    levels = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    exporter = None if metrics is None else _exporter(metrics)
    try:
        return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=levels), metrics=exporter))
    except ValueError as error:
        raise ConfigurationError(f"metrics, {metrics}: {error}") from error


@atexit.register
def _end() -> None:
    """Ends the runtimes while the interpreter is whole.

    A thread at the end of a call that was cancelled needs the interpreter once more. One that is being taken
    down never lets it in, and waits for it for ever.
    """
    runtime.cache_clear()
    gc.collect()


def _exporter(metrics: Metrics) -> PrometheusConfig | OpenTelemetryConfig:
    buckets = {DURATION: DURATION_BUCKETS}
    if metrics.otlp is not None:
        http = urlsplit(metrics.otlp).path not in {"", "/"}
        return OpenTelemetryConfig(
            metrics.otlp, http=http, durations_as_seconds=True, histogram_bucket_overrides=buckets
        )
    return PrometheusConfig(
        metrics.prometheus or "",
        counters_total_suffix=True,
        unit_suffix=True,
        durations_as_seconds=True,
        histogram_bucket_overrides=buckets,
    )
