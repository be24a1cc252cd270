"""Subagents: agents that another hands a task to. Each has its own tree, prompt and tools.

The Librarian is the first entry; others register in the same way, before Dodona is put together:

    register(Subagent(name="scout", description="…", system_prompt_path="scout.md", …))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from dodona.agent.turn_control.config import BOUNDS, check_bounds
from dodona.core.errors import BadRequest
from dodona.core.messages import ToolSpec
from dodona.trees import Registry
from dodona.trees.nodes import KINDS

_AGENT_DIR = Path(__file__).parent.parent
_DELEGATE_PREFIX: Final = "delegate_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subagent:
    """`allowed_tools` are its tools as far as they name it in their `agent_scope`.

    `system_prompt_path` names a prompt as `PromptLoader` finds it: a project may have its own.
    """

    name: str
    description: str  # for the model that may hand it something
    system_prompt_path: str
    allowed_tools: tuple[str, ...]
    max_turns: int = 10
    model_override: str | None = None
    tree: Path = _AGENT_DIR / "trees" / "librarian.lisp"

    def __post_init__(self) -> None:
        wrong = check_bounds("max_turns", self.max_turns, BOUNDS["max_iterations"])
        if wrong is not None:
            raise wrong

    @property
    def delegation_tool(self) -> ToolSpec:
        """The call that hands it a task, as a model sees it."""
        return ToolSpec(
            name=f"{_DELEGATE_PREFIX}{self.name}",
            description=self.description,
            parameters={
                "type": "object",
                "properties": {
                    "task": {
                        "type": "string",
                        "description": "What to do, with all that is needed to do it.",
                    }
                },
                "required": ["task"],
                "additionalProperties": False,
            },
        )


LIBRARIAN: Final = Subagent(
    name="librarian",
    description=(
        "Hand a task about the notes to the Librarian: to put them in order, move, file, index, "
        "compare or sum up. It sees nothing of this conversation but the task, works by itself "
        "with its own tools, and reports once."
    ),
    system_prompt_path="librarian.md",
    allowed_tools=(
        "vault_read",
        "vault_write",
        "vault_list",
        "vault_move",
        "vault_create_index",
    ),
)

_registered: dict[str, Subagent] = {LIBRARIAN.name: LIBRARIAN}
SUBAGENTS: Final[Mapping[str, Subagent]] = MappingProxyType(_registered)


def register_subagent(subagent: Subagent) -> Subagent:
    """Let the Oracle hand tasks to it, from the next start on."""
    if subagent.name in _registered:
        raise BadRequest(f"subagent '{subagent.name}' is registered twice.")
    _registered[subagent.name] = subagent
    return subagent


def subagent_name(tool_name: str) -> str:
    """The subagent that a call names; "" when it is a tool's."""
    return (
        tool_name.removeprefix(_DELEGATE_PREFIX) if tool_name.startswith(_DELEGATE_PREFIX) else ""
    )


REGISTRY = Registry(KINDS)

leaf = REGISTRY.leaf
decorator = REGISTRY.decorator
