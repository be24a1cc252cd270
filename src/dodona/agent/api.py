"""The agent API: everything a gateway or a command needs from the agent layer, in one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dodona.agent.conversation.history import HistoryCache
from dodona.agent.conversation.prompts import PromptLoader
from dodona.agent.extensions import shipped_leaves
from dodona.agent.requests.client_history import ClientHistoryIndex
from dodona.agent.requests.passthrough import ModelPassthrough
from dodona.agent.requests.submit import Oracle
from dodona.agent.run.compressor import Compressor
from dodona.agent.run.driver import Driver
from dodona.agent.run.engine import LocalEngine
from dodona.agent.run_context.chunk_feed import Redact
from dodona.agent.run_context.deps import GetAgents, RunDeps
from dodona.agent.run_context.snapshot import GetTree, SnapshotBuilder
from dodona.agent.views import (
    ApprovalViews,
    ContextViews,
    NoticeViews,
    ProjectViews,
    RuleViews,
    RunViews,
    SessionViews,
    SettingsViews,
    SpendingViews,
    TreeViews,
)
from dodona.core.domain.conversations.conversation import ClaimedRun
from dodona.core.domain.knowledge.code import CodeLoader
from dodona.core.domain.knowledge.notes import NotesLoader
from dodona.notify import Bus
from dodona.store.projects.threads import Threads
from dodona.trees import Watchdog, load

_PACKAGE_DIR = Path(__file__).parent
ORACLE_TREE: Final = _PACKAGE_DIR / "trees" / "oracle.lisp"
RECOVERY_TREE: Final = _PACKAGE_DIR / "trees" / "recovery.lisp"
PROMPTS_DIR: Final = _PACKAGE_DIR / "prompts"

# Longer than the time to a model's first token, and longer than any tool call.
WATCHDOG_TIMEOUT_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class AgentApi:
    """The entry points of the agent layer."""

    oracle: Oracle
    client_histories: ClientHistoryIndex
    passthrough: ModelPassthrough
    sessions: SessionViews
    agents: GetAgents
    contexts: ContextViews
    tree: TreeViews
    runs: RunViews
    settings: SettingsViews
    projects: ProjectViews
    notes: NotesLoader
    code: CodeLoader
    threads: Threads
    notices: NoticeViews
    rules: RuleViews
    approvals: ApprovalViews
    spending: SpendingViews
    events: Bus
    engine: LocalEngine
    redact: Redact


def build_agent_api(
    deps: RunDeps,
    *,
    events: Bus,
    get_tree: GetTree,
    prompt_folder: Callable[[ClaimedRun], Path | None],
    is_server: bool,
) -> AgentApi:
    """Build the agent API on these dependencies.

    With `is_server`, the engine also resumes runs whose process has died.
    """
    storage = deps.storage
    histories = HistoryCache()
    recovery = load(RECOVERY_TREE, registry=shipped_leaves())
    prompts = PromptLoader(PROMPTS_DIR)
    driver = Driver(
        deps,
        snapshot_builder=SnapshotBuilder(
            deps,
            get_tree=get_tree,
            prompts=prompts,
            prompt_folder=prompt_folder,
        ),
        histories=histories,
        compressor=Compressor(
            deps, prompts=prompts, prompt_folder=prompt_folder, histories=histories
        ),
        watchdog=Watchdog(WATCHDOG_TIMEOUT_SECONDS, recovery=recovery),
    )
    engine = LocalEngine(storage, driver, is_server=is_server, policy=deps.policy)
    return AgentApi(
        oracle=Oracle(deps, engine, histories=histories),
        client_histories=ClientHistoryIndex(storage, deps.token_counter, deps.redact),
        passthrough=ModelPassthrough(deps),
        sessions=SessionViews(storage),
        agents=deps.agents,
        contexts=ContextViews(storage),
        tree=TreeViews(storage),
        runs=RunViews(storage),
        settings=SettingsViews(storage),
        projects=ProjectViews(storage),
        notes=deps.notes,
        code=deps.code,
        threads=storage.threads,
        notices=NoticeViews(storage.notices, deps.subscribers, deps.overrides),
        rules=RuleViews(deps.rules, deps.overrides),
        approvals=ApprovalViews(storage.approvals, deps.approvals),
        spending=SpendingViews(storage, deps.meter),
        events=events,
        engine=engine,
        redact=deps.redact,
    )
