from __future__ import annotations

import re

import pytest

from dodona.models.extractive.terms import extract_terms, term_patterns


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("How do the budget ceilings work?", "budget ceilings"),
        ("Wie funktionieren die Obergrenzen für Budgets?", "Obergrenzen Budgets"),
        ('Where is "hard ceiling" defined?', '"hard ceiling"'),
        ("Wo steht „harte Grenze“?", '"harte Grenze"'),
        ("What calls foo_bar in the loop?", "foo_bar loop"),
        ("what does AgentConfig.max_iterations do", "AgentConfig.max_iterations"),
        ("What does notes/x.md say about budgets?", "notes/x.md budgets"),
        ("Where is Meter defined and what do the notes say about it?", "Meter"),
        ("Wo ist Meter definiert, und was sagen die Notizen dazu?", "Meter"),
        ("Where are notes defined?", "notes"),
        ("How does it work?", "work"),
        ("Which notes link to code?", "notes link code"),
        ("予算の上限は?", "予算の上限は"),
        ("Budget budget", "Budget"),
        ("what is it", ""),
        ("Hello, thanks!", ""),
        ('" "', ""),
        ("", ""),
        ("word\ud800", "word"),
    ],
)
def test_a_question_is_its_telling_words(question: str, query: str) -> None:
    """Stop words go; phrases, identifiers and paths stay whole, the most telling first."""
    assert extract_terms(question).query == query


@pytest.mark.parametrize(
    ("question", "paths"),
    [
        ("Summarise notes/x.md and ./src/a.py, please.", ("notes/x.md", "./src/a.py")),
        ("Was steht in README.md?", ("README.md",)),
        ("this and/or that, e.g. v1.2, see example.com", ()),
        ("read https://example.com/notes/x.md", ()),
    ],
)
def test_files_are_known_by_their_endings(question: str, paths: tuple[str, ...]) -> None:
    """A path ends like a file; addresses and turns of phrase are none."""
    assert extract_terms(question).paths == paths


@pytest.mark.parametrize(
    ("question", "before", "query"),
    [
        ("Who wrote it?", "What is the watchdog timeout?", "wrote watchdog timeout"),
        ("Wer hat sie geschrieben?", "Wo ist die Rechnung?", "geschrieben Rechnung"),
        ("And why?", "What is the watchdog timeout?", "watchdog timeout"),
        ("Where are the prices?", "What is the watchdog timeout?", "prices"),
        ("Where is Meter defined and what do the notes say about it?", "What is a lane?", "Meter"),
        ("Thanks, and who wrote it?", "What is a lane?", "wrote lane"),
        ("How does Delphi differ from it?", "What is a lane?", "Delphi differ lane"),
        ("Is it hard to configure budget ceilings for agents?", "What is the watchdog?",
         "hard configure budget ceilings agents"),
    ],
)  # fmt: skip
def test_a_question_that_points_back_takes_terms_along(
    question: str, before: str, query: str
) -> None:
    """A short question with a pronoun, or without any word of its own, is about the last one."""
    assert extract_terms(question, before).query == query


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("Where is Meter defined and what do the notes say about it?", ("Meter",)),
        ("where is meter defined?", ("meter",)),
        ("Where is meter defined and what do the notes say about budgets?", ("meter",)),
        ("Explain the Meter", ("Meter",)),
        ("Explain the lanes", ()),
        ("Meter?", ("Meter",)),
        ("What does Meter.reserve do with `hold`?", ("hold", "Meter.reserve")),
        ("How do budgets work?", ()),
    ],
)
def test_what_may_be_defined_in_code(question: str, names: tuple[str, ...]) -> None:
    """What looks like a name, and whatever is said to be defined somewhere."""
    assert extract_terms(question).names == names


@pytest.mark.parametrize(
    ("question", "query", "is_asked"),
    [
        ("Where is read_url used?", "read_url", True),
        ("Who calls Meter.reserve?", "Meter.reserve", True),
        ("Which functions call read_url?", "read_url functions", True),
        ("What are the callers of `settle`?", "settle", True),
        ("Find references to Hold.", "Find Hold", True),
        ("Wo wird read_url verwendet?", "read_url", True),
        ("Where is read_url defined and used?", "read_url used", False),
        ("What is read_url?", "read_url", False),
        ("How are calls used up?", "calls used", False),
    ],
)
def test_where_something_is_used(question: str, query: str, is_asked: bool) -> None:  # noqa: FBT001
    """Words that only say what is asked are not looked for."""
    terms = extract_terms(question)
    assert (terms.query, terms.asks_usage) == (query, is_asked)


def test_a_file_named_before_is_still_meant() -> None:
    """The question after it may be about the same file."""
    assert extract_terms("Who wrote it?", "What is in notes/x.md?").paths == ("notes/x.md",)


def test_a_question_of_any_length_has_few_terms() -> None:
    """A pasted document is cut off, and eight terms are enough."""
    assert len(extract_terms("/".join(f"word{n}" for n in range(100_000))).terms) <= 8
    assert extract_terms("a" * 1_000_000 + ".md").paths == ()


@pytest.mark.parametrize(
    ("term", "text", "is_found"),
    [
        ("budgets", "the budget of a run", True),
        ("budget", "two budgets", True),
        ("Rechnungen", "die rechnung", True),
        ("policies", "a policy", True),
        ("concurrency", "concurrent runs", True),
        ("sequence", "a sequence", True),
        ("reservation", "what is reserved", True),
        ("cat", "concatenate", False),
        ("note", "notebooks", False),
        ("foo_bar", "call foo_bar()", True),
        ("hard ceiling", "a hard\nceiling", True),
        ("予算の上限", "上限は100です", True),
        ("c++", "in c++ code", True),
    ],
)
def test_terms_are_found_inflected_a_little(term: str, text: str, is_found: bool) -> None:  # noqa: FBT001
    """At the start of a word, with a short ending; without spaces by pairs of characters."""
    assert bool(re.search("|".join(term_patterns([term])), text)) is is_found
