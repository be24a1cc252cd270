"""Dependencies of runs, supplied by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dodona.agent.run_context.approvals import ApprovalGate
from dodona.agent.run_context.chunk_feed import Redact, no_redaction
from dodona.agent.run_context.overrides import OverridesCache
from dodona.agent.run_context.registry import AgentRegistry
from dodona.core.domain.agents import Agents
from dodona.core.domain.conversations.contexts import DEFAULT_TOKEN_BUDGET
from dodona.core.domain.knowledge.code import CodeLoader
from dodona.core.domain.knowledge.notes import NotesLoader
from dodona.core.events import Emit
from dodona.core.ports.model import Models, TokenCounter
from dodona.metering import Meter
from dodona.notify import SubscriberRegistry
from dodona.rules import RuleBook
from dodona.store import Store

ORACLE_NAME: Final = "oracle"  # the main agent's name for tools and prompts, whatever its ID

GetAgents = Callable[[], Agents]
GetRegistry = Callable[[], AgentRegistry]  # returns the current one


@dataclass(slots=True, kw_only=True)
class RunPolicy:
    """Settings for all runs. They may change at any time; a change applies to new runs."""

    summarise_results: bool = True  # the Librarian summarises tool results that are too large
    summarise_lists: bool = False  # also those with many entries, even if they are short
    compress_context: bool = True  # summarise older exchanges when the context is nearly full
    hold_calls: bool = True  # calls that write or send, after a run has read untrusted text
    allow_versioned_writes: bool = False  # even then, if a version of everything is kept
    approval_timeout: float = 600.0  # seconds until a pending approval expires
    token_budget: int = DEFAULT_TOKEN_BUDGET  # of new contexts, and of sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDeps:
    """Everything that runs depend on."""

    storage: Store
    models: Models
    meter: Meter
    registry: GetRegistry
    token_counter: TokenCounter
    emit: Emit
    notes: NotesLoader
    code: CodeLoader
    subscribers: SubscriberRegistry
    rules: RuleBook
    approvals: ApprovalGate
    overrides: OverridesCache
    redact: Redact = no_redaction  # removes secrets from chunks
    agents: GetAgents = Agents
    policy: RunPolicy = field(default_factory=RunPolicy)
