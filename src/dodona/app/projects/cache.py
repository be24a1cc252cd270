"""A short-lived cache of values per project."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final, Generic, TypeVar

from dodona.core.domain.projects import Project
from dodona.store.projects.projects import Projects

CACHE_SECONDS: Final = 1.0
CACHE_SIZE: Final = 1_000

T = TypeVar("T")


class ProjectCache(Generic[T]):
    """Caches the results of `find`, which runs in a thread. Errors are not cached."""

    def __init__(self, projects: Projects, find: Callable[[Project], T]) -> None:
        self._projects = projects
        self._find = find
        self._cached: dict[tuple[str, str], tuple[float, T]] = {}

    async def __call__(self, user_id: str, project_id: str) -> T:
        cached = self._cached.get((user_id, project_id))
        if cached is not None and monotonic() <= cached[0]:
            return cached[1]
        project = await self._projects.get(user_id, project_id)
        value = await asyncio.to_thread(self._find, project)
        if len(self._cached) >= CACHE_SIZE:
            self._cached.clear()
        self._cached[user_id, project_id] = (monotonic() + CACHE_SECONDS, value)
        return value
