"""Numbers in the text format of Prometheus, with an end to their labels."""

from __future__ import annotations

import re

import pytest

from dodona.telemetry import metrics
from dodona.telemetry.metrics import (
    MAX_MODELS,
    BoundedLabels,
    Counter,
    Gauge,
    Histogram,
    MetricRegistry,
    Metrics,
)

LINE = re.compile(
    r'# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z_]+="([^"\\\n]|\\.)*"(,[a-z_]+="([^"\\\n]|\\.)*")*\})?'
    r" (\+Inf|-?[0-9.e+-]+)"
)


def test_the_text_of_each_kind() -> None:
    """Help, type, then a line for each series; a histogram's buckets add up."""
    registry = MetricRegistry()
    registry.add(Counter("asked_total", "Asked.", "who")).add("ada", by=2)
    registry.add(Gauge("open", "Open now.")).add(by=1.5)
    seconds = registry.add(Histogram("seconds", "How long.", bounds=(0.1, 1.0)))
    for value in (0.05, 0.1, 0.5, 7):
        seconds.observe(value)
    assert registry.render() == (
        '# HELP asked_total Asked.\n# TYPE asked_total counter\nasked_total{who="ada"} 2\n'
        "# HELP open Open now.\n# TYPE open gauge\nopen 1.5\n"
        "# HELP seconds How long.\n# TYPE seconds histogram\n"
        'seconds_bucket{le="0.1"} 2\nseconds_bucket{le="1"} 3\nseconds_bucket{le="+Inf"} 4\n'
        "seconds_sum 7.65\nseconds_count 4\n"
    )


@pytest.mark.parametrize("value", ['"', "\\", "\n", '\\"\n{}', "ü", ""])
def test_no_label_breaks_its_line(value: str) -> None:
    """Quotes, backslashes and line breaks are escaped, as Prometheus reads them."""
    registry = MetricRegistry()
    registry.add(Counter("asked_total", "Asked.", "who")).add(value)
    *_, line = registry.render().splitlines()
    assert LINE.fullmatch(line)
    shown = line.removeprefix('asked_total{who="').removesuffix('"} 1')
    back = re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), shown)
    assert back == value


def test_there_is_an_end_to_series() -> None:
    """Past it, what is new is `other`; what was known goes on."""
    counter = Counter("asked_total", "Asked.", "who", "how")
    seconds = Histogram("seconds", "How long.", "who", bounds=(1.0,))
    for number in range(metrics.MAX_SERIES + 100):
        counter.add(str(number), "x")
        seconds.observe(1, str(number))
    counter.add("0", "x")
    found = {labels: value for _, _, labels, value in counter.samples()}
    assert len(found) == metrics.MAX_SERIES + 1
    assert (found["0", "x"], found["other", "other"]) == (2, 100)
    assert len({labels[0] for _, _, labels, _ in seconds.samples()}) == metrics.MAX_SERIES + 1


def test_names_that_others_choose() -> None:
    """The first ones have a label of their own, however often the rest comes."""
    names = BoundedLabels(2)
    assert [names.label_for(name) for name in "abcab"] == ["a", "b", "other", "a", "b"]


async def test_a_thousand_models_are_few_series() -> None:
    """Requests name models: more than some are counted together."""
    measures = Metrics()
    for number in range(1000):
        measures.model_calls.add(*measures.model_labels("openai", f"m-{number}"), "ok")
    text = await measures.render()
    assert text.count("dodona_model_calls_total{") == MAX_MODELS + 1
    assert 'model="other",outcome="ok"} 950\n' in text
    assert [line for line in text.splitlines() if not LINE.fullmatch(line)] == []


async def test_what_is_measured_has_a_name_and_a_meaning() -> None:
    """By Prometheus' conventions: totals only grow, and units are base units."""
    families = Metrics().registry.families
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert re.fullmatch(r"(dodona|process)_[a-z_]+", family.name)
        assert family.help_text.endswith(".")
        assert (family.kind == "counter") == family.name.endswith("_total")
        assert not {"user", "session", "path", "run"} & set(family.labels)
