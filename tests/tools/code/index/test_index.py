"""Reading files of the code, by paths that may be anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dodona.core.errors import AccessDenied, DodonaError, ToolRetry, as_text
from dodona.tools.code.files.folders import CodeFolders, is_test
from dodona.tools.code.index.index import CodeIndex
from tests.tools.code.repository import Repository

EXAMPLE = "Give a path as search_code returns it, such as 'src/main.py'."
OUT = f"leads out of the code folder. {EXAMPLE}"
ODD = f"contains characters that are not allowed in a path. {EXAMPLE}"
NO_PATH = f"is not a valid file path. {EXAMPLE}"
HIDDEN = "is hidden and therefore not indexed."


@pytest.fixture
def shelf(code: Repository) -> Repository:
    code.write("src/main.py", "one\ntwo\r\nthree\n")
    code.write("src/large.py", "x" * 100_001)
    code.write("src/data.bin", b"\0\1\2")
    code.write("src/empty.py", "")
    code.write("secret/key.py", "KEY = 1\n")
    code.write(".gitignore", "secret/\n")
    code.write(".env", "KEY=1\n")
    outside = code.root.parent / "outside"
    outside.mkdir()
    (outside / "passwords.py").write_text("P = 1\n", encoding="utf-8")
    (code.root / "link.py").symlink_to(outside / "passwords.py")
    (code.root / "folder").symlink_to(outside)
    (code.root / "circle").symlink_to(code.root)
    os.mkfifo(code.root / "pipe.py")
    code.refresh()
    return code


LINES = [
    ((1, None), "one\ntwo\nthree", (1, 3)),
    ((2, 2), "two", (2, 2)),
    ((2, 99), "two\nthree", (2, 3)),
    ((3, None), "three", (3, 3)),
]


@pytest.mark.parametrize(("lines", "text", "place"), LINES)
def test_lines_of_a_file(
    shelf: Repository, lines: tuple[int, int | None], text: str, place: tuple[int, int]
) -> None:
    """From the first to the last that are there; line ends are plain."""
    found = shelf.index.read("src/main.py", *lines)
    assert (found.text, (found.first, found.last), found.lines) == (text, place, 3)
    assert found.version == shelf.index.versions(("src/main.py",))["src/main.py"]


def test_an_empty_file_has_one_empty_line(shelf: Repository) -> None:
    """So it can be read as any other."""
    found = shelf.index.read("src/empty.py", 1, None)
    assert (found.first, found.last, found.text, found.lines) == (1, 1, "", 1)


def test_a_long_file_is_read_in_parts(shelf: Repository) -> None:
    """No more than 2,000 lines at once."""
    shelf.write("src/long.py", "x\n" * 5_000)
    found = shelf.index.read("./src//long.py", 10, None)
    assert (found.path, found.first, found.last, found.lines) == ("src/long.py", 10, 2_009, 5_000)


WRONG = [
    ("../outside/passwords.py", AccessDenied, f"'../outside/passwords.py' {OUT}"),
    ("src/../../outside/a.py", AccessDenied, f"'src/../../outside/a.py' {OUT}"),
    ("/etc/passwd", AccessDenied, f"'/etc/passwd' is an absolute path. {EXAMPLE}"),
    ("~/x.py", AccessDenied, f"'~/x.py' is an absolute path. {EXAMPLE}"),
    ("C:/x.py", AccessDenied, f"'C:/x.py' is an absolute path. {EXAMPLE}"),
    ("..\\outside", ToolRetry, f"'..\ufffdoutside' {ODD}"),
    ("src/main.py\0.txt", ToolRetry, f"'src/main.py\ufffd.txt' {ODD}"),
    ("src/\u2028main.py", ToolRetry, f"'src/\ufffdmain.py' {ODD}"),
    ("src/\udc80.py", ToolRetry, f"'src/\ufffd.py' {ODD}"),
    (".env", AccessDenied, f"'.env' {HIDDEN}"),
    ("src/.git/config", AccessDenied, f"'src/.git/config' {HIDDEN}"),
    ("secret/key.py", AccessDenied, "'secret/key.py' is ignored and therefore not indexed."),
    ("link.py", AccessDenied, "'link.py' cannot be read: Too many levels of symbolic links."),
    ("folder/p.py", ToolRetry, "there is no file 'folder/p.py'. Use search_code to find it."),
    ("circle/main.py", ToolRetry, "there is no file 'circle/main.py'. Did you mean 'src/main.py'?"),
    ("pipe.py", ToolRetry, "there is no file 'pipe.py'. Use search_code to find it."),
    ("src", ToolRetry, "there is no file 'src'. Use search_code to find it."),
    ("src/main.py/x", ToolRetry, "there is no file 'src/main.py/x'. Did you mean 'src/main.py'?"),
    ("main.py", ToolRetry, "there is no file 'main.py'. Did you mean 'src/main.py'?"),
    ("src/mian.py", ToolRetry, "there is no file 'src/mian.py'. Did you mean 'src/main.py'?"),
    ("src/large.py", ToolRetry, "'src/large.py' is larger than 97 KB and therefore not indexed."),
    ("src/data.bin", ToolRetry, "'src/data.bin' is not text."),
    ("", ToolRetry, f"'' {NO_PATH}"),
    (".", ToolRetry, f"'.' {NO_PATH}"),
    ("a/" * 70 + "x", ToolRetry, f"'{'a/' * 40}' {NO_PATH}"),
    ("x" * 2_000, ToolRetry, "the path is longer than 1000 characters."),
    ("n" * 300, AccessDenied, f"'{'n' * 300}' cannot be read: File name too long."),
]  # fmt: skip


@pytest.mark.parametrize(("path", "kind", "text"), WRONG)
def test_a_path_that_is_wrong(
    shelf: Repository, path: str, kind: type[DodonaError], text: str
) -> None:
    """What leads out is denied, what is only wrong is told; no link is followed."""
    with pytest.raises(DodonaError) as caught:
        shelf.index.read(path, 1, None)
    assert type(caught.value) is kind
    assert as_text(caught.value) == text


def test_versions_of_what_is_there(shelf: Repository) -> None:
    """A path that leads out, or nowhere, has none."""
    paths = ("src/main.py", "../outside/passwords.py", "link.py", "folder/passwords.py", "gone.py")
    before = shelf.index.versions(paths)
    assert list(before) == ["src/main.py"]
    shelf.write("src/main.py", "other\n")
    assert shelf.index.versions(paths) != before


def test_lines_that_are_not_there(shelf: Repository) -> None:
    """It is told which are."""
    for lines, text in (
        ((0, None), "'src/main.py' has lines 1 to 3; there is no line 0."),
        ((4, None), "'src/main.py' has lines 1 to 3; there is no line 4."),
        ((3, 2), "the last line (2) is before the first line (3)."),
    ):
        with pytest.raises(ToolRetry) as caught:
            shelf.index.read("src/main.py", *lines)
        assert as_text(caught.value) == text


def test_paths_where_there_are_several_folders(tmp_path: Path) -> None:
    """They begin with the folder's name, and one cannot lead to another."""
    for name in ("api", "web"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(name, encoding="utf-8")
    index = CodeIndex(
        CodeFolders([tmp_path / "api", tmp_path / "web"]), tmp_path / "x.db", max_bytes=99
    )
    index.refresh()
    assert index.read("web/a.py", 1, None).text == "web"
    wrong = {
        "a.py": "'a.py' is not in a code folder. Folders: api/, web/",
        "web": "'web' is not in a code folder. Folders: api/, web/",
        "api/../web/a.py": f"'api/../web/a.py' leads out of the code folder. {EXAMPLE}",
    }
    for path, text in wrong.items():
        with pytest.raises(DodonaError) as caught:
            index.read(path, 1, None)
        assert as_text(caught.value) == text
    index.close()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("tests/a.py", True),
        ("a/test/b.py", True),
        ("test_a.py", True),
        ("a_test.go", True),
        ("a.test.ts", True),
        ("src/MeterTest.java", True),
        ("latest.py", False),
        ("contest/a.py", False),
        ("testing_ground.py", False),
        ("Test.java", False),
    ],
)
def test_which_files_are_tests(path: str, told: bool) -> None:  # noqa: FBT001 - a table
    """By a whole word in a path."""
    assert is_test(path) is told
