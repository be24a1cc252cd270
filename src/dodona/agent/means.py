"""What runs are driven with: the ports that the composition root fills."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dodona.agent.approving import ApprovalGate
from dodona.agent.choices import OverridesCache
from dodona.agent.decision import DEFAULT_DECISIONS
from dodona.agent.feed import Redact, no_redaction
from dodona.core.agents import Agents
from dodona.core.code import CodeOf
from dodona.core.contexts import TOKEN_BUDGET
from dodona.core.events import Emit
from dodona.core.model import Models, TokenCounter
from dodona.core.notes import NotesOf
from dodona.core.notices import Subscribers
from dodona.core.rules import Rules
from dodona.core.spending import Meter
from dodona.core.storage import Storage
from dodona.core.tools import CallTool, Toolbox

AGENT: Final = "oracle"  # what tools and trees call whoever is asked, whatever its name

GetAgents = Callable[[], Agents]


@dataclass(slots=True, kw_only=True)
class RunPolicy:
    """How runs are done. It may be changed at any time: what begins then is done the new way."""

    summarise_results: bool = True  # does the Librarian sum up results that are too large?
    compress_context: bool = True  # are older exchanges summed up when the context is nearly full?
    require_approval_after_untrusted: bool = True  # once text from outside is in a run
    approval_timeout: float = 600.0  # for which a person who is asked may take
    token_budget: int = TOKEN_BUDGET  # of contexts that begin, and of sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDeps:
    storage: Storage
    models: Models
    meter: Meter
    toolbox: Toolbox
    call_tool: CallTool
    counter: TokenCounter
    emit: Emit
    notes: NotesOf
    code: CodeOf
    subscribers: Subscribers
    rules: Rules
    approvals: ApprovalGate
    overrides: OverridesCache
    redact: Redact = no_redaction  # takes secrets out of what is shown of a run
    agents: GetAgents = Agents
    conduct: RunPolicy = field(default_factory=RunPolicy)
    decisions: str = DEFAULT_DECISIONS  # the name of a registered decision tree
