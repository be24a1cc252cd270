"""A vault as Obsidian has it: used as it is, and left so."""

from __future__ import annotations

from pathlib import Path

import pytest

from dodona.tools.vault import Vault

FILES = {
    ".obsidian/app.json": '{"alwaysUpdateLinks": true}',
    ".obsidian/plugins/x/README.md": "a plugin about oaks",
    ".trash/old.md": "an oak that was thrown away",
    "Attachments/oak.png": "\x89PNG",
    "Board.canvas": '{"nodes": [{"file": "Trees/Oak.md"}]}',
    "Trees/Oak.md": (
        "---\n"
        "aliases:\n  - Quercus\n  - The Speaking Tree\n"
        "tags: [tree/deciduous, dodona]\n"
        "cssclasses: wide\n"
        "created: 2024-03-01\n"
        "---\n"
        "# Oak\n\n"
        "> [!note] Callout\n> It speaks.\n\n"
        "The rustling is the answer. ^answer\n\n"
        "## Leaves\n\nSee [[#Leaves]] and [[#^answer]]. %% [[Elm]] is hidden %%\n"
    ),
    "Trees/Elm.md": "Not an [[Oak]]. #tree #2024\n\n```dataview\nLIST FROM [[Oak]]\n```\n",
    "Daily/2024-03-01.md": (
        "- [ ] water [[Oak#Leaves|the leaves]] 📅 2024-03-02\n"
        "- [x] ask [[Quercus]]\n"
        "![[Oak]]\n![[Oak#Leaves]]\n![[Oak#^answer]]\n![[oak.png|200]]\n"
        "| a | b |\n|---|---|\n| [[Oak\\|x]] | [md](../Trees/Oak.md#Leaves) |\n"
        "`[[Oak]]` and \\[[Oak]] are none, [[Trees/Oak.md]] and [[oak]] are.\n"
        "[[Nowhere]] [[]] [[|x]] [site](https://example.org/Oak.md)\n"
    ),
    "Templates/Daily.md": "---\ndate: {{date}}\n---\n# {{title}}\n\n<% tp.file.title %>\n",
}


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    root = tmp_path / "vault"
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return Vault(root, tmp_path / "indexes" / "i.db")


def texts(vault: Vault) -> dict[str, str]:
    return {
        file.relative_to(vault.root).as_posix(): file.read_text(encoding="utf-8")
        for file in vault.root.rglob("*")
        if file.is_file()
    }


async def test_it_is_read_as_it_is(vault: Vault) -> None:
    """Notes and nothing else, by title, alias and tag; looking leaves no trace."""
    assert [(note.path, note.title, note.tags) for note in await vault.list()] == [
        ("Daily/2024-03-01.md", "2024-03-01", ()),
        ("Templates/Daily.md", "{{title}}", ()),
        ("Trees/Elm.md", "Elm", ("tree",)),
        ("Trees/Oak.md", "Oak", ("tree/deciduous", "dodona")),
    ]
    for words in ("Quercus", "speaking tree", "dodona", "deciduous"):
        assert (await vault.search(words, 5))[0].path == "Trees/Oak.md"
    assert not {hit.path for hit in await vault.search("plugin thrown", 9)}
    assert [(each.tag, each.notes) for each in await vault.tags()] == [
        ("dodona", 1),
        ("tree", 1),
        ("tree/deciduous", 1),
    ]
    assert texts(vault) == FILES


async def test_links_of_every_kind_lead_to_a_note(vault: Vault) -> None:
    """By name, heading, block, alias, embed, path and from a table; not those in code."""
    found = [(link.path, link.line) for link in await vault.backlinks("Trees/Oak.md")]
    daily = "Daily/2024-03-01.md"
    assert found == [*((daily, line) for line in (1, 2, 3, 4, 5, 9, 10)), ("Trees/Elm.md", 1)]
    assert await vault.backlinks("Trees/Elm.md") == []


async def test_a_note_is_renamed_as_obsidian_would(vault: Vault) -> None:
    """What links to it follows, and every other byte stays; undone, all of them do."""
    await vault.move("Trees/Oak.md", "Sacred/Great Oak.md")
    now = texts(vault)
    assert now["Daily/2024-03-01.md"] == (
        "- [ ] water [[Great Oak#Leaves|the leaves]] 📅 2024-03-02\n"
        "- [x] ask [[Quercus]]\n"
        "![[Great Oak]]\n![[Great Oak#Leaves]]\n![[Great Oak#^answer]]\n![[oak.png|200]]\n"
        "| a | b |\n|---|---|\n| [[Great Oak\\|x]] | [md](../Sacred/Great%20Oak.md#Leaves) |\n"
        "`[[Oak]]` and \\[[Oak]] are none, [[Great Oak.md]] and [[Great Oak]] are.\n"
        "[[Nowhere]] [[]] [[|x]] [site](https://example.org/Oak.md)\n"
    )
    assert now["Trees/Elm.md"] == FILES["Trees/Elm.md"].replace("an [[Oak]]", "an [[Great Oak]]")
    assert now["Sacred/Great Oak.md"] == FILES["Trees/Oak.md"]
    changed = {path for path in FILES if now.get(path) != FILES[path]}
    assert changed == {"Daily/2024-03-01.md", "Trees/Elm.md", "Trees/Oak.md"}
    await vault.undo()
    assert texts(vault) == FILES
