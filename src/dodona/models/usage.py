"""Parse the usage that providers report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from dodona.core.ports.model import Usage

# Upper bounds for reported figures: higher ones are errors and must not distort the billing.
MAX_TOKENS = 1_000_000_000
MAX_USD = 1_000_000.0


def openai_usage(wire: Mapping[str, Any], *, output_excludes_reasoning: bool) -> Usage:
    """Parse usage in OpenAI's format, with DeepSeek's cache hits and OpenRouter's cost.

    `output_excludes_reasoning`: thinking is only part of `total_tokens` (Gemini).
    """
    prompt = _get_object(wire, "prompt_tokens_details")
    input_tokens, output_tokens = (
        _get_count(wire, "prompt_tokens"),
        _get_count(wire, "completion_tokens"),
    )
    reasoning = _get_count(_get_object(wire, "completion_tokens_details"), "reasoning_tokens")
    if output_excludes_reasoning:
        excluded = max(0, _get_count(wire, "total_tokens") - input_tokens - output_tokens)
        output_tokens += excluded
        reasoning = reasoning or excluded
    cache_hits = _get_count(prompt, "cached_tokens") or _get_count(wire, "prompt_cache_hit_tokens")
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=cache_hits,
        cache_write_tokens=_get_count(prompt, "cache_write_tokens"),
        reasoning_tokens=reasoning,
        cost_usd=_parse_cost(wire.get("cost")),
        wire=dict(wire),
    )


def anthropic_usage(wire: Mapping[str, Any]) -> Usage:
    """Parse usage in Anthropic's format, where `input_tokens` excludes cached tokens."""
    read = _get_count(wire, "cache_read_input_tokens")
    written = _get_count(wire, "cache_creation_input_tokens")
    return Usage(
        input_tokens=_get_count(wire, "input_tokens") + read + written,
        output_tokens=_get_count(wire, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=_get_count(_get_object(wire, "output_tokens_details"), "thinking_tokens"),
        wire=dict(wire),
    )


def _get_object(wire: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value: object = wire.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _get_count(wire: Mapping[str, Any], name: str) -> int:
    """Return a token count, capped at MAX_TOKENS; 0 if it is missing or invalid."""
    value: object = wire.get(name)
    return min(value, MAX_TOKENS) if type(value) is int and value > 0 else 0


def _parse_cost(value: object) -> float | None:
    if type(value) not in (int, float):
        return None
    cost = float(cast("float", value))
    return cost if 0 <= cost <= MAX_USD else None
