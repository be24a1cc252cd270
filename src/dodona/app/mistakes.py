"""Mistakes in settings, in words: what is wrong, what was found there, what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dodona.app import schema
from dodona.app.places import Places
from dodona.app.toml_lines import KeyPath
from dodona.core.errors import ConfigError
from dodona.core.near import did_you_mean
from dodona.net.redactor import Redactor

_EXPECTED: Mapping[str, str] = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a string",
    "bool_type": "true or false",
    "model_type": "a section",
    "dict_type": "a section",
    "string_too_short": "more than an empty string",
}


def told(error: ValidationError, places: Places) -> Iterator[ConfigError]:
    """Each mistake that pydantic found."""
    for details in error.errors(include_url=False):
        is_name = details["loc"][-1] == "[key]"
        path = details["loc"][:-1] if is_name else details["loc"]
        if details["type"] == "extra_forbidden":
            yield unknown(path, details["input"], places)
        elif details["type"] == "missing":
            yield missing(path, "", places)
        else:
            message, hint = _words(details)
            # Of a name that is wrong, the path has told already what was found.
            got = None if is_name else details["input"]
            yield wrong(path, message, places=places, hint=hint, got=got)


def wrong(
    path: KeyPath, message: str, *, places: Places, hint: str = "", got: Any = None
) -> ConfigError:
    """`agent.max_tokens must be > 0 (got -5).` A secret is never shown, nor a missing value."""
    shown = "" if got is None or schema.is_secret(path) else f" (got {_brief(got)})"
    text = f"{schema.dotted(path)} {message}{shown}."
    return ConfigError(text, where=places.near(path), hint=hint)


def missing(path: KeyPath, reason: str, places: Places, *, by: KeyPath = ()) -> ConfigError:
    """A setting that must be there; it is told where `by` is, if another setting asks for it."""
    because = f": {reason}" if reason else ""
    description = schema.fields(path[:-1])[str(path[-1])].description or ""
    return ConfigError(
        f"{schema.dotted(path)} is missing{because}.",
        where=places.near(by or path),
        hint=description.replace("`", ""),
    )


def idle(path: KeyPath, whom: str, places: Places) -> ConfigError:
    """A setting that would do nothing: whoever wrote it expects that it does."""
    return wrong(path, f"has no effect: {whom} takes none", places=places, hint="Remove it.")


def unknown(path: KeyPath, value: Any, places: Places) -> ConfigError:
    """A key or section that there is not. Its value is not told: it may be a misplaced secret."""
    *above, name = path
    known = sorted(schema.fields(tuple(above)))
    kind = "section" if schema.is_table(value) else "key"
    word = f"[{schema.dotted(path)}]" if kind == "section" else schema.dotted(path)
    hint = did_you_mean(str(name), known) or _belongs(name) or _list(tuple(above), known)
    return ConfigError(f"unknown {kind} {word}.", where=places.near(path), hint=hint)


def _belongs(name: str | int) -> str:
    """Which section has a key of this name."""
    homes = [part for part in schema.fields(()) if name in schema.fields((part,))]
    return f"It belongs under [{homes[0]}]." if homes else ""


def _list(above: KeyPath, known: Iterable[str]) -> str:
    where = f"[{schema.dotted(above)}] takes" if above else "Sections are"
    return f"{where} {', '.join(known)}."


def _words(details: ErrorDetails) -> tuple[str, str]:
    """What pydantic calls by a code, as the rest of a sentence and a hint."""
    kind, values = details["type"], details.get("ctx", {})
    if kind == "said":
        return values["message"], values["hint"]
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}", ""
    if kind == "literal_error":
        choices: list[str] = re.findall(r"'([^']+)'", values["expected"])
        return f"must be one of {', '.join(choices)}", did_you_mean(str(details["input"]), choices)
    limits = {"greater_than": ">", "greater_than_equal": ">=", "less_than_equal": "<="}
    if kind in limits:
        (limit,) = values.values()
        return f"must be {limits[kind]} {limit:g}", ""
    return f"is wrong: {details['msg']}", ""


def _brief(value: Any) -> str:
    """A value as TOML writes it, if it is short; what looks like a key is not shown."""
    if schema.is_table(value):
        return "a section"
    if isinstance(value, list):
        return "an array"
    text = Redactor().scrub(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= 60 else f"{text[:58]}…"
