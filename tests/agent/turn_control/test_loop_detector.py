"""Loop detection: names and key arguments, a window of six rounds, a threshold of three."""

from __future__ import annotations

import json

import msgspec
import pytest

from dodona.agent.turn_control.loop_detector import LoopDetector, pattern_of
from dodona.core.messages import ToolCall


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall("id", name, json.dumps(arguments))


READ = call("vault_read", path="a.md")
FIND = call("vault_search", query="oak", limit=3)


def test_a_pattern_has_names_and_key_arguments() -> None:
    """In no particular order, and without what merely shapes the result."""
    assert pattern_of([READ, FIND]) == pattern_of([FIND, READ])
    assert pattern_of([FIND]) == "vault_search(query=oak)"
    assert pattern_of([call("vault_search", query="elm")]) != pattern_of([FIND])


@pytest.mark.parametrize("arguments", ["{", "[1]", "null", "[" * 100_000])
def test_malformed_arguments_have_a_pattern_too(arguments: str) -> None:
    """A model that writes the same nonsense goes in circles as well."""
    wrong = ToolCall("id", "x", arguments)
    assert pattern_of([wrong]) == pattern_of([wrong])
    assert pattern_of([wrong]).startswith("x(")


def rounds(*calls: ToolCall) -> list[str]:
    watch, found = LoopDetector(), list[str]()
    for each in calls:
        kept = msgspec.json.decode(msgspec.json.encode(watch), type=LoopDetector)
        watch, pattern = kept.observe([each])
        found.append(pattern)
    return found


def test_the_third_time_is_a_loop_and_is_told_once() -> None:
    """Also when other calls come in between."""
    pattern = "vault_read(path=a.md)"
    assert rounds(READ, READ, READ, READ) == ["", "", pattern, ""]
    assert rounds(READ, FIND, READ, FIND, READ) == ["", "", "", "", pattern]


@pytest.mark.parametrize(
    ("name", "pages"),
    [
        ("read_code", [{"path": "a.py", "first": n, "last": n + 99} for n in (1, 100, 200, 300)]),
        ("thread_read", [{"thread_id": 7, "after": n} for n in (0, 50, 100, 150)]),
        ("docs_read", [{"file_path": "a", "offset": n, "limit": 9} for n in (0, 9, 18, 27)]),
        ("docs_find", [{"query": "oak", "cursor": n} for n in (None, "b", "c", "d")]),
    ],
)
def test_paging_is_no_loop(name: str, pages: list[dict[str, object]]) -> None:
    """Calls for other parts of the same thing are progress; the same part again is a loop."""
    assert rounds(*(call(name, **page) for page in pages)) == [""] * 4
    assert rounds(*(call(name, **pages[1]) for _ in range(3)))[-1].startswith(f"{name}(")


def test_what_is_long_ago_does_not_count() -> None:
    """Six rounds are looked at."""
    others = [call("vault_read", path=f"{n}.md") for n in range(4)]
    assert rounds(READ, READ, *others, READ) == [""] * 7


def test_calls_without_key_arguments_are_told_apart_by_all_of_them() -> None:
    """Three pages that are fetched are no loop; one page three times is."""
    pages = [call("web_fetch", url=f"https://example.org/{n}") for n in range(3)]
    assert rounds(*pages) == ["", "", ""]
    assert rounds(pages[0], pages[0], pages[0])[-1] != ""
