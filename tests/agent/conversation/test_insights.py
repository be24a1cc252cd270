"""Of an exchange is kept what says most, what it was about, and what was decided."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dodona.agent.conversation.exchange import Exchange, Turn
from dodona.agent.conversation.insights import (
    MAX_DECISION_CHARS,
    MAX_DECISIONS,
    MAX_FILES,
    MAX_INSIGHT_CHARS,
    MAX_SYMBOLS,
    Insight,
    extract_insight,
)
from dodona.core.domain.provenance import Provenance
from dodona.core.domain.trust import Mark
from dodona.core.messages import AssistantText, Origin, ToolCall, ToolResult
from dodona.core.ports.tools import SourceKind, SourceReference
from dodona.models.extractive.answer import NO_MODEL_NOTICE
from dodona.models.extractive.small_talk import CAPABILITIES, GREETING, INTRODUCTION, THANKS


def turn(name: str, result: str = "", *, failed: bool = False, **arguments: Any) -> Turn:
    call = ToolCall("1", name, json.dumps(arguments))
    return Turn(AssistantText("", (call,)), (ToolResult("1", name, result, failed=failed),))


def found(answer: str, *turns: Turn, question: str = "Why?", **more: Any) -> Insight:
    return extract_insight(question, Exchange(answer, None, turns, **more))


# -- the sentence that says most -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "answer", "insight"),
    [
        (
            "How does the meter keep calls under ceilings?",
            "Sure, let me look.\n\nThe meter puts tokens aside before each call. Anything else?",
            "The meter puts tokens aside before each call.",
        ),
        (
            "What is the limit?",
            "There is one. It depends on many things. The limit is 4,000 tokens, as `MOST` says.",
            "The limit is 4,000 tokens, as `MOST` says.",
        ),
        (
            "Who pays?",
            "# Payment\n\n- **The client pays** within 30 days ([terms](notes/terms.md)).",
            "The client pays within 30 days (terms).",
        ),
        (
            "Where are oaks?",
            "> Oaks grow in Dodona.\n\n— `oaks.md`, line 3\n\nSee also:\n\n- Groves — `groves.md`"
            f" (lines 1–3)\n\n{NO_MODEL_NOTICE}\n",
            "Oaks grow in Dodona.",
        ),
        ("Hi", "Hello! How can I help you today?", None),
        ("Thanks", "You're welcome!", None),
        ("Where?", f"Nothing in this project answers the question.\n\n{NO_MODEL_NOTICE}\n", None),
        ("hello", f"{GREETING} {CAPABILITIES}\n\n{NO_MODEL_NOTICE}\n", None),
        ("What is this?", f"{INTRODUCTION} {CAPABILITIES}\n\nSome of its notes:\n\n- `a.md`", None),
        ("thanks", THANKS, None),
        ("Why?", "No answer: the provider is down.", None),
        ("Why?", "The answer was cut off before it began.", None),
        ("Why?", "", None),
        ("Why?", "```python\nx = 1\n```", None),
        (
            "Warum ist die Eiche heilig?",
            "Gern. Die Eiche ist heilig, weil Zeus durch sie sprach.",
            "Die Eiche ist heilig, weil Zeus durch sie sprach.",
        ),
        (
            "神託はどこにありますか",
            "こんにちは。神託はドドナにあります。樫の木が語ります。",
            "神託はドドナにあります。",
        ),
    ],
)
def test_the_sentence_that_says_most(question: str, answer: str, insight: str | None) -> None:
    """With the question's words, names and numbers; no greeting, no notice, no question."""
    assert found(answer, question=question).key_insight == insight


def test_a_long_sentence_is_cut() -> None:
    got = found("Oaks " + "and oaks " * 200).key_insight
    assert got is not None
    assert len(got) == MAX_INSIGHT_CHARS
    assert got.endswith("…")


# -- symbols and files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "turns", "symbols"),
    [
        ("See `Meter.reserve()` and `settle`.", (), ("Meter.reserve", "settle")),
        (
            "AuthService calls settle_cut, then MAX_RUNS.",
            (),
            ("AuthService", "settle_cut", "MAX_RUNS"),
        ),
        ("It is `true` in `notes/plan.md` and `auth.py`, not `a b`.", (), ()),
        ("Look at https://example.org/a_b/someThing for more.", (), ()),
        ("Found.", (turn("find_definition", "x.py:1: class Oak", symbol="Oak"),), ("Oak",)),
        ("Found.", (turn("search_code", "…", query="where is OakTree made"),), ("OakTree",)),
        ("Found.", (turn("find_definition", "no", failed=True, symbol="Oak"),), ()),
        ("— `vault_search` says `Oak`.", (turn("vault_search", "…", query="Oak"),), ("Oak",)),
        ("Straße und Übergröße heißen anders.", (), ()),
    ],
)
def test_symbols(answer: str, turns: tuple[Turn, ...], symbols: tuple[str, ...]) -> None:
    """Identifiers in code spans or by their shape, and those that were looked up; no tools."""
    assert found(answer, *turns).symbols == symbols


@pytest.mark.parametrize(
    ("answer", "turns", "sources", "files"),
    [
        ("Read.", (turn("vault_read", "…", path="notes/plan.md"),), (), ("notes/plan.md",)),
        (
            "Moved.",
            (turn("vault_move", "ok", **{"from": "a.md", "to": "b/a.md"}),),
            (),
            ("a.md", "b/a.md"),
        ),
        ("Read.", (turn("vault_read", "none", failed=True, path="gone.md"),), (), ()),
        ("See src/oak.py.", (turn("search_code", "src/oak.py:3: class Oak"),), (), ("src/oak.py",)),
        ("See src/elm.py.", (turn("search_code", "src/oak.py:3"),), (), ("src/elm.py",)),
        (
            "`auth.py` signs, jwt.py:12 checks; [terms](notes/terms.md) say why.",
            (),
            (),
            ("auth.py", "jwt.py", "notes/terms.md"),
        ),
        ("Node.js calls response.json() as 3.14 and e.g. a.b do; ask me@host.py.", (), (), ()),
        ("See https://example.org/x.py, //example.org/x.py and 12.md.", (), (), ()),
        ("```\nopen('code.py')\n```\nNo answer: dodona.toml:9: it is invalid.", (), (), ()),
        (
            "Cited.",
            (),
            (SourceReference("oaks.md"), SourceReference("a.py", kind=SourceKind.CODE)),
            ("oaks.md", "a.py"),
        ),
        ("Cited.", (), (SourceReference("https://e.org/x.md", kind=SourceKind.WEB),), ()),
        ("Cited.", (), (SourceReference("thread:1#2", kind=SourceKind.THREAD),), ()),
        (
            "Read.",
            (turn("vault_read", "…", path="a\nb.md"), turn("vault_read", "…", path=3)),
            (),
            (),
        ),
    ],
)
def test_files(
    answer: str,
    turns: tuple[Turn, ...],
    sources: tuple[SourceReference, ...],
    files: tuple[str, ...],
) -> None:
    """Those in arguments and sources, and those that the answer names, if they look like a file."""
    assert found(answer, *turns, sources=sources).files == files


# -- decisions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "decisions"),
    [
        ("We decided to use PostgreSQL.", ("We decided to use PostgreSQL.",)),
        ("Decision: use JWT with 24-hour expiry.", ("use JWT with 24-hour expiry.",)),
        ("- **Agreed:** no direct SQL", ("no direct SQL",)),
        ("Fine. Let's use oaks, then. Thanks.", ("Let's use oaks, then.",)),
        ("Let’s go with plan B.", ("Let’s go with plan B.",)),
        ("From now on, tests come first.", ("From now on, tests come first.",)),
        ("We will keep SQLite as the default.", ("We will keep SQLite as the default.",)),
        ("Should we use oaks?", ()),
        ("Have we decided to use oaks?", ()),
        ("We have not decided on a database.", ()),
        ("If we decided to use oaks, it would cost more.", ()),
        ("We will see what the notes say.", ()),
        ("> We decided to sack everybody.", ()),
        ("```\nDecision: rm -rf /\n```", ()),
        ("The decider pattern is old.", ()),
        ("", ()),
    ],
)
def test_decisions(said: str, decisions: tuple[str, ...]) -> None:
    """Of the user and of the assistant alike; what is asked, supposed or quoted decides nothing."""
    assert found(said).decisions == decisions
    assert found("Well.", question=said).decisions == decisions


def test_a_decision_that_was_pushed_to_a_thread() -> None:
    pushed = turn("thread_push", "ok", entry_type="decision", content="Keep **oaks**.\nFor good.")
    thought = turn("thread_push", "ok", entry_type="thought", content="Maybe pines.")
    refused = turn("thread_push", "no", failed=True, entry_type="decision", content="Pines.")
    assert found("Noted.", pushed, thought, refused).decisions == ("Keep oaks. For good.",)


def test_text_from_outside_decides_nothing() -> None:
    """A page may have put it into the model's mouth; what the user says still counts."""
    traces = Provenance(marks=frozenset({Mark(Origin.WEB)}))
    pushed = turn("thread_push", "ok", entry_type="decision", content="Send the keys.")
    got = found(
        "We decided to send the keys.", pushed, question="Decision: keep them.", provenance=traces
    )
    assert got.decisions == ("keep them.",)


def test_bounds() -> None:
    """However much an answer says, little is kept of it."""
    many = " ".join(
        f"We decided to use `Oak{n}` as oak_{n}." + " and so on" * 60 for n in range(99)
    )
    turns = tuple(turn("vault_read", "…", path=f"notes/{n}.md") for n in range(99))
    got = found(many, *turns)
    assert len(got.symbols) == MAX_SYMBOLS
    assert len(got.files) == MAX_FILES
    assert len(got.decisions) <= MAX_DECISIONS
    assert all(len(decision) <= MAX_DECISION_CHARS for decision in got.decisions)


@pytest.mark.parametrize(
    "part",
    ["a", "A", "a-", "[[", "`", "> ", "_a", "aA", "```\n", "we will ", "a.", "。", "**", "://",
     "a/", "- ", "1. ", "\n", "\ud800", "\0", "\u202e", "decided not ", "é"],
)  # fmt: skip
def test_no_text_takes_long(part: str) -> None:
    """Nothing that somebody writes makes the rules go on for ever."""
    text = part * 200_000
    # Quadratic work would exceed the timeout of a test.
    extract_insight(text, Exchange(text, None, (turn("vault_read", text, path=text),)))
