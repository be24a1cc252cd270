from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dodona.core.errors import AccessDenied, ToolFailed, ToolRetry
from dodona.tools.vault.files import MOST_BYTES, Written, read_file, walk_notes, write_file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A vault with a secret beside it."""
    (tmp_path / "secret.md").write_text("secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.md").write_text("secret")
    made = tmp_path / "vault"
    (made / "notes").mkdir(parents=True)
    (made / "notes" / "plan.md").write_text("the plan")
    return made


def test_links_are_not_followed(root: Path) -> None:
    """Neither of files nor of folders, nor within the vault; not for writing either."""
    (root / "file.md").symlink_to(root.parent / "secret.md")
    (root / "folder").symlink_to(root.parent / "outside")
    (root / "inside.md").symlink_to(root / "notes" / "plan.md")
    for parts in (("file.md",), ("folder", "secret.md"), ("inside.md",)):
        with pytest.raises(AccessDenied, match="links are not followed"):
            read_file(root, parts)
        with pytest.raises(AccessDenied, match="links are not followed"):
            write_file(root, parts, text="changed")
    assert (root.parent / "secret.md").read_text() == "secret"
    assert (root.parent / "outside" / "secret.md").read_text() == "secret"
    assert [path for path, _ in walk_notes(root)] == ["notes/plan.md"]


def test_the_vault_itself_may_be_a_link(root: Path) -> None:
    """Whoever configured it meant it."""
    link = root.parent / "link"
    link.symlink_to(root)
    assert read_file(link, ("notes", "plan.md")).text == "the plan"
    assert [path for path, _ in walk_notes(link)] == ["notes/plan.md"]


def test_only_files_are_read(root: Path) -> None:
    """A pipe that nobody writes to does not keep us waiting."""
    os.mkfifo(root / "pipe.md")
    (root / "folder.md").mkdir()
    for name in ("pipe.md", "folder.md"):
        with pytest.raises(AccessDenied, match="is not a file"):
            read_file(root, (name,))
        with pytest.raises(AccessDenied, match="is not a file"):
            write_file(root, (name,), text="x")
    with pytest.raises(AccessDenied):
        read_file(root, ("notes", "plan.md", "deeper.md"))
    assert [path for path, _ in walk_notes(root)] == ["notes/plan.md"]


def test_a_note_is_created_replaced_or_left_alone(root: Path) -> None:
    """With its folders; the same content again touches nothing."""
    assert write_file(root, ("new", "deep", "a.md"), text="one") is Written.CREATED
    file = root / "new" / "deep" / "a.md"
    os.utime(file, ns=(1, 1))
    assert write_file(root, ("new", "deep", "a.md"), text="one") is Written.UNCHANGED
    assert file.stat().st_mtime_ns == 1
    file.chmod(0o640)
    assert write_file(root, ("new", "deep", "a.md"), text="two") is Written.REPLACED
    assert file.read_text() == "two"
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(file.parent) == ["a.md"]


def test_a_reader_never_sees_half_a_note(root: Path) -> None:
    """While another thread writes, every reading is one of the whole texts."""
    texts = {letter * 200_000 for letter in "ab"}
    write_file(root, ("a.md",), text=min(texts))

    def write() -> None:
        for _ in range(20):
            for text in texts:
                write_file(root, ("a.md",), text=text)

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while writer.is_alive() or not seen:
        assert read_file(root, ("a.md",)).text in texts
        seen += 1
    writer.join()


def test_a_write_that_fails_leaves_nothing_behind(root: Path) -> None:
    """The old text stays, and no file beside it."""
    (root / "notes" / "plan.md").chmod(0o444)
    with pytest.raises(AccessDenied, match=r"'notes/plan\.md' is read-only"):
        write_file(root, ("notes", "plan.md"), text="changed")
    with pytest.raises(ToolRetry, match=r"1,000,001 bytes, and a note at most 1,000,000"):
        write_file(root, ("big.md",), text="x" * (MOST_BYTES + 1))
    with pytest.raises(OSError, match="File name too long"):
        write_file(root, ("x" * 300 + ".md",), text="x")
    assert sorted(os.listdir(root)) == ["notes"]
    assert os.listdir(root / "notes") == ["plan.md"]


@pytest.mark.parametrize("parts", [("notes", "PLAN.md"), ("Notes", "plan.md"), ("NOTES", "a.md")])
def test_no_twin_that_differs_in_case_only(root: Path, parts: tuple[str, ...]) -> None:
    """On another system the two would be one."""
    with pytest.raises(ToolRetry, match=r"Did you mean 'notes/(plan|a)\.md'\?"):
        write_file(root, parts, text="x")
    assert os.listdir(root) == ["notes"]


def test_a_file_of_any_bytes_is_text(root: Path) -> None:
    """Other encodings are shown as well as can be; of a huge file the beginning is read."""
    (root / "latin.md").write_bytes("Größe".encode("latin-1"))
    assert read_file(root, ("latin.md",)).text == "Gr��e"
    (root / "bom.md").write_bytes(b"\xef\xbb\xbf# Title")
    assert read_file(root, ("bom.md",)).text == "# Title"
    (root / "big.md").write_bytes(b"x" * (MOST_BYTES + 5))
    big = read_file(root, ("big.md",))
    assert (len(big.text), big.is_cut) == (MOST_BYTES, True)


def test_hidden_and_odd_files_are_no_notes(root: Path) -> None:
    """Nor what is too deep; the order is fixed."""
    for name in ("b.md", "A.MD", ".hidden.md", "a.txt", "back\\slash.md"):
        (root / name).write_text("x")
    (root / ".git").mkdir()
    (root / ".git" / "x.md").write_text("x")
    os.mkdir(os.fsencode(root) + b"/bad\xff")
    deep = root / Path(*"abcdefghijklmnopqrst")
    deep.mkdir(parents=True)
    (deep / "x.md").write_text("x")
    assert [path for path, _ in walk_notes(root)] == ["A.MD", "b.md", "notes/plan.md"]


def test_a_vault_that_is_not_there_says_whom_to_ask(root: Path) -> None:
    """Without naming a path of this machine to the model."""
    with pytest.raises(ToolFailed) as caught:
        read_file(root / "nothing", ("a.md",))
    assert str(caught.value) == (
        "the vault's folder cannot be opened: No such file or directory. "
        "Whoever runs Dodona must look at [vault] path."
    )


def test_a_link_in_the_place_of_a_folder_is_never_entered(root: Path) -> None:
    """Also when it is put there while we read: every reading is of the vault or refused."""
    inside, aside = root / "swap", root / "aside"
    inside.mkdir()
    (inside / "secret.md").write_text("mine")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            inside.rename(aside)
            inside.symlink_to(root.parent / "outside")
            inside.unlink()
            aside.rename(inside)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: set[str] = set()
    try:
        for _ in range(3_000):
            try:
                seen.add(read_file(root, ("swap", "secret.md")).text)
            except (AccessDenied, FileNotFoundError):
                seen.add("refused")
    finally:
        stop.set()
        swapper.join()
    assert "secret" not in seen
