"""TOML files: whatever is wrong is told at once, where it is, with what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import AfterValidator, Field

from dodona.core.errors import ConfigError
from dodona.documents import MAX_BYTES, NonEmptyStrings, Section, field_error, read_document


def _no_shouting(text: str) -> str:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.isupper():
            raise field_error("must not shout", "Write it small.", line=number)
    return text


class Leaf(Section):
    name: str = Field(min_length=1, description="What it is `called`.")
    size: int = Field(default=1, gt=0)
    kind: Literal["oak", "ash"] = "oak"
    text: Annotated[str, AfterValidator(_no_shouting)] = ""


class Wood(Section):
    leaf: Leaf
    leaves: Annotated[tuple[Leaf, ...], Field(strict=False)] = ()
    named: Mapping[str, Leaf] = {}
    words: NonEmptyStrings = ()


def mistakes(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "w.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as found:
        read_document(file, label="the wood").validate(Wood)
    return str(found.value).replace(f"{tmp_path}/", "").splitlines()


def test_what_is_right_is_read(tmp_path: Path) -> None:
    """As the model has it."""
    file = tmp_path / "w.toml"
    file.write_text('words = ["a"]\n[leaf]\nname = "x"\n[[leaves]]\nname = "y"\nkind = "ash"\n')
    found = read_document(file, label="the wood").validate(Wood)
    assert found == Wood(leaf=Leaf(name="x"), leaves=(Leaf(name="y", kind="ash"),), words=("a",))


def test_all_mistakes_are_told_at_once_line_by_line(tmp_path: Path) -> None:
    """Those of a key, of a section, of an array's member, of a name that is not there."""
    text = """\
words = [""]
shade = true
[leaf]
nam = "x"
size = -5
kind = "oka"
[[leaves]]
name = "a"
size = "big"
[[leaves]]
nmae = "b"
[named.first]
name = "c"
leaf = 1
[trunk]
"""
    assert mistakes(tmp_path, text) == [
        'w.toml:1: words[0] must be a non-empty string (got "").',
        "w.toml:2: unknown key shade. Sections: leaf, leaves, named, words.",
        "w.toml:3: leaf.name is missing. What it is called.",
        "w.toml:4: unknown key leaf.nam. Did you mean 'name'?",
        "w.toml:5: leaf.size must be > 0 (got -5).",
        "w.toml:6: leaf.kind must be one of oak, ash (got \"oka\"). Did you mean 'oak'?",
        'w.toml:9: leaves[0].size must be a whole number (got "big").',
        "w.toml:10: leaves[1].name is missing. What it is called.",
        "w.toml:11: unknown key leaves[1].nmae. Did you mean 'name'?",
        "w.toml:14: unknown key named.first.leaf. Keys of [named.first]: kind, name, size, text.",
        "w.toml:15: unknown section [trunk]. Sections: leaf, leaves, named, words.",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('text = "LOUD"', 3),
        ('text = """\nsoft\nLOUD\n"""', 5),
        ("text = '''\nLOUD'''", 4),
        ("text = '''LOUD'''", 3),
        ('text = """LOUD\nsoft"""', 3),
        ('text = """soft\nLOUD"""', 4),
    ],
)
def test_a_mistake_within_a_text_has_its_own_line(tmp_path: Path, text: str, line: int) -> None:
    """Whoever wrote a long text need not count."""
    assert mistakes(tmp_path, f'[leaf]\nname = "x"\n{text}\n') == [
        f"w.toml:{line}: leaf.text must not shout. Write it small."
    ]


def test_what_is_missing_wholly_is_told_of_the_file(tmp_path: Path) -> None:
    """There is no line to tell."""
    assert mistakes(tmp_path, "") == ["w.toml: leaf is missing."]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"a = \n", "w.toml:1:5: invalid TOML: invalid value. Put text in quotes."),
        (b"\n\nx = '\xff'", "w.toml:3: the file is not valid UTF-8. Is it the right file?"),
        (
            b"#" * (MAX_BYTES + 1),
            "w.toml: the wood is larger than 1,000,000 bytes. Is it the right file?",
        ),
        (
            b"a" + b".a" * 100 + b" = 1",
            "w.toml:1: keys or values are nested more than 64 levels deep. Is it the right file?",
        ),
    ],
)
def test_what_is_no_such_file_is_told(tmp_path: Path, raw: bytes, told: str) -> None:
    """By what it is called."""
    (tmp_path / "w.toml").write_bytes(raw)
    with pytest.raises(ConfigError) as found:
        read_document(tmp_path / "w.toml", label="the wood")
    assert str(found.value).replace(f"{tmp_path}/", "") == told


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    """A folder, or nothing at all."""
    with pytest.raises(ConfigError) as found:
        read_document(tmp_path, label="the wood")
    assert str(found.value) == (
        f"{tmp_path}: the wood cannot be read: Is a directory. Check that it is a file and that "
        "you have permission to read it."
    )
