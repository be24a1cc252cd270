"""Finds sentences that do not read as plain English.

`python tests/style/prose.py [PATH…]` lists them for files or folders; without a path, for
everything that a person reads.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READ_BY_PEOPLE = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs", "src", "examples")

# Each of these has a plainer word: show, report, say · allow · the noun itself · a user, a client.
ODD = re.compile(
    r"\b(?:whoever|whomever|whom|whosoever|somebody|nobody|anybody|everybody"
    r"|tells?|told|telling|untold|lets|let|letting|heed(?:s|ed|ing)?|anew|thereby|wherein|hence"
    r"|(?:what|that which) (?:is|was|are|were|has|had))\b(?![-'’])",
    re.IGNORECASE,
)
# Data that contains words, not sentences, and quotations.
DATA = (
    "src/dodona/models/extractive/small_talk.py",
    "src/dodona/retrieval/words.py",
    "src/dodona/agent/conversation/insights.py",
    "examples/vault",
)


def sentences(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the prose of a file with line numbers: Markdown, docstrings, messages, comments."""
    text = file.read_text("utf-8")
    if file.suffix == ".py":
        yield from _python(text)
    elif file.suffix == ".md":
        yield from _markdown(text)
    elif file.suffix in {".lisp", ".toml", ".html", ".jinja"}:
        yield from enumerate(text.splitlines(), 1)


def _markdown(text: str) -> Iterator[tuple[int, str]]:
    """Skip fenced code and inline code."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)


def _python(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, re.sub(r"`[^`]*`", "", line)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], re.sub(r"`[^`]*`", "", token.string)


def odd_sentences(paths: list[Path]) -> list[str]:
    """Return `file:line: word: text` for each place where a person reads an odd word."""
    found: list[str] = []
    for path in paths:
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in (each for each in files if each.is_file() and "__pycache__" not in each.parts):
            name = file.relative_to(ROOT).as_posix()
            if name.startswith(DATA):
                continue
            for number, line in sentences(file):
                if (odd := ODD.search(line)) and not line.rstrip().endswith("?"):
                    found.append(f"{name}:{number}: {odd[0]}: {line.strip()[:100]}")
    return sorted(set(found))


if __name__ == "__main__":
    chosen = [Path(name).resolve() for name in sys.argv[1:] or READ_BY_PEOPLE]
    lines = odd_sentences(chosen)
    print(*lines, f"{len(lines)} places", sep="\n")  # noqa: T201
