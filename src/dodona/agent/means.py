"""What runs are driven with: the ports that the composition root fills."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dodona.agent.approving import Desk
from dodona.agent.choices import ChoicesOf
from dodona.agent.decision import DEFAULT_DECISIONS
from dodona.agent.feed import HideAll, keep_all
from dodona.core.agents import Agents
from dodona.core.code import CodeOf
from dodona.core.contexts import TOKEN_BUDGET
from dodona.core.events import Emit
from dodona.core.model import Counter, Models
from dodona.core.notes import NotesOf
from dodona.core.notices import Subscribers
from dodona.core.rules import Rules
from dodona.core.spending import Meter
from dodona.core.storage import Storage
from dodona.core.tools import CallTool, Toolbox

AGENT: Final = "oracle"  # what tools and trees call whoever is asked, whatever its name

AgentsNow = Callable[[], Agents]


@dataclass(slots=True, kw_only=True)
class Conduct:
    """How runs are done. It may be changed at any time: what begins then is done the new way."""

    summarises: bool = True  # does the Librarian sum up results that are too large?
    compresses: bool = True  # are older exchanges summed up when the context is nearly full?
    holds_effects: bool = True  # once text from outside is in a run
    approval_seconds: float = 600.0  # for which a person who is asked may take
    token_budget: int = TOKEN_BUDGET  # of contexts that begin, and of sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    storage: Storage
    models: Models
    meter: Meter
    toolbox: Toolbox
    call_tool: CallTool
    counter: Counter
    emit: Emit
    notes: NotesOf
    code: CodeOf
    subscribers: Subscribers
    rules: Rules
    desk: Desk
    choices: ChoicesOf
    hide: HideAll = keep_all  # takes secrets out of what is shown of a run
    agents: AgentsNow = Agents
    conduct: Conduct = field(default_factory=Conduct)
    decisions: str = DEFAULT_DECISIONS  # the name of a registered decision tree
