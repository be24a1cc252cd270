"""Which results the Librarian summarises: the thresholds of seed 002."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dodona.agent.leaves.subagents import MAX_RESULT_CHARS, has_many_entries, summary_prompt
from dodona.agent.run_context.records import ToolResultRecord
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import Tools, bodies, calls, opened


def record(name: str, text: str = "", **more: Any) -> ToolResultRecord:
    return ToolResultRecord(index=0, id="1", name=name, text=text, duration_ms=1, **more)


ALIKE = [0.9, 0.88, 0.87, 0.86, 0.85, 0.84, 0.83]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"name": "web_fetch"}, False),
        ({"name": "vault_list", "entry_count": 10}, False),
        ({"name": "vault_list", "entry_count": 11}, True),
        ({"name": "thread_read", "entry_count": 20}, False),
        ({"name": "thread_read", "entry_count": 21}, True),
        ({"name": "thread_list", "entry_count": 100}, False),
        ({"name": "vault_search", "scores": ALIKE[:6]}, False),
        ({"name": "vault_search", "scores": ALIKE}, True),
        ({"name": "search_code", "scores": ALIKE}, True),
        ({"name": "search_code", "scores": [*ALIKE[:6], 0.7]}, False),
        ({"name": "thread_seek", "scores": ALIKE}, False),
    ],
)
def test_results_with_many_entries(values: dict[str, Any], *, expected: bool) -> None:
    """Long lists, and searches whose hits are all alike."""
    assert has_many_entries(record(**values)) is expected


def listing(files: int) -> Tools:
    """Tools with a list of so many files."""
    tools = Tools()

    async def list_notes(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        del arguments, context
        return ToolOutput("\n".join(f"{n}.md" for n in range(files)), entry_count=files)

    spec = ToolSpec("vault_list", "A list.", {"type": "object", "properties": {}})
    options: Any = {"category": ToolCategory.VAULT, "effect": Effect.NONE}
    tools.registry.tool(spec, **options)(list_notes)
    return tools


@pytest.mark.parametrize(
    ("files", "policy", "is_summarised"),
    [
        (15, {}, False),
        (15, {"summarise_lists": True}, True),
        (15, {"summarise_lists": True, "summarise_results": False}, False),
        (3000, {}, True),
    ],
)
async def test_a_list_is_summarised_if_it_is_long_in_tokens(
    file: Path, files: int, policy: dict[str, bool], *, is_summarised: bool
) -> None:
    """Or by its number of entries, if a setting says so. The client and the rules know it."""
    oracle = ScriptedModel([calls(("vault_list", "")), "Notes."], name="oracle")
    librarian = ScriptedModel(["Only notes."], name="librarian")
    async with opened(file, oracle, librarian, tools=listing(files), **policy) as here:
        await here.set(subagent_model="librarian")
        chunks = await here.chunks(await here.ask("Which notes are there?"))

        last = oracle.requests[1].messages[-1].text
        assert ("Only notes." in last) is is_summarised
        (result,) = bodies(chunks, "tool_result")
        assert result["result"].count(".md") == files
        if is_summarised:
            (system,) = bodies(chunks, "system")
            assert system["system_type"] == "result_summarised"
            metadata = system["metadata"]
            assert (metadata["id"], metadata["name"]) == (result["id"], "vault_list")
            tokens = metadata["tokens"], metadata["summary_tokens"]
            assert system["system_message"] == (
                "The Librarian summarised the result of vault_list for the model: "
                f"{tokens[1]:,} instead of {tokens[0]:,} tokens."
            )
            assert tokens[1] < tokens[0] or files == 15
        else:
            assert bodies(chunks, "system") == []
            assert not librarian.requests
        assert here.told("self.notify") == []  # no notice about a large result


def test_a_huge_result_is_handed_on_in_part() -> None:
    """The Librarian's window has an end too, and it is told what it does not see."""
    task = summary_prompt(record("x", "a" * (MAX_RESULT_CHARS + 5)), "{}", "Why?")
    assert "[… 5 more characters]" in task
    assert len(task) < MAX_RESULT_CHARS + 2000
