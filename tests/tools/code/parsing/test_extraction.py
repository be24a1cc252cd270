"""What is taken from source files, language by language: see samples.py for the tables."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.tools.code.parsing.extracted import ExtractedFile
from dodona.tools.code.parsing.extraction import extract
from dodona.tools.code.parsing.grammar import LANGUAGES, language_of
from tests.tools.code.samples import SAMPLES


def taken(language: str) -> ExtractedFile:
    sample = SAMPLES[language]
    return extract(sample.path, sample.source.encode())


def test_every_language_has_a_sample() -> None:
    """So none is without tests; the twelve that were promised are there."""
    assert set(SAMPLES) == set(LANGUAGES)
    promised = "python javascript typescript go rust java c cpp ruby csharp php bash"
    assert set(promised.split()) <= set(LANGUAGES)


@pytest.mark.parametrize("language", SAMPLES)
def test_what_a_file_defines(language: str) -> None:
    """Kind, path and lines of each name, in the order of the file."""
    found = taken(language)
    assert found.language == language
    lines = [
        f"{s.kind} {f'{s.container}.' if s.container else ''}{s.name} {s.first}-{s.last}"
        for s in found.symbols
    ]
    assert lines == SAMPLES[language].symbols.splitlines()


@pytest.mark.parametrize("language", SAMPLES)
def test_what_a_file_imports(language: str) -> None:
    """The module as it is written, and what is taken from it."""
    lines = [
        f"{i.line} {i.module}{': ' if i.names else ''}{' '.join(i.names)}"
        for i in taken(language).imports
    ]
    assert lines == SAMPLES[language].imports.splitlines()


@pytest.mark.parametrize("language", SAMPLES)
def test_chunks_begin_and_end_with_definitions(language: str) -> None:
    """A comment or decorator goes with what is below it; what is small is joined."""
    lines = [f"{c.first}-{c.last} {c.title}".rstrip() for c in taken(language).chunks]
    assert lines == SAMPLES[language].chunks.splitlines()


@pytest.mark.parametrize("language", SAMPLES)
def test_names_leave_comments_and_strings_out(language: str) -> None:
    """They are what connects files."""
    sample = SAMPLES[language]
    assert sample.name in taken(language).names
    assert not {"Counts", "Budgets"} & taken(language).names


SIGNATURES = [
    ("a.py", "def f(a, # 1\n      b):  # why\n    # because\n    pass\n", "def f(a, # 1 b)"),
    ("a.py", "class A(B, metaclass=C):\n    pass\n", "class A(B, metaclass=C)"),
    ("a.py", "LIMIT: Final = 3\n", "LIMIT: Final = 3"),
    ("a.js", "export const f = async (a) => {\n  return 1;\n};\n", "export const f = async (a)"),
    ("a.go", "func (m *M) F(a int) (b int, c C) {\n}\n", "func (m *M) F(a int) (b int, c C)"),
    ("a.rs", "pub fn f<T>(a: T)\nwhere\n    T: Copy,\n{\n}\n", "pub fn f<T>(a: T) where T: Copy,"),
    ("a.c", "static int\nf(int a)\n{\n}\n", "static int f(int a)"),
    ("a.rb", "def f(a) # why\n  a\nend\n", "def f(a)"),
    ("a.py", f"def f({', '.join(f'argument_{n}' for n in range(99))}):\n    pass\n", None),
]  # fmt: skip


@pytest.mark.parametrize(("path", "source", "signature"), SIGNATURES)
def test_a_signature_is_one_line_without_the_body(
    path: str, source: str, signature: str | None
) -> None:
    """Nor the comments before it; a long one is cut."""
    found = extract(path, source.encode()).symbols[0].signature
    assert found == signature or (signature is None and len(found) == 200)


LANGUAGES_OF = [
    ("a.py", b"", "python"),
    ("A.PY", b"", "python"),
    ("stub.pyi", b"", "python"),
    ("run", b"#!/usr/bin/env python3\n", "python"),
    ("run", b"#!/usr/bin/python3.12 -O\n", "python"),
    ("run", b"\xef\xbb\xbf#!/bin/bash\n", "bash"),
    ("run", b"#!/usr/bin/env -S node --harmony\n", "javascript"),
    ("run", b"#!/usr/bin/perl\n", "text"),
    ("Rakefile", b"", "ruby"),
    ("a.h", b"int x;\n", "c"),
    ("a.h", b"#pragma once\nnamespace x {\n", "cpp"),
    ("a.tsx", b"", "tsx"),
    ("a.jsx", b"", "javascript"),
    ("a.mts", b"", "typescript"),
    ("notes.md", b"", "text"),
    ("py", b"", "text"),
    (".py", b"", "text"),
    ("folder.py/LICENSE", b"", "text"),
]


@pytest.mark.parametrize(("path", "head", "language"), LANGUAGES_OF)
def test_the_language_of_a_file(path: str, head: bytes, language: str) -> None:
    """By its extension, its name or its first line."""
    assert language_of(path, head) == language


def test_other_languages_are_text() -> None:
    """In pieces of some lines, without definitions."""
    source = "".join(f"fun f{n}() {{\n    print({n})\n}}\n\n" for n in range(60))
    found = extract("a.kt", source.encode())
    assert (found.language, found.symbols, found.imports, found.names) == ("text", (), (), set())
    assert found.chunks[0].first == 1
    assert all(chunk.last - chunk.first < 40 for chunk in found.chunks)
    assert len(found.chunks) >= 6


def test_a_large_definition_is_cut_within() -> None:
    """At what it holds, and at blank lines where it holds nothing; titles say where that is."""
    body = "".join(f"        x = {n}\n" + "\n" * (n % 10 == 0) for n in range(100))
    source = f"class A:\n    def f(self):\n{body}\n    def g(self):\n        return 1\n"
    lines = source.split("\n")
    chunks = extract("a.py", source.encode()).chunks
    assert [chunk.title for chunk in chunks] == [
        "class A",
        "class A > def f",
        "class A > def f",
        "class A > def g",
    ]
    assert lines[chunks[1].last] == ""


@pytest.mark.parametrize("language", SAMPLES)
@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 900), max_size=4), junk=st.binary(max_size=20))
def test_each_line_is_in_one_chunk(language: str, cuts: list[int], junk: bytes) -> None:
    """Each one that is not blank, however broken the file is; and nothing raises."""
    data = SAMPLES[language].source.encode() * 3
    for cut in cuts:
        data = data[:cut] + junk + data[cut + 30 :]
    found = extract(SAMPLES[language].path, data)
    covered = [n for chunk in found.chunks for n in range(chunk.first, chunk.last + 1)]
    assert len(covered) == len(set(covered))
    lines = data.split(b"\n")
    blank = {n for n, line in enumerate(lines, 1) if not line.strip()}
    assert set(covered) >= set(range(1, len(lines) + 1)) - blank
    assert all(1 <= s.first <= s.last <= len(lines) for s in found.symbols)


HOSTILE = {
    "open brackets": ("a.py", b"(" * 50_000),
    "nested calls": ("a.js", b"f(" * 20_000),
    "nested functions": ("a.py", b"".join(b" " * n + b"def f():\n" for n in range(400))),
    "angles": ("a.cpp", b"a<" * 20_000),
    "angles in strings": ("a.ts", b'x = "<";\n' * 2_000),
    "one line": ("a.js", b"var a=1;" * 20_000),
    "a table": ("a.py", b"".join(b"x%d = %d\n" % (n, n) for n in range(60_000))),
    "targets": ("a.py", b"(" * 500 + b"a" + b",)" * 500 + b" = 1\n"),
    "no end": ("a.c", b"/*" + b"x" * 100_000),
    "quotes": ("a.sh", b'"$(' * 3_000),
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.slow
def test_no_file_takes_long(what: str) -> None:
    """A stranger's file may be made to be hard: it is text then, or without definitions."""
    path, data = HOSTILE[what]
    found = extract(path, data)  # within the timeout of a test
    assert found.chunks[-1].last <= data.count(b"\n") + 1


def test_lines_are_those_of_the_file_in_any_encoding() -> None:
    """A mark, Windows line ends, Latin-1: the numbers are the same."""
    source = "# größe\r\n\r\ndef größe():\r\n    pass\r\n"
    for data in (source.encode(), b"\xef\xbb\xbf" + source.encode(), source.encode("latin-1")):
        (symbol,) = extract("a.py", data).symbols
        assert (symbol.name, symbol.first, symbol.last) == ("größe", 3, 4)
