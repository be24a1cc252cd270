"""The answers of a scripted model, and the file they may be written in.

    [[answers]]
    thinking = "The notes may know."
    calls = [{ name = "vault_search", arguments = { query = "oak" } }]

    [[answers]]
    text = "It grows at Dodona."

    [[answers]]
    text = "It grows at"              # shown before the error
    error = "cut"                     # one of the faults of a provider
    message = "the line broke"
    retry_after = 2.5

JSON has the same shape. An answer that is only text may be a plain string.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from dodona.core.errors import (
    ConfigError,
    ProviderError,
    ProviderErrorKind,
    SourceLocation,
    did_you_mean,
)
from dodona.core.messages import AssistantText, ToolCall

_FIX_HINT = "Mend the file at this place."


@dataclass(frozen=True, slots=True)
class BrokenAnswer:
    """An answer that breaks off: this much is streamed, then the error is raised."""

    partial: AssistantText | str
    error: Exception


ScriptedAnswer: TypeAlias = str | AssistantText | BrokenAnswer | Exception


class _CallEntry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] | str = {}  # a string is taken as it is, malformed or not
    id: str = ""


class _AnswerEntry(msgspec.Struct, forbid_unknown_fields=True):
    text: str = ""
    thinking: str = ""
    calls: list[_CallEntry] = []
    error: ProviderErrorKind | None = None
    message: str = ""
    retry_after: float | None = None

    def __post_init__(self) -> None:
        if self.error is None and (self.message or self.retry_after is not None):
            raise ValueError("message and retry_after need an error")


class _AnswersFile(msgspec.Struct, forbid_unknown_fields=True):
    answers: list[str | _AnswerEntry]


def read_answers(path: Path) -> list[ScriptedAnswer]:
    """The answers of a file; `ConfigError` says what is wrong with it, and where."""
    parse = {".json": _parse_json, ".toml": _parse_toml}.get(path.suffix)
    if parse is None:
        raise ConfigError(
            f"{path} is neither TOML nor JSON.", hint="Name the file of answers .toml or .json."
        )
    text = _read_text(path)
    try:
        file = msgspec.convert(parse(text, path), _AnswersFile)
    except msgspec.ValidationError as error:
        raise _validation_error(str(error), text, path) from None
    if not file.answers:
        raise ConfigError(f"{path}: there are no answers.", hint="Add at least one.")
    return [_build_answer(n, answer) for n, answer in enumerate(file.answers, 1)]


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}.",
            hint="A scripted model is named by its file of answers.",
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 at byte {error.start}.", hint="Save it as UTF-8."
        ) from None


def _parse_json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = SourceLocation(str(path), error.lineno, error.colno)
        raise ConfigError(f"this is no JSON: {error.msg}.", where=where, hint=_FIX_HINT) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}.", hint=_FIX_HINT) from None


def _parse_toml(text: str, path: Path) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).partition(" (at ")
        at = re.match(r"line (\d+), column (\d+)", place)
        end = text.count("\n") + 1, len(text) - text.rfind("\n")
        line, column = (int(at[1]), int(at[2])) if at else end
        where = SourceLocation(str(path), line, column)
        raise ConfigError(f"this is no TOML: {what}.", where=where, hint=_FIX_HINT) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}.", hint=_FIX_HINT) from None


def _validation_error(message: str, text: str, path: Path) -> ConfigError:
    """What msgspec found, in our words: its places are `$.answers[1].text`."""
    what, _, place = message.partition(" - at ")
    hint = "An answer is a string, or has text, thinking, calls, or error with message."
    unknown = re.search(r"unknown field `(.*)`", what)
    if unknown:
        known = (
            _CallEntry
            if ".calls[" in place
            else _AnswerEntry
            if ".answers[" in place
            else _AnswersFile
        )
        what, hint = (
            f"unknown key '{unknown[1]}'",
            did_you_mean(unknown[1], known.__struct_fields__) or hint,
        )
    found = re.search(r"\$\.answers\[(\d+)\](?:\.([\w.\[\]]+))?", place)
    if found is None:
        return ConfigError(f"{path}: {what}.", hint=hint)
    index, key = int(found[1]), f" {found[2]}:" if found[2] else ""
    line = _line_of(index, text)
    message = f"answer {index + 1}:{key} {what}."
    if line is None:
        return ConfigError(f"{path}: {message}", hint=hint)
    return ConfigError(message, where=SourceLocation(str(path), line, 1), hint=hint)


def _line_of(index: int, text: str) -> int | None:
    """The line of the table in a TOML file; nobody knows it for answers in one list."""
    headers = [m.start() for m in re.finditer(r"^[ \t]*\[\[[ \t]*answers[ \t]*\]\]", text, re.M)]
    return text.count("\n", 0, headers[index]) + 1 if index < len(headers) else None


def _build_answer(number: int, answer: str | _AnswerEntry) -> ScriptedAnswer:
    if isinstance(answer, str):
        return answer
    calls = tuple(
        ToolCall(call.id or f"call_{number}_{n}", call.name, _encode_arguments(call))
        for n, call in enumerate(answer.calls, 1)
    )
    shown = AssistantText(answer.text, calls, answer.thinking)
    if answer.error is None:
        return shown
    error = ProviderError(
        answer.message or f"the script says: {answer.error.value}.",
        kind=answer.error,
        provider="scripted",
        retry_after=answer.retry_after,
    )
    return BrokenAnswer(shown, error)


def _encode_arguments(call: _CallEntry) -> str:
    if isinstance(call.arguments, str):
        return call.arguments
    return msgspec.json.encode(call.arguments).decode()
