"""Parameters: what a user may set of a rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from dodona.core.errors import BadRequest, did_you_mean
from dodona.documents import Section, field_error

MAX_TEXT_CHARS: Final = 2_000
_MAX_SAFE_INTEGER: Final = 2**53  # what JSON carries without loss

_TYPE_NAMES: Final = {"int": "a whole number", "float": "a number", "string": "a text", "bool": ""}

Number = int | float


class RuleParameter(Section):
    """One of them; `min` and `max` are for numbers."""

    type: Literal["int", "float", "string", "bool"]
    min: Number | None = None
    max: Number | None = None
    default: Any
    description: Annotated[str, Field(max_length=MAX_TEXT_CHARS)] = ""

    @field_validator("min", "max")
    @classmethod
    def _check_bounds(cls, bound: Number | None, info: ValidationInfo) -> Number | None:
        kind, lowest = info.data.get("type"), info.data.get("min")
        if bound is not None and kind in ("string", "bool"):
            raise field_error(f"is for numbers: this is a {kind}")
        if bound is not None and lowest is not None and bound < lowest:
            raise field_error("must not be below min")
        return bound

    @field_validator("default")
    @classmethod
    def _check_default(cls, value: Any, info: ValidationInfo) -> Any:
        if not {"type", "min", "max"} <= info.data.keys():
            return value  # those are wrong, and that is told
        told = cls.model_construct(None, **info.data).find_problem(value)
        if told:
            raise field_error(f"must be {told}")
        return value

    def find_problem(self, value: Any) -> str:
        """What the value should be instead; empty when it is right."""
        if self.type == "bool":
            return "" if type(value) is bool else "true or false"
        if self.type == "string":
            is_right = type(value) is str and len(value) <= MAX_TEXT_CHARS
            return "" if is_right else f"a text of at most {MAX_TEXT_CHARS:,} characters"
        kinds = (int,) if self.type == "int" else (int, float)
        is_right = type(value) in kinds and self._lowest() <= value <= self._highest()
        return "" if is_right else f"{_TYPE_NAMES[self.type]}{self._format_range()}"

    def convert(self, value: Any) -> Any:
        """The value as conditions see it: of a number with a fraction, always one."""
        return float(value) if self.type == "float" else value

    def _lowest(self) -> Number:
        return -_MAX_SAFE_INTEGER if self.min is None else self.min

    def _highest(self) -> Number:
        return _MAX_SAFE_INTEGER if self.max is None else self.max

    def _format_range(self) -> str:
        if self.min is None and self.max is None:
            return ""
        if self.max is None:
            return f", {self.min} or more"
        return f", {self.max} or less" if self.min is None else f" from {self.min} to {self.max}"


def check_parameters(
    rule_id: str, parameters: Mapping[str, RuleParameter], values: Mapping[str, Any]
) -> None:
    """Raise every mistake at once."""
    found: list[BadRequest] = []
    for name, value in values.items():
        if name not in parameters:
            hint = did_you_mean(name, parameters) or _format_names(parameters)
            found.append(BadRequest(f"rule {rule_id} has no parameter '{name:.80}'.", hint=hint))
        elif told := parameters[name].find_problem(value):
            found.append(BadRequest(f"{rule_id}.{name} must be {told} (got {value!r:.60})."))
    if found:
        raise BadRequest.combine(found)


def resolve_values(
    parameters: Mapping[str, RuleParameter], *given: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The defaults with what the user has set; what does not fit (any more) is left out."""
    values = {name: parameter.convert(parameter.default) for name, parameter in parameters.items()}
    for choice in given:
        for name, value in choice.items():
            if name in parameters and not parameters[name].find_problem(value):
                values[name] = parameters[name].convert(value)
    return values


def _format_names(parameters: Mapping[str, RuleParameter]) -> str:
    return f"It has {', '.join(parameters)}." if parameters else "It has none."
