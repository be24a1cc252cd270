from __future__ import annotations

import pytest

from dodona.retrieval.question import MAX_WORDS, parse_question


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("How do the budget ceilings work?", "budget ceilings"),
        ("Wie funktionieren die Obergrenzen für Budgets?", "Obergrenzen Budgets"),
        ('Where is "hard ceiling" defined?', "hard ceiling"),
        ("What does notes/x.md say about budgets?", "budgets notes x md"),
        ("Where is Meter defined and what do the notes say about it?", "Meter"),
        ("Wo ist Meter definiert?", "Meter"),
        ("Which class compresses responses?", "compresses responses"),
        ("How does it work?", "work"),
        ("Where is read_url used?", "read_url"),
        ("Budget budget", "Budget"),
        ("what is it", ""),
        ("", ""),
        ("word\ud800", "word"),
    ],
)
def test_a_question_is_its_significant_words(text: str, words: str) -> None:
    """Stop words go, and words that say what kind of answer is wanted."""
    assert " ".join(parse_question(text).words) == words


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("Summarise notes/x.md and ./src/a.py, please.", ("notes/x.md", "./src/a.py")),
        ("Was steht in README.md?", ("README.md",)),
        ("this and/or that, e.g. v1.2, see example.com", ()),
        ("read https://example.com/notes/x.md", ()),
    ],
)
def test_files_are_recognized_by_their_extensions(text: str, paths: tuple[str, ...]) -> None:
    """URLs and idioms are no files."""
    assert parse_question(text).paths == paths


@pytest.mark.parametrize(
    ("text", "refers_back"),
    [
        ("Who wrote it?", True),
        ("Wer hat sie geschrieben?", True),
        ("What is it?", True),
        ("Thanks, and who wrote it?", True),
        ("And why?", False),
        ("hello", False),
        ("Where are the prices?", False),
        ("Where is Meter defined and what do the notes say about it?", False),
        ("Is it hard to configure budget ceilings for agents?", False),
    ],
)
def test_only_a_pronoun_refers_to_the_question_before(text: str, refers_back: bool) -> None:  # noqa: FBT001
    """And only in a short question, without an earlier clause that it could refer to."""
    assert parse_question(text).refers_back is refers_back


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Where is Meter defined and what do the notes say about it?", ("Meter",)),
        ("where is meter defined?", ("meter",)),
        ("Explain the Meter", ("Meter",)),
        ("Explain the lanes", ()),
        ("Meter?", ("Meter",)),
        ("What does Meter.reserve do with `hold`?", ("Meter.reserve", "hold", "Meter")),
        ("How do budgets work?", ()),
    ],
)
def test_names_in_code_are_recognized(text: str, names: tuple[str, ...]) -> None:
    """What looks like a name, and what a question says is defined somewhere."""
    assert parse_question(text).names == names


@pytest.mark.parametrize(
    ("text", "definition", "usage", "code"),
    [
        ("Where is read_url used?", False, True, True),
        ("Who calls Meter.reserve?", False, True, True),
        ("What are the callers of `settle`?", False, True, True),
        ("Wo wird read_url verwendet?", False, True, True),
        ("Where is read_url defined and used?", True, False, True),
        ("Which class compresses responses?", True, False, True),
        ("Where is the function run_copy?", True, False, True),
        ("What is read_url?", False, False, True),
        ("How do budgets work?", False, False, False),
        ("How do I keep an API key out of the URLs?", False, False, False),
    ],
)
def test_a_question_may_ask_for_code(
    text: str, *, definition: bool, usage: bool, code: bool
) -> None:
    """For a definition, for uses, or about a name of code."""
    question = parse_question(text)
    assert (question.asks_definition, question.asks_usage, question.asks_code) == (
        definition,
        usage,
        code,
    )


@pytest.mark.parametrize(
    ("text", "asks_meaning"),
    [
        ("What is Dodona?", True),
        ("What does once mean?", True),
        ("What is the default of x in y?", False),
    ],
)
def test_a_question_may_ask_what_something_is(text: str, *, asks_meaning: bool) -> None:
    """Then the beginning of a note is a good answer."""
    assert parse_question(text).asks_meaning is asks_meaning


def test_a_question_of_any_length_has_few_words() -> None:
    """A pasted document is cut."""
    assert len(parse_question(" ".join(f"word{n}" for n in range(100_000))).words) == MAX_WORDS


def test_parts_of_an_identifier_weigh_less() -> None:
    """The whole name is what was asked for."""
    assert parse_question("What is max_size?").terms() == {"max_size": 1.5, "max": 0.5, "siz": 0.5}
