"""A parameter in the address or head of a request: what it takes, and how it reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from dodona.core.errors import BadRequest, NotFound

_NUMBER = re.compile(r"[0-9]{1,18}")  # more digits fit no database


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A whole number when it has bounds, else text of at most `longest` characters."""

    name: str
    about: str
    place: Literal["path", "query", "header"] = "query"
    bounds: tuple[int, int] | None = None
    longest: int = 200
    default: str | int | None = None

    def read(self, text: str) -> str | int:
        """The value; a wrong one in a path names a thing that does not exist."""
        value = self._value(text)
        if value is not None:
            return value
        if self.place == "path":
            raise NotFound(f"there is no {self.name} {text!r:.80}.")
        raise BadRequest(f"{self.name} must be {self._kind} (got {text!r:.80}).")

    def as_openapi(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": self.longest}
        if self.bounds is not None:
            lowest, highest = self.bounds
            schema = {"type": "integer", "minimum": lowest, "maximum": highest}
        if self.default is not None:
            schema["default"] = self.default
        return {
            "name": self.name,
            "in": self.place,
            "required": self.place == "path",
            "description": self.about,
            "schema": schema,
        }

    def _value(self, text: str) -> str | int | None:
        if self.bounds is None:
            return text if 0 < len(text) <= self.longest else None
        lowest, highest = self.bounds
        if _NUMBER.fullmatch(text) and lowest <= int(text) <= highest:
            return int(text)
        return None

    @property
    def _kind(self) -> str:
        if self.bounds is None:
            return f"a text of 1 to {self.longest} characters"
        lowest, highest = self.bounds
        return f"a whole number from {lowest} to {highest}"
