"""Which files are passed over: each table is a folder's ignore files and what is left of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dodona.tools.code.files.folders import CodeFolders, FolderWalk, is_ignored


def left(root: Path) -> list[str]:
    """What a walk finds."""
    walk = FolderWalk(CodeFolders([root]).all[0], 1_000_000)
    return sorted(path for path, _ in walk.files())


def make(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


CASES = {
    "nothing": ({}, ["a.py", "b.log"], ["a.py", "b.log"]),
    "by ending": ({".gitignore": "*.log\n"}, ["a.py", "b.log", "d/c.log"], ["a.py"]),
    "anchored": ({".gitignore": "/x.py\n"}, ["x.py", "d/x.py"], ["d/x.py"]),
    "folder": ({".gitignore": "out/\n"}, ["out/a.py", "d/out/b.py", "outer.py"], ["outer.py"]),
    "negated": (
        {".gitignore": "*.gen.py\n!keep.gen.py\n"},
        ["a.gen.py", "keep.gen.py"],
        ["keep.gen.py"],
    ),
    "order": ({".gitignore": "!a.py\n*.py\n"}, ["a.py"], []),
    "not out of a folder": ({".gitignore": "x/\n!x/a.py\n"}, ["x/a.py"], []),
    "nested": (
        {".gitignore": "*.log\n", "d/.gitignore": "!keep.log\n/own.py\n"},
        ["a.log", "d/keep.log", "d/own.py", "d/e/own.py"],
        ["d/e/own.py", "d/keep.log"],
    ),
    "stars": ({".gitignore": "a/**/z.py\n"}, ["a/z.py", "a/b/c/z.py", "z.py"], ["z.py"]),
    "comments": ({".gitignore": "# *.py\n\n\\#x.py\n"}, ["a.py", "#x.py"], ["a.py"]),
    "hidden": ({}, [".env", ".secret/a.py", "a.py"], ["a.py"]),
    "usual": (
        {},
        ["node_modules/x/a.js", "__pycache__/a.py", "dist/a.js", "build/a.py", "a.min.js", "a.js"],
        ["a.js"],
    ),
    "usual after all": ({".dodonaignore": "!build/\n"}, ["build/a.py"], ["build/a.py"]),
    "our own comes first": (
        {".gitignore": "!data.py\n", ".dodonaignore": "data.py\n"},
        ["data.py", "a.py"],
        ["a.py"],
    ),
    "broken": ({".gitignore": "[\n!\n**x\n*.log\n"}, ["a.log", "b.py"], ["b.py"]),
    "windows": ({".gitignore": "\ufeff*.log\r\n"}, ["a.log", "b.py"], ["b.py"]),
    "exclude": ({".git/info/exclude": "mine.py\n"}, ["mine.py", "b.py"], ["b.py"]),
    "exclude is the weakest": (
        {".git/info/exclude": "*.py\n", ".gitignore": "!b.py\n"},
        ["a.py", "b.py"],
        ["b.py"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_of_a_folder(tmp_path: Path, name: str) -> None:
    """A walk and a single look agree."""
    rules, files, expected = CASES[name]
    make(tmp_path, {**rules, **dict.fromkeys(files, "x")})
    assert left(tmp_path) == expected
    told = [path for path in files if not is_ignored(tmp_path, tuple(path.split("/")))]
    assert sorted(told) == expected


AS_GIT = [name for name in CASES if not name.startswith(("usual", "our own", "hidden"))]


@pytest.mark.parametrize("name", AS_GIT)
def test_git_says_the_same(tmp_path: Path, name: str) -> None:
    """Where it has a say."""
    rules, files, expected = CASES[name]
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=30)  # noqa: S607
    make(tmp_path, {**rules, **dict.fromkeys(files, "x")})
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"],  # noqa: S607
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert [path for path in listed.stdout.split() if not path.endswith("ignore")] == expected


def test_costly_patterns_are_left_out(tmp_path: Path) -> None:
    """A stranger's pattern must not take years on a long name."""
    make(tmp_path, {".gitignore": "*a*a*a*a*a*a*b\n*.log\n" + "x\n" * 5_000})
    make(tmp_path, {"a" * 200: "x", "b.log": "x"})
    assert left(tmp_path) == ["a" * 200]


def test_a_list_that_is_no_text(tmp_path: Path) -> None:
    """It says nothing, and stops nothing."""
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe\0*\0.\0p\0y\0" * 100_000)
    (tmp_path / "a.py").write_text("x", encoding="utf-8")
    assert left(tmp_path) == ["a.py"]
