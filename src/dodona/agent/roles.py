"""Roles: an agent as a run has it: its tree, its prompt, its tools and how far it may go."""

from __future__ import annotations

from dataclasses import dataclass

from dodona.agent.turn_control.config import AgentConfig
from dodona.core.messages import SystemText, ToolSpec
from dodona.trees import Tree


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AgentRole:
    """`prompt_tokens` is what prompt and tools come to; an empty model is the configured one.

    `within` is the step that a subagent works in; the Oracle works in none.
    """

    agent: str
    tree: Tree
    system: SystemText
    tools: tuple[ToolSpec, ...]
    limits: AgentConfig
    model: str
    digest: bytes  # of all of it
    prompt_tokens: int
    tool_names: frozenset[str]  # of the tools
    parent_step: str = ""
