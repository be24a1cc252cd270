"""A process that leaves at any moment: whatever it had done, the run comes to the same end.

The processes here are engines that leave when so many chunks have come; that real ones may be
killed is shown by the tests of the system.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from dodona.core.chunks import StreamChunk
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.messages import AssistantText
from dodona.core.ports.model import ModelRequest
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import LIMIT, USER, Opened, Tools, calls, opened, text_of, until

LAST = "The oak is what the notes speak of."
SCRIPT: tuple[AssistantText | str, ...] = (
    calls(("keyed", "a"), text="Let me see what there is. "),
    calls(("once", "b"), ("echo", "c"), text="Now something that must not happen twice. "),
    calls(("cite", "oak.md"), text="And a look at the notes. "),
    LAST,
)
# What clients see, and the store keeps.
ANSWER = "\n\n".join(each if isinstance(each, str) else each.text for each in SCRIPT)


def scripted(request: ModelRequest) -> AssistantText | str:
    """The answer that follows on so many others: the same in every attempt."""
    place = sum(isinstance(message, AssistantText) for message in request.messages)
    return SCRIPT[place]


class Client:
    """Follows a run over crashes: it comes back with its last place, and drops what it is told."""

    def __init__(self) -> None:
        self.seen: list[StreamChunk] = []
        self._last = 0  # also of what was dropped: that was seen all the same

    async def follow(self, here: Opened, run_id: int, *, most: int) -> None:
        """Return after so many chunks, or at the end of the stream."""
        events = here.oracle.stream_chunks(USER, run_id, after_seq=self._last)
        async with asyncio.timeout(LIMIT), aclosing(events):
            async for batch in events:
                for chunk in batch:
                    self._take(chunk)
                most -= len(batch)
                if most <= 0:
                    return

    def _take(self, chunk: StreamChunk) -> None:
        self._last = chunk.seq
        if chunk.as_json()["type"] == "restart":
            upto = chunk.as_json()["discard_after"]
            self.seen = [each for each in self.seen if each.seq <= upto]
        self.seen.append(chunk)


def view(chunks: Sequence[StreamChunk]) -> list[Mapping[str, Any]]:
    """What is on a screen in the end: a call that is announced again is the same call."""
    shown: list[Mapping[str, Any]] = []
    for chunk in chunks:
        body = to_builtins(chunk.chunk)
        is_shown = body["type"] == "tool_call" and body in shown
        if body["type"] != "restart" and not is_shown:
            shown.append(body)
    return shown


async def is_driven(here: Opened, run_id: int) -> bool:
    """Who comes by now reads what comes, not what was; unless it is over already."""
    if here.agency.engine.find_feed(run_id) is not None:
        return True
    return (await here.run(run_id)).status.has_ended


async def turns(number: int) -> None:
    """Let so many turns of the loop pass."""
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.parametrize("pace", [1, 2, 3, 5])
@pytest.mark.parametrize("later", [0, 1, 2, 4, 9, 25])
@pytest.mark.slow
async def test_leaving_again_and_again_changes_nothing(file: Path, pace: int, later: int) -> None:
    """However often: effects happen once, the answer is saved once, and clients see all of it."""
    tools, client, run_id = Tools(), Client(), 0
    for attempt in count(1):
        async with opened(file, ScriptedModel([scripted] * 20), tools=tools) as here:
            run_id = run_id or await here.ask()
            if attempt % 2:
                await until(partial(is_driven, here, run_id), "a run that goes on")
            # Each attempt comes further than the one before it, so that there is an end.
            await client.follow(here, run_id, most=pace * attempt)
            await turns(later)
            await here.agency.engine.shutdown(0)
            run = await here.run(run_id)
        if run.status.has_ended:
            break
    async with opened(file, ScriptedModel([])) as here:
        await client.follow(here, run_id, most=1000)
        chunks = await here.chunks(run_id)
        answer = await here.answer(run_id)
        records = await here.records()
        messages = await here.store.runs.messages(USER, run_id)

    assert run.status is RunStatus.SUCCEEDED
    assert answer.answer == ANSWER
    assert [message.content for message in messages] == ["Why?", ANSWER]
    assert len(tools.of("once")) <= 1
    assert len({made.context.key for made in tools.of("keyed")}) == 1
    assert [call.name for call in answer.tool_calls] == ["keyed", "once", "echo", "cite"]
    assert [chunk.seq for chunk in chunks] == sorted({chunk.seq for chunk in chunks})
    assert sum(chunk.is_last for chunk in chunks) == 1
    assert len(records) >= 4
    assert view(client.seen) == view(chunks)
    assert text_of(client.seen) == ANSWER


@pytest.mark.slow
async def test_many_runs_survive_processes_that_come_and_go(file: Path) -> None:
    """Two processes at a time, each leaving in mid-work: every run ends once, with its answer."""
    users = [f"user-{number}" for number in range(12)]
    tools = Tools()
    runs: dict[str, int] = {}
    for attempt in range(6):
        model = ScriptedModel([scripted] * 500)
        async with opened(file, model, tools=tools) as one, opened(file, model, tools=tools) as two:
            for place, user in enumerate(users[2 * attempt : 2 * attempt + 2]):
                runs[user] = await (one, two)[place].ask(user=user)
            await turns(40 * (attempt + 1))
            await one.agency.engine.shutdown(0)
            await turns(20)
    async with opened(file, ScriptedModel([scripted] * 500), tools=tools) as here:
        for user, run_id in runs.items():
            assert (await here.answer(run_id, user=user)).answer == ANSWER
            assert len(await here.store.runs.messages(user, run_id)) == 2

    called = [made.context.key for made in tools.of("once")]
    assert len(called) == len(set(called))
