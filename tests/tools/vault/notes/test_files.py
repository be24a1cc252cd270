from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import unicodedata
from pathlib import Path

import pytest

from dodona.core.errors import AccessDenied, Conflict, ToolFailed, ToolRetry
from dodona.tools.vault.notes.files import (
    MAX_NOTE_BYTES,
    find_inode,
    read_file,
    read_full_file,
    reject_read_only,
    remove_empty_folders,
    rename_file,
    replace_file,
    resolve_spelling,
    version_of,
    walk_notes,
    write_file,
)

PLAN = ("notes", "plan.md")


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
            write_file(root, parts, text="changed", version="")
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
            write_file(root, (name,), text="x", version="")
    with pytest.raises(AccessDenied):
        read_file(root, ("notes", "plan.md", "deeper.md"))
    assert [path for path, _ in walk_notes(root)] == ["notes/plan.md"]


def test_a_note_is_created_replaced_or_left_alone(root: Path) -> None:
    """With its folders; the same content again touches nothing, whatever version is given."""
    place = ("new", "deep", "a.md")
    assert write_file(root, place, text="one", version="") == "created"
    file = root / "new" / "deep" / "a.md"
    os.utime(file, ns=(1, 1))
    for version in ("", version_of(b"one"), version_of(b"zero")):
        assert write_file(root, place, text="one", version=version) == "unchanged"
    assert file.stat().st_mtime_ns == 1
    file.chmod(0o640)
    assert write_file(root, place, text="two", version=version_of(b"one")) == "replaced"
    assert file.read_text() == "two"
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(file.parent) == ["a.md"]


def test_what_was_not_seen_is_not_replaced(root: Path) -> None:
    """A note of another version, one that is gone, one that cannot be shown as it is."""
    now = version_of(b"the plan")
    with pytest.raises(Conflict) as caught:
        write_file(root, PLAN, text="mine", version=version_of(b"an old plan"))
    assert str(caught.value) == (
        f"the note 'notes/plan.md' has changed: its version is {now}. "
        "Read it again, then write your changes with that version."
    )
    with pytest.raises(Conflict, match=f"already exists: its version is {now}"):
        write_file(root, PLAN, text="mine", version="")
    with pytest.raises(Conflict, match=r"'gone\.md' is gone\. To create it again"):
        write_file(root, ("gone.md",), text="mine", version=now)
    (root / "latin.md").write_bytes(b"Gr\xf6\xdfe")
    with pytest.raises(AccessDenied, match="is not UTF-8, so it cannot be replaced"):
        write_file(root, ("latin.md",), text="x", version=version_of(b"Gr\xf6\xdfe"))
    (root / "huge.md").write_bytes(b"x" * (MAX_NOTE_BYTES + 1))
    huge = read_file(root, ("huge.md",))
    with pytest.raises(AccessDenied, match="too long to be read in full"):
        write_file(root, ("huge.md",), text="x", version=huge.version)
    with pytest.raises(ToolRetry, match="half a character"):
        write_file(root, ("half.md",), text="\ud800", version="")
    assert (root / "notes" / "plan.md").read_text() == "the plan"


def test_a_version_is_of_what_a_file_holds(root: Path) -> None:
    """Not of when it was written; of a huge one, of its beginning and its size."""
    plan = read_file(root, PLAN)
    os.utime(root / "notes" / "plan.md", ns=(1, 1))
    assert plan.version == read_file(root, PLAN).version == version_of(b"the plan")
    (root / "a.md").write_bytes(b"x" * (MAX_NOTE_BYTES + 1))
    first = read_file(root, ("a.md",)).version
    (root / "a.md").write_bytes(b"x" * (MAX_NOTE_BYTES + 2))
    assert read_file(root, ("a.md",)).version != first


@pytest.mark.parametrize("limit", [0, 1, 4_000])
def test_a_full_disk_leaves_the_old_note_whole(root: Path, limit: int) -> None:
    """In a process that may write no more bytes than these to a file."""
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from dodona.tools.vault.notes.files import version_of, write_file\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "try:\n"
        "    write_file(Path(sys.argv[1]), ('notes', 'plan.md'), text='x' * 100_000,\n"
        "               version=version_of(b'the plan'))\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", script, str(root)],
        capture_output=True, text=True, timeout=50, check=True,
    )  # fmt: skip
    assert done.stdout == "File too large\n"
    assert (root / "notes" / "plan.md").read_text() == "the plan"
    assert os.listdir(root / "notes") == ["plan.md"]


def test_a_reader_never_sees_half_a_note(root: Path) -> None:
    """While another thread writes, every reading is one of the whole texts."""
    texts = {letter * 200_000 for letter in "ab"}
    last = min(texts)
    write_file(root, ("a.md",), text=last, version="")

    def write() -> None:
        before = last
        for _ in range(20):
            for text in sorted(texts, reverse=True):
                write_file(root, ("a.md",), text=text, version=version_of(before.encode()))
                before = text

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
        write_file(root, PLAN, text="changed", version=version_of(b"the plan"))
    with pytest.raises(ToolRetry, match=r"1,000,001 bytes; a note can have at most 1,000,000"):
        write_file(root, ("big.md",), text="x" * (MAX_NOTE_BYTES + 1), version="")
    with pytest.raises(OSError, match="File name too long"):
        write_file(root, ("x" * 300 + ".md",), text="x", version="")
    assert sorted(os.listdir(root)) == ["notes"]
    assert os.listdir(root / "notes") == ["plan.md"]


@pytest.mark.parametrize("parts", [("notes", "PLAN.md"), ("Notes", "plan.md"), ("NOTES", "a.md")])
def test_no_twin_that_differs_in_case_only(root: Path, parts: tuple[str, ...]) -> None:
    """On another system the two would be one."""
    with pytest.raises(ToolRetry, match=r"Did you mean 'notes/(plan|a)\.md'\?"):
        write_file(root, parts, text="x", version="")
    assert os.listdir(root) == ["notes"]


def test_no_twin_that_is_encoded_otherwise(root: Path) -> None:
    """A note is found by its characters, however its name has them."""
    apart = unicodedata.normalize("NFD", "Größe.md")
    (root / apart).write_text("x")
    assert resolve_spelling(root, ("Größe.md",)) == (apart,)
    assert resolve_spelling(root, ("nothing", "Größe.md")) == ("nothing", "Größe.md")
    with pytest.raises(ToolRetry, match="already"):
        write_file(root, ("Größe.md",), text="y", version="")
    assert sorted(os.listdir(root)) == sorted([apart, "notes"])


def test_a_file_gets_another_path(root: Path) -> None:
    """Folders are made; what has that path already is never replaced."""
    number = find_inode(root, PLAN)
    rename_file(root, PLAN, ("new", "deep", "plan.md"))
    assert (find_inode(root, PLAN), find_inode(root, ("new", "deep", "plan.md"))) == (None, number)
    (root / "b.md").write_text("mine")
    with pytest.raises(FileExistsError):
        rename_file(root, ("new", "deep", "plan.md"), ("b.md",))
    assert (root / "b.md").read_text() == "mine"
    assert (root / "new" / "deep" / "plan.md").read_text() == "the plan"
    with pytest.raises(FileNotFoundError):
        rename_file(root, ("gone.md",), ("c.md",))


def test_a_rename_that_was_cut_is_finished(root: Path) -> None:
    """When the file had both names."""
    os.link(root / "notes" / "plan.md", root / "b.md")
    rename_file(root, PLAN, ("b.md",))
    assert (os.listdir(root / "notes"), (root / "b.md").read_text()) == ([], "the plan")


def test_a_name_may_change_in_case_only(root: Path) -> None:
    """But not to that of another file."""
    rename_file(root, PLAN, ("notes", "Plan.md"))
    assert os.listdir(root / "notes") == ["Plan.md"]
    (root / "other.md").write_text("x")
    with pytest.raises(ToolRetry, match="already"):
        rename_file(root, ("other.md",), ("notes", "plan.md"))


def test_links_in_the_way_of_a_rename(root: Path) -> None:
    """Neither out of the vault nor into it."""
    (root / "folder").symlink_to(root.parent / "outside")
    with pytest.raises(AccessDenied):
        rename_file(root, ("folder", "secret.md"), ("mine.md",))
    with pytest.raises(AccessDenied):
        rename_file(root, PLAN, ("folder", "plan.md"))
    assert os.listdir(root.parent / "outside") == ["secret.md"]


def test_only_folders_that_are_empty_are_removed(root: Path) -> None:
    """From the innermost up, never the vault itself."""
    (root / "a" / "b" / "c").mkdir(parents=True)
    (root / "a" / "x.md").write_text("x")
    remove_empty_folders(root, ("a", "b", "c"))
    assert os.listdir(root / "a") == ["x.md"]
    remove_empty_folders(root, ("a",))
    remove_empty_folders(root, ())
    assert root.is_dir()


def test_what_changed_meanwhile_is_not_replaced(root: Path) -> None:
    """Byte by byte; what is read-only is told before."""
    assert replace_file(root, PLAN, data=b"new", expected=b"the plan")
    assert not replace_file(root, PLAN, data=b"newer", expected=b"the plan")
    assert read_full_file(root, PLAN) == b"new"
    (root / "notes" / "plan.md").chmod(0o444)
    with pytest.raises(AccessDenied, match="read-only"):
        reject_read_only(root, PLAN)
    with pytest.raises(AccessDenied, match="read-only"):
        replace_file(root, PLAN, data=b"newest", expected=b"new")
    assert read_full_file(root, PLAN) == b"new"


def test_a_file_of_any_bytes_is_text(root: Path) -> None:
    """Other encodings are shown as well as can be; of a huge file the beginning is read."""
    (root / "latin.md").write_bytes("Größe".encode("latin-1"))
    assert read_file(root, ("latin.md",)).text == "Gr��e"
    (root / "bom.md").write_bytes(b"\xef\xbb\xbf# Title")
    assert read_file(root, ("bom.md",)).text == "# Title"
    (root / "big.md").write_bytes(b"x" * (MAX_NOTE_BYTES + 5))
    big = read_file(root, ("big.md",))
    assert (len(big.text), big.is_cut) == (MAX_NOTE_BYTES, True)


def test_links_in_circles_end(root: Path) -> None:
    """To the vault itself, to each other, to themselves."""
    (root / "notes" / "up").symlink_to(root)
    (root / "one").symlink_to(root / "two")
    (root / "two").symlink_to(root / "one")
    (root / "self.md").symlink_to(root / "self.md")
    assert [path for path, _ in walk_notes(root)] == ["notes/plan.md"]
    for parts in (("self.md",), ("one", "a.md"), ("notes", "up", "notes", "plan.md")):
        with pytest.raises(AccessDenied, match="links are not followed"):
            read_file(root, parts)
        with pytest.raises(AccessDenied, match="links are not followed"):
            write_file(root, parts, text="x", version="")


@pytest.mark.parametrize(
    ("event", "name", "is_new"),
    [
        ("c_call", "write", False),
        ("c_call", "fsync", False),
        ("c_call", "rename", False),
        ("c_return", "rename", True),
    ],
)
def test_a_crash_leaves_the_old_note_or_the_new_one(
    root: Path,
    event: str,
    name: str,
    is_new: bool,  # noqa: FBT001
) -> None:
    """Whenever it comes; what lies beside is no note, and in nobody's way."""
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from dodona.tools.vault.notes.files import version_of, write_file\n"
        "def watch(frame, kind, argument):\n"
        "    if kind == sys.argv[2] and argument.__name__ == sys.argv[3]:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.setprofile(watch)\n"
        "write_file(Path(sys.argv[1]), ('notes', 'plan.md'), text='the new plan',\n"
        "           version=version_of(b'the plan'))\n"
    )
    died = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", script, str(root), event, name], timeout=50, check=False
    )
    assert died.returncode == -signal.SIGKILL
    now = "the new plan" if is_new else "the plan"
    assert (root / "notes" / "plan.md").read_text() == now
    assert [path for path, _ in walk_notes(root)] == ["notes/plan.md"]
    version = version_of(now.encode())
    assert write_file(root, PLAN, text="the last plan", version=version) == "replaced"


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
        "The operator must check [vault] path."
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
