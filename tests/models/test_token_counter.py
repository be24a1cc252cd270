from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from splintr import Tokenizer

from dodona.core.messages import (
    AssistantText,
    Message,
    SystemText,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserText,
)
from dodona.core.ports.model import TokenCounter
from dodona.models.catalogue.catalogue import model_facts
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
    """Claude starts at a documented factor; one letter is one token at least, no letter none."""
    counter = OfflineTokenCounter()
    plain = counter.count(TEXT * 20, "gpt-4o")
    assert plain * 1.25 <= counter.count(TEXT * 20, CLAUDE) <= plain * 1.25 + 1
    assert counter.count("", CLAUDE) == 0
    for _ in range(100):
        counter.learn(CLAUDE, raw_tokens=10_000, reported_tokens=1)
    assert counter.count("a", CLAUDE) == 1


def test_a_factor_is_learned_from_the_wire() -> None:
    """Reports move the factor towards what they say, for every spelling of the model."""
    counter = OfflineTokenCounter()
    for _ in range(40):
        counter.learn(f"anthropic/{CLAUDE}:thinking", raw_tokens=10_000, reported_tokens=15_000)
    plain = counter.count(TEXT * 20, "gpt-4o")
    assert counter.count(TEXT * 20, CLAUDE) == pytest.approx(plain * 1.5, rel=0.01)
    assert counter.count(TEXT * 20, "claude-3-haiku") == pytest.approx(plain * 1.25, rel=0.01)


@pytest.mark.parametrize(("wire", "factor"), [(10**9, 2.5), (1, 0.625)])
def test_a_lying_wire_moves_a_factor_so_far(wire: int, factor: float) -> None:
    """Never past twice or half of where it began."""
    counter = OfflineTokenCounter()
    for _ in range(200):
        counter.learn(CLAUDE, raw_tokens=10_000, reported_tokens=wire)
    plain = counter.count(TEXT * 20, "gpt-4o")
    assert counter.count(TEXT * 20, CLAUDE) == pytest.approx(plain * factor, rel=0.01)


@pytest.mark.parametrize(
    ("model", "counted", "wire"),
    [(CLAUDE, 10, 100), (CLAUDE, 10_000, 0), ("gpt-4o", 10_000, 20_000)],
)
def test_not_every_report_is_a_lesson(model: str, counted: int, wire: int) -> None:
    """Small requests are mostly frame, no usage is no news, and exact counts need no factor."""
    counter = OfflineTokenCounter()
    before = counter.count(TEXT * 20, model)
    counter.learn(model, raw_tokens=counted, reported_tokens=wire)
    assert counter.count(TEXT * 20, model) == before


def test_only_so_many_models_are_remembered() -> None:
    """Names come from outside; what was learned longest ago goes first, and nothing breaks."""
    counter = OfflineTokenCounter()
    for number in range(1_000):
        counter.learn(f"model-{number}", raw_tokens=1_000, reported_tokens=2_000)
    assert len(counter._factors) == 256


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


SPEC = ToolSpec("vault_search", "Searches the vault.", {"type": "object", "properties": {}})
MESSAGES = st.lists(
    st.one_of(
        st.builds(SystemText, st.text()),
        st.builds(UserText, st.text()),
        st.builds(
            AssistantText,
            st.text(),
            st.tuples(st.builds(ToolCall, st.just("1"), st.text(), st.text())),
            thinking=st.text(),
        ),
        st.builds(ToolResult, st.just("1"), st.text(), st.text()),
    ),
    max_size=8,
)


def _texts(message: Message) -> list[str]:
    if isinstance(message, AssistantText):
        return [message.text, message.thinking, *(call.arguments for call in message.calls)]
    return [message.text]


@given(MESSAGES, st.sampled_from([CLAUDE, "gpt-4o"]), st.sampled_from([(), (SPEC,)]))
def test_a_request_is_never_less_than_its_texts(
    messages: list[Message], model: str, tools: tuple[ToolSpec, ...]
) -> None:
    """Frames come on top; before the factor the count is no greater than after it."""
    counter = OfflineTokenCounter()
    estimate = counter.count_messages(messages, tools, model)
    texts = [text for message in messages for text in _texts(message)]
    texts += [text for tool in tools for text in (tool.name, tool.description)]
    assert estimate.tokens >= sum(counter.count(text, model) for text in texts)
    assert estimate.raw_tokens <= estimate.tokens


def test_an_estimate_can_be_learned_from() -> None:
    """What a request was counted as, beside what the wire says, closes the gap."""
    counter = OfflineTokenCounter()
    messages = [UserText(TEXT * 100)]
    wire = round(counter.count_messages(messages, [], CLAUDE).raw_tokens * 1.6)
    for _ in range(40):
        estimate = counter.count_messages(messages, [], CLAUDE)
        counter.learn(CLAUDE, raw_tokens=estimate.raw_tokens, reported_tokens=wire)
    assert counter.count_messages(messages, [], CLAUDE).tokens == pytest.approx(wire, rel=0.02)
    assert model_facts(CLAUDE).token_factor == 1.25


def test_it_is_a_counter() -> None:
    """The port that core declares."""
    counter: TokenCounter = OfflineTokenCounter()
    assert counter.count("word", "gpt-4o") == 1
