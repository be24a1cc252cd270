"""Citations: what an answer says that it is from, checked against what tools returned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dodona.agent.conversation.citations import Citation, find_citations
from dodona.core.messages import AssistantText, ToolCall
from dodona.core.ports.tools import SourceKind, SourceReference
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import bodies, opened

NOTE = SourceReference("notes/plan.md", "Plan", "3–9", "An oak.")
WHOLE = SourceReference("notes/tree.md", "Tree", "1–40")
FILE = SourceReference("src/app.py", "def main", "10–20", kind=SourceKind.CODE)
ENTRY = SourceReference("thread:3#14", "Oaks", kind=SourceKind.THREAD)
PAGE = SourceReference("https://example.org/oak", "Oak", kind=SourceKind.WEB)
ALL = (NOTE, WHOLE, FILE, ENTRY, PAGE)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("It is [so](notes/plan.md).", {"notes/plan.md": True}),
        ("It is [so](notes/other.md).", {"notes/other.md": False}),
        ("It is [so](./notes/plan.md#heading).", {"./notes/plan.md#heading": True}),
        ("It is [so](<notes/plan.md>).", {"notes/plan.md": True}),
        ("[main](src/app.py:12)", {"src/app.py:12": True}),
        ("[main](src/app.py:12-14)", {"src/app.py:12-14": True}),
        ("[main](src/app.py#L12)", {"src/app.py#L12": True}),
        ("[main](src/app.py:99)", {"src/app.py:99": False}),
        ("[main](src/app.py:12:4)", {"src/app.py:12:4": True}),
        ("[it](thread:3#14) and [that](thread:3#15)", {"thread:3#14": True, "thread:3#15": False}),
        ("[page](https://example.org/oak#top)", {"https://example.org/oak#top": True}),
        ("[page](https://evil.example/oak)", {"https://evil.example/oak": False}),
        ("As in [[plan]] and [[Notes/Tree|the tree]].", {"[[plan]]": True, "[[Notes/Tree]]": True}),
        ("As in [[elm]].", {"[[elm]]": False}),
        ("— `vault_search` · `notes/plan.md`, lines 3–9", {"notes/plan.md, lines 3–9": True}),
        ("`notes/plan.md`, lines 20–30", {"notes/plan.md, lines 20–30": False}),
        ("`notes/unknown.md` is a path that nobody cited.", {}),
        ("It is in `src/ghost.py:12`.", {"src/ghost.py:12": False}),
        ("It is in `ghost.py`, lines 3–9.", {"ghost.py, lines 3–9": False}),
        ("It listens at `example.org:80`, `127.0.0.1:7200` and `host:7200`.", {}),
        ("What you named, `src/asked.py:7`, is not there.", {}),
        ("See https://example.org/oak.", {"https://example.org/oak": True}),
        ("See https://ghost.example/a?b=c, or not.", {"https://ghost.example/a?b=c": False}),
        ("*https://ghost.example*", {"https://ghost.example": False}),
        ("You said https://asked.example/x; open http://127.0.0.1:7200/ or http://localhost.", {}),
        ("The note links to https://linked.example/.", {}),
        ("As [thread 3](thread:3) and [4](thread:4) say.", {"thread:3": True, "thread:4": False}),
        ("See [above](#above), [mail](mailto:a@b.c) and [home](/).", {}),
        ("![picture](notes/plan.md)", {}),
        ("```\n[so](notes/other.md)\n```", {}),
        ("~~~~\n[so](notes/other.md)\n", {}),
        ("`[so](notes/other.md)`", {}),
        ("[a](notes/plan.md) [b](notes/plan.md)", {"notes/plan.md": True}),
        ("[a](notes%2Fplan.md)", {"notes%2Fplan.md": True}),
        ('[a](notes/plan.md "A title")', {"notes/plan.md": True}),
        ("", {}),
    ],
)  # fmt: skip
def test_each_citation_is_checked(answer: str, found: dict[str, bool]) -> None:
    """It counts when a tool returned the path, and those lines if it names some."""
    asked = ["Is https://asked.example/x as `src/asked.py:7` says?"]
    result = "notes/plan.md:3-9  Plan\n    An oak, as in https://linked.example/.\n"
    citations = find_citations(answer, ALL, (), [result], user_texts=asked)
    assert {each.target: each.found for each in citations} == found


def test_what_was_returned_before_counts() -> None:
    """A note that an earlier exchange read may be cited later."""
    (cited,) = find_citations("[so](notes/old.md)", (), ["notes/old.md:1-3  Old\nAn oak."])
    assert cited.found


def test_links_in_a_quotation_are_not_the_answers() -> None:
    """What a tool returned may be quoted, links and all; what none returned is no quotation."""
    result = "notes/plan.md:3-9  Plan\n    Oaks, as in [limits](limits.md).\n"
    quoted = "> Oaks, as in [limits](limits.md).\n\nThat is [so](notes/plan.md)."
    made_up = "> Elms, as in [limits](limits.md)."
    (citation,) = find_citations(quoted, ALL, (), [result])
    assert (citation.target, citation.found) == ("notes/plan.md", True)
    (citation,) = find_citations(made_up, ALL, (), [result])
    assert (citation.target, citation.found) == ("limits.md", False)


def test_an_answer_full_of_links_is_bounded() -> None:
    """A model that cites without end is checked up to a limit, and quickly."""
    text = "".join(f"[x](n{n}.md) " for n in range(20_000)) + "[" * 50_000 + "`" * 50_000
    text += "https://a." * 20_000 + "a." * 50_000 + "`" + "a/" * 50_000 + ":1`"
    assert len(find_citations(text, ALL, ())) == 50


async def test_a_citation_to_nothing_is_marked(file: Path) -> None:
    """The user is told in a system chunk, and the answer's document says which."""
    call = AssistantText(calls=(ToolCall("c1", "cite", json.dumps({"query": "oak.md"})),))
    model = ScriptedModel([call, "So [it is](oak.md), and [not](elm.md)."])
    async with opened(file, model) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)
        answer = await here.answer(run_id)

        (told,) = bodies(chunks, "system")
        assert told["system_type"] == "citation_unknown"
        assert "elm.md" in told["system_message"]
        found = {each.target: each.found for each in answer.citations}
        assert found["elm.md"] is False
        assert told["metadata"]["citations"] == [t for t, is_found in found.items() if not is_found]


async def test_an_answer_without_tools_is_checked_too(file: Path) -> None:
    """A model that looked nowhere and cites all the same is found out."""
    for said, target in (
        ("As in [the plan](plan.md).", "plan.md"),
        ("As in [[The plan]].", "[[The plan]]"),
        ("As in `src/plan.py:7`.", "src/plan.py:7"),
        ("As in https://plan.example/a.", "https://plan.example/a"),
    ):
        async with opened(file, ScriptedModel([said])) as here:
            run_id = await here.ask()
            (told,) = bodies(await here.chunks(run_id), "system")
            assert told["metadata"] == {"citations": [target]}
            answer = await here.answer(run_id)
            assert answer.citations == [Citation(target, found=False)]
