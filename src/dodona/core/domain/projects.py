"""Projects: where a user's notes and code are. Everybody has a `default` one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import time
from typing import Any, Final

DEFAULT_PROJECT: Final = "default"


@dataclass(frozen=True, slots=True)
class Project:
    """`settings` are the project's own; what they mean is not known here."""

    user_id: str
    id: str
    vault_path: str | None = None
    code_paths: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    created_at: float = field(default_factory=time)


LOCAL_USER: Final = "local"
