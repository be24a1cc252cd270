"""Whatever concurrent writers do, a conversation stays a well-formed tree."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dodona.core.domain.conversations.conversation import Claim, Conversation, RunStatus
from dodona.core.errors import BadRequest, NotFound, RunFenced
from dodona.store import Store
from dodona.store.schema import conversations, messages, runs
from tests.conformance.conftest import COMPLETE
from tests.conformance.store.saying import answer, ended, exchange, next_of, rows_of, said

ENDED = ("succeeded", "failed", "cancelled")
HOLDS = ("running", "waiting")


@dataclass
class World:
    """Two processes, one conversation, and what they know of it, some of it out of date."""

    stores: tuple[Store, Store]
    talk: Conversation
    nodes: list[int] = field(default_factory=list[int])
    claims: list[tuple[Store, Claim]] = field(default_factory=list[tuple[Store, Claim]])
    attempts: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def node(self, number: int) -> int | None:
        return self.nodes[number % len(self.nodes)] if self.nodes else None


Action = Callable[[World, Store, int], Awaitable[Any]]


async def append(world: World, store: Store, number: int) -> None:
    world.nodes.append(await store.conversations.append("ada", world.talk.id, exchange("x")))


async def branch(world: World, store: Store, number: int) -> None:
    node = await store.conversations.append(
        "ada", world.talk.id, exchange("y", number % 7 + 1), parent=world.node(number)
    )
    world.nodes.append(node)


async def move_head(world: World, store: Store, number: int) -> None:
    head = (await store.conversations.get("ada", world.talk.id)).head_id
    to = world.node(number)
    if to is not None:
        await store.conversations.move_head("ada", world.talk.id, expected=head, to=to)


async def prune(world: World, store: Store, number: int) -> None:
    if (node := world.node(number)) is not None:
        await store.conversations.prune("ada", node)


async def accept_run(world: World, store: Store, number: int) -> None:
    parent = world.node(number) if number % 2 else None
    node = await store.runs.accept("ada", world.talk.id, said("?"), parent=parent)
    world.nodes.append(node.id)


async def claim(world: World, store: Store, number: int) -> None:
    del number
    found = await next_of(store, world.talk.id)
    if isinstance(found, Claim):
        world.attempts.append((found.run_id, found.attempt))
        world.claims.append((store, found))


def of_claim(act: Callable[[Store, Claim], Awaitable[Any]]) -> Action:
    """Do something with a claim, perhaps one that no longer holds."""

    async def action(world: World, store: Store, number: int) -> None:
        if world.claims:
            await act(*world.claims[number % len(world.claims)])

    return action


async def finish(store: Store, held: Claim) -> None:
    status = (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED)[held.run_id % 3]
    await ended(store, held, status, answer() * (held.run_id % 2))


async def abandon(store: Store, held: Claim) -> None:
    store.runs.release_claim(held)


async def cancel(world: World, store: Store, number: int) -> None:
    if (node := world.node(number)) is not None:
        await store.runs.cancel("ada", node)


ACTIONS: dict[str, Action] = {
    "append": append,
    "branch": branch,
    "move head": move_head,
    "prune": prune,
    "accept": accept_run,
    "claim": claim,
    "finish": of_claim(finish),
    "abandon": of_claim(abandon),
    "cancel": cancel,
}

Moves = list[list[tuple[str, int, int]]]
MOVES: st.SearchStrategy[Moves] = st.lists(
    st.lists(
        st.tuples(st.sampled_from(sorted(ACTIONS)), st.integers(0, 1), st.integers(0, 30)),
        min_size=1,
        max_size=8,
    ),
    min_size=2,
    max_size=6,
)


async def act_at_once(world: World, wave: list[tuple[str, int, int]]) -> None:
    """All of a wave's actions together; what makes no sense by then is refused in words."""
    done = await asyncio.gather(
        *(ACTIONS[name](world, world.stores[who], number) for name, who, number in wave),
        return_exceptions=True,
    )
    for error in done:
        if error is not None and not isinstance(error, BadRequest | NotFound | RunFenced):
            raise error


async def check(world: World) -> None:
    store = world.stores[0]
    mine = {row["id"]: row for row in await rows_of(store, runs)}
    mine = {i: row for i, row in mine.items() if row["conversation_id"] == world.talk.id}
    check_shape(mine)
    assert sum(row["status"] in HOLDS for row in mine.values()) <= 1
    for row in mine.values():
        assert (row["status"] == "running") == (row["owner"] is not None)
        assert (row["status"] in ENDED) == (row["ended_at"] is not None)
    (talk,) = [row for row in await rows_of(store, conversations) if row["id"] == world.talk.id]
    assert talk["head_id"] is None or mine[talk["head_id"]]["status"] in ENDED
    said_in: dict[int, list[Any]] = {number: [] for number in mine}
    for row in await rows_of(store, messages):
        if row["conversation_id"] == world.talk.id:
            said_in[row["run_id"]].append(row)
    for number, kept in said_in.items():
        assert sorted(row["ordinal"] for row in kept) == list(range(len(kept)))
        assert mine[number]["tokens"] == sum(row["token_count"] for row in kept) > 0
    assert len(set(world.attempts)) == len(world.attempts), "one attempt, claimed twice"


def check_shape(mine: dict[int, Any]) -> None:
    """Every parent is there and has ended, and whoever goes from parent to parent arrives."""
    for row in mine.values():
        seen = {row["id"]}
        while (parent := row["parent_id"]) is not None:
            assert parent in mine
            assert parent not in seen, "a cycle"
            assert mine[parent]["status"] in ENDED
            seen.add(parent)
            row = mine[parent]  # noqa: PLW2901 - the walk goes on from there


@settings(
    max_examples=25,
    deadline=None,
    derandomize=COMPLETE,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(moves=MOVES)
async def test_any_interleaving_leaves_a_well_formed_tree(
    store: Store, second: Store, moves: Moves
) -> None:
    """Appends, branches, heads moved, prunes and runs, by two processes at once."""
    talk = await store.conversations.create("ada")
    world = World((store, second), talk)
    for wave in moves:
        await act_at_once(world, wave)
        await check(world)
