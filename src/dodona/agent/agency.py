"""The agency: all that a gateway or a command needs of agents, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from dodona.agent.compressor import Compressor
from dodona.agent.driver import Driver
from dodona.agent.engine import LocalEngine
from dodona.agent.histories import Histories
from dodona.agent.leaves import REGISTRY
from dodona.agent.means import AgentsNow, Means
from dodona.agent.oracle import Oracle
from dodona.agent.pins import Pinning, TreeOf
from dodona.agent.prompting import Prompts
from dodona.agent.reception import Reception
from dodona.agent.reciting import Reciting
from dodona.agent.relay import Relay
from dodona.agent.views import (
    ApprovalViews,
    ContextViews,
    NoticeViews,
    Preferences,
    ProjectViews,
    RuleViews,
    RunViews,
    SessionViews,
    SpendingViews,
    TreeViews,
)
from dodona.core.code import CodeOf
from dodona.core.conversation import Brief
from dodona.core.events import Event
from dodona.core.notes import NotesOf
from dodona.core.thread_logs import ThreadLogs
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
class Agency:
    oracle: Oracle
    reception: Reception
    reciting: Reciting
    relay: Relay
    sessions: SessionViews
    agents: AgentsNow
    contexts: ContextViews
    tree: TreeViews
    runs: RunViews
    preferences: Preferences
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


def make_agency(
    means: Means,
    *,
    events: Events,
    tree: TreeOf,
    prompt_folder: Callable[[Brief], Path | None],
    serves: bool,
) -> Agency:
    """An agency on these means. One that serves takes up what others have left."""
    storage = means.storage
    histories = Histories()
    recovery = load(RECOVERY_TREE, registry=REGISTRY)
    prompts = Prompts(PROMPTS)
    driver = Driver(
        means,
        pinning=Pinning(
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
        storage, driver.drive, serves=serves, conduct=means.conduct, hide=means.hide
    )
    return Agency(
        oracle=Oracle(storage, engine, histories=histories, means=means),
        reception=Reception(means, engine, histories=histories),
        reciting=Reciting(storage, means.counter),
        relay=Relay(means),
        sessions=SessionViews(storage),
        agents=means.agents,
        contexts=ContextViews(storage),
        tree=TreeViews(storage),
        runs=RunViews(storage),
        preferences=Preferences(storage),
        projects=ProjectViews(storage),
        notes=means.notes,
        code=means.code,
        threads=storage.threads,
        notices=NoticeViews(storage.notices, means.subscribers, means.choices),
        rules=RuleViews(means.rules, means.choices),
        approvals=ApprovalViews(storage.approvals, means.desk),
        spending=SpendingViews(storage, means.meter),
        events=events,
        engine=engine,
    )
