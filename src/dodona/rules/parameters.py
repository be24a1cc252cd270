"""Parameters: what a user may set of a rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from dodona.core.errors import BadRequest, did_you_mean
from dodona.documents import Section, wrong

LONGEST_TEXT: Final = 2_000
_WIDEST: Final = 2**53  # what JSON carries without loss

_NAMED: Final = {"int": "a whole number", "float": "a number", "string": "a text", "bool": ""}

Number = int | float


class Parameter(Section):
    """One of them; `min` and `max` are for numbers."""

    type: Literal["int", "float", "string", "bool"]
    min: Number | None = None
    max: Number | None = None
    default: Any
    description: Annotated[str, Field(max_length=LONGEST_TEXT)] = ""

    @field_validator("min", "max")
    @classmethod
    def _bounds(cls, bound: Number | None, info: ValidationInfo) -> Number | None:
        kind, lowest = info.data.get("type"), info.data.get("min")
        if bound is not None and kind in ("string", "bool"):
            raise wrong(f"is for numbers: this is a {kind}")
        if bound is not None and lowest is not None and bound < lowest:
            raise wrong("must not be below min")
        return bound

    @field_validator("default")
    @classmethod
    def _fits(cls, value: Any, info: ValidationInfo) -> Any:
        if not {"type", "min", "max"} <= info.data.keys():
            return value  # those are wrong, and that is told
        told = cls.model_construct(None, **info.data).mistake(value)
        if told:
            raise wrong(f"must be {told}")
        return value

    def mistake(self, value: Any) -> str:
        """What the value should be instead; empty when it is right."""
        if self.type == "bool":
            return "" if type(value) is bool else "true or false"
        if self.type == "string":
            is_right = type(value) is str and len(value) <= LONGEST_TEXT
            return "" if is_right else f"a text of at most {LONGEST_TEXT:,} characters"
        kinds = (int,) if self.type == "int" else (int, float)
        is_right = type(value) in kinds and self._lowest() <= value <= self._highest()
        return "" if is_right else f"{_NAMED[self.type]}{self._range()}"

    def taken(self, value: Any) -> Any:
        """The value as conditions see it: of a number with a fraction, always one."""
        return float(value) if self.type == "float" else value

    def _lowest(self) -> Number:
        return -_WIDEST if self.min is None else self.min

    def _highest(self) -> Number:
        return _WIDEST if self.max is None else self.max

    def _range(self) -> str:
        if self.min is None and self.max is None:
            return ""
        if self.max is None:
            return f", {self.min} or more"
        return f", {self.max} or less" if self.min is None else f" from {self.min} to {self.max}"


def check(rule_id: str, known: Mapping[str, Parameter], given: Mapping[str, Any]) -> None:
    """Raise every mistake at once."""
    found: list[BadRequest] = []
    for name, value in given.items():
        if name not in known:
            hint = did_you_mean(name, known) or _list(known)
            found.append(BadRequest(f"rule {rule_id} has no parameter '{name:.80}'.", hint=hint))
        elif told := known[name].mistake(value):
            found.append(BadRequest(f"{rule_id}.{name} must be {told} (got {value!r:.60})."))
    if found:
        raise BadRequest.gather(found)


def chosen(known: Mapping[str, Parameter], *given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The defaults with what the user has set; what does not fit (any more) is left out."""
    values = {name: parameter.taken(parameter.default) for name, parameter in known.items()}
    for choice in given:
        for name, value in choice.items():
            if name in known and not known[name].mistake(value):
                values[name] = known[name].taken(value)
    return values


def _list(known: Mapping[str, Parameter]) -> str:
    return f"It has {', '.join(known)}." if known else "It has none."
