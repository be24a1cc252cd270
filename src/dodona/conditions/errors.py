"""Translate error messages of the CEL library, and locate them in the expression."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from dodona.conditions.tokens import MACROS, Token
from dodona.core.errors import ConfigError, SourceLocation, did_you_mean

_LOCATED_ERROR: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_UNDECLARED: Final = re.compile(r"undeclared reference to '(.*?)'")
_NO_OVERLOAD: Final = re.compile(
    r"[Nn]o matching overloads? (?:found : |for )'?_?(.+?)_?'?"
    r"(?: applied to ')?\((.*?)\)"
)
_UNEXPECTED: Final = re.compile(
    r"(?:mismatched input|extraneous input|token recognition error at:|no viable alternative at "
    r"input) '(.*?)'(?: expecting .*)?$"
)
_MISSING_KEY: Final = re.compile(r'Key not found in map : "(.*)"')

FUNCTIONS: Final = MACROS | {
    *("size", "has", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double"),
    *("string", "bool", "bytes", "type", "dyn", "duration", "timestamp"),
}

# Common habits from other languages.
_CORRECTIONS: Final = {
    "=": "Write == to compare.",
    "and": "Write &&.",
    "or": "Write ||.",
    "not": "Write !.",
    "&": "Write &&.",
    "|": "Write ||.",
    "len": "Write size(…).",
    "length": "Write size(…).",
    "True": "Write true.",
    "False": "Write false.",
    "None": "Write null.",
    "any": "Write exists(…).",
    "starts_with": "Write startsWith(…).",
    "ends_with": "Write endsWith(…).",
    "float": "Write double(…).",
    "str": "Write string(…).",
}


def error_at(source: str, start: int, message: str, hint: str = "") -> ConfigError:
    """Build an error at an offset of the expression."""
    before = source[:start]
    line, column = before.count("\n") + 1, start - before.rfind("\n")
    source_line = source.split("\n")[line - 1]
    excerpt = f"  {source_line}\n  {' ' * (column - 1)}^"
    return ConfigError(message, where=SourceLocation("", line, column, excerpt), hint=hint)


def compile_error(
    source: str, compiler_output: str, *, tokens: Sequence[Token], names: Iterable[str]
) -> ConfigError:
    """Build the error for the first problem that the compiler reported."""
    located = _LOCATED_ERROR.search(compiler_output)
    if located is None or int(located[1]) < 1:
        if "recursion" in compiler_output:
            return error_at(source, 0, "the expression is nested too deeply.", "Simplify it.")
        return error_at(source, 0, "the expression is not valid.", "Is it plain text?")
    start, message = _offset(source, located), located[3]
    undeclared = _UNDECLARED.match(message)
    if undeclared is None:
        return error_at(source, start, *_describe_error(message))
    # For a misspelt macro, the compiler reports its loop variable first.
    for other in _LOCATED_ERROR.finditer(compiler_output):
        name, offset = _UNDECLARED.match(other[3]), _offset(source, other)
        called = _called_function(tokens, offset)
        if name is not None and called is not None:
            return _unknown_function_error(source, name[1], called)
    return _unknown_name_error(source, undeclared[1], start, tokens=tokens, names=tuple(names))


def _offset(source: str, match: re.Match[str]) -> int:
    line, column = int(match[1]), int(match[2])
    return sum(len(text) + 1 for text in source.split("\n")[: line - 1]) + column - 1


def describe_evaluation_error(error_text: str) -> tuple[str, str]:
    """Return message and hint for an error that occurred during evaluation."""
    missing = _MISSING_KEY.search(error_text)
    if missing is not None:
        return f"the key '{missing[1]:.80}' is missing.", "Test with has(…) first."
    return _describe_error(error_text.split(": ", 1)[-1].removesuffix("]").split(" [")[0])


def _describe_error(message: str) -> tuple[str, str]:
    no_overload = _NO_OVERLOAD.search(message)
    if no_overload is not None and no_overload[1] == "?_:":
        return "both values after '?' must have the same type.", ""
    if no_overload is not None:
        types = no_overload[2].replace("int64", "int").replace(", ", " and ")
        return (
            f"'{no_overload[1]}' does not accept {types}.",
            "Convert with int(…), double(…) or string(…).",
        )
    unexpected = _UNEXPECTED.search(message)
    if unexpected is None:
        return f"{message.removeprefix('Syntax error: ').rstrip('.'):.200}.", ""
    word = unexpected[1].strip()
    if word == "<EOF>":
        return "unexpected end of the expression.", "Is a parenthesis or a value missing?"
    return f"unexpected '{word:.40}'.", _CORRECTIONS.get(word, "")


def _token_index(tokens: Sequence[Token], start: int) -> int:
    return max((i for i, token in enumerate(tokens) if token.start <= start), default=0)


def _called_function(tokens: Sequence[Token], start: int) -> Token | None:
    """Return the name token of the call whose parenthesis is at this offset, if any."""
    index = _token_index(tokens, start)
    is_call = index > 0 and tokens[index].text == "(" and tokens[index - 1].kind == "word"
    return tokens[index - 1] if is_call else None


def _unknown_function_error(source: str, word: str, called: Token) -> ConfigError:
    hint = _CORRECTIONS.get(word) or did_you_mean(word, FUNCTIONS)
    return error_at(source, called.start, f"unknown function '{word:.80}'.", hint)


def _unknown_name_error(
    source: str, word: str, start: int, *, tokens: Sequence[Token], names: tuple[str, ...]
) -> ConfigError:
    index = _token_index(tokens, start)
    parts = word.split(".")
    # The compiler points at the last dot of a path; go back to its first word.
    while index and tokens[index].start > 0 and tokens[index].text != parts[0]:
        index -= 1
    root = parts[0]
    fields = [name.split(".", 1)[1] for name in names if name.startswith(f"{root}.")]
    roots = list(dict.fromkeys(name.split(".")[0] for name in names))
    if not fields:
        hint = (
            _CORRECTIONS.get(root)
            or did_you_mean(root, roots)
            or f"Available names: {', '.join(roots)}."
        )
        return error_at(source, tokens[index].start, f"unknown name '{root:.80}'.", hint)
    if len(parts) == 1:
        hint = f"Use one of its fields: {', '.join(fields)}."
        return error_at(source, tokens[index].start, f"'{root}' is not a value.", hint)
    hint = did_you_mean(parts[1], fields) or f"Available fields: {', '.join(fields)}."
    start = tokens[min(index + 2, len(tokens) - 1)].start
    return error_at(source, start, f"'{root}' has no field '{parts[1]:.80}'.", hint)
