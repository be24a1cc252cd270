"""A trial: clients that ask all the time, while the gateway is killed again and again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import aiohttp

from crashing.client import PATIENCE, Asked, Client
from crashing.gateway import Cluster, Gateway
from crashing.plans import Plan
from crashing.world import World

# When the process dies: at one of its commits, or from outside shortly after an event.
AT_COMMITS: Final = ("before a commit", "after a commit")
FROM_OUTSIDE: Final = ("at any time", "after a model request", "after an effect", "after a chunk")
MOMENTS: Final = AT_COMMITS + FROM_OUTSIDE

PROJECTS: Final = 3
CLIENTS: Final = 5  # so that two runs wait for the same lane
MOST_COMMITS: Final = 40
LONGEST_WAIT: Final = 20.0  # seconds to wait for the event


@dataclass(slots=True)
class Trial:
    """Everything that happened, for `checks`."""

    folder: Path
    kills: int
    seed: int
    store: str  # a file, or the URL of a PostgreSQL database
    gateways: int = 1
    patience: float = PATIENCE  # seconds for the last answers, after the last kill
    on_kill: Callable[[int, str], None] = lambda _number, _moment: None
    asked: list[Asked] = field(default_factory=list)
    moments: Counter[str] = field(default_factory=Counter)
    while_running: int = 0  # kills that interrupted runs
    replays: dict[int, tuple[str, list[str]]] = field(default_factory=dict)
    shown: dict[int, dict[str, object]] = field(default_factory=dict)
    never_ended: list[Asked] = field(default_factory=list)
    random: Random = field(
        init=False
    )  # for the kills only, so that they are the same for the same seed
    world: World = field(init=False)
    cluster: Cluster = field(init=False)
    _stirred: dict[str, asyncio.Event] = field(default_factory=dict)
    _plans: Random = field(init=False)
    _limits: set[asyncio.Timeout] = field(default_factory=set)
    _is_over: bool = False

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._plans = Random(self.seed + 2)
        self._stirred = {moment: asyncio.Event() for moment in FROM_OUTSIDE}
        self.world = World(
            Random(self.seed + 1),
            on_request=self._stirred["after a model request"].set,
            on_effect=self._stirred["after an effect"].set,
        )

    async def run(self) -> None:
        async with self.world.serving(), self._http() as http:
            self.cluster = Cluster(self.folder, self.world.url, self.store, self.gateways)
            self.cluster.prepare()
            client = Client(self.cluster, http, on_chunk=self._stirred["after a chunk"].set)
            try:
                await self._begin(client)
                async with asyncio.TaskGroup() as tasks:
                    for number in range(CLIENTS):
                        tasks.create_task(self._ask_on(client, f"project-{number % PROJECTS}"))
                    await self._kill_on()
                    self._end()
                await self._look_back(client)
            finally:
                await self.cluster.stop()

    def _http(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60),
        )

    async def _begin(self, client: Client) -> None:
        first = self.cluster.gateways[0]
        await first.start()
        for number in range(PROJECTS):
            await client.make_project(f"project-{number}")
        await first.kill()

    def _end(self) -> None:
        """Stop asking; the remaining questions should be answered soon."""
        self._is_over = True
        for limit in self._limits:
            limit.reschedule(asyncio.get_running_loop().time() + self.patience)

    # -- asking ------------------------------------------------------------------------------

    async def _ask_on(self, client: Client, project: str) -> None:
        """Ask one question after the other, until the kills end or an answer fails."""
        while not self._is_over:
            asked = Asked(Plan.draw(len(self.asked) + 1, self._plans), project)
            self.asked.append(asked)
            with suppress(TimeoutError):
                # During the kills, an answer may take any time.
                async with asyncio.timeout(None) as limit:
                    self._limits.add(limit)
                    await client.converse(asked)
            self._limits.discard(limit)
            if not asked.heard.ended:
                self.never_ended.append(asked)
            if asked.heard.ended != "done":
                return  # enough data

    # -- killing -----------------------------------------------------------------------------

    async def _kill_on(self) -> None:
        for number in range(self.kills):
            moment = self.random.choice(MOMENTS)
            victim = self.random.choice(self.cluster.gateways)
            for other in self.cluster.gateways:
                if other is not victim and not other.is_running:
                    await other.start()
            if moment in AT_COMMITS:
                await self._die(victim, moment.split()[0])
            else:
                await self._kill(victim, moment)
            self.moments[moment] += 1
            self.while_running += any(a.sent and not a.heard.ended for a in self.asked)
            self.on_kill(number + 1, moment)
        await self.cluster.start_all()

    async def _die(self, victim: Gateway, when: str) -> None:
        if victim.is_running:  # beside another gateway
            await victim.kill()
        die_at = self.random.randint(1, MOST_COMMITS)
        if await victim.start(die_at=die_at, when=when):
            await victim.died(LONGEST_WAIT)
            await victim.kill()

    async def _kill(self, victim: Gateway, moment: str) -> None:
        event = self._stirred[moment]
        if not victim.is_running:
            await victim.start()
        if moment == "at any time":
            await asyncio.sleep(self.random.uniform(0, 0.8))
        else:
            # Pick a random moment of many, not always the first after a start.
            for _ in range(self.random.randint(1, 12)):
                event.clear()
                try:
                    await asyncio.wait_for(event.wait(), LONGEST_WAIT)
                except TimeoutError:
                    break
            await asyncio.sleep(self.random.uniform(0, 0.015))
        await victim.kill()

    # -- afterwards --------------------------------------------------------------------------

    async def _look_back(self, client: Client) -> None:
        """Replay every run from its beginning, and read its stored state."""
        for asked in self.asked:
            if asked.run_id is not None and asked not in self.never_ended:
                heard = await client.replay(asked.run_id)
                self.replays[asked.run_id] = (heard.text, [*heard.breaches, heard.ended])
                self.shown[asked.run_id] = await client.show(asked.run_id)
