"""Parameters of methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dodona.core.errors import BadRequest, DodonaError, did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodParameter:
    """A boolean with `is_flag`, a whole number with `bounds`, else a string."""

    name: str
    description: str
    is_required: bool = False
    is_flag: bool = False
    bounds: tuple[int, int] | None = None
    max_length: int = 200
    default: Any = None

    @property
    def expected(self) -> str:
        """The accepted values, in words."""
        if self.is_flag:
            return "true or false"
        if self.bounds is not None:
            lowest, highest = self.bounds
            return f"a whole number from {lowest:,} to {highest:,}"
        return f"a string of 1 to {self.max_length:,} characters"

    def accepts(self, value: Any) -> bool:
        """Whether a value is valid."""
        if self.is_flag:
            return isinstance(value, bool)
        if self.bounds is not None:
            lowest, highest = self.bounds
            return type(value) is int and lowest <= value <= highest
        return isinstance(value, str) and 0 < len(value) <= self.max_length


def read_params(parameters: Sequence[MethodParameter], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all parameters. Null counts as missing."""
    errors = [*_problems(parameters, params)]
    if errors:
        raise BadRequest.combine(errors)
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
    return f"Parameters are {', '.join(names)}." if names else "This method has no parameters."
