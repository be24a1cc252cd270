"""The tools there are. Built-in ones enter by the same door as anybody's: `add`."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dodona.core.errors import ConfigError
from dodona.core.messages import Origin, ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import Tool, ToolCategory, ToolContext, ToolOutput
from dodona.tools.arguments import ArgumentReader

ToolFunction: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolOutput]]

DEFAULT_SCOPE: Final = ("oracle",)
DEFAULT_TIMEOUT_SECONDS: Final = 30.0

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every provider takes


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool:
    """A `Tool` made of a function."""

    spec: ToolSpec
    function: ToolFunction
    category: ToolCategory
    agent_scope: tuple[str, ...] = DEFAULT_SCOPE
    effect: Effect = Effect.ONCE  # what a tool does is unknown unless it says so
    origin: Origin = Origin.PROJECT
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return await self.function(arguments, context)


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A tool, with what reads the arguments for it."""

    tool: Tool
    argument_reader: ArgumentReader


class ToolRegistry:
    """A `Toolbox`. Names are unique; what an agent is offered is in the order of names.

    That order does not depend on who registers first, so prompts begin alike in every process.
    """

    def __init__(self) -> None:
        self._entries: dict[str, RegisteredTool] = {}
        self._specs_by_agent: dict[str, tuple[ToolSpec, ...]] = {}

    def add(self, tool: Tool) -> None:
        """Take a tool in. ConfigError says what is wrong with it."""
        name = tool.spec.name
        _check_tool(tool)
        if name in self._entries:
            raise ConfigError(
                f"tool '{name}' is registered twice.", hint="Give one of them another name."
            )
        self._entries[name] = RegisteredTool(tool, ArgumentReader(tool.spec))
        self._specs_by_agent.clear()

    def tool(
        self,
        spec: ToolSpec,
        *,
        category: ToolCategory,
        agent_scope: tuple[str, ...] = DEFAULT_SCOPE,
        effect: Effect = Effect.ONCE,
        origin: Origin = Origin.PROJECT,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> Callable[[ToolFunction], ToolFunction]:
        """Register the decorated function as a tool."""

        def register(function: ToolFunction) -> ToolFunction:
            self.add(
                FunctionTool(
                    spec=spec,
                    function=function,
                    category=category,
                    agent_scope=agent_scope,
                    effect=effect,
                    origin=origin,
                    timeout_seconds=timeout_seconds,
                )
            )
            return function

        return register

    def specs_for(self, agent: str) -> tuple[ToolSpec, ...]:
        """The tools of an agent, as its model sees them; the same objects every time."""
        known = self._specs_by_agent.get(agent)
        if known is None:
            entries = [self._entries[name] for name in sorted(self._entries)]
            known = tuple(
                e.argument_reader.model_spec for e in entries if agent in e.tool.agent_scope
            )
            self._specs_by_agent[agent] = known
        return known

    def find(self, name: str) -> Tool | None:
        entry = self._entries.get(name)
        return entry.tool if entry else None

    def find_for_agent(self, name: str, agent: str) -> RegisteredTool | None:
        """The tool of that name, if the agent may use it."""
        entry = self._entries.get(name)
        return entry if entry and agent in entry.tool.agent_scope else None


def _check_tool(tool: Tool) -> None:
    name = tool.spec.name
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"'{name[:80]}' is no name for a tool.",
            hint="Up to 64 letters, digits, '_' and '-' are.",
        )
    if not tool.spec.description.strip():
        raise ConfigError(
            f"tool '{name}' has no description.", hint="A model chooses a tool by it."
        )
    if isinstance(tool.agent_scope, str):
        raise ConfigError(
            f"tool '{name}' gives its agents as a string.", hint=f'Write ("{tool.agent_scope}",).'
        )
    if not (math.isfinite(tool.timeout_seconds) and tool.timeout_seconds > 0):
        raise ConfigError(
            f"the timeout of tool '{name}' must be > 0 seconds (got {tool.timeout_seconds})."
        )
