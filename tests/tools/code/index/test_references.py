"""Where names are used, across files."""

from __future__ import annotations

from tests.tools.code.repository import Repository


def used(code: Repository, name: str, limit: int = 50) -> list[str]:
    return [f"{each.path}:{each.line}" for each in code.index.references(name, limit)]


def test_uses_across_files(code: Repository) -> None:
    """First where it is defined, then by path; text of other languages last."""
    code.write("b/meter.py", "def reserve():\n    pass\n\n\nreserve()\n")
    code.write("a.py", "from b.meter import reserve\n\n# reserve\nx = 'reserve'\n")
    code.write("c.js", "reserve(); meter.reserve();\n")
    code.write("A.kt", "reserve()\n")
    code.write("README.md", "Call reserve.\n")
    code.refresh()
    assert used(code, "reserve") == ["b/meter.py:5", "a.py:1", "c.js:1", "c.js:1", "A.kt:1"]
    assert used(code, "meter.reserve", 2) == ["b/meter.py:5", "a.py:1"]
    assert used(code, "Reserve") == []
    assert used(code, "") == []
    assert used(code, "nothing") == []


def test_a_reference_says_where_it_is(code: Repository) -> None:
    """Line, column, text, and the innermost definition around it."""
    code.write(
        "a.py",
        "class A:\n    def f(self):\n        return  reserve(1)  # why\n\n\nreserve(2)\n",
    )
    code.refresh()
    first, second = code.index.references("reserve", 5)
    assert (first.line, first.column, first.text) == (3, 16, "return  reserve(1)  # why")
    assert (first.container, second.container) == ("A.f", "")


def test_lines_are_those_of_the_file_as_it_is_now(code: Repository) -> None:
    """Even before the index has seen the change; a file that is gone has none."""
    code.write("a.py", "reserve()\n")
    code.write("b.py", "reserve()\n")
    code.refresh()
    code.write("a.py", "def f():\n\n\n    reserve()\n")
    (code.root / "b.py").unlink()
    (found,) = code.index.references("reserve", 5)
    assert (found.path, found.line, found.container) == ("a.py", 4, "f")


def test_names_that_are_several_words(code: Repository) -> None:
    """As those of a shell's functions, or with a question mark."""
    code.write("a.sh", "to-do() {\n  echo\n}\nto-do\n")
    code.write("b.rb", "def empty?\n  true\nend\n\nempty?\n")
    code.refresh()
    assert used(code, "to-do") == ["a.sh:4"]
    assert used(code, "empty?") == ["b.rb:5"]


def test_a_very_long_line_is_cut(code: Repository) -> None:
    """A hit must not bring a whole file with it."""
    code.write("a.js", "reserve();" * 500 + "\n")
    code.refresh()
    found = code.index.references("reserve", 1_000)
    assert len(found) == 500
    assert {len(each.text) for each in found} == {200}


def test_a_name_that_is_everywhere(code: Repository) -> None:
    """As many as are wanted, of the first files."""
    for number in range(300):
        code.write(f"f{number:03}.py", "reserve()\n" * 3)
    code.refresh()
    assert used(code, "reserve", 4) == ["f000.py:1", "f000.py:2", "f000.py:3", "f001.py:1"]
