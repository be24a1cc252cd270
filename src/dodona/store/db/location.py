"""The location of a store: a SQLite file or a PostgreSQL database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dodona.core.errors import ConfigError, did_you_mean

# Not by parsing: an invalid URL may contain a password too.
_USERINFO_PATTERN = re.compile(r"(\w+://[^:@/?]*):.*@", re.DOTALL)
_PASSWORD_PATTERN = re.compile(r"(\w*pass\w*)=[^&]*", re.IGNORECASE)
_SCHEMES = ("sqlite", "postgresql", "postgres")


@dataclass(frozen=True, slots=True, repr=False)
class StoreLocation:
    """`path` of a SQLite file, or `dsn` of a PostgreSQL database: exactly one is set."""

    path: Path | None = None
    dsn: str = ""

    def __str__(self) -> str:
        """Return the address without its password."""
        if self.path is not None:
            return str(self.path)
        return strip_passwords(self.dsn)

    def __repr__(self) -> str:
        return f"StoreLocation({self})"


def strip_passwords(text: str) -> str:
    """Remove passwords from a text that may contain the address of a database."""
    return _PASSWORD_PATTERN.sub(r"\1=***", _USERINFO_PATTERN.sub(r"\1@", text))


def parse_location(url: str) -> StoreLocation:
    """Parse `postgresql://…`, `sqlite:///path` or a path.

    As usual, a path is relative after `sqlite:///` and absolute after `sqlite:////`.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return _file_location(url)
    if scheme == "sqlite":
        return _file_location(rest.removeprefix("/"))
    if scheme in ("postgresql", "postgres"):
        return StoreLocation(dsn=f"postgresql://{rest}")
    raise ConfigError(
        f"the store does not support '{scheme}'.",
        hint=did_you_mean(scheme, _SCHEMES) or "Use a path, sqlite:///PATH or postgresql://….",
    )


def _file_location(path: str) -> StoreLocation:
    if not path or path.startswith(":memory:"):
        raise ConfigError(
            "the store needs a file.", hint="An in-memory database does not survive the process."
        )
    return StoreLocation(path=Path(path).expanduser())
