"""The signature of a tool's function: its schema, and the conversion of arguments to its types.

| in Python                                     | in the schema                                    |
|-----------------------------------------------|--------------------------------------------------|
| type hint                                     | whatever msgspec or pydantic generates           |
| `Annotated[int, Meta(ge=1)]`, `Field(ge=1)`   | bounds; also those of `annotated_types`          |
| default value                                 | default; the parameter is optional               |
| docstring: `name: text`, or a line of `Args:` | description                                      |
| the parameter `ctx`, or one hinted `Context`  | nothing: it gets the context                     |
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final, get_type_hints

import msgspec

from dodona.core.errors import DodonaError, ExtensionError, SourceLocation, ToolRetry, did_you_mean
from dodona.core.extensions import underlying_function
from dodona.tools.arguments import PROJECT_PARAMETER
from dodona.tools.signatures.docstrings import Docstring, parse_docstring
from dodona.tools.signatures.json_values import convert_value, to_json_value
from dodona.tools.signatures.schemas import HINT_ERRORS, add_bounds, build_schemas

CONTEXT_PARAMETER: Final = "ctx"

_NO_KEYWORD: Final = {
    inspect.Parameter.VAR_POSITIONAL: "*{}",
    inspect.Parameter.VAR_KEYWORD: "**{}",
    inspect.Parameter.POSITIONAL_ONLY: "the positional-only parameter '{}'",
}


class Problems:
    """The problems of one tool, which are reported together."""

    def __init__(self, tool: str, where: SourceLocation | None) -> None:
        self._tool = tool
        self._where = where
        self._errors: list[ExtensionError] = []

    def add(self, message: str, hint: str = "") -> None:
        """Add a problem. The message continues the name of the tool."""
        self._errors.append(
            ExtensionError(f"tool '{self._tool}' {message}", where=self._where, hint=hint)
        )

    def add_error(self, error: DodonaError) -> None:
        """Add an error that names the tool, at the location of the function."""
        self._errors.append(ExtensionError(error.message, where=self._where, hint=error.hint))

    def raise_any(self) -> None:
        """Raise one ExtensionError with all problems, if there are any."""
        if self._errors:
            raise ExtensionError.combine(self._errors)


@dataclass(frozen=True, slots=True)
class FunctionParameter:
    """A parameter that the model sets."""

    name: str
    hint: Any
    default: Any = inspect.Parameter.empty  # as decoded JSON


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """The description and the schema of a function, and the types of its parameters."""

    description: str
    schema: Mapping[str, Any]
    parameters: tuple[FunctionParameter, ...]
    context_parameter: str | None

    def convert(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the validated arguments as the types of the parameters. Raises ToolRetry."""
        converted: dict[str, Any] = {}
        invalid: list[str] = []
        for parameter in self.parameters:
            if parameter.name in arguments:
                try:
                    converted[parameter.name] = convert_value(
                        arguments[parameter.name], parameter.hint
                    )
                except msgspec.ValidationError as error:
                    invalid.append(_format_invalid(parameter.name, error))
        if invalid:
            raise ToolRetry(f"The arguments of {tool} are invalid: {' '.join(invalid)}")
        return converted


def read_signature(
    function: Callable[..., Any], *, context_type: type, problems: Problems
) -> FunctionSignature:
    """Read the signature and the docstring of a function. Add its errors to `problems`."""
    reader = _SignatureReader(function, context_type, problems)
    documentation = reader.read_docstring()
    parameters = [*reader.read_parameters()]
    return FunctionSignature(
        documentation.description,
        reader.build_schema(parameters, documentation),
        tuple(parameters),
        reader.context_parameter,
    )


class _SignatureReader:
    def __init__(self, function: Callable[..., Any], context: type, problems: Problems) -> None:
        self._function = function
        self._context_type = context
        self._problems = problems
        self._globals = getattr(underlying_function(function), "__globals__", {})
        self.context_parameter: str | None = None

    @cached_property
    def _signature(self) -> inspect.Signature:
        try:
            return inspect.signature(self._function)
        except (TypeError, ValueError):
            self._problems.add("has no signature.", "Write a function with type hints.")
            return inspect.Signature()

    def read_docstring(self) -> Docstring:
        """Parse the docstring. An entry without a parameter is a problem."""
        names = [*self._signature.parameters]
        text = inspect.getdoc(underlying_function(self._function)) or ""
        docstring = parse_docstring(text, names)
        for name in docstring.parameters:
            if name not in names:
                available = f"Parameters: {', '.join(names)}." if names else "It has no parameters."
                self._problems.add(
                    f"describes '{name}' in its docstring, which is not a parameter.",
                    did_you_mean(name, names) or available,
                )
        return docstring

    def read_parameters(self) -> Iterator[FunctionParameter]:
        """Yield the valid parameters that the model sets."""
        for parameter in self._signature.parameters.values():
            if parameter.kind in _NO_KEYWORD:
                text = _NO_KEYWORD[parameter.kind].format(parameter.name)
                self._problems.add(
                    f"has {text}, but a model passes arguments by name.",
                    "Give each argument a parameter that can be a keyword.",
                )
                continue
            hint, error = self._resolve_hint(parameter)
            if self._is_context(parameter, hint):
                self.context_parameter = parameter.name
            elif error is not None:
                self._problems.add(*error)
            elif (checked := self._check_parameter(parameter, hint)) is not None:
                yield checked

    def _resolve_hint(self, parameter: inspect.Parameter) -> tuple[Any, tuple[str, str] | None]:
        """Return the type hint; if there is none, also the problem and what to do."""
        name, annotation = parameter.name, parameter.annotation
        if annotation is parameter.empty:
            hint = "The schema for the model comes from type hints."
            return annotation, (f"has no type hint for '{name}'.", hint)
        # One by one: a single unknown name makes all the hints of a function unknown.
        owner = SimpleNamespace(__annotations__={"hint": annotation})
        try:
            hints = get_type_hints(owner, self._globals, include_extras=True)
            return add_bounds(hints["hint"]), None
        except HINT_ERRORS as error:
            text = f"has an unknown type hint '{_format_hint(annotation)}' for '{name}'"
            hint = "Define it in the module, and import it at runtime, not only for type checkers."
            return parameter.empty, (f"{text}: {_first_line(error)}.", hint)

    def _is_context(self, parameter: inspect.Parameter, hint: Any) -> bool:
        if self.context_parameter is not None:
            return False
        is_named = parameter.name == CONTEXT_PARAMETER and hint is parameter.empty
        return hint is self._context_type or is_named

    def _check_parameter(self, parameter: inspect.Parameter, hint: Any) -> FunctionParameter | None:
        name = parameter.name
        if name == PROJECT_PARAMETER and hint is not str:
            self._problems.add(f"gets '{name}' from Dodona, so its type hint must be str.")
            return None
        try:
            build_schemas([hint])
        except HINT_ERRORS as error:
            text = f"cannot get a '{_format_hint(parameter.annotation)}' for '{name}' from a model"
            self._problems.add(f"{text}: {_first_line(error)}.", "Use types that JSON can express.")
            return None
        if parameter.default is parameter.empty:
            return FunctionParameter(name, hint)
        try:
            default = to_json_value(parameter.default)
            convert_value(default, hint)
        except (msgspec.ValidationError, *HINT_ERRORS) as error:
            text = f"has the default {parameter.default!r:.80} for '{name}', which is no "
            hint_text = f"'{_format_hint(parameter.annotation)}'"
            optional = f"Write {hint_text[1:-1]} | None." if parameter.default is None else ""
            self._problems.add(f"{text}{hint_text}: {_first_line(error)}.", optional)
            return None
        return FunctionParameter(name, hint, default)

    def build_schema(
        self, parameters: list[FunctionParameter], documentation: Docstring
    ) -> dict[str, Any]:
        """Build the JSON Schema of all parameters."""
        try:
            schemas, definitions = build_schemas([each.hint for each in parameters])
        except HINT_ERRORS as error:
            self._problems.add(f"has type hints that exclude each other: {_first_line(error)}.")
            return {}
        properties: dict[str, Any] = {}
        for parameter, schema in zip(parameters, schemas, strict=True):
            text = documentation.parameters.get(parameter.name, "")
            described = {**schema, "description": text} if text else schema
            is_required = parameter.default is inspect.Parameter.empty
            default = {} if is_required else {"default": parameter.default}
            properties[parameter.name] = {**described, **default}
        required = [name for name, schema in properties.items() if "default" not in schema]
        return {
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False,
            **({"$defs": definitions} if definitions else {}),
        }


def _format_hint(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1].rstrip(".")


def _format_invalid(name: str, error: msgspec.ValidationError) -> str:
    reason, _, path = str(error).partition(" - at `$")
    return f"{name}{path.rstrip('`')}: {reason.rstrip('.')}."
