"""What runs are driven with: the ports that the composition root fills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dodona.agent.decision import DEFAULT_DECISIONS
from dodona.core.events import Emit
from dodona.core.model import Counter, Models
from dodona.core.spending import Meter
from dodona.core.storage import Storage
from dodona.core.tools import CallTool, Toolbox

AGENT: Final = "oracle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    storage: Storage
    models: Models
    meter: Meter
    toolbox: Toolbox
    call_tool: CallTool
    counter: Counter
    emit: Emit
    decisions: str = DEFAULT_DECISIONS  # the name of a registered decision tree
