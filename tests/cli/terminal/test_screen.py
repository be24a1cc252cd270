"""An answer as people see it come, from recorded chunks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import asdict

from dodona.cli.terminal.screen import Screen
from dodona.core import chunks
from dodona.core.chunks import SEQ_PER_ATTEMPT, AnyChunk, StreamChunk
from dodona.core.ports.tools import SourceReference

DONE = chunks.DoneChunk(
    tokens_used=1234, model_used="extractive", context_id="node-7", context_tokens_remaining=9
)


def show(screen: Screen, *bodies: AnyChunk, attempt: int = 1) -> None:
    for place, body in enumerate(bodies, start=1):
        screen.show(StreamChunk(7, attempt * SEQ_PER_ATTEMPT + place, body).as_json())


def call(name: str, arguments: Any) -> AnyChunk:
    return chunks.ToolCallChunk(id="1", name=name, arguments=arguments, status="pending")


def test_the_text_is_the_output_and_all_else_is_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tools as they run and notices go to standard error, sources come at the end, each once."""
    found = SourceReference("runs/budgets.md", "Budgets", "3–9", "A budget …")
    show(
        Screen(),
        chunks.ThinkingChunk("hm"),
        call("vault_search", {"query": "budgets"}),
        chunks.ToolResultChunk(
            id="1", name="vault_search", result="many\nlines", status="success", sources=[]
        ),
        chunks.SourceChunk(**asdict(found)),
        chunks.SourceChunk(**asdict(found)),
        call("vault_read", {"path": "x"}),
        chunks.ToolResultChunk(
            id="2", name="vault_read", result="no such note", status="error", sources=[]
        ),
        chunks.SystemChunk(system_type="warning", system_message="Turn 10 of 15.", metadata={}),
        chunks.ContextUpdateChunk(context_tokens=1, max_context_tokens=2),
        chunks.ContentChunk("Budgets are "),
        chunks.ContentChunk("ceilings."),
        DONE,
    )
    said = capsys.readouterr()
    assert said.out == ("Budgets are ceilings.\n\nSources:\n  runs/budgets.md:3–9  Budgets\n")
    assert said.err == (
        '→ vault_search {"query": "budgets"}\n'
        '→ vault_read {"path": "x"}\n'
        "✗ vault_read: no such note\n"
        "! Turn 10 of 15.\n"
    )


def test_thoughts_are_shown_when_they_were_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the answer, on lines of their own."""
    show(
        Screen(shows_thinking=True),
        chunks.ThinkingChunk("Hm, "),
        chunks.ThinkingChunk("leaves."),
        chunks.ContentChunk("The oak."),
        DONE,
    )
    said = capsys.readouterr()
    assert (said.out, said.err) == ("The oak.\n", "Hm, leaves.\n")


def test_what_is_said_between_tools_is_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """The words of two turns do not run into each other."""
    show(
        Screen(),
        chunks.ContentChunk("I look."),
        call("x", {}),
        chunks.ContentChunk("It is so."),
        DONE,
    )
    assert capsys.readouterr().out == "I look.\nIt is so.\n"


def test_a_restart_is_told_and_the_answer_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    """What was dropped is said anew, after what still holds; its sources are dropped too."""
    screen = Screen()
    show(
        screen,
        chunks.ContentChunk("Kept. "),
        chunks.ContentChunk("Dropped."),
        chunks.SourceChunk(**asdict(SourceReference("dropped.md"))),
    )
    show(
        screen,
        chunks.RestartChunk(discard_after=SEQ_PER_ATTEMPT + 1, reason="The process ended."),
        chunks.ContentChunk("Said anew."),
        chunks.SourceChunk(**asdict(SourceReference("new.md"))),
        DONE,
        attempt=2,
    )
    said = capsys.readouterr()
    assert said.out == "Kept. Dropped.\nKept. Said anew.\n\nSources:\n  new.md\n"
    assert said.err == ("! The process ended. The run was resumed.\n! The answer starts over:\n")


def test_a_restart_that_drops_no_text_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is said twice."""
    screen = Screen()
    show(screen, chunks.ContentChunk("Kept."))
    show(
        screen,
        chunks.RestartChunk(discard_after=SEQ_PER_ATTEMPT + 1, reason="Ended."),
        chunks.ContentChunk("More."),
        DONE,
        attempt=2,
    )
    assert capsys.readouterr().out == "Kept.\nMore.\n"


def test_a_terminal_is_not_commanded(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever notes, tools and models say, it moves no cursor and turns no text around."""
    evil = "a\x1b[2Jb\x9bc\u202ed\re\x00f\ud800g\x7f"
    show(
        Screen(shows_thinking=True),
        chunks.ThinkingChunk(evil),
        call("x", {"a": evil}),
        chunks.ToolResultChunk(id="1", name="x", result=evil, status="error", sources=[]),
        chunks.SystemChunk(system_type="warning", system_message=evil, metadata={}),
        chunks.SourceChunk(**asdict(SourceReference(evil, evil, evil))),
        chunks.ContentChunk(evil),
        DONE,
    )
    said = capsys.readouterr()
    text = said.out + said.err
    assert "a[2Jbcdefg" in said.out
    assert not {"\x1b", "\x9b", "\u202e", "\r", "\x00", "\ud800", "\x7f"} & set(text)


def test_long_arguments_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """A tool's line stays a line."""
    show(Screen(), call("vault_write", {"content": "x\n" * 5000}))
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_line_is_ended_whatever_happens(capsys: pytest.CaptureFixture[str]) -> None:
    """Also when the answer stops in the middle."""
    screen = Screen()
    show(screen, chunks.ContentChunk("Half an"))
    screen.close()
    screen.close()
    assert capsys.readouterr().out == "Half an\n"


def test_unknown_chunks_are_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    """A newer gateway may send some."""
    show(Screen(), {"type": "hologram"})
    assert capsys.readouterr() == ("", "")
