"""The origin of each setting: a line of the config file, an environment variable or an argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dodona.app.config.shape import SHAPE, is_secret
from dodona.core.errors import ConfigError, SourceLocation
from dodona.documents import ConfigErrorBuilder, KeyPath


@dataclass(frozen=True, slots=True)
class SettingOrigins:
    """The origins of all settings. Variables override lines; keys in neither have defaults.

    An argument of a program, such as `open(vault=…)`, counts as a variable.
    """

    file: Path | None = None
    lines: Mapping[KeyPath, int] = field(default_factory=dict[KeyPath, int])
    variables: Mapping[KeyPath, str] = field(default_factory=dict[KeyPath, str])

    def of(self, path: KeyPath) -> SourceLocation | None:
        """Return the origin of exactly this key, or None if it has its default."""
        if path in self.variables:
            return SourceLocation(self.variables[path])
        return SourceLocation(str(self.file), self.lines[path]) if path in self.lines else None

    def nearest(self, path: KeyPath) -> SourceLocation | None:
        """Return the origin of the key or its closest parent, as the location for errors."""
        for length in range(len(path), 0, -1):
            if where := self.of(path[:length]):
                return where
        # The section exists only in variables: use one inside it, or a sibling of a missing key.
        for head in (path, path[:-1]):
            for key, variable in self.variables.items():
                if head and key[: len(head)] == head:
                    return SourceLocation(variable)
        return None

    @property
    def errors(self) -> ConfigErrorBuilder:
        """A builder of errors that locates settings by their origins."""
        return ConfigErrorBuilder(SHAPE, self.nearest, is_secret=is_secret)

    def resolve(self, text: str, path: KeyPath) -> Path:
        """Return the file that `text`, the value of the setting at `path`, refers to.

        It is relative to the folder of the config file; in a variable, to the current folder.
        """
        base = Path() if self.file is None or path in self.variables else self.file.parent
        return base / expand_user(text)


def expand_user(text: str) -> Path:
    """Expand `~` to the user's home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"cannot expand {text}: the user does not exist, or HOME is not set.",
            hint="Write the path without ~, or set DODONA_HOME.",
        ) from error
