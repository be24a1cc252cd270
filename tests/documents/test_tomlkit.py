"""Why Dodona edits TOML itself: what tomlkit would do to a config file with comments.

When a test here fails, tomlkit has been mended: see decision 0029.
"""

from __future__ import annotations

import tomllib

import tomlkit

from dodona.documents.toml_editing import edit_toml

TEXT = "[a]\nx = 1\n\n# about b\n[b]\ny = 1\n"


def test_a_new_key_takes_the_comment_of_the_next_section() -> None:
    """The comment above `[b]` would be above the new key of `[a]`."""
    document = tomlkit.parse(TEXT)
    document["a"]["z"] = 3
    assert tomlkit.dumps(document) == "[a]\nx = 1\n\n# about b\nz = 3\n[b]\ny = 1\n"
    expected = "[a]\nx = 1\nz = 3\n\n# about b\n[b]\ny = 1\n"
    assert edit_toml(TEXT, {("a", "z"): 3}) == expected


def test_a_new_element_takes_the_comment_of_the_next_section() -> None:
    """The same for `[[bindings]]`, which `dodona config set` adds."""
    text = "[[a]]\nx = 1\n\n# about b\n[b]\n"
    document = tomlkit.parse(text)
    document["a"].append({"x": 2})
    assert tomlkit.dumps(document) == "[[a]]\nx = 1\n\n# about b\n[[a]]\nx = 2\n[b]\n"
    assert edit_toml(text, {("a", 1): {"x": 2}}) == (
        "[[a]]\nx = 1\n\n[[a]]\nx = 2\n\n# about b\n[b]\n"
    )


def test_a_new_section_swallows_the_keys_below_it() -> None:
    """After `a.x = 1`, a new section `[a.b]` would take the key `c.y`, which is of the document."""
    text = "a.x = 1\nc.y = 1\n"
    document = tomlkit.parse(text)
    document["a"]["b"] = {"z": 1}
    assert tomllib.loads(tomlkit.dumps(document)) == {"a": {"x": 1, "b": {"z": 1, "c": {"y": 1}}}}
    edited = tomllib.loads(edit_toml(text, {("a", "b", "z"): 1}))
    assert edited == {"a": {"x": 1, "b": {"z": 1}}, "c": {"y": 1}}


def test_lines_end_in_two_ways_in_one_file() -> None:
    """A new line would end with LF in a file whose lines end with CRLF."""
    document = tomlkit.parse("[a]\r\nx = 1\r\n")
    document["a"]["y"] = 2
    assert tomlkit.dumps(document) == "[a]\r\nx = 1\r\ny = 2\n"
    assert edit_toml("[a]\r\nx = 1\r\n", {("a", "y"): 2}) == "[a]\r\nx = 1\r\ny = 2\r\n"
