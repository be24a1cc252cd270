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
from dodona.agent.run_context.deps import ORACLE_NAME, RunDeps
from dodona.agent.run_context.registries import SUBAGENTS, Subagent
from dodona.agent.turn_control.config import AgentConfig
from dodona.agent.turn_control.settings import ModelSettings
from dodona.core.domain.agents import DEFAULT_AGENT, AgentDef
from dodona.core.domain.conversations.conversation import RunInputs
from dodona.core.domain.conversations.sessions import parse_session_key
from dodona.core.errors import NotFound
from dodona.core.messages import SystemText, ToolSpec
from dodona.core.ports.model import TokenCounter
from dodona.core.ports.tools import ToolCategory
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


CACHE_SIZE: Final = 128
CACHE_SECONDS: Final = 1.0  # how long the texts of prompts are not looked at again

GetTree = Callable[[str], Tree]  # of an agent, as it is now


class ToolRecord(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]


class SubagentRecord(msgspec.Struct, frozen=True):
    tree: str
    prompt: str
    tools: list[ToolRecord]
    max_turns: int
    model: str


class SnapshotRecord(msgspec.Struct, frozen=True):
    tree: str
    prompts: dict[str, str]
    tools: list[ToolRecord]
    settings: dict[str, Any]
    model: str
    subagents: dict[str, SubagentRecord] = {}
    agent: str = DEFAULT_AGENT
    soul: str = ""
    system_prompt: str = ""  # instead of the prompt


_decoder = msgspec.json.Decoder(SnapshotRecord)


@dataclass(frozen=True, slots=True)
class PinnedSubagent:
    """A subagent as a run has it. Its prompt is filled in when it is given something to do."""

    name: str
    tree: Tree
    prompt: str
    tools: tuple[ToolSpec, ...]
    max_turns: int
    model: str

    def build_role(
        self, limits: AgentConfig, *, project_id: str, counter: TokenCounter, parent_step: str
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
            prompt_tokens=_count_prompt_tokens(counter, text, self.tools, self.model),
            tool_names=frozenset(names),
            parent_step=parent_step,
        )


@dataclass(frozen=True, slots=True, eq=False)
class RunSnapshot:
    """`role` is that of whoever works; `body` is what is kept of all of it."""

    role: AgentRole
    subagents: Mapping[str, PinnedSubagent]
    settings: ModelSettings
    encoded: bytes
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
        deps: RunDeps,
        *,
        get_tree: GetTree,
        registry: Registry,
        prompts: PromptLoader,
        prompt_folder: Callable[[RunInputs], Path | None],
    ) -> None:
        self._deps = deps
        self._get_tree = get_tree
        self._registry = registry
        self._prompts = prompts
        self._prompt_folder = prompt_folder
        self._subagents = tuple(SUBAGENTS.values())
        self._trees = {each.name: load(each.tree, registry=registry) for each in self._subagents}
        self._cache: OrderedDict[Any, RunSnapshot] = OrderedDict()
        self._tools_cache: dict[Any, tuple[ToolSpec, ...]] = {}
        self._prompts_cache: dict[Path | None, tuple[float, tuple[str, ...]]] = {}
        self._delegation_tools = tuple(each.delegation_tool for each in self._subagents)

    async def build(self, inputs: RunInputs, options: Mapping[str, Any]) -> RunSnapshot:
        if inputs.pins is not None:
            return self._restore(inputs)
        agent = self._find_agent(inputs)
        tree = self._get_tree(agent.id)
        prompts = await self._prompt_texts(self._prompt_folder(inputs))
        sources: list[str] | None = options.get("sources")
        tools = self._allowed_tools(agent, sources)
        settings = inputs.settings
        key = (
            *(agent, id(tree), prompts, id(tools), tuple(settings.items())),
            *(options.get("model"), inputs.project.id),
        )
        found = self._cache.get(key)
        if found is None:
            chosen = ModelSettings.read(settings)
            prompt, *others = prompts
            kept = SnapshotRecord(
                tree=_tree_source(tree),
                prompts={ORACLE_NAME: prompt},
                tools=_tool_records(tools),
                settings=chosen.as_dict(),
                model=options.get("model") or self._default_model(agent, chosen),
                subagents={
                    subagent.name: self._build_subagent_record(subagent, text, sources)
                    for subagent, text in zip(self._subagents, others, strict=True)
                    if agent.may_use(subagent.delegation_tool.name)
                },
                agent=agent.id,
                soul=agent.soul,
                system_prompt=agent.system_prompt,
            )
            found = self._build_snapshot(kept, tree, tools, inputs.project.id)
            self._remember(key, found)
        return found

    def _find_agent(self, inputs: RunInputs) -> AgentDef:
        """Whom the question is for. A session's key names it; a context is the default one's."""
        agents = self._deps.agents()
        if inputs.session_key is None:
            return agents.default
        name = parse_session_key(inputs.session_key)[0]
        found = agents.get(name)
        if found is None:
            raise NotFound(
                f"there is no agent {name!r:.80} any more.",
                hint="Configure it again, or bind its channel to another.",
            )
        return found

    def _default_model(self, agent: AgentDef, settings: ModelSettings) -> str:
        """What a user has chosen for the Oracle is not meant for agents of another name."""
        return settings.oracle_model if agent.id == self._deps.agents().default.id else ""

    def _build_subagent_record(
        self, subagent: Subagent, prompt: str, sources: list[str] | None
    ) -> SubagentRecord:
        """Its tools are those that it may use and that may be used by it, of the kinds wished for.

        Who is sent can do no more than who sends.
        """
        offered = self._filter_by_source(self._deps.toolbox.specs_for(subagent.name), sources)
        return SubagentRecord(
            tree=_tree_source(self._trees[subagent.name]),
            prompt=prompt,
            tools=_tool_records([t for t in offered if t.name in subagent.allowed_tools]),
            max_turns=subagent.max_turns,
            model=subagent.model_override or "",
        )

    async def _prompt_texts(self, folder: Path | None) -> tuple[str, ...]:
        """The prompts of the Oracle, then of the subagents, as they are or were a moment ago.

        Files are read in a thread.
        """
        now = monotonic()
        known = self._prompts_cache.get(folder)
        if known is not None and now - known[0] < CACHE_SECONDS:
            return known[1]
        texts = await asyncio.to_thread(self._read_prompts, folder)
        if len(self._prompts_cache) >= CACHE_SIZE:
            self._prompts_cache.clear()
        self._prompts_cache[folder] = (now, texts)
        return texts

    def _read_prompts(self, folder: Path | None) -> tuple[str, ...]:
        paths = (f"{ORACLE_NAME}.md", *(each.system_prompt_path for each in self._subagents))
        return tuple(self._prompts.load(path.removesuffix(".md"), folder) for path in paths)

    def _restore(self, inputs: RunInputs) -> RunSnapshot:
        assert inputs.pins is not None
        kept = _decoder.decode(inputs.pins)
        known = self._deps.agents().get(kept.agent)
        tree = self._load_tree(kept.tree, None if known is None else self._get_tree(known.id))
        return self._build_snapshot(kept, tree, _tool_specs(kept.tools), inputs.project.id)

    def _load_tree(self, text: str, current: Tree | None) -> Tree:
        """The tree of this text, which is most often the one there is now."""
        same = current is not None and _tree_source(current) == text
        return current if same and current is not None else load(text, registry=self._registry)

    def _build_snapshot(
        self, record: SnapshotRecord, tree: Tree, tools: tuple[ToolSpec, ...], project_id: str
    ) -> RunSnapshot:
        names = [tool.name for tool in tools]
        text = _render_system_prompt(record, {"project_id": project_id, "tools": names})
        settings = ModelSettings.read(record.settings)
        body = msgspec.json.encode(record)
        oracle = AgentRole(
            agent=ORACLE_NAME,
            tree=tree,
            system=SystemText(text),
            tools=tools,
            limits=settings.limits,
            model=record.model,
            digest=blake2b(body, digest_size=16).digest(),
            prompt_tokens=_count_prompt_tokens(self._deps.token_counter, text, tools, record.model),
            tool_names=frozenset(names),
        )
        deputies = {name: self._load_subagent(name, sub) for name, sub in record.subagents.items()}
        return RunSnapshot(oracle, deputies, settings, body, record.agent)

    def _load_subagent(self, name: str, record: SubagentRecord) -> PinnedSubagent:
        tree = self._load_tree(record.tree, self._trees.get(name))
        return PinnedSubagent(
            name, tree, record.prompt, _tool_specs(record.tools), record.max_turns, record.model
        )

    def _allowed_tools(self, agent: AgentDef, sources: list[str] | None) -> tuple[ToolSpec, ...]:
        """Those that it may use, of the kinds that are wished for; always the same objects."""
        offered = self._deps.toolbox.specs_for(ORACLE_NAME)
        key = (id(offered), agent.tools, None if sources is None else tuple(sorted(sources)))
        if key not in self._tools_cache:
            found = (*self._filter_by_source(offered, sources), *self._delegation_tools)
            self._tools_cache[key] = tuple(tool for tool in found if agent.may_use(tool.name))
        return self._tools_cache[key]

    def _filter_by_source(
        self, tools: Iterable[ToolSpec], sources: list[str] | None
    ) -> list[ToolSpec]:
        return [
            tool for tool in tools if sources is None or self._is_from_source(tool.name, sources)
        ]

    def _is_from_source(self, name: str, sources: list[str]) -> bool:
        tool = self._deps.toolbox.find(name)
        assert tool is not None
        return tool.category is ToolCategory.META or tool.category.value in sources

    def _remember(self, key: Any, snapshot: RunSnapshot) -> None:
        self._cache[key] = snapshot
        if len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)


def _render_system_prompt(record: SnapshotRecord, values: Mapping[str, Any]) -> str:
    """The soul first. What an operator wrote is taken word for word, and is no template."""
    said = record.system_prompt or render(
        record.prompts[ORACLE_NAME], values, file=f"{ORACLE_NAME}.md"
    )
    return f"{record.soul.strip()}\n\n{said}" if record.soul.strip() else said


def _tree_source(tree: Tree) -> str:
    """The tree and those it uses, as one text that loads."""
    return "\n\n".join(to_text(each.form) for each in (tree, *tree.used_trees()))


def _tool_records(tools: Sequence[ToolSpec]) -> list[ToolRecord]:
    return [ToolRecord(tool.name, tool.description, dict(tool.parameters)) for tool in tools]


def _tool_specs(records: Sequence[ToolRecord]) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in records)


def _count_prompt_tokens(
    counter: TokenCounter, prompt: str, tools: Sequence[ToolSpec], model: str
) -> int:
    """What a prompt and tools come to; of schemas about a token for three bytes."""
    schemas = sum(len(msgspec.json.encode(tool.parameters)) // 3 for tool in tools)
    said = "".join(tool.name + tool.description for tool in tools)
    return counter.count(prompt + said, model) + schemas
