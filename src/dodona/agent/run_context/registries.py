"""Registries of leaves and of subagents.

A subagent is an agent that another agent delegates tasks to; it has its own tree, prompt and
tools. The Librarian is built in; register others before Dodona starts:

    register_subagent(Subagent(name="scout", description="…", system_prompt_path="scout.md", …))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from dodona.agent.turn_control.config import MaxIterations
from dodona.core.errors import BadRequest
from dodona.core.json_document import parse_value
from dodona.core.messages import ToolSpec
from dodona.trees import Registry
from dodona.trees.nodes import KINDS

_AGENT_DIR = Path(__file__).parent.parent
_DELEGATE_PREFIX: Final = "delegate_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subagent:
    """A subagent and its tools.

    A tool in `allowed_tools` is available only if its `agent_scope` also names the subagent.
    `PromptLoader` resolves `system_prompt_path`, so a project can override the prompt.
    `model_override` is `vendor/model`. It applies if the agent uses that vendor or OpenRouter, and
    the user has set no `subagent_model`.
    """

    name: str
    description: str  # for the model that may delegate to it
    system_prompt_path: str
    allowed_tools: tuple[str, ...]
    max_turns: int = 10
    model_override: str | None = None
    tree: Path = _AGENT_DIR / "trees" / "librarian.lisp"

    def __post_init__(self) -> None:
        parse_value(MaxIterations, "max_turns", self.max_turns)

    @property
    def delegation_tool(self) -> ToolSpec:
        """The tool with which a model delegates a task to this subagent."""
        return ToolSpec(
            name=f"{_DELEGATE_PREFIX}{self.name}",
            description=self.description,
            parameters={
                "type": "object",
                "properties": {
                    "task": {
                        "type": "string",
                        "description": "What to do, with all the information needed to do it.",
                    }
                },
                "required": ["task"],
                "additionalProperties": False,
            },
        )


LIBRARIAN: Final = Subagent(
    name="librarian",
    description=(
        "Delegate a task about the notes to the Librarian: organise, move, file, index, compare "
        "or summarise them. The Librarian sees only the task, not this conversation. It works "
        "independently with its own tools and returns one report."
    ),
    system_prompt_path="librarian.md",
    allowed_tools=(
        "vault_read",
        "vault_write",
        "vault_list",
        "vault_move",
        "vault_create_index",
    ),
    model_override="deepseek/deepseek-chat",
)

_registered: dict[str, Subagent] = {LIBRARIAN.name: LIBRARIAN}
SUBAGENTS: Final[Mapping[str, Subagent]] = MappingProxyType(_registered)


def register_subagent(subagent: Subagent) -> Subagent:
    """Register a subagent. The Oracle can delegate tasks to it after the next start."""
    if subagent.name in _registered:
        raise BadRequest(f"subagent '{subagent.name}' is registered twice.")
    _registered[subagent.name] = subagent
    return subagent


def subagent_name(tool_name: str) -> str:
    """Return the subagent that a tool call delegates to; "" for an ordinary tool."""
    return (
        tool_name.removeprefix(_DELEGATE_PREFIX) if tool_name.startswith(_DELEGATE_PREFIX) else ""
    )


REGISTRY = Registry(KINDS)

leaf = REGISTRY.leaf
decorator = REGISTRY.decorator
