"""The public API in Python: every name is documented, and nothing else is used in examples."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dodona
from dodona import testing
from tests.docs.test_reference import GENERATOR

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "python.md").read_text("utf-8")
GENERATED_BY = vars(sys.modules[GENERATOR.python_page.__module__])
PUBLIC = {"dodona": dodona.__all__, "dodona.testing": testing.__all__}
# Pages and files for users of the public API.
TEMPLATES = ROOT / "src" / "dodona" / "cli" / "commands" / "project" / "templates"
EXAMPLES = [
    *(ROOT / "docs" / "tutorials" / f"{name}.md" for name in ("first-tool", "own-agent")),
    *(ROOT / "docs" / "how-to" / f"{name}.md" for name in ("embed-dodona", "publish-an-extension")),
    *sorted((ROOT / "examples" / "extension").rglob("*.py")),
    *sorted(TEMPLATES.glob("*.py.txt")),
]


@pytest.mark.parametrize("name", [*dodona.__all__, *testing.__all__])
def test_every_public_name_is_documented(name: str) -> None:
    """With a description; a chunk in the table."""
    if name.endswith("Chunk"):
        assert re.search(rf"^\| `{name}` \| \w.* \|$", PAGE, re.M)
    else:
        section = PAGE.partition(f"\n### {name}\n")[2].partition("\n##")[0]
        assert re.search(r"^\w.*[.:]", section, re.M), name


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_exist(module: str) -> None:
    """`import *` works, and nothing is listed twice."""
    names = PUBLIC[module]
    package = dodona if module == "dodona" else testing
    assert all(hasattr(package, name) for name in names)
    assert len(names) == len(set(names))


def test_the_page_describes_what_exists() -> None:
    """The sections and members that the generator selects are those of the code."""
    assert {name for names in GENERATED_BY["SECTIONS"].values() for name in names} <= set(
        dodona.__all__
    )
    for name, members in GENERATED_BY["MEMBERS"].items():
        value = getattr(dodona, name, None) or getattr(testing, name)
        for member in members:
            described = inspect.getattr_static(value, member)
            assert inspect.getdoc(getattr(described, "__func__", described)), f"{name}.{member}"


def imports(file: Path) -> Iterator[tuple[str, str]]:
    """Yield what a file, or the Python blocks of a page, imports from Dodona."""
    text = file.read_text("utf-8")
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", text, re.M | re.S)
    for block in blocks if file.suffix == ".md" else [text.replace("$module", "mine")]:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Import):
                yield from ((each.name, "") for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((str(node.module), each.name) for each in node.names)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_examples_use_public_names_only(file: Path) -> None:
    """Nothing else is imported from Dodona."""
    used = [each for each in imports(file) if each[0].partition(".")[0] == "dodona"]
    for module, name in used:
        assert module in PUBLIC, f"{file.name}: {module}"
        assert name in ("", "testing", *PUBLIC[module]), f"{file.name}: {module}.{name}"
