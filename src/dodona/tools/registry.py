"""The registry of tools. Built-in tools and plugin tools are added in the same way, by `add`."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Required, TypeAlias, TypedDict, Unpack

from dodona.core.errors import ConfigError
from dodona.core.extensions import Extension
from dodona.core.messages import Origin, ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import Tool, ToolCategory, ToolContext, ToolOutput
from dodona.tools.arguments import ArgumentReader

ToolFunction: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolOutput]]

DEFAULT_SCOPE: Final = ("oracle",)
DEFAULT_TIMEOUT_SECONDS: Final = 30.0

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # accepted by every provider
CATEGORY_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool(Extension):
    """A `Tool` that calls a function. The defaults are the safe assumptions for an unknown tool."""

    spec: ToolSpec
    function: ToolFunction
    category: ToolCategory | str
    agent_scope: tuple[str, ...] = DEFAULT_SCOPE
    effect: Effect = Effect.ONCE
    origin: Origin = Origin.PROJECT
    writes: bool = True
    keeps_versions: bool = False
    sends: bool = True
    reads_private: bool = True
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS

    @property
    def name(self) -> str:
        return self.spec.name

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return await self.function(arguments, context)


class ToolOptions(TypedDict, total=False):
    """The options of a `FunctionTool`."""

    category: Required[ToolCategory | str]
    agent_scope: tuple[str, ...]
    effect: Effect
    origin: Origin
    writes: bool
    keeps_versions: bool
    sends: bool
    reads_private: bool
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A tool with the reader of its arguments."""

    tool: Tool
    argument_reader: ArgumentReader


class ToolRegistry:
    """A `Toolbox` with unique names. Agents see their tools sorted by name.

    The order does not depend on registration, so prompts start with the same text in every process.
    """

    def __init__(self) -> None:
        self._entries: dict[str, RegisteredTool] = {}
        self._specs_by_agent: dict[str, tuple[ToolSpec, ...]] = {}

    def add(self, tool: Tool) -> None:
        """Register a tool. Raises ConfigError when its spec is invalid."""
        name = tool.spec.name
        _check_tool(tool)
        if name in self._entries:
            raise ConfigError(
                f"tool '{name}' is registered twice.", hint="Give one of them another name."
            )
        self._entries[name] = RegisteredTool(tool, ArgumentReader(tool.spec))
        self._specs_by_agent.clear()

    def tool(
        self, spec: ToolSpec, **options: Unpack[ToolOptions]
    ) -> Callable[[ToolFunction], ToolFunction]:
        """Register the decorated function as a tool."""

        def register(function: ToolFunction) -> ToolFunction:
            self.add(FunctionTool(spec=spec, function=function, **options))
            return function

        return register

    def specs_for(self, agent: str) -> tuple[ToolSpec, ...]:
        """Return the tools of an agent as its model sees them; always the same objects."""
        specs = self._specs_by_agent.get(agent)
        if specs is None:
            entries = [self._entries[name] for name in sorted(self._entries)]
            specs = tuple(
                e.argument_reader.model_spec for e in entries if agent in e.tool.agent_scope
            )
            self._specs_by_agent[agent] = specs
        return specs

    def tools(self) -> list[Tool]:
        """Return all tools, in the order in which they were added."""
        return [entry.tool for entry in self._entries.values()]

    def categories(self) -> frozenset[str]:
        """Return the categories that at least one tool has."""
        return frozenset(str(entry.tool.category) for entry in self._entries.values())

    def find(self, name: str) -> Tool | None:
        """Return the tool with this name, or None."""
        entry = self._entries.get(name)
        return entry.tool if entry else None

    def find_for_agent(self, name: str, agent: str) -> RegisteredTool | None:
        """Return the tool with this name, if the agent may use it."""
        entry = self._entries.get(name)
        return entry if entry and agent in entry.tool.agent_scope else None


def _check_tool(tool: Tool) -> None:
    name = tool.spec.name
    if not NAME_PATTERN.fullmatch(name):
        raise ConfigError(
            f"'{name[:80]}' is not a valid tool name.",
            hint="Use up to 64 letters, digits, '_' and '-'.",
        )
    if not tool.spec.description.strip():
        raise ConfigError(
            f"tool '{name}' has no description.",
            hint="The model chooses a tool by its description.",
        )
    if not CATEGORY_PATTERN.fullmatch(tool.category):
        raise ConfigError(
            f"tool '{name}' has the invalid category '{tool.category[:80]}'.",
            hint="Use up to 40 letters, digits, '_' and '-'.",
        )
    if isinstance(tool.agent_scope, str):
        raise ConfigError(
            f"tool '{name}' has a string as its agent scope.",
            hint=f'Write ("{tool.agent_scope}",).',
        )
    if not (math.isfinite(tool.timeout_seconds) and tool.timeout_seconds > 0):
        raise ConfigError(
            f"the timeout of tool '{name}' must be > 0 seconds (got {tool.timeout_seconds})."
        )
