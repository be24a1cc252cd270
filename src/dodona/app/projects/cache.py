"""A short-lived cache of values per project."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from dodona.core.domain.projects import Project
from dodona.core.ttl_cache import TtlCache
from dodona.store.projects.projects import Projects

CACHE_SECONDS: Final = 1.0
CACHE_SIZE: Final = 1_000

T = TypeVar("T")


class ProjectCache(Generic[T]):
    """Caches the results of `find`, which runs in a thread. Errors are not cached."""

    def __init__(self, projects: Projects, find: Callable[[Project], T]) -> None:
        self._projects = projects
        self._find = find
        self._cached: TtlCache[tuple[str, str], T] = TtlCache(CACHE_SECONDS, max_size=CACHE_SIZE)

    async def __call__(self, user_id: str, project_id: str) -> T:
        value = self._cached.get((user_id, project_id))
        if value is None:
            project = await self._projects.get(user_id, project_id)
            value = await asyncio.to_thread(self._find, project)
            self._cached.put((user_id, project_id), value)
        return value
