"""Tool call arguments: parsed once, filled with defaults, and validated before a tool sees them.

A model may write anything. Invalid arguments raise ToolRetry, whose text is written for the model:
the problem, its place, and the list of parameters.
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

# Filled in by us: a model that could choose it could reach any project.
PROJECT_PARAMETER: Final = "project_id"
MAX_ARGUMENTS_CHARS: Final = 4_000_000
MAX_PROBLEMS: Final = 5
MAX_PROBLEM_CHARS: Final = 240
MAX_SUMMARY_CHARS: Final = 1_500


class ArgumentReader:
    """Reads the arguments of one tool. The schema is compiled once and offline."""

    def __init__(self, spec: ToolSpec) -> None:
        self._name = spec.name
        self._schema = dict(spec.parameters)
        self._properties = _properties(spec.parameters)
        self._validator = _compile_schema(spec.name, self._schema)
        self._has_project_parameter = PROJECT_PARAMETER in self._properties
        self._check_defaults()
        self.model_spec = _without_project(spec) if self._has_project_parameter else spec

    def read(self, text: str, *, project_id: str) -> dict[str, Any]:
        """Return the arguments to call the tool with.

        Raises ToolRetry, which states the problem, when the text is invalid.
        """
        arguments = self._parse(text)
        if self._has_project_parameter:
            arguments[PROJECT_PARAMETER] = project_id
        _fill_defaults(arguments, self._schema)
        if not self._validator.is_valid(arguments):
            errors = islice(self._validator.iter_errors(arguments), MAX_PROBLEMS)
            self._reject(
                " ".join(problem for error in errors for problem in self._format_error(error))
            )
        return arguments

    def _parse(self, text: str) -> dict[str, Any]:
        if len(text) > MAX_ARGUMENTS_CHARS:
            self._reject(f"they are longer than {MAX_ARGUMENTS_CHARS:,} characters.")
        if not text.strip():
            return {}  # some models write nothing for an empty object
        try:
            value = json.loads(text, parse_float=_parse_number, parse_constant=_reject_constant)
        except json.JSONDecodeError as error:
            self._reject(
                f"they are not JSON: {error.msg} at line {error.lineno}, column {error.colno}, "
                f"near {_excerpt_around(text, error.pos)}."
            )
        except (ValueError, RecursionError) as error:
            self._reject(f"they are not JSON: {error}.")
        if not isinstance(value, dict):
            self._reject(f"they must be a JSON object (got {_shorten(text)}).")
        arguments = cast(dict[str, Any], value)
        if not _is_encodable(text, arguments):
            self._reject("they contain half of a surrogate pair, which is not a character.")
        return arguments

    def _reject(self, problems: str) -> NoReturn:
        raise ToolRetry(
            f"The arguments of {self._name} are invalid: {problems}", hint=self._summary()
        )

    def _format_error(self, error: ValidationError) -> Iterator[str]:
        path = ".".join(str(part) for part in error.instance_path)
        match error.kind:
            case ValidationErrorKind.AdditionalProperties(unexpected=names) if not path:
                yield from (
                    _format_unknown_parameter(name, self.model_spec)
                    for name in names[:MAX_PROBLEMS]
                )
            case ValidationErrorKind.Required(property=name) if not path:
                yield f"'{name}' is missing."
            case _:
                yield f"{path or 'the object'}: {_shorten(error.message)}."

    def _summary(self) -> str:
        """List the parameters in one line: the model may not look up the schema again."""
        required: object = self.model_spec.parameters.get("required")
        names = cast(list[str], required) if isinstance(required, list) else []
        properties = _properties(self.model_spec.parameters)
        parameters = [
            _format_parameter(name, schema, is_required=name in names)
            for name, schema in properties.items()
        ]
        return (
            f"Parameters: {', '.join(parameters)}."[:MAX_SUMMARY_CHARS]
            if parameters
            else "It takes no parameters."
        )

    def _check_defaults(self) -> None:
        """Reject a default that violates the schema: the model would be blamed for it."""
        filled: dict[str, Any] = {}
        _fill_defaults(filled, self._schema)
        for error in self._validator.iter_errors(filled):
            if error.instance_path:
                raise ConfigError(
                    f"the default of '{error.instance_path[0]}' of tool '{self._name}' does not "
                    f"match its own schema: {_shorten(error.message)}."
                )


def _compile_schema(name: str, schema: dict[str, Any]) -> jsonschema_rs.Validator:
    if schema.get("type") != "object":
        raise ConfigError(
            f"the parameters of tool '{name}' are not an object.",
            hint='Its JSON Schema must have {"type": "object"}.',
        )
    try:
        # Offline: a schema may be untrusted, and its $ref must not trigger a request.
        return jsonschema_rs.validator_for(schema, offline=True)
    except ValueError as error:
        path = ".".join(str(part) for part in getattr(error, "instance_path", ()))
        message = _shorten(getattr(error, "message", str(error)))
        raise ConfigError(
            f"the parameters of tool '{name}' are not a valid JSON Schema: "
            f"{f'{path}: ' if path else ''}{message}."
        ) from error


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return cast(Mapping[str, Any], properties) if isinstance(properties, Mapping) else {}


def _without_project(spec: ToolSpec) -> ToolSpec:
    """Return the spec as the model sees it, without the project parameter."""
    schema = dict(spec.parameters)
    schema["properties"] = {
        name: value for name, value in _properties(schema).items() if name != PROJECT_PARAMETER
    }
    if isinstance(schema.get("required"), list):
        schema["required"] = [name for name in schema["required"] if name != PROJECT_PARAMETER]
    return ToolSpec(spec.name, spec.description, schema)


def _fill_defaults(value: dict[str, Any], schema: Mapping[str, Any]) -> None:
    """Fill in missing values with their defaults, in nested objects too."""
    for name, sub in _properties(schema).items():
        if not isinstance(sub, Mapping):
            continue
        inner = cast(Mapping[str, Any], sub)
        if name not in value and "default" in inner:
            value[name] = copy.deepcopy(inner["default"])
        elif isinstance(value.get(name), dict):
            _fill_defaults(value[name], inner)


def _parse_number(text: str) -> float | int:
    """Parse `5.0` as an int: to JSON Schema it is an integer, so the tool must get one."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _is_encodable(text: str, value: object) -> bool:
    if text.isascii() and "\\ud" not in text.lower():
        return True
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _excerpt_around(text: str, position: int) -> str:
    return (
        _to_json(text[max(0, position - 20) : position + 20]) if position < len(text) else "the end"
    )


def _to_json(value: object) -> str:
    return json.dumps(value)


def _shorten(text: str) -> str:
    """Keep both ends of a long text: the value comes first, the reason last."""
    if len(text) <= MAX_PROBLEM_CHARS:
        return text.rstrip(".")
    half = MAX_PROBLEM_CHARS // 2
    return f"{text[:half]} … {text[-half:]}".rstrip(".")


def _format_unknown_parameter(name: str, spec: ToolSpec) -> str:
    suggestion = did_you_mean(name, _properties(spec.parameters))
    return f"there is no parameter '{_shorten(name)}'. {suggestion}".strip()


def _format_parameter(name: str, schema: object, *, is_required: bool) -> str:
    spec = cast(Mapping[str, Any], schema if isinstance(schema, Mapping) else {})
    kind: Any = spec.get("type", "any")
    words = [" or ".join(map(str, cast(list[Any], kind))) if isinstance(kind, list) else str(kind)]
    choices: Any = spec.get("enum")
    if isinstance(choices, list):
        words = ["one of " + ", ".join(map(_to_json, cast(list[Any], choices)[:20]))]
    if is_required:
        words.append("required")
    if "default" in spec:
        words.append(f"default {_shorten(_to_json(spec['default']))}")
    return f"{name} ({', '.join(words)})"
