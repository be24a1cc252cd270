from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from splintr import Tokenizer

from dodona.core.ports.model import TokenCounter
from dodona.models.token_counter import MAX_PIECES, PIECE_CHARS, OfflineTokenCounter

CLAUDE = "claude-sonnet-4-5"
TEXT = "Größenänderungen für die Übersicht, then some code: `def f(x): return x + 1`. 日本語 🎉\n"


@pytest.mark.parametrize(
    ("model", "vocabulary"),
    [
        ("gpt-4o", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("deepseek/deepseek-chat", "deepseek_v3"),
        ("qwen3:8b", "qwen3"),
        ("llama3.3:70b", "llama3"),
        ("mistral-large-latest", "mistral_v3"),
        ("gemini-2.5-pro", "gemma3"),
    ],
)
def test_a_public_vocabulary_counts_exactly(model: str, vocabulary: str) -> None:
    """A text has as many tokens as the model's own vocabulary makes of it."""
    exact = len(Tokenizer.from_pretrained(vocabulary).encode_ordinary(TEXT * 20))
    assert OfflineTokenCounter().count(TEXT * 20, model) == exact


def test_text_is_text() -> None:
    """A text that spells out a control token is counted as the letters it is made of."""
    assert OfflineTokenCounter().count("<|endoftext|>", "gpt-4o") > 1


def test_a_secret_vocabulary_is_counted_with_a_margin() -> None:
    """Claude has a documented factor; fractions are rounded up, and no letter has no tokens."""
    counter = OfflineTokenCounter()
    plain = counter.count(TEXT * 20, "gpt-4o")
    assert plain * 1.25 <= counter.count(TEXT * 20, CLAUDE) <= plain * 1.25 + 1
    assert counter.count("", CLAUDE) == 0
    assert counter.count("a", CLAUDE) == 2


@pytest.mark.parametrize("character", ["a", " ", "\n", "=", "0", "é", "🎉"])
@pytest.mark.parametrize("model", ["gpt-4o", "gemini-2.5-flash"])
def test_ten_megabytes_of_one_character_are_counted(character: str, model: str) -> None:
    """In pieces and by samples: seconds and gigabytes otherwise, for some of these."""
    counter = OfflineTokenCounter()
    piece = counter.count(character * PIECE_CHARS, model)
    assert counter.count(character * 10_000_000, model) == pytest.approx(
        piece * 10_000_000 / PIECE_CHARS, rel=0.001
    )


def test_pieces_hardly_change_a_count() -> None:
    """A long text is cut where it is; the count differs by a token or so per cut."""
    text = TEXT * 5_000
    exact = len(Tokenizer.from_pretrained("o200k_base").encode_ordinary(text))
    assert len(text) > 20 * PIECE_CHARS
    assert OfflineTokenCounter().count(text, "gpt-4o") == pytest.approx(exact, rel=0.001)


def test_a_sample_errs_upwards() -> None:
    """A text too long to be counted whole is as dense as its densest part."""
    dense, sparse = "🎉ß€" * PIECE_CHARS, " " * (2 * MAX_PIECES * PIECE_CHARS)
    counter = OfflineTokenCounter()
    exact = len(Tokenizer.from_pretrained("o200k_base").encode_ordinary(dense))
    assert counter.count(sparse + dense, "gpt-4o") > exact


def test_half_a_surrogate_pair_is_counted() -> None:
    """JSON can escape one; no encoder takes it."""
    assert OfflineTokenCounter().count("a\ud800b", "gpt-4o") >= 1


def test_threads_may_count_at_once() -> None:
    """One counter serves all of them, from the first use of a vocabulary on."""
    counter = OfflineTokenCounter()
    texts = [f"{TEXT} {number}" for number in range(50)] * 4
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda text: counter.count(text, "gpt-4o"), texts))
    assert counts == [counter.count(text, "gpt-4o") for text in texts]


def test_it_is_a_counter() -> None:
    """The port that core declares."""
    counter: TokenCounter = OfflineTokenCounter()
    assert counter.count("word", "gpt-4o") == 1
