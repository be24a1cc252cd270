"""The registry of an app: the leaves, tools, subagents and decision trees that its agents use.

Built-in ones and those of extensions are registered in the same way. A registry does not change:
when an extension is reloaded the app gets a new one, and runs in progress keep the one they started
with.

A subagent is an agent that another agent delegates tasks to; it has its own tree, prompt and
tools. Declare one in a module that Dodona loads:

    scout = Subagent(name="scout", description="…", system_prompt_path="/…/scout.md", …)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from dodona.agent.turn_control.config import AgentConfig, MaxIterations
from dodona.agent.turn_control.decision import DecisionTree, DecisionTreeExtension
from dodona.core.domain.agents import DEFAULT_DECISION_TREE
from dodona.core.errors import BadRequest, did_you_mean
from dodona.core.extensions import Extension
from dodona.core.json_document import parse_value
from dodona.core.messages import ToolSpec
from dodona.core.ports.tools import CallTool, Toolbox
from dodona.trees import Registry, Tree, load

_AGENT_DIR = Path(__file__).parent.parent
_DELEGATE_PREFIX: Final = "delegate_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subagent(Extension):
    """A subagent and its tools.

    A tool in `allowed_tools` is available only if its `agent_scope` also names the subagent.
    `system_prompt_path` is an absolute path, or the name of a built-in prompt; a project can
    replace the prompt with a file of that name.
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
    decision_tree: str = DEFAULT_DECISION_TREE

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


def subagent_name(tool_name: str) -> str:
    """Return the subagent that a tool call delegates to; "" for an ordinary tool."""
    return (
        tool_name.removeprefix(_DELEGATE_PREFIX) if tool_name.startswith(_DELEGATE_PREFIX) else ""
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRegistry:
    """Everything that trees and models can name. `digest` is that of the extensions' source."""

    leaves: Registry
    toolbox: Toolbox
    call_tool: CallTool
    subagents: Mapping[str, Subagent]
    subagent_trees: Mapping[str, Tree]
    decision_trees: Mapping[str, DecisionTreeExtension]
    digest: str = ""

    @classmethod
    def build(
        cls,
        extensions: Iterable[Extension],
        *,
        leaves: Registry,
        toolbox: Toolbox,
        call_tool: CallTool,
        digest: str = "",
    ) -> AgentRegistry:
        """Build a registry. Reads the trees of the subagents; raises if one does not load."""
        extensions = list(extensions)
        subagents = {each.name: each for each in extensions if isinstance(each, Subagent)}
        decision_trees = {
            each.name: each for each in extensions if isinstance(each, DecisionTreeExtension)
        }
        for each in decision_trees.values():
            each.check()
        registry = cls(
            leaves=leaves,
            toolbox=toolbox,
            call_tool=call_tool,
            subagents=MappingProxyType(subagents),
            subagent_trees={
                name: load(each.tree, registry=leaves) for name, each in subagents.items()
            },
            decision_trees=MappingProxyType(decision_trees),
            digest=digest,
        )
        for subagent in subagents.values():
            registry.find_decision_tree(subagent.decision_tree)
        return registry

    def make_decision_tree(self, name: str, config: AgentConfig) -> DecisionTree:
        """Build the decision tree that is registered under a name."""
        return self.find_decision_tree(name).make(config)

    def find_decision_tree(self, name: str) -> DecisionTreeExtension:
        """Return the decision tree with this name; raise BadRequest if there is none."""
        extension = self.decision_trees.get(name)
        if extension is None:
            near = did_you_mean(name, self.decision_trees)
            raise BadRequest(
                f"there is no decision tree '{name}'.",
                hint=near or f"Available: {', '.join(sorted(self.decision_trees))}.",
            )
        return extension
