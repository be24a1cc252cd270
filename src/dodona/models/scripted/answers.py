"""The answers of a scripted model, and the file format for them.

    [[answers]]
    thinking = "The notes may know."
    calls = [{ name = "vault_search", arguments = { query = "oak" } }]

    [[answers]]
    text = "It grows at Dodona."

    [[answers]]
    text = "It grows at"              # streamed before the error
    error = "cut"                     # a value of ProviderErrorKind
    message = "the line broke"
    retry_after = 2.5

JSON files have the same structure. An answer that is only text may be a plain string.
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

_FIX_HINT = "Fix the file at this position."


@dataclass(frozen=True, slots=True)
class BrokenAnswer:
    """An answer that fails midway: `partial` is streamed, then the error is raised."""

    partial: AssistantText | str
    error: Exception


ScriptedAnswer: TypeAlias = str | AssistantText | BrokenAnswer | Exception


class _CallEntry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] | str = {}  # a string is used as is, even if it is not JSON
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
            raise ValueError("message and retry_after require error")


class _AnswersFile(msgspec.Struct, forbid_unknown_fields=True):
    answers: list[str | _AnswerEntry]


def read_answers(path: Path) -> list[ScriptedAnswer]:
    """Read the answers of a TOML or JSON file. Raises a located ConfigError if it is invalid."""
    parse = {".json": _parse_json, ".toml": _parse_toml}.get(path.suffix)
    if parse is None:
        raise ConfigError(
            f"{path} is neither TOML nor JSON.", hint="The file name must end in .toml or .json."
        )
    text = _read_text(path)
    try:
        file = msgspec.convert(parse(text, path), _AnswersFile)
    except msgspec.ValidationError as error:
        raise _validation_error(str(error), text, path) from None
    if not file.answers:
        raise ConfigError(f"{path}: the file contains no answers.", hint="Add at least one.")
    return [_build_answer(n, answer) for n, answer in enumerate(file.answers, 1)]


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}.",
            hint="The model name of the scripted provider is the path of its answers file.",
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
        raise ConfigError(f"invalid JSON: {error.msg}.", where=where, hint=_FIX_HINT) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}.", hint=_FIX_HINT) from None


def _parse_toml(text: str, path: Path) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, _, position = str(error).partition(" (at ")
        match = re.match(r"line (\d+), column (\d+)", position)
        end = text.count("\n") + 1, len(text) - text.rfind("\n")
        line, column = (int(match[1]), int(match[2])) if match else end
        where = SourceLocation(str(path), line, column)
        raise ConfigError(f"invalid TOML: {reason}.", where=where, hint=_FIX_HINT) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.", hint=_FIX_HINT) from None


def _validation_error(message: str, text: str, path: Path) -> ConfigError:
    """Build a located error from msgspec's message, which ends in `$.answers[1].text`."""
    reason, _, path_text = message.partition(" - at ")
    hint = "An answer is a string, or a table with text, thinking, calls, error and message."
    unknown = re.search(r"unknown field `(.*)`", reason)
    if unknown:
        struct = (
            _CallEntry
            if ".calls[" in path_text
            else _AnswerEntry
            if ".answers[" in path_text
            else _AnswersFile
        )
        reason, hint = (
            f"unknown key '{unknown[1]}'",
            did_you_mean(unknown[1], struct.__struct_fields__) or hint,
        )
    match = re.search(r"\$\.answers\[(\d+)\](?:\.([\w.\[\]]+))?", path_text)
    if match is None:
        return ConfigError(f"{path}: {reason}.", hint=hint)
    index, key = int(match[1]), f" {match[2]}:" if match[2] else ""
    line = _line_of(index, text)
    message = f"answer {index + 1}:{key} {reason}."
    if line is None:
        return ConfigError(f"{path}: {message}", hint=hint)
    return ConfigError(message, where=SourceLocation(str(path), line, 1), hint=hint)


def _line_of(index: int, text: str) -> int | None:
    """Return the line of the `[[answers]]` table; None if the answers are an inline list."""
    headers = [m.start() for m in re.finditer(r"^[ \t]*\[\[[ \t]*answers[ \t]*\]\]", text, re.M)]
    return text.count("\n", 0, headers[index]) + 1 if index < len(headers) else None


def _build_answer(number: int, answer: str | _AnswerEntry) -> ScriptedAnswer:
    if isinstance(answer, str):
        return answer
    calls = tuple(
        ToolCall(call.id or f"call_{number}_{n}", call.name, _encode_arguments(call))
        for n, call in enumerate(answer.calls, 1)
    )
    message = AssistantText(answer.text, calls, answer.thinking)
    if answer.error is None:
        return message
    error = ProviderError(
        answer.message or f"scripted error: {answer.error.value}.",
        kind=answer.error,
        provider="scripted",
        retry_after=answer.retry_after,
    )
    return BrokenAnswer(message, error)


def _encode_arguments(call: _CallEntry) -> str:
    if isinstance(call.arguments, str):
        return call.arguments
    return msgspec.json.encode(call.arguments).decode()
