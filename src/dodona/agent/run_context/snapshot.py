"""Run snapshots: the tree, prompts, tools and settings of a run.

A run keeps its snapshot from start to end, also when it is resumed after a crash.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from dodona.agent.conversation.prompts import PromptLoader, render
from dodona.agent.run_context.deps import ORACLE_NAME, RunDeps
from dodona.agent.run_context.registries import SUBAGENTS, Subagent
from dodona.agent.turn_control.config import AgentConfig
from dodona.agent.turn_control.settings import ModelSettings, read_settings
from dodona.core.domain.agents import DEFAULT_AGENT, AgentDef
from dodona.core.domain.conversations.conversation import ClaimedRun
from dodona.core.domain.conversations.sessions import parse_session_key
from dodona.core.errors import NotFound, TreeError
from dodona.core.messages import SystemText, ToolSpec
from dodona.core.ports.model import TokenCounter
from dodona.core.ports.tools import ToolCategory
from dodona.core.ttl_cache import TtlCache
from dodona.lisp import to_text
from dodona.trees import Registry, Tree, load


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AgentRole:
    """An agent's tree, prompt, tools and limits.

    `prompt_tokens` counts the prompt and the tools. An empty `model` selects the configured one.
    `parent_step` is the step that a subagent runs in; it is empty for the Oracle.
    """

    name: str
    tree: Tree
    system_prompt: SystemText
    tools: tuple[ToolSpec, ...]
    limits: AgentConfig
    model: str
    digest: bytes  # of the whole role
    prompt_tokens: int
    tool_names: frozenset[str]
    parent_step: str = ""


CACHE_SIZE: Final = 128
EXTRACTIVE_PROVIDER: Final = "extractive"  # the embedded default, which only quotes
PASSAGE_TOOL: Final = "search_passages"
PASSAGE_SOURCES: Final = frozenset({"vault_search", "search_code", "thread_seek"})
PROMPT_CACHE_SECONDS: Final = 1.0  # how long prompt files are not read again

GetTree = Callable[[str], Tree]  # returns the current tree of an agent


class ToolRecord(msgspec.Struct, frozen=True):
    """A tool as a snapshot stores it."""

    name: str
    description: str
    parameters: dict[str, Any]


class SubagentRecord(msgspec.Struct, frozen=True):
    """A subagent as a snapshot stores it."""

    tree: str
    prompt: str
    tools: list[ToolRecord]
    max_turns: int
    model: str


class SnapshotRecord(msgspec.Struct, frozen=True):
    """A snapshot as the store has it."""

    tree: str
    prompts: dict[str, str]
    tools: list[ToolRecord]
    settings: dict[str, Any]
    model: str
    subagents: dict[str, SubagentRecord] = {}
    agent: str = DEFAULT_AGENT
    soul: str = ""
    system_prompt: str = ""  # replaces the prompt


_decoder = msgspec.json.Decoder(SnapshotRecord)


@dataclass(frozen=True, slots=True)
class SubagentSnapshot:
    """A subagent in a run's snapshot. Its prompt template is rendered for each task."""

    name: str
    tree: Tree
    prompt: str
    tools: tuple[ToolSpec, ...]
    max_turns: int
    model: str

    def build_role(
        self, limits: AgentConfig, *, project_id: str, counter: TokenCounter, parent_step: str
    ) -> AgentRole:
        """Build the role of the subagent for one task, with the limits left to it."""
        names = [tool.name for tool in self.tools]
        values = {"project_id": project_id, "tools": names}
        text = render(self.prompt, values, file=f"{self.name}.md")
        return AgentRole(
            name=self.name,
            tree=self.tree,
            system_prompt=SystemText(text),
            tools=self.tools,
            limits=msgspec.structs.replace(limits, max_iterations=self.max_turns),
            model=self.model,
            digest=blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest(),
            prompt_tokens=_count_prompt_tokens(counter, text, self.tools, self.model),
            tool_names=frozenset(names),
            parent_step=parent_step,
        )


@dataclass(frozen=True, slots=True, eq=False)
class RunSnapshot:
    """The snapshot of a run. `role` is the active agent's; `encoded` is the stored form."""

    role: AgentRole
    subagents: Mapping[str, SubagentSnapshot]
    settings: ModelSettings
    encoded: bytes
    agent_id: str = DEFAULT_AGENT

    @property
    def tree(self) -> Tree:
        return self.role.tree

    @property
    def model(self) -> str:
        """The model of the role; an empty name selects the configured model."""
        return self.role.model


class SnapshotBuilder:
    """Builds a snapshot from the current configuration, or from a stored snapshot."""

    def __init__(
        self,
        deps: RunDeps,
        *,
        get_tree: GetTree,
        registry: Registry,
        prompts: PromptLoader,
        prompt_folder: Callable[[ClaimedRun], Path | None],
    ) -> None:
        self._deps = deps
        self._get_tree = get_tree
        self._registry = registry
        self._prompts = prompts
        self._prompt_folder = prompt_folder
        self._subagents = tuple(SUBAGENTS.values())
        self._subagent_trees = {
            each.name: load(each.tree, registry=registry) for each in self._subagents
        }
        self._cache: OrderedDict[Any, RunSnapshot] = OrderedDict()
        self._tools_cache: dict[Any, tuple[ToolSpec, ...]] = {}
        self._prompts_cache: TtlCache[Path | None, tuple[str, ...]] = TtlCache(
            PROMPT_CACHE_SECONDS, max_size=CACHE_SIZE
        )
        self._delegation_tools = tuple(each.delegation_tool for each in self._subagents)

    async def load_or_build(self, inputs: ClaimedRun) -> RunSnapshot:
        """Return the run's stored snapshot, or a new one if the run has none yet."""
        if inputs.pins is not None:
            return self._restore(inputs)
        agent = self._find_agent(inputs)
        tree = self._get_tree(agent.id)
        prompts = await self._prompt_texts(self._prompt_folder(inputs))
        options, sources = inputs.options, inputs.options.sources
        model_settings = read_settings(inputs.settings, user_id=inputs.context.user_id)
        model = options.model or self._default_model(agent, model_settings)
        chosen = await self._deps.models.choose(model, agent=agent.id, token=inputs.token)
        is_extractive = chosen.model.provider == EXTRACTIVE_PROVIDER
        tools = self._allowed_tools(agent, sources, is_extractive=is_extractive)
        key = (
            *(agent, id(tree), prompts, id(tools), model_settings),
            *(options.model, inputs.project.id),
        )
        snapshot = self._cache.get(key)
        if snapshot is None:
            prompt, *subagent_prompts = prompts
            record = SnapshotRecord(
                tree=_tree_source(tree),
                prompts={ORACLE_NAME: prompt},
                tools=_tool_records(tools),
                settings=model_settings.as_dict(),
                model=model,
                subagents={
                    subagent.name: self._build_subagent_record(subagent, text, sources)
                    for subagent, text in zip(self._subagents, subagent_prompts, strict=True)
                    if agent.may_use(subagent.delegation_tool.name)
                },
                agent=agent.id,
                soul=agent.soul,
                system_prompt=agent.system_prompt,
            )
            snapshot = self._build_snapshot(record, tree, tools, inputs)
            self._cache_snapshot(key, snapshot)
        return snapshot

    def _find_agent(self, inputs: ClaimedRun) -> AgentDef:
        """The agent that answers: named by the session key; a context uses the default agent."""
        agents = self._deps.agents()
        if inputs.session_key is None:
            return agents.default
        name = parse_session_key(inputs.session_key)[0]
        agent = agents.get(name)
        if agent is None:
            raise NotFound(
                f"agent {name!r:.80} no longer exists.",
                hint="Configure it again, or bind its channel to another agent.",
            )
        return agent

    def _default_model(self, agent: AgentDef, settings: ModelSettings) -> str:
        """The user's model for the Oracle; it applies only to the default agent."""
        return settings.oracle_model if agent.id == self._deps.agents().default.id else ""

    def _build_subagent_record(
        self, subagent: Subagent, prompt: str, sources: tuple[str, ...] | None
    ) -> SubagentRecord:
        """Build the record with the tools that the subagent may use, limited to `sources`.

        The limit of the request applies to subagents too.
        """
        specs = self._filter_by_source(self._deps.toolbox.specs_for(subagent.name), sources)
        return SubagentRecord(
            tree=_tree_source(self._subagent_trees[subagent.name]),
            prompt=prompt,
            tools=_tool_records([t for t in specs if t.name in subagent.allowed_tools]),
            max_turns=subagent.max_turns,
            model=subagent.model_override or "",
        )

    async def _prompt_texts(self, folder: Path | None) -> tuple[str, ...]:
        """Prompts of the Oracle, then of the subagents; cached for `PROMPT_CACHE_SECONDS`.

        Files are read in a thread.
        """
        texts = self._prompts_cache.get(folder)
        if texts is None:
            texts = await asyncio.to_thread(self._read_prompts, folder)
            self._prompts_cache.put(folder, texts)
        return texts

    def _read_prompts(self, folder: Path | None) -> tuple[str, ...]:
        paths = (f"{ORACLE_NAME}.md", *(each.system_prompt_path for each in self._subagents))
        return tuple(self._prompts.load(path.removesuffix(".md"), folder) for path in paths)

    def _restore(self, inputs: ClaimedRun) -> RunSnapshot:
        """Return the snapshot that the first attempt of the run stored.

        Raises TreeError if its tree no longer loads: another version of Dodona may have stored it,
        and that version may have had other leaves.
        """
        assert inputs.pins is not None
        record = _decoder.decode(inputs.pins)
        agent = self._deps.agents().get(record.agent)
        try:
            tree = self._load_tree(record.tree, None if agent is None else self._get_tree(agent.id))
            return self._build_snapshot(record, tree, _tool_specs(record.tools), inputs)
        except TreeError as error:
            first = error.problems()[0]
            raise TreeError(
                "the run cannot be resumed: the tree it started with does not load in this version "
                f"of Dodona: {first.message}",
                where=first.where,
                hint="Ask the question again.",
            ) from error

    def _load_tree(self, text: str, current: Tree | None) -> Tree:
        """Return the tree of a source text; usually this is the current tree."""
        is_same = current is not None and _tree_source(current) == text
        return current if is_same and current is not None else load(text, registry=self._registry)

    def _build_snapshot(
        self, record: SnapshotRecord, tree: Tree, tools: tuple[ToolSpec, ...], inputs: ClaimedRun
    ) -> RunSnapshot:
        names = [tool.name for tool in tools]
        text = _render_system_prompt(record, {"project_id": inputs.project.id, "tools": names})
        settings = read_settings(record.settings, user_id=inputs.context.user_id)
        encoded = msgspec.json.encode(record)
        oracle = AgentRole(
            name=ORACLE_NAME,
            tree=tree,
            system_prompt=SystemText(text),
            tools=tools,
            limits=settings.limits,
            model=record.model,
            digest=blake2b(encoded, digest_size=16).digest(),
            prompt_tokens=_count_prompt_tokens(self._deps.token_counter, text, tools, record.model),
            tool_names=frozenset(names),
        )
        subagents = {name: self._load_subagent(name, sub) for name, sub in record.subagents.items()}
        return RunSnapshot(oracle, subagents, settings, encoded, record.agent)

    def _load_subagent(self, name: str, record: SubagentRecord) -> SubagentSnapshot:
        tree = self._load_tree(record.tree, self._subagent_trees.get(name))
        return SubagentSnapshot(
            name, tree, record.prompt, _tool_specs(record.tools), record.max_turns, record.model
        )

    def _allowed_tools(
        self, agent: AgentDef, sources: tuple[str, ...] | None, *, is_extractive: bool
    ) -> tuple[ToolSpec, ...]:
        """Tools that the agent may use, limited to `sources`; always the same objects."""
        specs = self._deps.toolbox.specs_for(ORACLE_NAME)
        names = None if sources is None else tuple(sorted(sources))
        key = (id(specs), agent.tools, names, is_extractive)
        if key not in self._tools_cache:
            tools = (*self._filter_by_source(specs, sources), *self._delegation_tools)
            allowed = {tool.name for tool in tools if agent.may_use(tool.name)}
            # It searches what these do, and its result is for the extractive model.
            if is_extractive and allowed >= PASSAGE_SOURCES:
                allowed.add(PASSAGE_TOOL)
            else:
                allowed.discard(PASSAGE_TOOL)
            self._tools_cache[key] = tuple(tool for tool in tools if tool.name in allowed)
        return self._tools_cache[key]

    def _filter_by_source(
        self, tools: Iterable[ToolSpec], sources: tuple[str, ...] | None
    ) -> list[ToolSpec]:
        return [
            tool for tool in tools if sources is None or self._is_from_source(tool.name, sources)
        ]

    def _is_from_source(self, name: str, sources: tuple[str, ...]) -> bool:
        tool = self._deps.toolbox.find(name)
        assert tool is not None
        return tool.category is ToolCategory.META or tool.category.value in sources

    def _cache_snapshot(self, key: Any, snapshot: RunSnapshot) -> None:
        self._cache[key] = snapshot
        if len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)


def _render_system_prompt(record: SnapshotRecord, values: Mapping[str, Any]) -> str:
    """Soul, then prompt. An agent's configured system prompt is used verbatim, not rendered."""
    prompt = record.system_prompt or render(
        record.prompts[ORACLE_NAME], values, file=f"{ORACLE_NAME}.md"
    )
    return f"{record.soul.strip()}\n\n{prompt}" if record.soul.strip() else prompt


def _tree_source(tree: Tree) -> str:
    """Source of the tree and its subtrees, as one loadable text."""
    return "\n\n".join(to_text(each.form) for each in (tree, *tree.used_trees()))


def _tool_records(tools: Sequence[ToolSpec]) -> list[ToolRecord]:
    return [ToolRecord(tool.name, tool.description, dict(tool.parameters)) for tool in tools]


def _tool_specs(records: Sequence[ToolRecord]) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in records)


def _count_prompt_tokens(
    counter: TokenCounter, prompt: str, tools: Sequence[ToolSpec], model: str
) -> int:
    """Count the tokens of prompt and tools; schemas are estimated at three bytes per token."""
    schema_tokens = sum(len(msgspec.json.encode(tool.parameters)) // 3 for tool in tools)
    tool_text = "".join(tool.name + tool.description for tool in tools)
    return counter.count(prompt + tool_text, model) + schema_tokens
