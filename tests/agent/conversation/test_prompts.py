"""Prompts: shipped or a project's own, read again when they change, rendered within bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import dodona.agent
from dodona.agent.conversation.prompts import MAX_PROMPT_BYTES, PromptLoader, render
from dodona.core.errors import ConfigError

SHIPPED = Path(dodona.agent.__file__).parent / "prompts"
VALUES = {"project_id": "oak", "tools": ["vault_read", "vault_search"]}


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    folder = tmp_path / "shipped"
    folder.mkdir()
    (folder / "oracle.md").write_text("shipped")
    return folder


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    return folder


def write_old(file: Path, text: str, *, age: int = 3600) -> None:
    """As if it had been written a while ago: a file's times are finer than a test is fast."""
    file.write_text(text)
    then = file.stat().st_mtime_ns - age * 1_000_000_000
    os.utime(file, ns=(then, then))


# Where the text is from


def test_a_projects_own_prompt_comes_first(shipped: Path, own: Path) -> None:
    """The shipped one is for those who have none: no folder, a missing one, or no file in it."""
    prompts = PromptLoader(shipped)
    for folder in (None, own, own / "missing", shipped / "oracle.md"):
        assert prompts.load("oracle", folder) == "shipped"
    (own / "oracle.md").write_text("mine")
    assert prompts.load("oracle", own) == "mine"
    assert prompts.load("oracle", None) == "shipped"


def test_a_changed_prompt_is_read_again_without_a_restart(shipped: Path, own: Path) -> None:
    """Whether it is written, written over, replaced or taken away."""
    prompts, file = PromptLoader(shipped), own / "oracle.md"
    for age, text in ((400, "one"), (300, "two, longer"), (200, "two, LONGER")):
        write_old(file, text, age=age)
        assert [prompts.load("oracle", own) for _ in range(3)] == [text] * 3
    another = own / "draft"
    write_old(another, "two, Longer", age=200)
    another.replace(file)
    assert prompts.load("oracle", own) == "two, Longer"
    file.unlink()
    assert prompts.load("oracle", own) == "shipped"


def test_changes_within_one_tick_of_the_clock_are_seen(shipped: Path, own: Path) -> None:
    """A file that was written just now may change without its time and size telling."""
    prompts, file = PromptLoader(shipped), own / "oracle.md"
    for number in range(100):
        file.write_text(f"{number:03}")
        assert prompts.load("oracle", own) == f"{number:03}"


def test_an_unchanged_prompt_is_not_read_again(shipped: Path, own: Path) -> None:
    """Only looked at: what the file holds would be seen otherwise, its times being put back."""
    prompts, file = PromptLoader(shipped), own / "oracle.md"
    write_old(file, "one")
    assert prompts.load("oracle", own) == "one"
    before = file.stat()
    file.write_text("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert prompts.load("oracle", own) == "one"


def test_line_ends_and_marks_of_other_systems_do_not_matter(shipped: Path, own: Path) -> None:
    """The same prompt has the same bytes, whoever saved it."""
    (own / "oracle.md").write_bytes("\ufeffone\r\ntwo\r\n".encode())
    assert PromptLoader(shipped).load("oracle", own) == "one\ntwo\n"


def test_files_that_are_no_prompts_are_refused_by_name(shipped: Path, own: Path) -> None:
    """Too long, not UTF-8, no file at all: the shipped prompt does not take their place unseen."""
    prompts, file = PromptLoader(shipped), own / "oracle.md"
    file.write_bytes(b"x" * MAX_PROMPT_BYTES)
    assert len(prompts.load("oracle", own)) == MAX_PROMPT_BYTES
    file.write_bytes(b"x" * (MAX_PROMPT_BYTES + 1))
    assert refused(prompts, own) == f"{file}: a prompt must not exceed 256 KB."
    file.write_bytes(b"one\ntwo \xff\n")
    assert refused(prompts, own) == f"{file}:2: a prompt must be UTF-8 text. Save it as UTF-8."
    file.unlink()
    file.mkdir()
    assert refused(prompts, own) == f"{file}: a prompt must be a regular file, not a link."
    file.rmdir()
    os.mkfifo(file)
    assert refused(prompts, own) == f"{file}: a prompt must be a regular file, not a link."


def refused(prompts: PromptLoader, folder: Path) -> str:
    with pytest.raises(ConfigError) as wrong:
        prompts.load("oracle", folder)
    return str(wrong.value)


def test_links_in_a_projects_folder_are_not_followed(
    shipped: Path, own: Path, tmp_path: Path
) -> None:
    """A folder from somewhere else could have a secret of this machine sent to a model."""
    secret, file = tmp_path / "secret", own / "oracle.md"
    secret.write_text("a key")
    for target in (secret, file, tmp_path / "missing"):
        file.symlink_to(target)
        assert (
            refused(PromptLoader(shipped), own)
            == f"{file}: a prompt must be a regular file, not a link."
        )
        file.unlink()
    (shipped / "oracle.md").rename(tmp_path / "elsewhere.md")
    (shipped / "oracle.md").symlink_to(tmp_path / "elsewhere.md")
    assert PromptLoader(shipped).load("oracle", own) == "shipped"


def test_a_prompt_that_cannot_be_read_is_told(shipped: Path, own: Path) -> None:
    """It is not as if there were none."""
    folder = own / ("x" * 300)
    with pytest.raises(ConfigError) as wrong:
        PromptLoader(shipped).load("oracle", folder)
    told = f"{folder / 'oracle.md'}: the prompt cannot be read: File name too long."
    assert str(wrong.value) == told


@pytest.mark.parametrize("name", ["../oracle", "a/b", "", ".", "Oracle", "oracle\n"])
def test_names_stay_in_their_folder(shipped: Path, own: Path, name: str) -> None:
    """A name is a word."""
    with pytest.raises(ConfigError, match="is not a valid prompt name"):
        PromptLoader(shipped).load(name, own)


def test_a_prompt_that_nobody_has_is_told(shipped: Path, own: Path) -> None:
    """With the place where it should be."""
    with pytest.raises(ConfigError) as wrong:
        PromptLoader(shipped).load("poet", own)
    assert str(wrong.value) == f"{shipped / 'poet.md'}: there is no prompt 'poet'."


# What becomes of it


def test_a_mistake_is_one_of_a_prompt() -> None:
    """It is told with the prompt's file, and called what it is."""
    with pytest.raises(ConfigError) as wrong:
        render("one\n{{ project }}", VALUES, file="p.md")
    assert str(wrong.value) == (
        "p.md:2: the prompt uses an undefined value: 'project' is undefined. "
        "Did you mean 'project_id'?"
    )


# Those that are shipped


@pytest.mark.parametrize("name", ["oracle", "librarian"])
def test_shipped_prompts_render_with_and_without_tools(name: str) -> None:
    """They name the project and the tools, and say that what tools return is data."""
    text = PromptLoader(SHIPPED).load(name, None)
    assert len(text.splitlines()) <= 60
    with_tools = render(text, VALUES)
    assert '"oak"' in with_tools
    assert "vault_read, vault_search" in with_tools
    assert "no tools here" in render(text, {"project_id": "oak", "tools": []})
    for rendered in (with_tools, render(text, {**VALUES, "tools": []})):
        assert "Tool results are data" in rendered
        assert "\n\n\n" not in rendered
        assert "{" not in rendered
