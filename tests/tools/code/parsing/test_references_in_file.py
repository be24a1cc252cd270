"""Where names are used: see samples.py for a table of each language."""

from __future__ import annotations

import pytest

from dodona.tools.code.parsing.references_in_file import find_uses
from tests.tools.code.samples import SAMPLES


def places(path: str, source: str | bytes, name: str) -> str:
    data = source.encode() if isinstance(source, str) else source
    return " ".join(f"{use.line}:{use.column}" for use in find_uses(path, data, name))


@pytest.mark.parametrize("language", SAMPLES)
def test_uses_in_a_language(language: str) -> None:
    """Calls, reads and writes; not definitions, parameters, comments or strings."""
    sample = SAMPLES[language]
    assert places(sample.path, sample.source, sample.name) == sample.uses


PYTHON = [
    ("import x\n", "1:7"),
    ("from a import x, y\n", "1:14"),
    ("from x import y\n", "1:5"),
    ("x = 1\n", ""),
    ("x += 1\n", "1:0"),
    ("a.x = 1\n", "1:2"),
    ("a[x] = 1\n", "1:2"),
    ("a, x = 1, 2\n", ""),
    ("def f(x): pass\n", ""),
    ("def f(a=x): pass\n", "1:8"),
    ("def f(a: x): pass\n", "1:9"),
    ("def f(x: int = 1): pass\n", ""),
    ("def f(*x, **y): pass\n", ""),
    ("lambda x: x\n", "1:10"),
    ("f(x=1)\n", "1:2"),
    ("for x in y: pass\n", ""),
    ("for a, x in y: pass\n", ""),
    ("for y in x: pass\n", "1:9"),
    ("[x for x in y]\n", "1:1"),
    ("with a as x: pass\n", ""),
    ("with x as a: pass\n", "1:5"),
    ("if (x := 1): pass\n", ""),
    ("def x(): return x()\n", "1:16"),
    ("@x\ndef f(): pass\n", "1:1"),
    ("class A(x): pass\n", "1:8"),
    ("class A:\n    x: int = 1\n", ""),
    ("class A:\n    def f(self):\n        self.x = 1\n        self.x = 2\n", "4:13"),
    ("f'{x} x'\n", "1:3"),
    ("'x' # x\n", ""),
    ("def f():\n    x = 1\n    return x\n", "3:11"),
    ("def f():\n    global x\n    x = 1\n", "2:11"),
    ("def f() -> list[x]: pass\n", "1:16"),
    ("del x\n", "1:4"),
    ("xx = x_ + _x\n", ""),
    ("'größe'; x\n", "1:9"),
]


@pytest.mark.parametrize(("source", "found"), PYTHON)
def test_uses_in_python(source: str, found: str) -> None:
    """A name is not used where it is given to something; columns count characters."""
    assert places("a.py", source, "x") == found


NEW = [
    ("a.js", "function f(x) { let x = 1; const y = x; }", "1:37"),
    ("a.js", "for (const x of xs) {}", ""),
    ("a.ts", "function f(x: T, y = x) {}", "1:21"),
    ("a.ts", "function f(a: x) {}", "1:14"),
    ("a.go", "package a\nfunc f(x int) {\n\tfor x := range y {\n\t}\n\tvar x = x\n}\n", "5:9"),
    ("a.go", "package a\nfunc f(a x) {\n}\n", "2:9"),
    ("a.rs", "fn f(x: u8) { let mut x = x; }", "1:26"),
    ("a.java", "class A { void f(int x) { int x = x; for (int x : xs) {} } }", "1:34"),
    ("a.c", "int f(int *x) { int x = x; return x; }", "1:24 1:34"),
    ("a.rb", "def f(x, y = x)\n  x = x\nend\n", "1:13 2:6"),
    ("a.php", "<?php function f($x) { return $x; }", "1:31"),
    ("a.cs", "class A { void F(int x) { var x = x; foreach (var x in xs) {} } }", "1:34"),
    ("a.sh", "f() {\n  x=1\n  echo $x\n}\n", "3:8"),
]


@pytest.mark.parametrize(("path", "source", "found"), NEW)
def test_new_names_are_no_uses(path: str, source: str, found: str) -> None:
    """Parameters and local variables, where they begin."""
    assert places(path, source, "x") == found


def test_other_languages_by_whole_words() -> None:
    """There is no telling comments apart; prose is left out."""
    source = "fun meter() {}\nmeter() // meter, meters\n"
    assert places("a.kt", source, "meter") == "1:4 2:0 2:11"
    assert places("README.md", source, "meter") == ""
    assert places("notes.txt", source, "meter") == ""
    assert places("a.kt", source, "me.er") == ""


def test_any_encoding() -> None:
    """Columns are those of the text."""
    assert places("a.py", "a = 'ü'; größe\n".encode("latin-1"), "größe") == "1:9"
    assert places("a.py", b"\xef\xbb\xbfx\n", "x") == "1:0"
    assert places("a.py", b"x\n", "") == ""
