from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.core.messages import ToolResult
from dodona.models.extractive.passages import (
    MAX_USES,
    Findings,
    Passage,
    best_part,
    find_uses,
    rank_results,
    read_file,
    read_ranked,
    split_blocks,
)
from dodona.retrieval.question import parse_question


def result(text: str) -> ToolResult:
    return ToolResult("1", "search", text)


BLOCKS = """notes/a.md:3-9  Budgets > A crash
    ## A crash

    It is charged.

thread:12#34  decision by oracle, 2026-11-16  Names
    notes/fake.md:1-2  Faked
        text

https://example.org/page  A page
    Text of the page."""


def test_blocks_have_the_source_of_their_head() -> None:
    """Indented text cannot fake another head."""
    assert list(split_blocks(BLOCKS)) == [
        Passage("## A crash\n\nIt is charged.", "notes/a.md", 3, 9, "Budgets > A crash"),
        Passage(
            "notes/fake.md:1-2  Faked\n    text",
            "thread:12#34",
            title="decision by oracle, 2026-11-16  Names",
        ),
        Passage("Text of the page.", "https://example.org/page", title="A page"),
    ]


def test_plain_text_is_split_at_blank_lines() -> None:
    """A paragraph can be quoted, but has no source."""
    assert list(split_blocks("one\ntwo\n\nthree")) == [Passage("one\ntwo"), Passage("three")]


def test_records_of_json_have_the_source_of_their_path() -> None:
    """Their long texts are quoted; ids and the like are not."""
    text = json.dumps(
        {"hits": [{"url": "https://x.org", "title": "X", "id": "ab", "text": "A text."}]}
    )
    assert list(split_blocks(text)) == [Passage("A text.", "https://x.org", title="X")]
    assert list(split_blocks('{"a": ')) == [Passage('{"a": ')]


def test_the_best_block_is_quoted() -> None:
    """By the words of the question; the others are named if they have a source."""
    found = rank_results([result(BLOCKS)], parse_question("What is charged after a crash?"))
    assert [each.path for each in found.quotes] == ["notes/a.md"]


@pytest.mark.parametrize(
    "text", ["Nothing found.", "'population' is not defined in the indexed code.", ""]
)
def test_a_remark_of_a_tool_is_not_quoted(text: str) -> None:
    """That nothing was found is no answer."""
    question = parse_question("What is the population of Greece in Europe?")
    assert rank_results([result(text)], question).quotes == ()
    assert find_uses([result(text)]) == Findings()


def test_uses_are_lines_with_a_place() -> None:
    """A few of them; the others are counted."""
    lines = [f"src/a.py:{number}: call()" for number in range(1, MAX_USES + 3)]
    (quote,) = find_uses(
        [result("\n".join([*lines, "[Showing the first 14; there may be more.]"]))]
    ).quotes
    assert quote.text.splitlines() == [*lines[:MAX_USES], "… and 2 more."]


def test_ranked_passages_are_read() -> None:
    """As search_passages returned them."""
    record = {"path": "a.md", "first": 1, "last": 2, "title": "A", "text": "Text."}
    text = json.dumps({"passages": [record], "see_also": [], "unknown": ["b"]})
    assert read_ranked(result(text)) == Findings(
        (Passage("Text.", "a.md", 1, 2, "A"),), unknown=("b",)
    )


@pytest.mark.parametrize("text", ["", "[]", "null", "no JSON", "[" * 100_000])
def test_anything_else_is_no_finding(text: str) -> None:
    """Such as a result that was replaced by a summary."""
    assert read_ranked(result(text)) == Findings()


def test_a_file_is_read_without_head_and_front_matter() -> None:
    """The lines are those of the text."""
    text = "a.md:1-6  Title (version 1)\n---\ntags: [x]\n---\n# Title\n\nText."
    assert read_file(result(text), "a.md") == Passage(
        "# Title\n\nText.", "a.md", 4, 6, "Title (version 1)"
    )
    assert read_file(result("Text."), "a.md") == Passage("Text.", "a.md")


def test_of_a_long_file_the_section_that_was_asked_for_is_quoted() -> None:
    """With its lines; without one that fits, the beginning is."""
    filler = "Other words. " * 100
    before, after = f"# Notes\n\n{filler}\n\n```\n# no heading\n```", f"## Rest\n\n{filler}"
    text = f"{before}\n\n## Budgets\n\nA ceiling.\n\n{after}"
    file = Passage(text, "x.md", 4, 20)
    budgets = best_part(file, parse_question("What does x.md say about budgets?"))
    assert budgets == Passage("## Budgets\n\nA ceiling.", "x.md", 12, 14)
    for question in ("What is in x.md?", "What does x.md say about turnips?"):
        assert best_part(file, parse_question(question)) == file


@given(st.text(alphabet=" \n:-#abc1.`", max_size=200))
def test_any_text_can_be_split(text: str) -> None:
    """Every block has text, and nothing is invented."""
    for each in split_blocks(text):
        assert each.text.strip()
        assert all(line.strip() in text for line in each.text.splitlines())
