from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from splintr import Tokenizer

from dodona.models.catalogue.catalogue import DEFAULT_CONTEXT_SIZE, model_facts, normalize_name
from dodona.models.catalogue.data import (
    DEFAULT_MODEL_CONTEXT_SIZES,
    FAMILIES,
    MAX_OUTPUTS,
    THINKING_MODELS,
    UNKNOWN_FAMILY,
)

SEED_002 = {
    "deepseek/deepseek-chat": 64000,
    "deepseek/deepseek-r1": 64000,
    "anthropic/claude-3-opus": 200000,
    "anthropic/claude-sonnet-4": 200000,
    "gemini-2.0-flash-exp": 1000000,
    "openai/gpt-4-turbo": 128000,
    "openai/o1": 200000,
    "meta-llama/llama-3.3-70b": 131072,
}


@pytest.mark.parametrize(("model", "size"), SEED_002.items())
def test_the_seed_s_table_holds_word_for_word(model: str, size: int) -> None:
    """Seed 002 names eight models and their windows."""
    assert (model_facts(model).context_size, model_facts(model).source) == (size, "table")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("anthropic/claude-sonnet-4", "claude-sonnet-4"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("anthropic/claude-sonnet-4.5:thinking", "claude-sonnet-4-5"),
        ("deepseek/deepseek-chat:free", "deepseek-chat"),
        ("models/gemini-2.5-flash", "gemini-2-5-flash"),
        ("llama3.3:70b", "llama-3-3-70b"),
        ("qwen2.5-coder:latest", "qwen-2-5-coder"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("GPT-4o", "gpt-4o"),
        ("mistral-large-latest", "mistral-large"),
        ("", ""),
    ],
)
def test_a_model_has_one_spelling(model: str, name: str) -> None:
    """Vendor, variant and date are dropped, and words are parted by hyphens."""
    assert normalize_name(model) == name


@pytest.mark.parametrize(
    ("model", "size", "source"),
    [
        ("claude-sonnet-4-5-20250929", 200_000, "table"),
        ("deepseek/deepseek-chat:free", 64_000, "table"),
        ("models/gemini-2.5-flash", 1_048_576, "table"),
        ("llama3.3:70b", 131_072, "table"),
        ("gpt-4.1-mini-2025-04-14", 1_047_576, "table"),
        ("x-ai/grok-code-fast-1", 256_000, "table"),
        ("qwen/qwen3-vl-8b-thinking", 131_072, "genai-prices"),
        ("qwen3:8b", 40_960, "table: qwen-3"),
        ("hf.co/someone/Llama-3.2-3B-Instruct-GGUF:Q4_K_M", 131_072, "table: llama-3-2"),
        ("claude-opus-99", 200_000, "table: claude"),
        ("nobody/has-heard-of-it", DEFAULT_CONTEXT_SIZE, "default"),
        ("", DEFAULT_CONTEXT_SIZE, "default"),
    ],
)
def test_a_window_says_where_it_is_from(model: str, size: int, source: str) -> None:
    """The table, then genai-prices, then the longest known beginning, then a default."""
    assert (model_facts(model).context_size, model_facts(model).source) == (size, source)


@pytest.mark.parametrize(
    ("shorter", "longer"), [("gpt-4", "gpt-4o"), ("gpt-4", "gpt-4.1"), ("o1", "o1-mini")]
)
def test_a_beginning_is_whole_words(shorter: str, longer: str) -> None:
    """`gpt-4` says nothing about `gpt-4o`."""
    assert model_facts(shorter).context_size != model_facts(longer).context_size


def test_a_model_is_known_by_its_family() -> None:
    """Vocabulary and longest answer come from the longest known beginning."""
    claude = model_facts("anthropic/claude-opus-4.1:thinking")
    assert (claude.vocabulary, claude.token_factor, claude.max_output) == (
        "o200k_base",
        1.25,
        32_000,
    )
    assert model_facts("gpt-4-0613").vocabulary == "cl100k_base"
    assert model_facts("gpt-4o-mini").vocabulary == "o200k_base"
    assert model_facts("nobody/has-heard-of-it").max_output is None


def test_every_vocabulary_of_the_table_exists() -> None:
    """A family names a vocabulary that splintr has."""
    for name in {family.vocabulary for family in (*FAMILIES.values(), UNKNOWN_FAMILY)}:
        assert Tokenizer.from_pretrained(name).encode_ordinary("word")


def test_no_two_entries_of_the_table_are_the_same_model() -> None:
    """Two spellings of one model could contradict each other."""
    for table in (DEFAULT_MODEL_CONTEXT_SIZES, FAMILIES, MAX_OUTPUTS, THINKING_MODELS):
        names = [normalize_name(name) for name in table]
        assert len(names) == len(set(names))


def test_an_answer_fits_into_its_window() -> None:
    """No model may answer more than its window holds."""
    for model in DEFAULT_MODEL_CONTEXT_SIZES:
        assert (model_facts(model).max_output or 0) <= model_facts(model).context_size


@given(st.text(max_size=300))
def test_any_name_has_facts(model: str) -> None:
    """A lookup never fails, and its spelling is stable."""
    assert model_facts(model).context_size > 0
    assert re.fullmatch(r"[^/:.@\s]*", model_facts(model).name)
