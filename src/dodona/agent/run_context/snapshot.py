"""Run snapshots: the tree, prompts, tools and settings of a run.

A run keeps its snapshot from start to end, also when it is resumed after a crash.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from dodona.agent.conversation.prompts import PromptLoader, render
from dodona.agent.run_context.deps import ORACLE_NAME, RunDeps
from dodona.agent.run_context.registry import AgentRegistry, Subagent, subagent_name
from dodona.agent.turn_control.config import AgentConfig
from dodona.agent.turn_control.settings import ModelSettings, read_settings
from dodona.core.domain.agents import DEFAULT_AGENT, DEFAULT_DECISION_TREE, AgentDef
from dodona.core.domain.conversations.conversation import ClaimedRun
from dodona.core.domain.conversations.sessions import parse_session_key
from dodona.core.errors import NotFound, TreeError
from dodona.core.messages import SystemText, ToolSpec
from dodona.core.ports.model import TokenCounter
from dodona.core.ports.tools import Toolbox, ToolCategory
from dodona.core.ttl_cache import TtlCache
from dodona.lisp import to_text
from dodona.trees import Tree, load


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
    decision_tree: str = DEFAULT_DECISION_TREE
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
    decision_tree: str = DEFAULT_DECISION_TREE


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
    decision_tree: str = DEFAULT_DECISION_TREE


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
    decision_tree: str = DEFAULT_DECISION_TREE

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
            decision_tree=self.decision_tree,
            parent_step=parent_step,
        )


@dataclass(frozen=True, slots=True, eq=False)
class RunSnapshot:
    """The snapshot of a run. `role` is the active agent's; `encoded` is the stored form.

    `changed_tools` have changed, or are gone, since the run started in another process.
    """

    role: AgentRole
    registry: AgentRegistry
    subagents: Mapping[str, SubagentSnapshot]
    settings: ModelSettings
    encoded: bytes
    agent_id: str = DEFAULT_AGENT
    changed_tools: frozenset[str] = frozenset()

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
        prompts: PromptLoader,
        prompt_folder: Callable[[ClaimedRun], Path | None],
    ) -> None:
        self._deps = deps
        self._get_tree = get_tree
        self._prompts = prompts
        self._prompt_folder = prompt_folder
        self._cache: OrderedDict[Any, RunSnapshot] = OrderedDict()
        self._prompts_cache: TtlCache[Any, tuple[str, ...]] = TtlCache(
            PROMPT_CACHE_SECONDS, max_size=CACHE_SIZE
        )

    async def load_or_build(self, inputs: ClaimedRun) -> RunSnapshot:
        """Return the run's stored snapshot, or a new one if the run has none yet."""
        if inputs.pins is not None:
            return self._restore(inputs)
        # No await between these: they change together.
        agent, registry = self._find_agent(inputs), self._deps.registry()
        tree = self._get_tree(agent.id)
        prompts = await self._prompt_texts(registry, self._prompt_folder(inputs))
        options, sources = inputs.options, inputs.options.sources
        model_settings = read_settings(inputs.settings, user_id=inputs.context.user_id)
        model = options.model or self._default_model(agent, model_settings)
        chosen = await self._deps.models.choose(model, agent=agent.id, token=inputs.token)
        is_extractive = chosen.model.provider == EXTRACTIVE_PROVIDER
        key = (
            *(agent, tree.digest, registry.digest, prompts, model_settings, options.model),
            *(sources, is_extractive, inputs.project.id),
        )
        snapshot = self._cache.get(key)
        if snapshot is None:
            prompt, *subagent_prompts = prompts
            tools = _allowed_tools(registry, agent, sources, is_extractive=is_extractive)
            record = SnapshotRecord(
                tree=_tree_source(tree),
                prompts={ORACLE_NAME: prompt},
                tools=_tool_records(tools),
                settings=model_settings.as_dict(),
                model=model,
                subagents={
                    subagent.name: _build_subagent_record(registry, subagent, text, sources)
                    for subagent, text in zip(
                        registry.subagents.values(), subagent_prompts, strict=True
                    )
                    if agent.may_use(subagent.delegation_tool.name)
                },
                agent=agent.id,
                soul=agent.soul,
                system_prompt=agent.system_prompt,
                decision_tree=agent.decision_tree,
            )
            snapshot = self._build_snapshot(record, registry, tree, inputs)
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

    async def _prompt_texts(self, registry: AgentRegistry, folder: Path | None) -> tuple[str, ...]:
        """Prompts of the Oracle, then of the subagents; cached for `PROMPT_CACHE_SECONDS`.

        Files are read in a thread.
        """
        key = (registry.digest, folder)
        texts = self._prompts_cache.get(key)
        if texts is None:
            texts = await asyncio.to_thread(self._read_prompts, registry, folder)
            self._prompts_cache.put(key, texts)
        return texts

    def _read_prompts(self, registry: AgentRegistry, folder: Path | None) -> tuple[str, ...]:
        paths = [Path(each.system_prompt_path) for each in registry.subagents.values()]
        return (
            self._prompts.load(ORACLE_NAME, folder),
            *(
                self._prompts.load(path.stem, folder, default=path if path.is_absolute() else None)
                for path in paths
            ),
        )

    def _restore(self, inputs: ClaimedRun) -> RunSnapshot:
        """Return the snapshot that the first attempt of the run stored.

        Raises TreeError if its tree no longer loads: another version of Dodona may have stored it,
        and that version may have had other leaves.
        """
        assert inputs.pins is not None
        record = _decoder.decode(inputs.pins)
        registry = self._deps.registry()
        agent = self._deps.agents().get(record.agent)
        current = None if agent is None else self._get_tree(agent.id)
        try:
            tree = _load_tree(registry, record.tree, current)
            snapshot = self._build_snapshot(record, registry, tree, inputs)
        except TreeError as error:
            first = error.problems()[0]
            raise TreeError(
                "the run cannot be resumed: the tree it started with does not load in this version "
                f"of Dodona: {first.message}",
                where=first.where,
                hint="Ask the question again.",
            ) from error
        return replace(snapshot, changed_tools=_changed_tools(registry, record))

    def _build_snapshot(
        self, record: SnapshotRecord, registry: AgentRegistry, tree: Tree, inputs: ClaimedRun
    ) -> RunSnapshot:
        tools = _tool_specs(record.tools)
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
            decision_tree=record.decision_tree,
        )
        subagents = {
            name: _load_subagent(registry, name, each) for name, each in record.subagents.items()
        }
        return RunSnapshot(oracle, registry, subagents, settings, encoded, record.agent)

    def _cache_snapshot(self, key: Any, snapshot: RunSnapshot) -> None:
        self._cache[key] = snapshot
        if len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)


def _allowed_tools(
    registry: AgentRegistry,
    agent: AgentDef,
    sources: tuple[str, ...] | None,
    *,
    is_extractive: bool,
) -> list[ToolSpec]:
    """Return the tools that the agent may use, limited to `sources`."""
    specs = _filter_by_source(registry.toolbox, registry.toolbox.specs_for(ORACLE_NAME), sources)
    tools = [*specs, *(each.delegation_tool for each in registry.subagents.values())]
    allowed = {tool.name for tool in tools if agent.may_use(tool.name)}
    # It searches what these do, and its result is for the extractive model.
    if is_extractive and allowed >= PASSAGE_SOURCES:
        allowed.add(PASSAGE_TOOL)
    else:
        allowed.discard(PASSAGE_TOOL)
    return [tool for tool in tools if tool.name in allowed]


def _filter_by_source(
    toolbox: Toolbox, tools: Iterable[ToolSpec], sources: tuple[str, ...] | None
) -> Iterator[ToolSpec]:
    for spec in tools:
        tool = toolbox.find(spec.name)
        assert tool is not None
        if sources is None or tool.category == ToolCategory.META or tool.category in sources:
            yield spec


def _build_subagent_record(
    registry: AgentRegistry, subagent: Subagent, prompt: str, sources: tuple[str, ...] | None
) -> SubagentRecord:
    """Build the record with the tools that the subagent may use, limited to `sources`.

    The limit of the request applies to subagents too.
    """
    specs = registry.toolbox.specs_for(subagent.name)
    tools = _filter_by_source(registry.toolbox, specs, sources)
    return SubagentRecord(
        tree=_tree_source(registry.subagent_trees[subagent.name]),
        prompt=prompt,
        tools=_tool_records([tool for tool in tools if tool.name in subagent.allowed_tools]),
        max_turns=subagent.max_turns,
        model=subagent.model_override or "",
        decision_tree=subagent.decision_tree,
    )


def _load_subagent(registry: AgentRegistry, name: str, record: SubagentRecord) -> SubagentSnapshot:
    return SubagentSnapshot(
        name=name,
        tree=_load_tree(registry, record.tree, registry.subagent_trees.get(name)),
        prompt=record.prompt,
        tools=_tool_specs(record.tools),
        max_turns=record.max_turns,
        model=record.model,
        decision_tree=record.decision_tree,
    )


def _load_tree(registry: AgentRegistry, text: str, current: Tree | None) -> Tree:
    """Return the tree of a source text; usually this is the current tree."""
    if current is not None and _tree_source(current) == text:
        return current
    return load(text, registry=registry.leaves)


def _changed_tools(registry: AgentRegistry, record: SnapshotRecord) -> frozenset[str]:
    """Return the tools of a stored snapshot whose parameters have changed, or that are gone."""
    tools = {ORACLE_NAME: record.tools}
    tools.update((name, each.tools) for name, each in record.subagents.items())
    return frozenset(
        tool.name
        for agent, records in tools.items()
        for specs in [{each.name: each for each in registry.toolbox.specs_for(agent)}]
        for tool in records
        if subagent_name(tool.name) not in record.subagents
        and (
            tool.name not in specs
            or _without_texts(tool.parameters) != _without_texts(specs[tool.name].parameters)
        )
    )


def _without_texts(schema: Any) -> Any:
    """Return a JSON Schema without its descriptions, which do not change what a call means."""
    if isinstance(schema, Mapping):
        items = cast("Mapping[str, Any]", schema).items()
        return {
            name: _without_texts(value)
            for name, value in items
            if not (name == "description" and isinstance(value, str))
        }
    if isinstance(schema, list | tuple):
        return [_without_texts(value) for value in cast("Sequence[Any]", schema)]
    return schema


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
