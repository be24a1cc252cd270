"""The map of a repository: what is most connected comes first, within a budget."""

from __future__ import annotations

import pytest

from dodona.tools.code.index.repo_map import page_rank
from tests.tools.code.repository import Repository


def files_of(drawn: str) -> list[str]:
    return [line for line in drawn.split("\n") if line and not line.startswith(" ")]


@pytest.fixture
def shelf(code: Repository) -> Repository:
    """`core.py` is used by all, `edge.py` by nobody."""
    code.write(
        "core.py",
        "class Core:\n    def run_core(self):\n        pass\n\n\ndef unused():\n    pass\n",
    )
    code.write("edge.py", "from mid import middle\n\n\ndef edge():\n    return middle()\n")
    code.write("mid.py", "from core import Core\n\n\ndef middle():\n    return Core().run_core()\n")
    for n in range(4):
        code.write(f"user{n}.py", f"from core import Core\n\n\ndef use{n}():\n    Core()\n")
    code.write("tests/test_core.py", "from core import Core\n\n\ndef test_core():\n    Core()\n")
    code.refresh()
    return code  # fmt: skip


def test_the_most_connected_first(shelf: Repository) -> None:
    """Each file with what it defines, by line; a method is indented, tests come last."""
    drawn = shelf.index.repo_map(1_000, "")
    assert files_of(drawn)[0] == "core.py"
    assert files_of(drawn)[-1] == "tests/test_core.py"
    assert drawn.split("\n")[:4] == [
        "core.py",
        "     1  class Core",
        "     2    def run_core(self)",
        "     6  def unused()",
    ]
    assert "mid.py\n     4  def middle()" in drawn


@pytest.mark.parametrize("tokens", [1, 3, 5, 10, 20, 40, 80, 1_000])
def test_it_fits_the_budget(shelf: Repository, tokens: int) -> None:
    """At four characters a token; the more there are, the more is shown."""
    drawn = shelf.index.repo_map(tokens, "")
    assert len(drawn) <= tokens * 4
    more = shelf.index.repo_map(tokens * 2, "")
    assert len(more) >= len(drawn)
    if tokens == 1_000:
        assert len(files_of(drawn)) == 8


def test_a_focus_comes_first(shelf: Repository) -> None:
    """By a path, by a word of the code, and then what these use."""
    assert files_of(shelf.index.repo_map(1_000, "edge.py"))[0] == "edge.py"
    assert files_of(shelf.index.repo_map(1_000, "middle"))[0] == "mid.py"
    assert files_of(shelf.index.repo_map(1_000, "tests/"))[0] == "tests/test_core.py"
    assert files_of(shelf.index.repo_map(1_000, "zebra"))[0] == "core.py"


def test_what_others_use_is_shown(code: Repository) -> None:
    """Of many definitions in a file, those."""
    names = "".join(f"def helper_{n}():\n    pass\n\n\n" for n in range(30))
    code.write("a.py", names)
    code.write("b.py", "from a import helper_27\n\nhelper_27()\n")
    code.refresh()
    lines = code.index.repo_map(1_000, "").split("\n")
    assert lines[0] == "a.py"
    assert "   109  def helper_27()" in lines[:9]
    assert len(files_of("\n".join(lines))) == 2


def test_words_of_everybody_connect_little(code: Repository) -> None:
    """What is imported counts; `append` may be anything's, and a local function is nobody's."""
    code.write("errors.py", "class Denied(Exception):\n    pass\n")
    code.write(
        "store.py",
        "class Store:\n    def append(self):\n        def commit():\n            pass\n"
        "    def get(self):\n        pass\n",
    )
    for n in range(6):
        code.write(
            f"user{n}.py",
            f"from errors import Denied\n\n\ndef use{n}(these):\n"
            "    these.append(these.get(0))\n    these.commit()\n    raise Denied\n",
        )
    code.refresh()
    drawn = code.index.repo_map(1_000, "")
    assert files_of(drawn)[0] == "errors.py"
    assert "commit" not in drawn


def test_a_class_is_shown_before_methods_that_anybody_may_have(code: Repository) -> None:
    """A file has room for eight lines."""
    methods = "".join(f"    def word{n}(self):\n        pass\n" for n in range(9))
    code.write("shelf.py", f"class Shelf:\n{methods}")
    said = "".join(f"x.word{n}()\n" for n in range(9))
    for n in range(3):
        code.write(f"user{n}.py", f"from shelf import Shelf\n\nx = Shelf()\n{said}")
    code.refresh()
    assert code.index.repo_map(1_000, "").split("\n")[:2] == ["shelf.py", "     1  class Shelf"]


def test_it_follows_the_index(code: Repository) -> None:
    """Nothing is drawn of what is gone; of nothing, nothing."""
    assert code.index.repo_map(1_000, "") == ""
    place = code.write("a.py", "def alpha():\n    pass\n")
    code.refresh()
    assert code.index.repo_map(1_000, "") == "a.py\n     1  def alpha()"
    place.unlink()
    code.write("b.py", "def beta():\n    pass\n")
    code.refresh()
    assert code.index.repo_map(1_000, "") == "b.py\n     1  def beta()"


IMPORTS = [
    ("pkg/util.py", "pkg/a.py", "from .util import x\n"),
    ("pkg/util.py", "pkg/a.py", "from pkg.util import x\n"),
    ("pkg/util.py", "pkg/a.py", "from pkg import util\n"),
    ("pkg/util.py", "top.py", "import outer.pkg.util\n"),
    ("pkg/__init__.py", "top.py", "import pkg\n"),
    ("lib/util.js", "lib/a.js", 'import { x } from "./util.js";\n'),
    ("lib/util.ts", "lib/a.ts", 'import { x } from "./util";\n'),
    ("lib/index.js", "a.js", 'require("./lib");\n'),
    ("src/errors.rs", "src/a.rs", "use crate::errors::Denied;\n"),
    ("org/example/Limits.java", "org/A.java", "import static org.example.Limits.LIMIT;\n"),
    ("internal/store/db.go", "a.go", 'package a\nimport "example.org/app/internal/store"\n'),
    ("inc/meter.h", "a.c", '#include "meter.h"\n'),
    ("lib/errors.rb", "lib/a.rb", 'require_relative "errors"\n'),
    ("App/Errors.php", "a.php", "<?php\nuse App\\Errors;\n"),
    ("lib.sh", "a.sh", "source ./lib.sh\n"),
]


@pytest.mark.parametrize(("imported", "importer", "text"), IMPORTS)
def test_an_import_connects(code: Repository, imported: str, importer: str, text: str) -> None:
    """In the way of each language; the file that is imported comes before its user's neighbour."""
    code.write(imported, "\n")
    code.write(importer, text)
    code.write("0.txt", "first by name, connected to nothing\n")
    code.refresh()
    assert files_of(code.index.repo_map(1_000, ""))[0] == imported


def test_ranks_are_shares() -> None:
    """They come to one; who is used by those that matter matters."""
    edges = [[(1, 1.0)], [(2, 1.0)], [], [(2, 1.0)]]
    ranks = page_rank(edges, [0.0] * 4)
    assert sum(ranks) == pytest.approx(1.0)
    assert max(ranks) == ranks[2]
    assert ranks[1] > ranks[0]
    personal = page_rank(edges, [0.0, 0.0, 0.0, 1.0])
    assert personal[0] == 0.0
    assert sum(personal) == pytest.approx(1.0)
