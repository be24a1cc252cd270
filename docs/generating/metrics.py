"""metrics.md, of what is measured."""

from __future__ import annotations

from dodona.telemetry.metrics import MAX_AGENTS, MAX_MODELS, MAX_SERIES, Metrics
from generating.writing import page, prose, table


def metrics_page() -> str:
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
        prose("""`GET /metrics` answers with these, in the text format of Prometheus, to whoever
            has scope `admin`. [How to run Dodona as a service](../how-to/run-as-a-service.md)
            shows what to look at."""),
        table(("metric", "kind", "labels", "what it counts"), rows),
        prose(f"""No label holds a user, a session, a run or a path. Names that others choose have
            an end: the first {MAX_MODELS} models and the first {MAX_AGENTS} agents have series of
            their own, and so has every tool that there is; all others are counted as `other`. No
            metric has more than {MAX_SERIES:,} series."""),
        prose("""Numbers are those of one process, from its start. `dodona_lanes_waiting` and
            `dodona_budget_used_ratio` are read from the store, so they are those of all processes
            that share it. Latencies are histograms: `histogram_quantile` gives percentiles."""),
    )
