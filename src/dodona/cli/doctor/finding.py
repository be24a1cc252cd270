"""The result of one check, and fixes that several checks share."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

State: TypeAlias = Literal["ok", "warning", "wrong"]

STATE_MARKS: Final[dict[State, str]] = {"ok": "✓", "warning": "!", "wrong": "✗"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    `hint` says what to do. `fix` does it, where that is safe, and returns a description.
    """

    name: str
    state: State
    message: str
    hint: str = ""
    fix: Callable[[], str] | None = None


def ok(name: str, message: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(name, "ok", message)


def warning(name: str, message: str, hint: str, fix: Callable[[], str] | None = None) -> Finding:
    """Return a finding that may need attention."""
    return Finding(name, "warning", message, hint, fix)


def wrong(name: str, message: str, hint: str, fix: Callable[[], str] | None = None) -> Finding:
    """Return a finding that must be fixed."""
    return Finding(name, "wrong", message, hint, fix)


def chmod_fix(path: Path, mode: int) -> Callable[[], str]:
    """Return a fix that sets the mode of a path."""

    def fix() -> str:
        os.chmod(path, mode)
        return f"Set the mode of {path} to {mode:03o}."

    return fix


def remove_fix(path: Path) -> Callable[[], str]:
    """Return a fix that removes a file."""

    def fix() -> str:
        path.unlink(missing_ok=True)
        return f"Removed {path}."

    return fix


def mkdir_fix(folder: Path) -> Callable[[], str]:
    """Return a fix that creates a private folder."""

    def fix() -> str:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return f"Created {folder}."

    return fix
