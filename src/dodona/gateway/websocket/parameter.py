"""A parameter of a method: what it takes, and how it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dodona.core.errors import BadRequest, DodonaError, did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodParameter:
    """Yes or no when it has `is_flag`, a whole number when it has bounds, else text."""

    name: str
    description: str
    is_required: bool = False
    is_flag: bool = False
    bounds: tuple[int, int] | None = None
    max_length: int = 200
    default: Any = None

    @property
    def expected(self) -> str:
        if self.is_flag:
            return "true or false"
        if self.bounds is not None:
            lowest, highest = self.bounds
            return f"a whole number from {lowest:,} to {highest:,}"
        return f"a text of 1 to {self.max_length:,} characters"

    def accepts(self, value: Any) -> bool:
        if self.is_flag:
            return isinstance(value, bool)
        if self.bounds is not None:
            lowest, highest = self.bounds
            return type(value) is int and lowest <= value <= highest
        return isinstance(value, str) and 0 < len(value) <= self.max_length


def read_params(parameters: Sequence[MethodParameter], params: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all fields; null is as if it were not given."""
    wrong = [*_problems(parameters, params)]
    if wrong:
        raise BadRequest.combine(wrong)
    return {
        each.name: each.default if params.get(each.name) is None else params[each.name]
        for each in parameters
    }


def _problems(
    parameters: Sequence[MethodParameter], params: Mapping[str, Any]
) -> Iterator[DodonaError]:
    names = [each.name for each in parameters]
    for name in params:
        if name not in names:
            hint = did_you_mean(name, names) or _format_names(names)
            yield BadRequest(f"there is no parameter {name!r:.80}.", hint=hint)
    for each in parameters:
        value = params.get(each.name)
        if value is None:
            if each.is_required:
                yield BadRequest(f"{each.name} is missing: {each.expected}.")
        elif not each.accepts(value):
            yield BadRequest(f"{each.name} must be {each.expected} (got {value!r:.80}).")


def _format_names(names: Sequence[str]) -> str:
    return f"There are {', '.join(names)}." if names else "There are none."
