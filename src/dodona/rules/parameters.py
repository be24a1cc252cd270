"""Parameters: the values of a rule that a user can set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from dodona.core.errors import BadRequest, did_you_mean
from dodona.documents import Section, field_error

MAX_TEXT_CHARS: Final = 2_000
_MAX_SAFE_INTEGER: Final = 2**53  # larger integers lose precision in JSON

_TYPE_NAMES: Final = {"int": "a whole number", "float": "a number"}

Number = int | float


class RuleParameter(Section):
    """A parameter of a rule; `min` and `max` apply to numbers."""

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
            raise field_error(f"applies to numbers only, not to a {kind}")
        if bound is not None and lowest is not None and bound < lowest:
            raise field_error("must not be below min")
        return bound

    @field_validator("default")
    @classmethod
    def _check_default(cls, value: Any, info: ValidationInfo) -> Any:
        if not {"type", "min", "max"} <= info.data.keys():
            return value  # those are invalid, which is already an error
        expected = cls.model_construct(None, **info.data).find_problem(value)
        if expected:
            raise field_error(f"must be {expected}")
        return value

    def find_problem(self, value: Any) -> str:
        """Return a description of a valid value, or an empty string if the value is valid."""
        if self.type == "bool":
            return "" if type(value) is bool else "true or false"
        if self.type == "string":
            is_valid = type(value) is str and len(value) <= MAX_TEXT_CHARS
            return "" if is_valid else f"a string of at most {MAX_TEXT_CHARS:,} characters"
        kinds = (int,) if self.type == "int" else (int, float)
        is_valid = type(value) in kinds and self._lowest() <= value <= self._highest()
        return "" if is_valid else f"{_TYPE_NAMES[self.type]}{self._format_range()}"

    def convert(self, value: Any) -> Any:
        """Return the value for conditions: a `float` parameter is always a float."""
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
    """Check values for a rule. Raise one BadRequest with all problems."""
    problems: list[BadRequest] = []
    for name, value in values.items():
        if name not in parameters:
            hint = did_you_mean(name, parameters) or _format_names(parameters)
            problems.append(BadRequest(f"rule {rule_id} has no parameter '{name:.80}'.", hint=hint))
        elif expected := parameters[name].find_problem(value):
            problems.append(BadRequest(f"{rule_id}.{name} must be {expected} (got {value!r:.60})."))
    if problems:
        raise BadRequest.combine(problems)


def resolve_values(
    parameters: Mapping[str, RuleParameter], *overrides: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the defaults with the user's overrides; overrides that are not valid are ignored."""
    values = {name: parameter.convert(parameter.default) for name, parameter in parameters.items()}
    for override in overrides:
        for name, value in override.items():
            if name in parameters and not parameters[name].find_problem(value):
                values[name] = parameters[name].convert(value)
    return values


def _format_names(parameters: Mapping[str, RuleParameter]) -> str:
    return f"It has {', '.join(parameters)}." if parameters else "It has none."
