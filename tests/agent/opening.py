"""An agency on a real store, real tools and a real meter, opened as a process opens it.

What a process does that dies is `leave(0)` and the end of the block: nothing is ended, and the
next `opened` on the same file is the process that comes after it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import to_builtins

from dodona.agent.api import ORACLE_TREE, AgentApi, build_agent_api
from dodona.agent.extensions import shipped_extensions, shipped_leaves
from dodona.agent.question import Question
from dodona.agent.requests.submit import Oracle
from dodona.agent.run_context.approvals import ApprovalGate
from dodona.agent.run_context.deps import RunDeps, RunPolicy
from dodona.agent.run_context.overrides import OverridesCache
from dodona.agent.run_context.registry import AgentRegistry
from dodona.agent.turn_control.settings import SettingsChange
from dodona.agent.views.exchanges import OracleAnswer
from dodona.core.chunks import StreamChunk
from dodona.core.domain.agents import Agents
from dodona.core.domain.api_tokens import ApiToken
from dodona.core.domain.budgets import TokenRecord
from dodona.core.domain.conversations.contexts import DEFAULT_TOKEN_BUDGET
from dodona.core.domain.conversations.conversation import RunNode
from dodona.core.domain.knowledge.code import Code, CodeLoader
from dodona.core.domain.knowledge.notes import Notes, NotesLoader
from dodona.core.errors import NotFound, ToolFailed
from dodona.core.events import Event
from dodona.core.extensions import Extension
from dodona.core.json_document import parse_document
from dodona.core.messages import AssistantText, ToolCall, ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.model import ChosenModel, Model
from dodona.core.ports.tools import SourceReference, ToolCategory, ToolContext, ToolOutput
from dodona.metering import Ceilings, Meter
from dodona.metering.prices import Prices
from dodona.models.counted import CountedModel
from dodona.models.scripted.model import ScriptedModel
from dodona.models.token_counter import OfflineTokenCounter
from dodona.notify import Bus, SubscriberRegistry
from dodona.rules import RuleBook
from dodona.store import Store
from dodona.tools.call import call_tool
from dodona.tools.registry import ToolRegistry
from dodona.trees import Tree, load
from tests.stored import records_of

USER: Final = "ada"
LIMIT: Final = 40.0  # seconds; a test that waits so long has failed
MOST_TOKENS: Final = 1000  # of an answer, as the model is configured
SIZE: Final = 100_000  # tokens that a model holds

T = TypeVar("T")


async def until(find: Callable[[], T | Awaitable[T]], what: str) -> T:
    """What is found, as soon as it is something; `find` may be asynchronous."""
    deadline = time.monotonic() + LIMIT
    while True:
        found: Any = find()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"this did not come within {LIMIT:g} seconds: {what}")
        await asyncio.sleep(0.01)


class Shelf:
    """A `Models`: these, by their names; the first is the configured one."""

    def __init__(
        self, models: Sequence[Model], *, size: int = SIZE, gate: asyncio.Event | None = None
    ) -> None:
        self._chosen = {
            each.name: ChosenModel(_counted(each), size, MOST_TOKENS) for each in models
        }
        self._gate = gate
        self.asked: list[str] = []
        self.agents: list[str] = []  # for whom

    async def choose(
        self, name: str = "", *, agent: str = "", token: ApiToken | None = None
    ) -> ChosenModel:
        self.agents.append(agent)
        self.asked.append(name)
        if self._gate is not None:
            await self._gate.wait()
        if not name:
            return next(iter(self._chosen.values()))
        if name not in self._chosen:
            raise NotFound(f"there is no model {name!r}.", hint="Name another.")
        return self._chosen[name]

    async def choose_override(
        self, name: str, *, agent: str = "", token: ApiToken | None = None
    ) -> ChosenModel | None:
        return self._chosen.get(name)


def _counted(model: Model) -> Model:
    """As the app makes it: a scripted one counts its own words."""
    return model if isinstance(model, ScriptedModel) else CountedModel(model, OfflineTokenCounter())


@dataclass(frozen=True)
class Made:
    """A call that reached a tool."""

    name: str
    arguments: Mapping[str, Any]
    context: ToolContext


@dataclass
class Tools:
    """Small tools with all kinds of effects; they remember who called them.

    Those whose query begins with "wait" go on when `gate` is opened.
    """

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    made: list[Made] = field(default_factory=list[Made])
    at_once: int = 0
    most_at_once: int = 0
    registry: ToolRegistry = field(default_factory=ToolRegistry)
    parameter: str = "query"  # of each tool

    def __post_init__(self) -> None:
        for name, effect in (
            ("echo", Effect.NONE),
            ("once", Effect.ONCE),
            ("keyed", Effect.KEYED),
        ):
            self._add(name, ToolCategory.VAULT, effect, self._echo(name))
        self._add("fail", ToolCategory.VAULT, Effect.NONE, self._fail)
        self._add("surf", ToolCategory.WEB, Effect.NONE, self._echo("surf"))
        self._add("plan", ToolCategory.META, Effect.NONE, self._echo("plan"))
        self._add("cite", ToolCategory.VAULT, Effect.NONE, self._cite)
        self._add("count", ToolCategory.VAULT, Effect.NONE, self._count)

    def add(self, name: str, category: str = ToolCategory.VAULT) -> None:
        """One more tool."""
        self._add(name, category, Effect.NONE, self._echo(name))

    def of(self, name: str) -> list[Made]:
        return [made for made in self.made if made.name == name]

    def _add(self, name: str, category: str, effect: Effect, function: Any) -> None:
        schema = {"type": "object", "properties": {self.parameter: {"type": "string"}}}
        spec = ToolSpec(name, f"The tool {name}.", schema)
        self.registry.tool(
            spec,
            category=category,
            effect=effect,
            writes=effect is not Effect.NONE,
            sends=category == ToolCategory.WEB,
            reads_private=category == ToolCategory.VAULT,
            timeout_seconds=60,
        )(function)

    def _echo(self, name: str) -> Callable[..., Awaitable[ToolOutput]]:
        async def echo(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
            self.made.append(Made(name, arguments, context))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            try:
                text: str = arguments.get("query", "")
                if text.startswith("wait"):
                    await self.gate.wait()
                return ToolOutput(f"{name} says {text}")
            finally:
                self.at_once -= 1

        return echo

    async def _fail(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self.made.append(Made("fail", arguments, context))
        raise ToolFailed("it cannot.")

    async def _count(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self.made.append(Made("count", arguments, context))
        return ToolOutput(f"{len(self.of('count'))}")

    async def _cite(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self.made.append(Made("cite", arguments, context))
        path = arguments.get("query", "oak.md")
        return ToolOutput("An oak.", (SourceReference(path, "Oaks", "1–2", "An oak."),))


def calls(*made: tuple[str, str], text: str = "") -> AssistantText:
    """An answer that calls tools, each by its name and its query; ids count from 1."""
    return AssistantText(
        text,
        tuple(
            ToolCall(f"call-{place}", name, json.dumps({"query": said}))
            for place, (name, said) in enumerate(made, 1)
        ),
    )


def plain_prompts(folder: Path, text: str = "Be brief.") -> Path:
    """A project's own folder of prompts, with a short one."""
    folder.mkdir(exist_ok=True)
    (folder / "oracle.md").write_text(text)
    return folder


@dataclass(frozen=True)
class Opened:
    """A process, as a test sees it."""

    store: Store
    agency: AgentApi
    tools: Tools
    models: Shelf
    events: list[Event]
    registries: list[AgentRegistry]  # the last one is the current one

    @property
    def oracle(self) -> Oracle:
        return self.agency.oracle

    async def ask(
        self, text: str = "Why?", *, user: str = USER, token: ApiToken | None = None, **more: Any
    ) -> int:
        question = parse_document(Question, {"question": text, **more})
        return await self.oracle.submit(question.to_request(user, token))

    async def answered(self, text: str = "Why?", *, user: str = USER, **more: Any) -> OracleAnswer:
        return await self.answer(await self.ask(text, user=user, **more), user=user)

    async def answer(self, run_id: int, *, user: str = USER) -> OracleAnswer:
        async with asyncio.timeout(LIMIT):
            return await self.oracle.answer(user, run_id)

    async def chunks(self, run_id: int, *, after: int = 0, user: str = USER) -> list[StreamChunk]:
        """All chunks of a run, until its last one."""
        async with asyncio.timeout(LIMIT):
            batches = [
                batch async for batch in self.oracle.stream_chunks(user, run_id, after_seq=after)
            ]
        return [chunk for batch in batches for chunk in batch]

    async def seen(self, run_id: int, kind: str, count: int = 1) -> list[StreamChunk]:
        """The chunks of a run up to the so-manieth of a kind, as soon as that has come."""
        seen: list[StreamChunk] = []
        async with asyncio.timeout(LIMIT):
            async for batch in self.oracle.stream_chunks(USER, run_id):
                seen += batch
                if len(bodies(seen, kind)) >= count:
                    return seen
        raise AssertionError(f"run {run_id} had no {kind} number {count}: {kinds(seen)}")

    async def said(self, run_id: int, text: str) -> None:
        """Return as soon as the run has said this much."""
        seen: list[StreamChunk] = []
        async with asyncio.timeout(LIMIT):
            async for batch in self.oracle.stream_chunks(USER, run_id):
                seen += batch
                if text_of(seen) == text:
                    return
        raise AssertionError(f"run {run_id} said something else: {text_of(seen)!r}")

    async def run(self, run_id: int, *, user: str = USER) -> RunNode:
        return await self.store.runs.get(user, run_id)

    async def ended(self, run_id: int, *, user: str = USER) -> RunNode:
        """The run once it has ended, whoever drives it."""

        async def find() -> RunNode | None:
            run = await self.run(run_id, user=user)
            return run if run.status.has_ended else None

        found = await until(find, f"the end of run {run_id}")
        assert found is not None
        return found

    async def records(self, *, user: str = USER) -> list[TokenRecord]:
        return await records_of(self.store, user)

    async def set(self, *, user: str = USER, **settings: Any) -> None:
        await self.agency.settings.change(user, parse_document(SettingsChange, settings))

    def told(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.type == kind]


async def no_notes(user_id: str, project_id: str) -> Notes:
    raise ToolFailed(f"{user_id} has no notes in {project_id}.")


async def no_code(user_id: str, project_id: str) -> Code:
    raise ToolFailed(f"{user_id} has no code in {project_id}.")


def build_registry(
    tools: Tools, extensions: Sequence[Extension] = (), digest: str = ""
) -> AgentRegistry:
    """Build the registry of shipped extensions, these ones, and the tools."""
    return AgentRegistry.build(
        [*shipped_extensions(), *extensions],
        leaves=shipped_leaves(),
        toolbox=tools.registry,
        call_tool=partial(call_tool, tools.registry),
        digest=digest,
    )


@asynccontextmanager
async def opened(
    file: Path,
    *models: Model,
    shelf: Shelf | None = None,
    tools: Tools | None = None,
    tree: Tree | None = None,
    prompts: Path | None = None,
    ceilings: Ceilings | None = None,
    serves: bool = True,
    token_budget: int = DEFAULT_TOKEN_BUDGET,
    notes: NotesLoader | None = None,
    code: CodeLoader | None = None,
    rules: Path | None = None,
    subscribers: Path | None = None,
    agents: Agents | None = None,
    extensions: Sequence[Extension] = (),
    **conduct: Any,
) -> AsyncGenerator[Opened]:
    """A process on the store in this file. At the end it leaves its runs to others."""
    async with await Store.open(str(file), redact=str, durability="normal") as store:
        bus = Bus()
        events: list[Event] = []
        bus.add_handler(events.append, types=("*",), user_id=None)
        shelf = shelf or Shelf(models)
        tools = tools or Tools()
        now = tree or await asyncio.to_thread(load, ORACLE_TREE, registry=shipped_leaves())
        heard = SubscriberRegistry([subscribers] if subscribers else [])
        await asyncio.to_thread(heard.load)
        book = await asyncio.to_thread(
            partial(RuleBook, [rules] if rules else [], get_registry=shipped_leaves)
        )
        registries = [await asyncio.to_thread(build_registry, tools, extensions)]
        # In a thread, for it reads a file.
        agency = await asyncio.to_thread(
            build_agent_api,
            RunDeps(
                storage=store,
                models=shelf,
                meter=Meter(ceilings or Ceilings(), prices=Prices()),
                registry=lambda: registries[-1],
                token_counter=OfflineTokenCounter(),
                emit=bus.emit,
                notes=notes or no_notes,
                code=code or no_code,
                subscribers=heard,
                rules=book,
                approvals=ApprovalGate(store.approvals),
                overrides=OverridesCache(store.pack_state),
                agents=lambda: agents or Agents(),
                policy=RunPolicy(token_budget=token_budget, **conduct),
            ),
            events=bus,
            get_tree=lambda _: now,
            prompt_folder=lambda brief: prompts,
            is_server=serves,
        )
        if serves:
            agency.engine.start()
        try:
            yield Opened(store, agency, tools, shelf, events, registries)
        finally:
            await agency.engine.shutdown(0)
            bus.close()


def edited(*changes: tuple[str, str], leaves: Sequence[Callable[..., Any]] = ()) -> Tree:
    """The Oracle's tree with parts of its text replaced; each must be there."""
    text = ORACLE_TREE.read_text()
    for old, new in changes:
        assert old in text, f"the tree has no {old!r} any more"
        text = text.replace(old, new)
    return load(text, leaves=leaves, registry=shipped_leaves())


def untimed() -> Tree:
    """The Oracle's tree without a timeout of its own."""
    return edited(("(timeout in-time :seconds (blackboard :seconds_left)", "(sequence in-time"))


def kinds(chunks: Sequence[StreamChunk]) -> list[str]:
    """Their types, those of neighbours that are alike only once, and without sizes."""
    found: list[str] = []
    for chunk in chunks:
        if chunk.as_json()["type"] == "context_update":
            continue
        if not found or found[-1] != chunk.as_json()["type"]:
            found.append(chunk.as_json()["type"])
    return found


def bodies(chunks: Sequence[StreamChunk], kind: str) -> list[Mapping[str, Any]]:
    found = (to_builtins(chunk.chunk) for chunk in chunks)
    return [body for body in found if body["type"] == kind]


def text_of(chunks: Sequence[StreamChunk]) -> str:
    return "".join(body["content"] for body in bodies(chunks, "content"))
