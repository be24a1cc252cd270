"""A gateway for each test that wants one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.gateway.talking import Gateway, gateway_up


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with gateway_up() as up:
        yield up
