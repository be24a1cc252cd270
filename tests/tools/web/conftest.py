"""A site of its own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.tools.web.site import Site, site_up


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with site_up() as up:
        yield up
