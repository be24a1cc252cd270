"""Which request and which run a line of the log belongs to."""

from __future__ import annotations

import asyncio

import pytest

from dodona.telemetry.log_context import (
    detached_context,
    log_fields,
    request_id,
    request_id_of,
    run_id,
)


@pytest.mark.parametrize("given", ["a", "0f.3_A-9", "x" * 64])
def test_an_id_that_was_given_is_kept(given: str) -> None:
    assert request_id_of(given) == given


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "a\nb", "ü", ".", "a;b", "\x1b[2J", "a\n"])
def test_what_is_no_id_is_replaced(given: str) -> None:
    """It would be in every line of the log."""
    made = request_id_of(given)
    assert made != given
    assert made.isalnum()
    assert request_id_of(given) != made


async def test_tasks_have_it_from_whoever_began_them_unless_they_are_nobody_s() -> None:
    """A run belongs to its request; what looks after all runs belongs to none."""

    async def look() -> dict[str, object]:
        return log_fields()

    def begin() -> None:
        request_id.set("r-1")
        run_id.set(7)

    async def within() -> tuple[dict[str, object], dict[str, object]]:
        begin()
        loop = asyncio.get_running_loop()
        own, free = loop.create_task(look()), loop.create_task(look(), context=detached_context())
        return await own, await free

    assert await asyncio.create_task(within()) == ({"request_id": "r-1", "run_id": 7}, {})
    assert log_fields() == {}
