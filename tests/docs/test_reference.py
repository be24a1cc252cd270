"""The reference names everything there is, and is up to date."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dodona.core.errors import DodonaError
from dodona.trees.expressions import OPERATORS
from dodona.trees.node import NodeKind
from dodona.trees.nodes import KINDS
from dodona.trees.schema import RESERVED, TYPES, Scope

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
COMMANDS = ("check", "show", "run", "trace", "test")


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()


def text_of(page: str) -> str:
    return (REFERENCE / page).read_text(encoding="utf-8")


def sections(page: str) -> dict[str, str]:
    """The text below each second-level heading."""
    parts = re.split(r"^## (.+)\n", text_of(page), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("page", GENERATOR.PAGES)
def test_a_generated_page_is_up_to_date(page: str) -> None:
    """What is committed is what would be written now. If this fails: make docs."""
    assert text_of(page) == GENERATOR.PAGES[page]()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_node_has_a_section(kind: NodeKind) -> None:
    """Each kind has a section that names its options and choices, and a line in the summary."""
    pages = sections("nodes.md")
    found = [text for title, text in pages.items() if kind.name in title.split(", ")]
    assert len(found) == 1
    assert f"({kind.name}" in found[0]
    for name, option in kind.options.items():
        assert f"| `:{name}` |" in found[0]
        assert all(f"`:{choice}`" in found[0] for choice in option.choices)
    assert kind.summary in text_of("nodes.md")


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_is_documented(operator: str) -> None:
    """Each operator has a line that shows it in use."""
    lines = sections("expressions.md")["Operators"].splitlines()
    (line,) = [line for line in lines if line.startswith(f"| `{operator}` |")]
    assert f"`({operator} " in line


@pytest.mark.parametrize("key", RESERVED)
def test_every_reserved_key_is_documented(key: str) -> None:
    assert f"| `:{key}` | {RESERVED[key]} |" in sections("expressions.md")["Reserved keys"]


@pytest.mark.parametrize("word", [*TYPES, *(scope.value for scope in Scope)])
def test_every_type_and_scope_is_documented(word: str) -> None:
    assert f"| `:{word}` |" in sections("expressions.md")["Blackboard schema"]


def hierarchy(base: type[DodonaError]) -> Iterator[type[DodonaError]]:
    yield base
    for below in base.__subclasses__():
        yield from hierarchy(below)


def test_every_error_is_documented() -> None:
    """Each class is in the table with its code, exit code and status, and in the drawn tree."""
    page = text_of("errors.md")
    drawn = page.partition("```text\n")[2].partition("```")[0]
    for error in hierarchy(DodonaError):
        if error.__module__.startswith("dodona."):
            row = f"| `{error.__name__}` | `{error.code}` | {error.exit_code} |"
            assert f"{row} {error.http_status} |" in page
            assert error.__name__ in drawn


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_documented(command: str) -> None:
    """Whatever --help names, the page names."""
    done = subprocess.run(  # noqa: S603 - our own command
        [Path(sys.executable).with_name("dodona"), "tree", command, "--help"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", done.stdout))
    section = sections("cli.md")[f"dodona tree {command}"]
    assert flags
    assert {flag for flag in flags if f"| `{flag}` |" not in section} == set()


def test_every_command_is_documented() -> None:
    """Each subcommand of `dodona tree` has a section."""
    done = subprocess.run(  # noqa: S603 - our own command
        [Path(sys.executable).with_name("dodona"), "tree", "--help"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    commands = set(re.findall(r"^│ ([a-z]+)  ", done.stdout, flags=re.MULTILINE))
    assert commands == set(COMMANDS)
    assert {f"dodona tree {command}" for command in commands} <= sections("cli.md").keys()
