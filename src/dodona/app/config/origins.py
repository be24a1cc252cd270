"""Where each setting was made: a line of the config file, or a variable of the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dodona.core.errors import ConfigError, SourceLocation
from dodona.documents.toml_lines import KeyPath


@dataclass(frozen=True, slots=True)
class SettingOrigins:
    """Variables come before lines; what is in neither has its default."""

    file: Path | None = None
    lines: Mapping[KeyPath, int] = field(default_factory=dict[KeyPath, int])
    variables: Mapping[KeyPath, str] = field(default_factory=dict[KeyPath, str])
    is_implicit: bool = False  # the file lay in the current folder, and nobody named it

    def of(self, path: KeyPath) -> SourceLocation | None:
        """The place of this very key; None is its default."""
        if path in self.variables:
            return SourceLocation(self.variables[path])
        return SourceLocation(str(self.file), self.lines[path]) if path in self.lines else None

    def nearest(self, path: KeyPath) -> SourceLocation | None:
        """The place of the key, or of the closest section above it: where a mistake is told."""
        for length in range(len(path), 0, -1):
            if where := self.of(path[:length]):
                return where
        # A section that only variables made: one of those inside it, or beside what is missing.
        for head in (path, path[:-1]):
            for key, variable in self.variables.items():
                if head and key[: len(head)] == head:
                    return SourceLocation(variable)
        return None

    def is_untrusted(self, path: KeyPath) -> bool:
        """Was it set by whoever wrote the folder we are in, and perhaps not by our user?"""
        return self.is_implicit and path in self.lines and path not in self.variables

    def base_folder(self, path: KeyPath) -> Path:
        """What a path in this setting is relative to: the file's folder, or the current one."""
        return Path() if self.file is None or path in self.variables else self.file.parent

    def resolve(self, text: str, path: KeyPath) -> Path:
        """The file that the setting at `path` names by `text`."""
        return self.base_folder(path) / expand_user(text)


def expand_user(text: str) -> Path:
    """The path with `~` for the user's folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"{text} cannot be found: there is no such user, or HOME is not set.",
            hint="Write the path without ~, or set DODONA_HOME.",
        ) from error
