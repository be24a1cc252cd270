"""Two processes on one store: one lane per context, and each takes over what the other left."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from tests.system.client import Client, text_of, types
from tests.system.dodona_up import Home, Up
from tests.system.waiting import until
from tests.system.wire_model import Script, WireModel, says

Pair = tuple[Client, Client]
_projects = itertools.count(1)


@pytest.fixture(scope="module")
def ups(wire: WireModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Up]]:
    """Two gateways with homes of their own, and one store; they may be dead."""
    folder = tmp_path_factory.mktemp("two")
    made: list[Up] = []
    for name in ("one", "two"):
        (folder / name).mkdir()
        home = Home(folder / name, wire.url)
        home.write(base_url=wire.url, store=folder / "store.db")
        made.append(Up(home))
    yield made
    for up in made:
        up.end()


@pytest.fixture
async def pair(
    ups: list[Up], session: aiohttp.ClientSession, script: Script
) -> AsyncIterator[Pair]:
    """A client of each, in one project of the test's own."""
    for up in ups:
        if not up.is_alive:
            await up.begin()
    project = f"pair-{next(_projects)}"
    one, two = (Client(session, up, project=project, tag=script.tag) for up in ups)
    await one.make_project()
    yield one, two
    script.release()
    await two.clean_up()


async def test_one_lane_for_both(pair: Pair, script: Script) -> None:
    """Questions of one context are answered one at a time, whoever took them in."""
    script.will(says("Answered."))
    answers = await asyncio.gather(
        *(client.ask(f"Question {n}?") for n in range(3) for client in pair)
    )
    assert [answer["answer"] for answer in answers] == ["Answered."] * 6
    assert script.most_at_once == 1
    sizes = [len(asked.messages) for asked in script.asked]
    assert [size - sizes[0] for size in sizes] == [2 * n for n in range(6)]


async def test_the_other_takes_over(pair: Pair, script: Script) -> None:
    """A run whose process was killed is resumed by the one that lives."""
    one, two = pair
    script.will(says("Half and ", "half.", hold=1))
    async with one.stream("What is the answer?") as chunks:
        await chunks.until("content")
        one.up.kill()
    script.release()
    run = await two.ended(chunks.run_id)
    assert (run["status"], run["answer"], run["attempt"]) == ("succeeded", "Half and half.", 2)
    rest = await two.followed(chunks.run_id, chunks.seen[-1]["seq"])
    assert text_of([*chunks.seen, *rest]) == "Half and half."
    assert len(script.asked) == 2


async def test_cancelled_through_the_other(pair: Pair, script: Script) -> None:
    """A cancellation is durable, so it reaches the process that drives the run."""
    one, two = pair
    script.will(says("This much. ", "No more.", hold=1))
    async with one.stream("Be long.") as chunks:
        await chunks.until("content")
        assert (await two.cancel(run_id=chunks.run_id)).status == 200
        seen = await chunks.rest()
    assert types(seen)[-1] == "error"
    assert seen[-1]["error"]["code"] == "cancelled"
    await until(lambda: script.asked[0].left, "the end of the connection to the model")


async def test_followed_through_the_other(pair: Pair, script: Script) -> None:
    """The events of a run can be read at either gateway, to their end."""
    one, two = pair
    script.will(says("The whole answer.", hold=0))
    run_id = await one.begin("What is the answer?")
    await script.reached(1)
    following = asyncio.create_task(two.followed(run_id))
    script.release()
    chunks = await following
    assert text_of(chunks) == "The whole answer."
    assert types(chunks)[-1] == "done"
