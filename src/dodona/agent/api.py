"""The agency: all that a gateway or a command needs of agents, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from dodona.agent.conversation.history import HistoryCache
from dodona.agent.conversation.prompts import PromptLoader
from dodona.agent.leaves import REGISTRY
from dodona.agent.requests.client_history import ClientHistoryIndex
from dodona.agent.requests.passthrough import ModelPassthrough
from dodona.agent.requests.submit import Oracle, Reception
from dodona.agent.run.compressor import Compressor
from dodona.agent.run.driver import Driver
from dodona.agent.run.engine import LocalEngine
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
from dodona.core.domain.conversations.conversation import RunInputs
from dodona.core.domain.knowledge.code import CodeOf
from dodona.core.domain.knowledge.notes import NotesOf
from dodona.core.domain.knowledge.threads import ThreadLogs
from dodona.core.events import Event
from dodona.trees import Watchdog, load

_HERE = Path(__file__).parent
ORACLE_TREE: Final = _HERE / "trees" / "oracle.lisp"
RECOVERY_TREE: Final = _HERE / "trees" / "recovery.lisp"
PROMPTS: Final = _HERE / "prompts"

# Longer than a model may take to its first word, and than any tool.
STUCK_SECONDS: Final = 300.0


class Events(Protocol):
    """What happens, for those who may know."""

    def subscribe(
        self, *, types: tuple[str, ...] = ("*",), user_id: str | None
    ) -> AbstractAsyncContextManager[AsyncIterator[Event]]: ...


@dataclass(frozen=True, slots=True)
class AgentApi:
    oracle: Oracle
    reception: Reception
    reciting: ClientHistoryIndex
    relay: ModelPassthrough
    sessions: SessionViews
    agents: GetAgents
    contexts: ContextViews
    tree: TreeViews
    runs: RunViews
    preferences: SettingsViews
    projects: ProjectViews
    notes: NotesOf
    code: CodeOf
    threads: ThreadLogs
    notices: NoticeViews
    rules: RuleViews
    approvals: ApprovalViews
    spending: SpendingViews
    events: Events
    engine: LocalEngine


def build_agent_api(
    means: RunDeps,
    *,
    events: Events,
    tree: GetTree,
    prompt_folder: Callable[[RunInputs], Path | None],
    serves: bool,
) -> AgentApi:
    """An agency on these means. One that serves takes up what others have left."""
    storage = means.storage
    histories = HistoryCache()
    recovery = load(RECOVERY_TREE, registry=REGISTRY)
    prompts = PromptLoader(PROMPTS)
    driver = Driver(
        means,
        pinning=SnapshotBuilder(
            means,
            tree=tree,
            registry=REGISTRY,
            prompts=prompts,
            prompt_folder=prompt_folder,
        ),
        histories=histories,
        compressor=Compressor(
            means, prompts=prompts, prompt_folder=prompt_folder, histories=histories
        ),
        watchdog=Watchdog(STUCK_SECONDS, recovery=recovery),
    )
    engine = LocalEngine(
        storage, driver.drive, serves=serves, conduct=means.conduct, hide=means.redact
    )
    return AgentApi(
        oracle=Oracle(storage, engine, histories=histories, means=means),
        reception=Reception(means, engine, histories=histories),
        reciting=ClientHistoryIndex(storage, means.counter),
        relay=ModelPassthrough(means),
        sessions=SessionViews(storage),
        agents=means.agents,
        contexts=ContextViews(storage),
        tree=TreeViews(storage),
        runs=RunViews(storage),
        preferences=SettingsViews(storage),
        projects=ProjectViews(storage),
        notes=means.notes,
        code=means.code,
        threads=storage.threads,
        notices=NoticeViews(storage.notices, means.subscribers, means.overrides),
        rules=RuleViews(means.rules, means.overrides),
        approvals=ApprovalViews(storage.approvals, means.approvals),
        spending=SpendingViews(storage, means.meter),
        events=events,
        engine=engine,
    )
