"""The sample project, as `make run` starts it: Dodona's own code, and the notes about it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import run_dodona
from tests.system.client import Client, notices, of_type, text_of
from tests.system.waiting import LIMIT
from tests.system.wire_model import Asked, Call, Reply, Script, calls, says

HERE = Path(__file__).parents[2]
NOTES, CODE = HERE / "examples" / "vault", HERE / "src"

QUESTION = "Where is {} defined and what do the notes say about it?"
_CITED = re.compile(r"^— `([^`]+)`, lines? (\d+)", re.MULTILINE)
_LISTED = re.compile(r"^- `([^`]+\.md)`$", re.MULTILINE)
_PLACE = re.compile(r"^(\S+):(\d+)-\d+ ", re.MULTILINE)


async def begin(own: Client, *, provider: str = "") -> None:
    """Start it with a complete index: while one is built, a definition may not be in it yet."""
    home = own.up.home
    if provider:
        said = f'[agent]\nprovider = "{provider}"\n'
    else:
        said = home.config.read_text().partition("[vault]")[0]
    home.config.write_text(
        f'{said}[vault]\npath = "{NOTES}"\n[code]\npaths = ["{CODE}"]\n'
        f'[store]\nurl = "{home.store}"\n'
    )
    indexed = await asyncio.to_thread(
        run_dodona, "index", str(CODE), cwd=home.folder, env=home.environment, timeout=LIMIT
    )
    assert indexed.returncode == 0, indexed.stderr
    await own.up.begin()


def line(path: str, number: int) -> str:
    return (CODE / path).read_text().splitlines()[number - 1]


def citations(run: dict[str, Any]) -> dict[str, bool]:
    return {each["target"]: each["found"] for each in run["citations"]}


@pytest.mark.parametrize("name", ["Watchdog", "Blackboard"])
async def test_without_a_model(own: Client, name: str) -> None:
    """It looks into both, and quotes both: the definition at its line, and a note that is there."""
    await begin(own, provider="extractive")
    own.tag = ""  # it would be looked for
    asked = QUESTION.format(name)
    chunks = await own.streamed(asked)
    assert {each["name"] for each in of_type(chunks, "tool_call")} == {"search_passages"}
    (path, first), (note, _) = _CITED.findall(text_of(chunks))
    assert line(path, int(first)).startswith(f"class {name}"), "where it is defined comes first"
    assert note == f"trees/{name.lower()}.md"
    assert (NOTES / note).is_file()
    shown = {(each["kind"], each["path"]) for each in of_type(chunks, "source")}
    assert shown == {("code", path), ("note", note)}, "only what is quoted"
    assert notices(chunks, "citation_unknown") == []
    answer = await own.ask(asked, new=True)
    found = citations(answer)
    assert len(found) == len(set(found)) >= 2
    assert all(found.values())


async def test_what_is_this(own: Client) -> None:
    """It names notes of the project."""
    await begin(own, provider="extractive")
    own.tag = ""  # it would be part of the question
    answer = await own.ask("What is this?", new=True)
    listed = _LISTED.findall(answer["answer"])
    assert len(listed) == 5
    assert all((NOTES / note).is_file() for note in listed)


def looks_and_cites(asked: Asked) -> Reply:
    """A model that looks into both, and makes a note up besides."""
    if asked.round == 0:
        return calls(
            Call("find_definition", {"name": "Watchdog"}),
            Call("vault_search", {"query": "watchdog"}),
        )
    code, notes = (_PLACE.findall(result)[0] for result in asked.results)
    place = f"{code[0]}:{code[1]}"
    return says(
        f"It is a class: [{place}]({place}). It fails the steps that hang "
        f"([{notes[0]}]({notes[0]})), and sinks ships ([trees/kraken.md](trees/kraken.md))."
    )


async def test_with_a_model(own: Client, script: Script) -> None:
    """Its citations are checked: those that tools returned hold, the other is marked as unknown."""
    script.will_by(looks_and_cites)
    await begin(own)
    chunks = await own.streamed(QUESTION.format("Watchdog"))
    (place, note, unknown) = re.findall(r"\]\(([^)]+)\)", text_of(chunks))
    path, _, first = place.rpartition(":")
    assert line(path, int(first)).startswith("class Watchdog")
    assert (NOTES / note).is_file()
    (marked,) = notices(chunks, "citation_unknown")
    assert marked["metadata"]["citations"] == [unknown]
    assert unknown in marked["system_message"]
    assert {path, note} == {each["path"] for each in of_type(chunks, "source")}
    expected = {place: True, note: True, unknown: False}
    answer = await own.ask(QUESTION.format("Watchdog"), new=True)
    assert citations(answer) == expected
