"""Generates metrics.md from the metrics registry."""

from __future__ import annotations

from prometheus_client import Metric

from dodona.telemetry.metrics import (
    MAX_AGENTS,
    MAX_MODELS,
    MAX_SERIES,
    CollectedMetric,
    LabelledMetric,
    Metrics,
)
from generating.writing import page, prose, table


def metric_name(family: Metric) -> str:
    """Return the name in the output. Families of counters are named without `_total`."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def metrics_page() -> str:
    """Return the text of metrics.md."""
    metrics = Metrics()
    labels = {
        family.name: metric.label_names
        for metric in vars(metrics).values()
        if isinstance(metric, LabelledMetric | CollectedMetric)
        for family in metric.collect()
    }
    rows = [
        (
            f"`{metric_name(family)}`",
            family.type,
            ", ".join(f"`{label}`" for label in labels.get(family.name, ())),
            family.documentation,
        )
        for family in metrics.registry.collect()
    ]
    return page(
        "# Metrics",
        prose("""`GET /metrics` returns these metrics in the Prometheus text format. It requires
            the scope `admin`. [How to run Dodona as a service](../how-to/run-as-a-service.md)
            shows which ones to watch."""),
        table(("metric", "type", "labels", "description"), rows),
        prose(f"""No label contains a user, session, run or path. Label values are bounded: the
            first {MAX_MODELS} models, the first {MAX_AGENTS} agents and all tools have
            separate series; all others count as `other`. No metric has more than {MAX_SERIES:,}
            series."""),
        prose("""Values are per process, since its start. `dodona_lanes_waiting` and
            `dodona_budget_used_ratio` are read from the store and cover all processes that share
            it. The metrics of the process (`process_…`) exist on Linux only. Latencies are
            histograms: use `histogram_quantile` for percentiles."""),
    )
