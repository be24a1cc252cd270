"""Nothing is declared that never happens: live runs bring about every event, notice and rule."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from dodona.core import events
from dodona.core.events import Event
from dodona.core.messages import Origin, ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.notify import SubscriberRegistry
from dodona.rules import RuleBook
from dodona.tools.registry import FunctionTool, ToolFunction
from tests.clock import Clock
from tests.system.client import Chunk, Client, of_type
from tests.system.dodona_up import Home
from tests.system.inside import served_inside
from tests.system.test_approvals import write_rule
from tests.system.test_trees import ORACLE
from tests.system.waiting import until
from tests.system.wire_model import Asked, Call, Reply, Script, WireModel, calls, refuses, says

DECLARED: Final = {
    value
    for name, value in vars(events).items()
    if name.isupper()
    and name[0] != "_"
    and isinstance(value, str)
    and value not in {events.PLUGIN_PREFIX, events.PATTERN_HINT}
}
CONFLICT: Final = (
    "(selector (parallel :merge :fail-on-conflict"
    ' (set :retrieved "a") (set :retrieved "b")) (succeed))\n    (selector answer'
)
OWN_EVENT: Final = (
    '[rule]\nid = "own"\ntrigger = "on_query_start"\n[action]\nkind = "emit_event"\n'
    'type = "plugin.user.asked"\n'
)


@dataclass
class Tools:
    """Of a kind that the shipped ones are not: slow, stubborn, from outside, for good."""

    clock: Clock
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    is_stubborn: asyncio.Event = field(default_factory=asyncio.Event)

    def tools(self) -> list[FunctionTool]:
        def tool(
            name: str, function: ToolFunction, effect: Effect = Effect.NONE, **more: Any
        ) -> FunctionTool:
            spec = ToolSpec(name, "For this test.", {"type": "object"})
            return FunctionTool(
                spec=spec, function=function, category=ToolCategory.META, effect=effect, **more
            )

        return [
            tool("too_slow", self._for_ever, timeout_seconds=0.1),
            tool("slow", self._slow),
            tool("hear_of_it", self._done, origin=Origin.WEB),
            tool("do_for_good", self._done, Effect.ONCE),
            tool("stubborn", self._stubborn),
            tool("hang", self._for_ever),
        ]

    async def _done(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput("Done.")

    async def _slow(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self.clock.advance(8.2)  # most of the shortest time that a run may have
        return ToolOutput("At last.")

    async def _for_ever(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        await asyncio.Event().wait()
        raise AssertionError("nobody lets it go")

    async def _stubborn(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self.is_stubborn.set()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        return ToolOutput("Done.")


@dataclass
class Witness:
    """A client, and all that it saw and heard."""

    client: Client
    script: Script
    heard: list[Event]
    told: set[str]  # kinds of system chunks

    async def sees(self, text: str, *replies: Reply, new: bool = True, **more: Any) -> list[Chunk]:
        if replies:
            self.script.will(*replies)
        chunks = await self.client.streamed(text, new=new, **more)
        self.told |= {each["system_type"] for each in of_type(chunks, "system")}
        return chunks

    async def hears(self, kind: str) -> None:
        await until(lambda: any(each.type == kind for each in self.heard), kind)


@asynccontextmanager
async def witness(
    home: Home, session: aiohttp.ClientSession, script: Script, tools: Tools
) -> AsyncIterator[Witness]:
    async with served_inside(home, session, script, tools.tools()) as client:
        seen = Witness(client, script, [], set())

        async def listen() -> None:
            # As the operator: some events belong to no user.
            async with client.up.api.events.subscribe(user_id=None) as told:
                ready.set()
                async for event in told:
                    seen.heard.append(event)

        ready = asyncio.Event()
        listening = asyncio.create_task(listen())
        await ready.wait()
        try:
            yield seen
        finally:
            tools.let_go.set()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


def tries(*names: str) -> Reply:
    return calls(*(Call(name) for name in names))


async def conversation(seen: Witness, vault: Path) -> None:
    """Another model, a note that has changed, notes to itself, and too much to remember."""
    note = calls(Call("notify_self", {"message": "Mind the oak."}))
    sentence = "The administration of Dodona communicates extraordinary recommendations.\n"
    (vault / "long.md").write_text(sentence * 225)  # many characters, but not many tokens
    long = calls(Call("vault_read", {"path": "long.md"}))
    await seen.sees("Read all of it.", long, says("Read."))
    await seen.sees("Read.", calls(Call("vault_read", {"path": "oak.md"})), note, says("Read."))
    (vault / "oak.md").write_text("# The oak\n\nIt fell silent.\n")
    await seen.sees("And now?", says("As before."), new=False, model="other-model")
    await seen.client.set(max_context_nodes=5)
    for number in range(6):
        await seen.sees(f"Is {number} a number?", says("Indeed."), new=False)
    await seen.hears(events.CONTEXT_COMPRESSED)


async def limits(seen: Witness) -> None:
    """Each of them comes near, and is reached."""

    def search(asked: Asked) -> Reply:
        return calls(Call("vault_search", {"query": f"oak {asked.round}"}))

    await seen.client.set(max_iterations=2)
    seen.script.will_by(search)
    await seen.sees("Search.")
    await seen.client.set(max_iterations=30)
    seen.script.will_by(lambda asked: calls(Call("vault_read", {"path": "oak.md"})))
    await seen.sees("Read it again and again.")
    seen.script.will_by(lambda asked: calls(Call("vault_read", {"path": f"{asked.round}.md"})))
    await seen.sees("Read nothing.")
    await seen.client.set(token_budget=1000)
    await seen.sees("Spend.", calls(Call("vault_list"), usage=(800, 50)), calls(
        Call("vault_read", {"path": "oak.md"}), usage=(800, 50)
    ))  # fmt: skip
    await seen.client.set(token_budget=50_000)
    seen.script.will_by(lambda asked: says("Enough.") if asked.round == 11 else search(asked))
    await seen.sees("Go on and on.")
    much = {"path": "much.md", "content": "The oak of Dodona spoke through its leaves. " * 200}
    await seen.sees(
        "Write much.",
        calls(Call("vault_write", much), usage=(3000, 2500)),
        calls(Call("vault_read", {"path": "much.md"}), usage=(4000, 10)),
        says("Much.", usage=(7000, 10)),
        model="smollm2",
    )
    await seen.client.set(timeout_seconds=10)
    await seen.sees("Be slow.", tries("slow"), says("This much. ", "Never said.", hold=1))
    await seen.client.set(timeout_seconds=120)


async def calls_of_tools(seen: Witness) -> None:
    """They fail, hang, are held, and come again and again."""
    missing = [Call("vault_read", {"path": f"none-{n}.md"}) for n in range(3)]
    await seen.sees("Fail.", calls(*missing, Call("vault_list")), says("There are none."))
    turns = [calls(each, Call("vault_list")) for each in missing]
    await seen.sees("Fail again.", *turns, says("There are none."))
    looping = [calls(Call("vault_search", {"query": "oak", "limit": n})) for n in (1, 2, 3)]
    await seen.sees("Loop.", *looping, says("Enough."))
    await seen.sees("Time out.", tries("too_slow"), says("Too slow."))
    await seen.sees("Hear.", tries("hear_of_it"), tries("do_for_good"), says("Nobody allowed it."))


async def subagents(seen: Witness) -> None:
    delegate = Call("delegate_librarian", {"task": f"Summarise. {seen.script.tag}"})
    reports = {"Well.": says("Three notes."), "Badly.": refuses(400, "no")}
    for question, report in reports.items():

        def answer(asked: Asked, report: Reply = report) -> Reply:
            if "Summarise" in asked.question:
                return report
            return says("So it is.") if asked.round else calls(delegate)

        seen.script.will_by(answer)
        await seen.sees(question)


def edit(tree: Path, old: str, new: str) -> None:
    assert old in ORACLE
    tree.write_text(ORACLE.replace(old, new))


async def trees(seen: Witness, tree: Path, tools: Tools) -> None:
    """One that is edited, with a mistake, with a conflict; and a leaf that does not stop."""
    edit(tree, "(selector answer", CONFLICT)
    await seen.hears(events.TREE_RELOADED)
    await seen.sees("Quarrel.", says("Done."))
    edit(tree, "(action begin", "(actoin begin")
    await seen.hears(events.TREE_RELOAD_FAILED)
    seen.script.will(tries("stubborn"), says("Never said."))
    run_id = await seen.client.begin("Be stubborn.", new=True)
    await asyncio.wait_for(tools.is_stubborn.wait(), 60)
    await seen.client.cancel(run_id=run_id)
    await seen.hears(events.TREE_UNRESPONSIVE)
    tools.let_go.set()
    await seen.client.ended(run_id)


async def stuck(seen: Witness) -> None:
    for number in range(3):
        await seen.sees(f"Hang {number}.", tries("hang"), says("Never said."))


async def test_everything_happens(
    tmp_path: Path,
    wire: WireModel,
    session: aiohttp.ClientSession,
    script: Script,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
) -> None:
    """Each declared event, shipped subscriber and shipped rule, in runs as people have them."""
    caplog.set_level(logging.DEBUG, "dodona.rules")
    home, tree, tools = Home(tmp_path, wire.url), tmp_path / "oracle.lisp", Tools(clock)
    tree.write_text(ORACLE)
    write_rule(home, "own", OWN_EVENT)
    home.write(
        base_url=wire.url,
        agent='tree = "oracle.lisp"',
        more="[approvals]\ntimeout_seconds = 0.5",
    )
    async with witness(home, session, script, tools) as seen:
        await conversation(seen, home.vault)
        await limits(seen)
        await calls_of_tools(seen)
        await subagents(seen)
        await trees(seen, tree, tools)
    tree.write_text(ORACLE)
    monkeypatch.setattr("dodona.agent.api.WATCHDOG_TIMEOUT_SECONDS", 1.0)
    async with witness(home, session, script, tools) as then:
        await stuck(then)

    heard = [*seen.heard, *then.heard]
    kinds = {event.type for event in heard}
    assert DECLARED - kinds == set(), "no run brings these events about"
    assert any(kind.startswith(events.PLUGIN_PREFIX) for kind in kinds)

    told = seen.told | then.told
    speaks, rules = await asyncio.to_thread(shipped)
    assert len(set(speaks.values())) == len(speaks), "a chunk must say whose it is"
    silent = {name for name, kind in speaks.items() if kind not in told}
    assert silent == set(), "no run makes these subscribers speak"

    fired = {event.source.removeprefix("rule.") for event in heard if "rule." in event.source}
    logged = (r.getMessage() for r in caplog.records if r.name == "dodona.rules")
    fired |= {message.partition(":")[0] for message in logged}
    assert rules - fired == set(), "no run makes these rules fire"


def shipped() -> tuple[dict[str, str], set[str]]:
    """The kinds of chunks by the subscriber that they are of, and the rules."""
    subscribers = SubscriberRegistry()
    subscribers.load()
    found = {each["id"]: subscribers.get(each["id"]) for each in subscribers.list()}
    kinds = {name: each.system_type for name, each in found.items() if each is not None}
    return kinds, {rule["id"] for rule in RuleBook().list()}
