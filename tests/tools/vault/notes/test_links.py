"""Links: where a text has them, which note they mean, how one is written."""

from __future__ import annotations

import pytest

from dodona.tools.vault.notes.links import (
    LinkResolver,
    find_links,
    format_target,
    link_to,
    target_of,
)


def targets(text: str) -> list[str]:
    return [link.target for link in find_links(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[[Note]]", ["Note"]),
        ("[[Note|alias]] and [[Note#Heading]]", ["Note", "Note"]),
        ("[[Note#Heading|alias]] [[Note^block]] [[Note#^block]]", ["Note", "Note", "Note"]),
        ("![[embed]] [[folder/Note.md]]", ["embed", "folder/Note.md"]),
        ("| [[Note\\|alias]] |", ["Note"]),
        ("[[ Note ]] [[a b/c d]]", ["Note", "a b/c d"]),
        ("[[#Heading]] [[]] [[|x]] [[ ]]", []),
        ("[[a\nb]] [[a [[b]] ]]", ["b"]),
        ("\\[[Note]] [\\[Note]]", []),
        ("[t](a.md) [t](./a.md) [t](../a.md) [t](/a.md)", ["./a.md", "./a.md", "../a.md", "/a.md"]),
        ("[t](a%20b/c.md#h) [t](<d e.md>) [t](<f.md#h>)", ["./a b/c.md", "./d e.md", "./f.md"]),
        ('[t](a.md "title") [t](a(1).md) ![t](b.MD)', ["./a.md", "./a(1).md", "./b.MD"]),
        ("[t](https://x.org/a.md) [t](mailto:a.md) [t](a.txt) [t]() [t](a.mdx)", []),
        ("---\nup: '[[Note]]'\n---\n", ["Note"]),
    ],
)
def test_what_is_a_link(text: str, found: list[str]) -> None:
    """Wikilinks in all their forms, and Markdown links to notes."""
    assert targets(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "`[[no]]` [[yes]]",
        "``a ` [[no]]`` [[yes]]",
        "a ` b [[yes]]\n\nc ` d",
        "```\n[[no]]\n```\n[[yes]]",
        "```py\n[[no]]\n~~~\n[[no]]\n```\n[[yes]]",
        "~~~~\n[[no]]\n~~~\n[[no]]\n~~~~\n[[yes]]",
        "- ```\n  [[no]]\n\n  [[no]]\n  ```\n[[yes]]",
        "> ```\n> [[no]]\n> ```\n\n[[yes]]",
        "```inline``` [[yes]]",
        "[[yes]]\n```\n[[no]]",
        "<!-- [[no]]\n\n[[no]] --> [[yes]]",
        "%%[[no]]%% [[yes]]",
        "100 %% sure [[yes]]",
        "a <!-- b [[yes]]",
        "```\r\n[[no]]\r\n```\r\n[[yes]]",
        "\\`[[yes]]\\`",
    ],
)
def test_code_and_comments_have_none(text: str) -> None:
    """Nor does a mark that never ends hide what follows, but for an open fence."""
    assert targets(text) == ["yes"]


def test_a_link_says_where_its_target_is() -> None:
    """Only the target: heading, alias and the rest are left alone by whoever replaces it."""
    text = "a\n[[ Note #H|x]]\n\n[t](b%20c.md#h)"
    first, second = find_links(text)
    assert (first.line, text[first.start : first.end]) == (2, "Note")
    assert (second.line, text[second.start : second.end]) == (4, "b%20c.md")
    assert (first.is_markdown, second.is_markdown) == (False, True)


@pytest.mark.parametrize(
    "text",
    ["[[" * 200_000, "[[a" * 100_000, "](" * 200_000, "](a" * 100_000, "](<a.md" * 50_000,
     "[[" + "".join("`" * (n % 30) + " " for n in range(20_000)), "[[" + "<!--" * 100_000,
     "[[" + "%%" * 100_000, "[[\n" + "```\na\n" * 40_000, "[[" + "~~~ " * 100_000,
     "[[`\n\n" * 40_000, "[[a#" * 100_000, "[[a|" * 100_000, "[[" + "a#" * 200_000,
     "](" + ".md" * 100_000, "[[\n```\n" + "> " * 200_000, "[[\n" + "`" * 400_000],
)  # fmt: skip
def test_hostile_texts_take_no_longer_than_others(text: str) -> None:
    """Each of these would take hours if anything were looked for again from every mark."""
    assert targets(text) == []


PATHS = ["Plan.md", "a/Note.md", "a/b/Note.md", "c/Note.md", "a/Größe.md", "v1.2.md", "a/c/Note.md"]


@pytest.mark.parametrize(
    ("target", "source", "found"),
    [
        ("Plan", "a/b/x.md", "Plan.md"),
        ("plan.md", "x.md", "Plan.md"),
        ("PLAN", "x.md", "Plan.md"),
        ("Note", "a/x.md", "a/Note.md"),
        ("Note", "a/b/x.md", "a/b/Note.md"),
        ("Note", "c/x.md", "c/Note.md"),
        ("Note", "x.md", "a/Note.md"),
        ("c/Note", "a/x.md", "c/Note.md"),
        ("b/Note", "c/x.md", "a/b/Note.md"),
        ("/c/Note", "a/x.md", "c/Note.md"),
        ("/Note", "a/x.md", None),
        ("./Note", "c/x.md", "c/Note.md"),
        ("../Note", "a/b/x.md", "a/Note.md"),
        ("../../../Note", "a/b/x.md", None),
        ("./Plan", "a/x.md", "Plan.md"),
        ("Gro\u0308ße", "x.md", "a/Größe.md"),
        ("v1.2", "x.md", "v1.2.md"),
        ("v1", "x.md", None),
        ("Note.png", "x.md", None),
        ("a\\Note", "x.md", "a/Note.md"),
        ("", "x.md", None),
        ("/", "x.md", None),
        ("..", "x.md", None),
    ],
)
def test_which_note_a_link_means(target: str, source: str, found: str | None) -> None:
    """The nearest of a name; case and encoding do not matter; nothing outside the vault."""
    assert LinkResolver(PATHS).resolve(target, source=source) == found


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("[[x]]", "Plan.md", "Plan"),
        ("[[x.md]]", "Plan.md", "Plan.md"),
        ("[[x]]", "a/b/Note.md", "b/Note"),
        ("[[x]]", "c/Note.md", "c/Note"),
        ("[[x]]", "a/c/Note.md", "a/c/Note"),
        ("[t](x.md)", "a/b/Note.md", "../a/b/Note.md"),
        ("[t](./x.md)", "d/e f.md", "./e%20f.md"),
        ("[t](/x.md)", "c/Note.md", "/c/Note.md"),
    ],
)
def test_a_link_is_written_in_the_manner_of_another(text: str, path: str, said: str) -> None:
    """The shortest form that means this note and no other; and it resolves to it."""
    names = LinkResolver([*PATHS, "d/e f.md"])
    (link,) = find_links(text)
    raw = text[link.start : link.end]
    form = format_target(path, like=link, raw=raw, resolver=names, source="d/x.md")
    assert form == said
    target = target_of(form or "", is_markdown=link.is_markdown)
    assert names.resolve(target, source="d/x.md") == path


def test_a_name_at_the_root_that_others_have_too() -> None:
    """Is written from the root."""
    names = LinkResolver(["Note.md", "a/Note.md"])
    (link,) = find_links("[[x]]")
    assert format_target("Note.md", like=link, raw="x", resolver=names, source="a/x.md") == "/Note"


def test_what_no_wikilink_can_name() -> None:
    """Is told; a link that is made anew becomes a Markdown link."""
    names = LinkResolver(["C#.md"])
    (link,) = find_links("[[x]]")
    assert format_target("C#.md", like=link, raw="x", resolver=names, source="a.md") is None
    assert link_to("C#.md", title="C#", resolver=names, source="a.md") == "[C#](C%23.md)"
    assert (
        link_to("a.md", title="A [b|c]", resolver=LinkResolver(["a.md"]), source="x.md")
        == "[[a|A b c]]"
    )
