"""The two Oracle programs do what docs/explanation/oracle-program.md says of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dodona.trees import Registry
from dodona.trees.nodes import KINDS
from dodona.trees.tooling import testing

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "oracle-program.md"


def results(program: str) -> list[testing.TestResult]:
    files = testing.test_files(ROOT / "examples" / "oracle" / program)
    return list(testing.run_tests(files, Registry(KINDS)))


@pytest.mark.parametrize("program", ["seed.lisp", "oracle.lisp"])
def test_the_tests_beside_the_program_pass(program: str) -> None:
    """Every (test …) beside the program passes, without any leaf in Python."""
    found = results(program)
    assert len(found) > 5
    assert [(r.name, r.failures) for r in found if not r.passed] == []


def test_the_page_names_tests_that_exist() -> None:
    """What the page calls a test is one."""
    names = {result.name for program in ("seed.lisp", "oracle.lisp") for result in results(program)}
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    quoted = [
        name
        for part in re.findall(r"Tests: (.*?)(?: ##|$)", text)
        for name in re.findall(r'"([^"]+)"', part)
    ]
    assert len(quoted) >= 9
    assert [name for name in quoted if name not in names] == []
