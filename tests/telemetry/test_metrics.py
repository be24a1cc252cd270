"""Numbers in the text format of Prometheus, with an end to their labels."""

from __future__ import annotations

import re

import pytest
from prometheus_client import REGISTRY, Counter, Histogram, Metric
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from dodona.telemetry import metrics
from dodona.telemetry.metrics import (
    MAX_MODELS,
    BoundedLabels,
    CollectedMetric,
    LabelledMetric,
    Metrics,
)


async def scrape(measures: Metrics) -> dict[str, Metric]:
    """Parse the metrics as Prometheus does, by name."""
    text = (await measures.render()).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


async def test_the_text_of_each_kind() -> None:
    """Help, type, then a line for each series; a histogram's buckets add up."""
    measures = Metrics()
    measures.runs_started.labels("ada").inc(2)
    measures.in_flight.inc(1.5)
    for value in (0.0005, 0.001, 0.002, 70):
        measures.write_seconds.observe(value)
    text = (await measures.render()).decode()
    assert (
        "# HELP dodona_runs_begun_total Runs started by this process.\n"
        "# TYPE dodona_runs_begun_total counter\n"
        'dodona_runs_begun_total{agent="ada"} 2.0\n'
    ) in text
    assert (
        "# HELP dodona_http_requests_in_flight Requests and streams in progress.\n"
        "# TYPE dodona_http_requests_in_flight gauge\n"
        "dodona_http_requests_in_flight 1.5\n"
    ) in text
    assert (
        "# TYPE dodona_store_write_seconds histogram\n"
        'dodona_store_write_seconds_bucket{le="0.001"} 2.0\n'
        'dodona_store_write_seconds_bucket{le="0.0025"} 3.0\n'
    ) in text
    assert (
        'dodona_store_write_seconds_bucket{le="30.0"} 3.0\n'
        'dodona_store_write_seconds_bucket{le="+Inf"} 4.0\n'
        "dodona_store_write_seconds_count 4.0\n"
        "dodona_store_write_seconds_sum 70.0035\n"
    ) in text
    assert "_created" not in text


@pytest.mark.parametrize("value", ['"', "\\", "\n", '\\"\n{}', "ü", ""])
async def test_no_label_breaks_its_line(value: str) -> None:
    """Quotes, backslashes and line breaks are escaped, as Prometheus reads them."""
    measures = Metrics()
    measures.runs_started.labels(value).inc()
    (sample,) = (await scrape(measures))["dodona_runs_begun"].samples
    assert (sample.labels, sample.value) == ({"agent": value}, 1)


def values_of(metric: Collector) -> dict[tuple[str, ...], float]:
    (family,) = metric.collect()
    return {tuple(each.labels.values()): each.value for each in family.samples}


def test_there_is_an_end_to_series() -> None:
    """Past it, what is new is `other`; what was known goes on."""
    names = ("who", "how")
    counter = LabelledMetric(Counter("asked_total", "Asked.", names, registry=None), names)
    seconds = LabelledMetric(Histogram("seconds", "Long.", ("who",), registry=None), ("who",))
    for number in range(metrics.MAX_SERIES + 100):
        counter.labels(str(number), "x").inc()
        seconds.labels(str(number)).observe(1)
    counter.labels("0", "x").inc()
    found = values_of(counter)
    assert len(found) == metrics.MAX_SERIES + 1
    assert (found["0", "x"], found["other", "other"]) == (2, 100)
    assert len({labels[0] for labels in values_of(seconds)}) == metrics.MAX_SERIES + 1


def test_names_that_others_choose() -> None:
    """The first ones have a label of their own, however often the rest comes."""
    names = BoundedLabels(2)
    assert [names.label_for(name) for name in "abcab"] == ["a", "b", "other", "a", "b"]


async def test_a_thousand_models_are_few_series() -> None:
    """Requests name models: more than some are counted together."""
    measures = Metrics()
    for number in range(1000):
        measures.model_calls.labels(*measures.model_labels("openai", f"m-{number}"), "ok").inc()
    samples = (await scrape(measures))["dodona_model_calls"].samples
    assert len(samples) == MAX_MODELS + 1
    assert [each.value for each in samples if each.labels["model"] == "other"] == [950]


def test_values_that_are_kept_elsewhere() -> None:
    """Series that are gone since the last scrape are not reported again."""
    used = CollectedMetric(GaugeMetricFamily, "used_ratio", "Used.", "scope")
    used.series = {("user",): 0.5, ("all",): 0.25}
    assert values_of(used) == {("user",): 0.5, ("all",): 0.25}
    used.series = {("all",): 0.75}
    assert values_of(used) == {("all",): 0.75}


async def test_apps_do_not_share_metrics() -> None:
    """Each app counts for itself, and nothing is registered for the whole process."""
    first, second = Metrics(), Metrics()
    first.runs_started.labels("oracle").inc()
    assert (await scrape(second))["dodona_runs_begun"].samples == []
    assert "dodona_runs_begun" not in {each.name for each in REGISTRY.collect()}


def test_open_connections_are_counted_over_all_kinds() -> None:
    """The status shows one number."""
    measures = Metrics()
    measures.open_connections.labels("sse").inc()
    measures.open_connections.labels("websocket").inc(2)
    measures.open_connections.labels("sse").dec()
    assert measures.open_connections.total() == 2


def test_what_is_measured_has_a_name_and_a_meaning() -> None:
    """By Prometheus' conventions: totals only grow, and units are base units."""
    measures = Metrics()
    families = list(measures.registry.collect())
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert re.fullmatch(r"(dodona|process)_[a-z_]+", family.name)
        assert not family.name.endswith("_total")  # added to the name of each counter, and no other
        assert family.documentation.endswith(".")
    for metric in vars(measures).values():
        if isinstance(metric, LabelledMetric | CollectedMetric):
            assert not {"user", "session", "path", "run"} & set(metric.label_names)
