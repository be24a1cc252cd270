from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.tools.code.index.search import terms_of
from dodona.tools.code.index.tokenize import parts_of, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("HttpClient2_pool", "httpclient2_pool http client 2 pool"),
        ("getHTTPResponse", "gethttpresponse get http response"),
        ("MAX_ITERATIONS", "max_iterations max iterations"),
        ("plain", "plain"),
        ("__init__", "__init__"),
        ("a.b->c", "a b c"),
        ("Größe — „neu“", "größe neu"),
        ("日本語", "日本語"),
        ("GRÖSSE", "grösse"),
        ("ÄnderungÜber_été2", "änderungüber_été2 änderung über été 2"),
        ("x" * 65, ""),
    ],
)
def test_words_and_their_parts(text: str, words: str) -> None:
    """Identifiers are there whole and in parts, each word once."""
    assert sorted(set(words_of(text.encode()).split())) == sorted(set(words.split()))


def test_each_word_is_there_once() -> None:
    """How often says little in code."""
    assert words_of(b"pool pool Pool").split().count("pool") <= 2


@given(st.binary(max_size=200))
def test_any_bytes_have_words(data: bytes) -> None:
    """The same ones each time: what was put into an index is taken out by them."""
    assert sorted(words_of(data).split()) == sorted(words_of(data).split())


@given(st.text(max_size=300))
def test_any_query_has_terms(query: str) -> None:
    """And nothing in them is syntax."""
    for term in terms_of(query):
        assert '"' not in term.word
        assert term.weight > 0


def test_a_query_without_a_telling_word() -> None:
    """Then all of its words are looked for."""
    assert [term.word for term in terms_of("where is the")] == ["where", "is", "the"]
    assert [term.word for term in terms_of("where is the Meter")] == ["meter"]
    assert parts_of("x") == ["x"]
