"""What a look at one thing came to."""

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
    """`advice` says what to do. `mend` does it, where that is safe, and says what it did."""

    name: str
    state: State
    message: str
    hint: str = ""
    fix: Callable[[], str] | None = None


def ok(name: str, message: str) -> Finding:
    return Finding(name, "ok", message)


def warning(name: str, message: str, hint: str, fix: Callable[[], str] | None = None) -> Finding:
    return Finding(name, "warning", message, hint, fix)


def wrong(name: str, message: str, hint: str, fix: Callable[[], str] | None = None) -> Finding:
    return Finding(name, "wrong", message, hint, fix)


def chmod_fix(path: Path, mode: int) -> Callable[[], str]:
    """Take away what others may do."""

    def mend() -> str:
        os.chmod(path, mode)
        return f"{path} has mode {mode:03o} now."

    return mend


def remove_fix(path: Path) -> Callable[[], str]:
    def mend() -> str:
        path.unlink(missing_ok=True)
        return f"{path} is removed."

    return mend


def mkdir_fix(folder: Path) -> Callable[[], str]:
    def mend() -> str:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return f"{folder} is made."

    return mend
