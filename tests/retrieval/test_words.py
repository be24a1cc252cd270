from __future__ import annotations

import pytest

from dodona.retrieval.words import significant_words, split_identifier, stem, terms_in


@pytest.mark.parametrize(
    "words",
    [
        "configures configured configuring configure configuration",
        "file files",
        "type types typed typing",
        "query queries",
        "stop stops stopped stopping",
        "color colour colors coloured",
        "organise organize organised organization",
        "delete deleted deletion",
        "expire expires expired expiration",
        "cache caches cached caching",
        "authenticate authentication",
        "class classes",
        "status",
    ],
)
def test_forms_of_a_word_have_one_stem(words: str) -> None:
    """Inflections, derivations and spellings."""
    assert len({stem(word) for word in words.split()}) == 1


@pytest.mark.parametrize("words", ["note notebook", "cat category", "port import", "use user"])
def test_different_words_have_different_stems(words: str) -> None:
    """A stem that is too short would join them."""
    first, second = words.split()
    assert stem(first) != stem(second)


@pytest.mark.parametrize(
    ("identifier", "parts"),
    [
        ("max_size", ["max", "size"]),
        ("HTTPClient2", ["http", "client", "2"]),
        ("__init__", ["init"]),
        ("word", ["word"]),
        ("größe_max", ["größe", "max"]),
    ],
)
def test_an_identifier_is_split(identifier: str, parts: list[str]) -> None:
    """At underscores, capitals and digits."""
    assert split_identifier(identifier) == parts


def test_an_identifier_is_found_as_a_whole_and_in_parts() -> None:
    """A question may name either."""
    assert terms_in("call max_size()") == ["call", "max_size", "max", "siz"]


def test_text_without_spaces_gives_pairs_of_characters() -> None:
    """There are no word breaks to split at."""
    assert terms_in("予算の上限") == ["予算", "算の", "の上", "上限"]


def test_case_and_accents_do_not_matter() -> None:
    """People type without them."""
    assert terms_in("Éclair CAFÉ") == terms_in("eclair café")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("How do the budgets work?", ["budgets", "work"]),
        ("Wann sind die Rechnungen denn fällig?", ["Rechnungen", "fällig"]),
        ("what is it", []),
        ("x 1", ["1"]),
    ],
)
def test_stop_words_are_left_out(text: str, words: list[str]) -> None:
    """English and German ones."""
    assert list(significant_words(text)) == words


def test_long_words_are_data() -> None:
    """A hash or an encoded image has no terms."""
    assert terms_in("a" * 1_000_000) == []
