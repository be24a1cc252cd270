"""Projects: the location of a user's notes and code. Every user has a `default` project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import time
from typing import Any, Final

DEFAULT_PROJECT: Final = "default"


@dataclass(frozen=True, slots=True)
class Project:
    """`settings` are those of the project; their meaning is defined elsewhere."""

    user_id: str
    id: str
    vault_path: str | None = None
    code_paths: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    created_at: float = field(default_factory=time)


LOCAL_USER: Final = "local"
