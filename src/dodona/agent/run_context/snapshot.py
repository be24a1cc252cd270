"""Pins: what a run begins with and keeps, also across a crash: tree, prompts, tools, settings."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec

from dodona.agent.conversation.prompts import PromptLoader, render
from dodona.agent.run_context.deps import AGENT, RunDeps
from dodona.agent.run_context.registries import SUBAGENTS, Subagent
from dodona.agent.turn_control.config import AgentConfig
from dodona.agent.turn_control.settings import ModelSettings
from dodona.core.domain.agents import DEFAULT_AGENT, AgentDef
from dodona.core.domain.conversations.conversation import RunInputs
from dodona.core.domain.conversations.sessions import parse_session_key
from dodona.core.errors import NotFound
from dodona.core.messages import SystemText, ToolSpec
from dodona.core.ports.model import TokenCounter
from dodona.core.ports.tools import Category
from dodona.lisp import to_text
from dodona.trees import Registry, Tree, load


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AgentRole:
    """`prompt_tokens` is what prompt and tools come to; an empty model is the configured one.

    `within` is the step that a subagent works in; the Oracle works in none.
    """

    agent: str
    tree: Tree
    system: SystemText
    tools: tuple[ToolSpec, ...]
    limits: AgentConfig
    model: str
    digest: bytes  # of all of it
    prompt_tokens: int
    tool_names: frozenset[str]  # of the tools
    parent_step: str = ""


REMEMBERED: Final = 128
FRESH_SECONDS: Final = 1.0  # how long the texts of prompts are not looked at again

GetTree = Callable[[str], Tree]  # of an agent, as it is now


class _Tool(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]


class SubagentRecord(msgspec.Struct, frozen=True):
    tree: str
    prompt: str
    tools: list[_Tool]
    max_turns: int
    model: str


class SnapshotRecord(msgspec.Struct, frozen=True):
    tree: str
    prompts: dict[str, str]
    tools: list[_Tool]
    settings: dict[str, Any]
    model: str
    subagents: dict[str, SubagentRecord] = {}
    agent: str = DEFAULT_AGENT
    soul: str = ""
    system_prompt: str = ""  # instead of the prompt


_kept = msgspec.json.Decoder(SnapshotRecord)


@dataclass(frozen=True, slots=True)
class PinnedSubagent:
    """A subagent as a run has it. Its prompt is filled in when it is given something to do."""

    name: str
    tree: Tree
    prompt: str
    tools: tuple[ToolSpec, ...]
    max_turns: int
    model: str

    def role(
        self, limits: AgentConfig, *, project_id: str, counter: TokenCounter, within: str
    ) -> AgentRole:
        """It at work in a step, with what is left of the limits of whoever sent it."""
        names = [tool.name for tool in self.tools]
        values = {"project_id": project_id, "tools": names}
        text = render(self.prompt, values, file=f"{self.name}.md")
        return AgentRole(
            agent=self.name,
            tree=self.tree,
            system=SystemText(text),
            tools=self.tools,
            limits=replace(limits, max_iterations=self.max_turns),
            model=self.model,
            digest=blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest(),
            prompt_tokens=_tokens(counter, text, self.tools, self.model),
            tool_names=frozenset(names),
            parent_step=within,
        )


@dataclass(frozen=True, slots=True, eq=False)
class RunSnapshot:
    """`role` is that of whoever works; `body` is what is kept of all of it."""

    role: AgentRole
    deputies: Mapping[str, PinnedSubagent]
    settings: ModelSettings
    body: bytes
    agent_id: str = DEFAULT_AGENT

    @property
    def tree(self) -> Tree:
        return self.role.tree

    @property
    def model(self) -> str:
        """The one of the role; an empty name is the configured one."""
        return self.role.model


class SnapshotBuilder:
    """Makes pins of how things are now, or of what an earlier attempt kept."""

    def __init__(
        self,
        means: RunDeps,
        *,
        tree: GetTree,
        registry: Registry,
        prompts: PromptLoader,
        prompt_folder: Callable[[RunInputs], Path | None],
    ) -> None:
        self._means = means
        self._tree = tree
        self._registry = registry
        self._prompts = prompts
        self._folder = prompt_folder
        self._subagents = tuple(SUBAGENTS.values())
        self._trees = {each.name: load(each.tree, registry=registry) for each in self._subagents}
        self._made: OrderedDict[Any, RunSnapshot] = OrderedDict()
        self._filtered: dict[Any, tuple[ToolSpec, ...]] = {}
        self._texts: dict[Path | None, tuple[float, tuple[str, ...]]] = {}
        self._delegations = tuple(each.delegation for each in self._subagents)

    async def pins(self, brief: RunInputs, wishes: Mapping[str, Any]) -> RunSnapshot:
        if brief.pins is not None:
            return self._restore(brief)
        agent = self._agent(brief)
        tree = self._tree(agent.id)
        prompts = await self._prompt_texts(self._folder(brief))
        sources: list[str] | None = wishes.get("sources")
        tools = self._tools(agent, sources)
        settings = brief.settings
        key = (
            *(agent, id(tree), prompts, id(tools), tuple(settings.items())),
            *(wishes.get("model"), brief.project.id),
        )
        found = self._made.get(key)
        if found is None:
            chosen = ModelSettings.read(settings)
            prompt, *others = prompts
            kept = SnapshotRecord(
                tree=_text(tree),
                prompts={AGENT: prompt},
                tools=_kept_tools(tools),
                settings=chosen.as_dict(),
                model=wishes.get("model") or self._default_model(agent, chosen),
                subagents={
                    subagent.name: self._sub(subagent, text, sources)
                    for subagent, text in zip(self._subagents, others, strict=True)
                    if agent.may_use(subagent.delegation.name)
                },
                agent=agent.id,
                soul=agent.soul,
                system_prompt=agent.system_prompt,
            )
            found = self._pins(kept, tree, tools, brief.project.id)
            self._remember(key, found)
        return found

    def _agent(self, brief: RunInputs) -> AgentDef:
        """Whom the question is for. A session's key names it; a context is the default one's."""
        agents = self._means.agents()
        if brief.session_key is None:
            return agents.default
        name = parse_session_key(brief.session_key)[0]
        found = agents.get(name)
        if found is None:
            raise NotFound(
                f"there is no agent {name!r:.80} any more.",
                hint="Configure it again, or bind its channel to another.",
            )
        return found

    def _default_model(self, agent: AgentDef, chosen: ModelSettings) -> str:
        """What a user has chosen for the Oracle is not meant for agents of another name."""
        return chosen.oracle_model if agent.id == self._means.agents().default.id else ""

    def _sub(self, subagent: Subagent, prompt: str, sources: list[str] | None) -> SubagentRecord:
        """Its tools are those that it may use and that may be used by it, of the kinds wished for.

        Who is sent can do no more than who sends.
        """
        offered = self._of(self._means.toolbox.offered(subagent.name), sources)
        return SubagentRecord(
            tree=_text(self._trees[subagent.name]),
            prompt=prompt,
            tools=_kept_tools([t for t in offered if t.name in subagent.allowed_tools]),
            max_turns=subagent.max_turns,
            model=subagent.model_override or "",
        )

    async def _prompt_texts(self, folder: Path | None) -> tuple[str, ...]:
        """The prompts of the Oracle, then of the subagents, as they are or were a moment ago.

        Files are read in a thread.
        """
        now = monotonic()
        known = self._texts.get(folder)
        if known is not None and now - known[0] < FRESH_SECONDS:
            return known[1]
        texts = await asyncio.to_thread(self._read_prompts, folder)
        if len(self._texts) >= REMEMBERED:
            self._texts.clear()
        self._texts[folder] = (now, texts)
        return texts

    def _read_prompts(self, folder: Path | None) -> tuple[str, ...]:
        paths = (f"{AGENT}.md", *(each.system_prompt_path for each in self._subagents))
        return tuple(self._prompts.text(path.removesuffix(".md"), folder) for path in paths)

    def _restore(self, brief: RunInputs) -> RunSnapshot:
        assert brief.pins is not None
        kept = _kept.decode(brief.pins)
        known = self._means.agents().get(kept.agent)
        tree = self._loaded(kept.tree, None if known is None else self._tree(known.id))
        return self._pins(kept, tree, _specs(kept.tools), brief.project.id)

    def _loaded(self, text: str, now: Tree | None) -> Tree:
        """The tree of this text, which is most often the one there is now."""
        same = now is not None and _text(now) == text
        return now if same and now is not None else load(text, registry=self._registry)

    def _pins(
        self, kept: SnapshotRecord, tree: Tree, tools: tuple[ToolSpec, ...], project_id: str
    ) -> RunSnapshot:
        names = [tool.name for tool in tools]
        text = _prompt(kept, {"project_id": project_id, "tools": names})
        settings = ModelSettings.read(kept.settings)
        body = msgspec.json.encode(kept)
        oracle = AgentRole(
            agent=AGENT,
            tree=tree,
            system=SystemText(text),
            tools=tools,
            limits=settings.limits,
            model=kept.model,
            digest=blake2b(body, digest_size=16).digest(),
            prompt_tokens=_tokens(self._means.counter, text, tools, kept.model),
            tool_names=frozenset(names),
        )
        deputies = {name: self._deputy(name, sub) for name, sub in kept.subagents.items()}
        return RunSnapshot(oracle, deputies, settings, body, kept.agent)

    def _deputy(self, name: str, sub: SubagentRecord) -> PinnedSubagent:
        tree = self._loaded(sub.tree, self._trees.get(name))
        return PinnedSubagent(name, tree, sub.prompt, _specs(sub.tools), sub.max_turns, sub.model)

    def _tools(self, agent: AgentDef, sources: list[str] | None) -> tuple[ToolSpec, ...]:
        """Those that it may use, of the kinds that are wished for; always the same objects."""
        offered = self._means.toolbox.offered(AGENT)
        key = (id(offered), agent.tools, None if sources is None else tuple(sorted(sources)))
        if key not in self._filtered:
            found = (*self._of(offered, sources), *self._delegations)
            self._filtered[key] = tuple(tool for tool in found if agent.may_use(tool.name))
        return self._filtered[key]

    def _of(self, tools: Iterable[ToolSpec], sources: list[str] | None) -> list[ToolSpec]:
        return [tool for tool in tools if sources is None or self._is_of(tool.name, sources)]

    def _is_of(self, name: str, sources: list[str]) -> bool:
        tool = self._means.toolbox.find(name)
        assert tool is not None
        return tool.category is Category.META or tool.category.value in sources

    def _remember(self, key: Any, pins: RunSnapshot) -> None:
        self._made[key] = pins
        if len(self._made) > REMEMBERED:
            self._made.popitem(last=False)


def _prompt(kept: SnapshotRecord, values: Mapping[str, Any]) -> str:
    """The soul first. What an operator wrote is taken word for word, and is no template."""
    said = kept.system_prompt or render(kept.prompts[AGENT], values, file=f"{AGENT}.md")
    return f"{kept.soul.strip()}\n\n{said}" if kept.soul.strip() else said


def _text(tree: Tree) -> str:
    """The tree and those it uses, as one text that loads."""
    return "\n\n".join(to_text(each.form) for each in (tree, *tree.uses()))


def _kept_tools(tools: Sequence[ToolSpec]) -> list[_Tool]:
    return [_Tool(tool.name, tool.description, dict(tool.parameters)) for tool in tools]


def _specs(kept: Sequence[_Tool]) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in kept)


def _tokens(counter: TokenCounter, prompt: str, tools: Sequence[ToolSpec], model: str) -> int:
    """What a prompt and tools come to; of schemas about a token for three bytes."""
    schemas = sum(len(msgspec.json.encode(tool.parameters)) // 3 for tool in tools)
    said = "".join(tool.name + tool.description for tool in tools)
    return counter.count(prompt + said, model) + schemas
