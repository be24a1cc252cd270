"""A value that must not be seen, and where it came from."""

from __future__ import annotations


class Secret:
    """Wherever it is printed it shows its source; only `reveal` gives the value."""

    __slots__ = ("_value", "source")

    def __init__(self, value: str, *, source: str) -> None:
        self._value = value
        self.source = source

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({self.source})"
