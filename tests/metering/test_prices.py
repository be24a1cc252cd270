from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from dodona.core.errors import ConfigError
from dodona.core.ports.model import Usage
from dodona.metering import Price, Prices

AT = datetime(2026, 1, 15, 12, tzinfo=UTC)
MILLION = Usage(input_tokens=1_000_000, output_tokens=1_000_000)


def cost(usage: Usage, provider: str, model: str, prices: Prices | None = None) -> Decimal | None:
    return (prices or Prices()).cost(usage, provider=provider, model=model, at=AT)


def ceiling(
    provider: str, model: str, *, tokens: tuple[int, int], prices: Prices | None = None
) -> Decimal | None:
    return (prices or Prices()).max_cost(
        provider=provider, model=model, input_tokens=tokens[0], max_output_tokens=tokens[1], at=AT
    )


@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        ("openai", "gpt-4o", "12.50"),
        ("openai", "openai/gpt-4o", "12.50"),
        ("gemini", "models/gemini-2.5-flash", "2.80"),
        ("gemini", "gemini-2.5-flash", "2.80"),
        ("openrouter", "anthropic/claude-3-haiku:thinking", "1.5"),
        ("anthropic", "claude-3-haiku-20240307", "1.5"),
    ],
)
def test_a_listed_model_costs_what_the_list_says(provider: str, model: str, expected: str) -> None:
    """genai-prices knows our providers by its own names, and models by several spellings."""
    assert cost(MILLION, provider, model) == Decimal(expected)


def test_input_tokens_include_what_the_cache_gave() -> None:
    """Cached tokens are charged once, at their own price."""
    usage = Usage(input_tokens=1_000_000, cache_read_tokens=1_000_000)
    assert cost(usage, "openai", "gpt-4o") == Decimal("1.25")
    written = Usage(input_tokens=1_000, cache_write_tokens=1_000)
    assert cost(written, "anthropic", "claude-3-haiku-20240307") == Decimal("0.0003")


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-99"),
        ("openai-compatible", "gpt-4o"),
        ("openrouter", "anthropic/claude-sonnet-4:nitro"),
        ("gemini", "gemma-3-27b-it"),
        ("ollama", "gpt-oss:120b-cloud"),
        ("nobody", "claude-3-haiku-20240307"),
        ("openai", "g" * 10_000),
    ],
)
def test_an_unknown_price_is_not_zero(provider: str, model: str) -> None:
    """Nobody knows: also for a server on loopback that may pass calls on, and for empty entries."""
    assert cost(MILLION, provider, model) is None
    assert ceiling(provider, model, tokens=(1, 1)) is None


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("ollama", "llama3.3:70b"),
        ("extractive", "extractive"),
        ("scripted", "scripted"),
        ("openrouter", "somebody/new:free"),
    ],
)
def test_what_nobody_bills_costs_nothing(provider: str, model: str) -> None:
    """Models on the operator's own machine, and those OpenRouter gives away."""
    assert cost(MILLION, provider, model) == 0
    assert ceiling(provider, model, tokens=(10**9, 10**9)) == 0


def test_the_wire_has_the_last_word() -> None:
    """A provider knows what it charged, even against the operator's prices."""
    prices = Prices({"gpt-4o": Price(Decimal(1), Decimal(1))})
    assert cost(Usage(cost_usd=0.1), "openai", "gpt-4o", prices) == Decimal("0.1")
    assert cost(Usage(input_tokens=9, cost_usd=0.0), "openai", "gpt-4o") == 0


@pytest.mark.parametrize("told", [float("nan"), float("inf"), -1.0])
def test_a_wire_that_talks_nonsense_is_not_believed(told: float) -> None:
    """A negative cost would give a budget back."""
    usage = Usage(input_tokens=1_000_000, output_tokens=1_000_000, cost_usd=told)
    assert cost(usage, "openai", "gpt-4o") == Decimal("12.50")


def test_configured_prices_come_before_the_list() -> None:
    """The operator's contract counts; the entry for one provider comes before that for all."""
    prices = Prices(
        {
            "gpt-4o": Price(Decimal(1), Decimal(2)),
            "openai/gpt-4o": Price(Decimal(3), Decimal(4), Decimal("0.5"), Decimal(6)),
            "mine": Price(Decimal(0), Decimal(0)),
        }
    )
    assert cost(MILLION, "openrouter", "gpt-4o", prices) == 3
    usage = Usage(1_000_000, 1_000_000, cache_read_tokens=400_000, cache_write_tokens=100_000)
    assert cost(usage, "openai", "gpt-4o", prices) == Decimal("6.3")
    assert cost(MILLION, "openai-compatible", "mine", prices) == 0


@pytest.mark.parametrize("bad", ["-1", "NaN", "Infinity"])
def test_a_price_is_a_number_from_zero_up(bad: str) -> None:
    """A wrong price says which and what is expected."""
    with pytest.raises(ConfigError) as caught:
        Price(Decimal(1), Decimal(bad))
    assert str(caught.value) == (
        f"the price output must be 0 or more (got {bad}). Prices are US dollars per million tokens."
    )


def test_a_price_may_depend_on_the_hour() -> None:
    """The time of the request decides, not the time of asking: DeepSeek had cheap nights."""
    day, night = AT.replace(2025, 6, hour=12), AT.replace(2025, 6, hour=20)
    by_day, by_night = (
        Prices().cost(MILLION, provider="deepseek", model="deepseek-chat", at=at)
        for at in (day, night)
    )
    assert by_day is not None
    assert by_night is not None
    assert by_night < by_day


@given(
    tokens=st.tuples(st.integers(0, 900_000), st.integers(0, 200_000)),
    parts=st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)),
    model=st.sampled_from(
        [("anthropic", "claude-sonnet-4-5"), ("openai", "gpt-4o"), ("gemini", "gemini-2.5-pro")]
    ),
)
def test_no_call_costs_more_than_its_ceiling(
    tokens: tuple[int, int], parts: tuple[float, float, float], model: tuple[str, str]
) -> None:
    """However a provider splits the tokens into cached, written and thought."""
    read = int(tokens[0] * parts[0])
    usage = Usage(
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        cache_read_tokens=read,
        cache_write_tokens=int((tokens[0] - read) * parts[1]),
        reasoning_tokens=int(tokens[1] * parts[2]),
    )
    most, real = ceiling(*model, tokens=tokens), cost(usage, *model)
    assert most is not None
    assert real is not None
    assert real <= most


@pytest.mark.parametrize("provider", ["anthropic", "openai", "openrouter", "google", "deepseek"])
def test_every_listed_model_can_be_asked_for(provider: str) -> None:
    """A lying usage has a cost or none, for any entry of the list, and never an error."""
    lying = Usage(10, 5, cache_read_tokens=10**6, cache_write_tokens=-7, reasoning_tokens=10**6)
    found = next(entry for entry in get_snapshot().providers if entry.id == provider)
    ours = "gemini" if provider == "google" else provider
    for model in found.models:
        price = cost(lying, ours, model.id)
        assert price is None or price >= 0


def test_prices_are_loaded_when_asked_for() -> None:
    """Who only imports us does not wait for 2,000 prices, and nothing fetches newer ones."""
    program = (
        "import sys, threading\n"
        "import dodona.metering.prices, dodona.models.catalogue.catalogue\n"
        "import dodona.models.token_counter\n"
        "assert not {'genai_prices', 'splintr'} & sys.modules.keys()\n"
        "from datetime import datetime\n"
        "from dodona.core.ports.model import Usage\n"
        "known = dodona.metering.prices.Prices()\n"
        "assert known.cost(Usage(1), provider='openai', model='gpt-4o', at=datetime.now())\n"
        "assert threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)  # noqa: S603
