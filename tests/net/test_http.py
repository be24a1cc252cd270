"""The pool of connections: opened with the first call, closed for good."""

from __future__ import annotations

import pytest

from dodona.net.http import HttpPool


async def test_a_pool_that_was_not_used_closes() -> None:
    """Nothing opens before the first call."""
    async with HttpPool():
        pass


async def test_one_session_serves_all_calls() -> None:
    """It opens with the first use and closes with the block."""
    async with HttpPool() as http:
        session = http.session
        assert http.session is session
        assert not session.closed
    assert session.closed
    with pytest.raises(RuntimeError, match="closed"):
        _ = http.session
