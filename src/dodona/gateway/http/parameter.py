"""Parameters in the path, query or headers of a request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from dodona.core.errors import BadRequest, NotFound

_NUMBER = re.compile(r"[0-9]{1,18}")  # more digits do not fit a database column


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParameter:
    """A whole number if it has bounds, else a string of at most `max_length` characters."""

    name: str
    description: str
    location: Literal["path", "query", "header"] = "query"
    bounds: tuple[int, int] | None = None
    max_length: int = 200
    default: str | int | None = None

    def parse(self, text: str) -> str | int:
        """Return the value. An invalid one in a path raises NotFound, elsewhere BadRequest."""
        value = self._parse_or_none(text)
        if value is not None:
            return value
        if self.location == "path":
            raise NotFound(f"there is no {self.name} {text!r:.80}.")
        raise BadRequest(f"{self.name} must be {self._expected} (got {text!r:.80}).")

    def as_openapi(self) -> dict[str, Any]:
        """Return the OpenAPI parameter object."""
        schema: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": self.max_length}
        if self.bounds is not None:
            lowest, highest = self.bounds
            schema = {"type": "integer", "minimum": lowest, "maximum": highest}
        if self.default is not None:
            schema["default"] = self.default
        return {
            "name": self.name,
            "in": self.location,
            "required": self.location == "path",
            "description": self.description,
            "schema": schema,
        }

    def _parse_or_none(self, text: str) -> str | int | None:
        if self.bounds is None:
            return text if 0 < len(text) <= self.max_length else None
        lowest, highest = self.bounds
        if _NUMBER.fullmatch(text) and lowest <= int(text) <= highest:
            return int(text)
        return None

    @property
    def _expected(self) -> str:
        if self.bounds is None:
            return f"a string of 1 to {self.max_length} characters"
        lowest, highest = self.bounds
        return f"a whole number from {lowest} to {highest}"
