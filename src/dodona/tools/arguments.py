"""The arguments of a call: parsed once, filled in, and checked before a tool sees them.

A model may write anything. What does not fit raises ToolRetry, whose text is for the model: what is
wrong, where, and which parameters there are.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NoReturn, cast

import jsonschema_rs
from jsonschema_rs import ValidationError, ValidationErrorKind

from dodona.core.errors import ConfigError, ToolRetry, did_you_mean
from dodona.core.messages import ToolSpec

PROJECT: Final = "project_id"  # filled in by us: a model that chose it could reach any project
LONGEST_ARGUMENTS: Final = 4_000_000
MOST_MISTAKES: Final = 5
LONGEST_MISTAKE: Final = 240
LONGEST_SUMMARY: Final = 1_500


class ArgumentReader:
    """Reads the arguments for one tool. Its schema is compiled once, and fetches nothing."""

    def __init__(self, spec: ToolSpec) -> None:
        self._name = spec.name
        self._schema = dict(spec.parameters)
        self._properties = _properties(spec.parameters)
        self._validator = _compiled(spec.name, self._schema)
        self._takes_project = PROJECT in self._properties
        self._check_defaults()
        self.offered = _without_project(spec) if self._takes_project else spec

    def read(self, text: str, *, project_id: str) -> dict[str, Any]:
        """What the tool is called with; ToolRetry says what is wrong with the text."""
        arguments = self._parsed(text)
        if self._takes_project:
            arguments[PROJECT] = project_id
        _fill_in(arguments, self._schema)
        if not self._validator.is_valid(arguments):
            found = islice(self._validator.iter_errors(arguments), MOST_MISTAKES)
            self._refuse(" ".join(mistake for error in found for mistake in self._said(error)))
        return arguments

    def _parsed(self, text: str) -> dict[str, Any]:
        if len(text) > LONGEST_ARGUMENTS:
            self._refuse(f"they are longer than {LONGEST_ARGUMENTS:,} characters.")
        if not text.strip():
            return {}  # some models write nothing where they mean an empty object
        try:
            value = json.loads(text, parse_float=_number, parse_constant=_no_number)
        except json.JSONDecodeError as error:
            self._refuse(
                f"they are not JSON: {error.msg} at line {error.lineno}, column {error.colno}, "
                f"near {_around(text, error.pos)}."
            )
        except (ValueError, RecursionError) as error:
            self._refuse(f"they are not JSON: {error}.")
        if not isinstance(value, dict):
            self._refuse(f"they must be a JSON object (got {_shortened(text)}).")
        arguments = cast(dict[str, Any], value)
        if not _is_text(text, arguments):
            self._refuse("they hold half of a surrogate pair, which is not a character.")
        return arguments

    def _refuse(self, mistakes: str) -> NoReturn:
        raise ToolRetry(
            f"The arguments of {self._name} cannot be used: {mistakes}", hint=self._summary()
        )

    def _said(self, error: ValidationError) -> Iterator[str]:
        place = ".".join(str(part) for part in error.instance_path)
        match error.kind:
            case ValidationErrorKind.AdditionalProperties(unexpected=names) if not place:
                yield from (_unknown(name, self.offered) for name in names[:MOST_MISTAKES])
            case ValidationErrorKind.Required(property=name) if not place:
                yield f"'{name}' is missing."
            case _:
                yield f"{place or 'the object'}: {_shortened(error.message)}."

    def _summary(self) -> str:
        """The parameters in one line: a model that got them wrong may not look up the schema."""
        required: object = self.offered.parameters.get("required")
        names = cast(list[str], required) if isinstance(required, list) else []
        properties = _properties(self.offered.parameters)
        told = [
            _told(name, schema, is_required=name in names) for name, schema in properties.items()
        ]
        return f"Parameters: {', '.join(told)}."[:LONGEST_SUMMARY] if told else "It takes none."

    def _check_defaults(self) -> None:
        """A default that does not fit would be held against the model."""
        filled: dict[str, Any] = {}
        _fill_in(filled, self._schema)
        for error in self._validator.iter_errors(filled):
            if error.instance_path:
                raise ConfigError(
                    f"the default of '{error.instance_path[0]}' of tool '{self._name}' does not "
                    f"fit its own schema: {_shortened(error.message)}."
                )


def _compiled(name: str, schema: dict[str, Any]) -> jsonschema_rs.Validator:
    if schema.get("type") != "object":
        raise ConfigError(
            f"the parameters of tool '{name}' are not an object.",
            hint='Its JSON Schema must say {"type": "object"}.',
        )
    try:
        # Offline: a schema may come from a stranger, and a $ref must not make us call somebody.
        return jsonschema_rs.validator_for(schema, offline=True)
    except ValueError as error:
        place = ".".join(str(part) for part in getattr(error, "instance_path", ()))
        said = _shortened(getattr(error, "message", str(error)))
        raise ConfigError(
            f"the parameters of tool '{name}' are no JSON Schema: "
            f"{f'{place}: ' if place else ''}{said}."
        ) from error


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return cast(Mapping[str, Any], properties) if isinstance(properties, Mapping) else {}


def _without_project(spec: ToolSpec) -> ToolSpec:
    """The tool as a model sees it."""
    schema = dict(spec.parameters)
    schema["properties"] = {
        name: value for name, value in _properties(schema).items() if name != PROJECT
    }
    if isinstance(schema.get("required"), list):
        schema["required"] = [name for name in schema["required"] if name != PROJECT]
    return ToolSpec(spec.name, spec.description, schema)


def _fill_in(value: dict[str, Any], schema: Mapping[str, Any]) -> None:
    """Give what is missing its default, in objects within objects too."""
    for name, sub in _properties(schema).items():
        if not isinstance(sub, Mapping):
            continue
        inner = cast(Mapping[str, Any], sub)
        if name not in value and "default" in inner:
            value[name] = copy.deepcopy(inner["default"])
        elif isinstance(value.get(name), dict):
            _fill_in(value[name], inner)


def _number(text: str) -> float | int:
    """5.0 is an integer to JSON Schema, so it must be one to the tool that asked for one."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _is_text(text: str, value: object) -> bool:
    if text.isascii() and "\\ud" not in text.lower():
        return True
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _around(text: str, at: int) -> str:
    return _quoted(text[max(0, at - 20) : at + 20]) if at < len(text) else "the end"


def _quoted(value: object) -> str:
    return json.dumps(value)


def _shortened(text: str) -> str:
    """Both ends of a text: a value that is wrong comes first, why it is wrong comes last."""
    if len(text) <= LONGEST_MISTAKE:
        return text.rstrip(".")
    half = LONGEST_MISTAKE // 2
    return f"{text[:half]} … {text[-half:]}".rstrip(".")


def _unknown(name: str, spec: ToolSpec) -> str:
    near = did_you_mean(name, _properties(spec.parameters))
    return f"there is no parameter '{_shortened(name)}'. {near}".strip()


def _told(name: str, schema: object, *, is_required: bool) -> str:
    known = cast(Mapping[str, Any], schema if isinstance(schema, Mapping) else {})
    kind: Any = known.get("type", "any")
    words = [" or ".join(map(str, cast(list[Any], kind))) if isinstance(kind, list) else str(kind)]
    choices: Any = known.get("enum")
    if isinstance(choices, list):
        words = ["one of " + ", ".join(map(_quoted, cast(list[Any], choices)[:20]))]
    if is_required:
        words.append("required")
    if "default" in known:
        words.append(f"default {_shortened(_quoted(known['default']))}")
    return f"{name} ({', '.join(words)})"
