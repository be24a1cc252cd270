"""Generates metrics.md from the metrics registry."""

from __future__ import annotations

from dodona.telemetry.metrics import MAX_AGENTS, MAX_MODELS, MAX_SERIES, Metrics
from generating.writing import page, prose, table


def metrics_page() -> str:
    """Return the text of metrics.md."""
    rows = [
        (
            f"`{family.name}`",
            family.kind,
            ", ".join(f"`{label}`" for label in family.labels),
            family.help_text,
        )
        for family in Metrics().registry.families
    ]
    return page(
        "# Metrics",
        prose("""`GET /metrics` returns these metrics in the Prometheus text format. It requires
            the scope `admin`. [How to run Dodona as a service](../how-to/run-as-a-service.md)
            shows which ones to watch."""),
        table(("metric", "type", "labels", "description"), rows),
        prose(f"""No label contains a user, session, run or path. Label values are bounded: the
            first {MAX_MODELS} models, the first {MAX_AGENTS} agents and all registered tools have
            separate series; all others count as `other`. No metric has more than {MAX_SERIES:,}
            series."""),
        prose("""Values are per process, since its start. `dodona_lanes_waiting` and
            `dodona_budget_used_ratio` are read from the store and cover all processes that share
            it. Latencies are histograms: use `histogram_quantile` for percentiles."""),
    )
