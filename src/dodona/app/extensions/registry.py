"""The registry of an app: what it ships and what extensions declare, under unique names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from dodona.agent.extensions import shipped_extensions
from dodona.agent.run_context.registry import LIBRARIAN, AgentRegistry, Subagent
from dodona.app.config.config import Config
from dodona.app.config.settings import PROVIDER_NAMES
from dodona.app.config.validation import ExtensionNames
from dodona.app.extensions.kinds import kind_of, name_of, where_declared
from dodona.app.extensions.loading import ExtensionLoader, LoadedExtensions
from dodona.core.domain.notices import SubscriberExtension
from dodona.core.errors import ExtensionError, SourceLocation
from dodona.core.extensions import Extension
from dodona.core.ports.model import ModelProvider
from dodona.core.ports.tools import Tool
from dodona.notify import BUILTIN_SUBSCRIBERS
from dodona.notify.subscriber import build_subscriber
from dodona.tools.call import call_tool
from dodona.tools.functions import ToolDeclaration
from dodona.tools.names import BUILTIN_TOOL_NAMES
from dodona.tools.registry import FunctionTool, ToolRegistry
from dodona.trees import Registry
from dodona.trees.nodes import KINDS

BUILT_IN: Final = "Dodona"  # the source of shipped extensions


@dataclass(frozen=True, slots=True, kw_only=True)
class AppRegistry:
    """Everything that an app has registered. It does not change; a reload builds a new one."""

    agent: AgentRegistry
    providers: Mapping[str, ModelProvider]  # of extensions
    subscribers: tuple[SubscriberExtension, ...]
    extensions: LoadedExtensions

    def names(self) -> ExtensionNames:
        """Return the names that a config may use in addition to the built-in ones."""
        items = (each.extension for each in self.extensions.items)
        tools = (each for each in items if isinstance(each, ToolDeclaration | FunctionTool))
        delegation_tools = (each.delegation_tool.name for each in self.agent.subagents.values())
        return ExtensionNames(
            tools=frozenset([*map(name_of, tools), *delegation_tools]),
            subagents=frozenset(self.agent.subagents),
            decision_trees=frozenset(self.agent.decision_trees),
            providers=frozenset(self.providers),
        )


def build_registry(loaded: LoadedExtensions, tools: Iterable[Tool] = ()) -> AppRegistry:
    """Build a registry of shipped extensions, the built-in `tools`, and loaded extensions.

    Blocks: it reads the trees of subagents. Raises ExtensionError for an invalid extension or a
    name that is used twice.
    """
    leaves, registry = Registry(KINDS), ToolRegistry()
    shipped = list(shipped_extensions())
    names = _Names(shipped)
    for tool in tools:
        registry.add(tool)
    for each in loaded.items:
        names.add(each.extension, each.source)
        match each.extension:
            case ToolDeclaration() as declaration:
                registry.add(declaration.build())
            case FunctionTool() as tool:
                registry.add(tool)
            case SubscriberExtension() as subscriber:
                build_subscriber(subscriber)  # raises for invalid options
            case _:
                pass
    extensions = [*shipped, *(each.extension for each in loaded.items)]
    leaves.add(extensions)
    return AppRegistry(
        agent=AgentRegistry.build(
            extensions,
            leaves=leaves,
            toolbox=registry,
            call_tool=partial(call_tool, registry),
            digest=loaded.digest,
        ),
        providers={each.name: each for each in extensions if isinstance(each, ModelProvider)},
        subscribers=tuple(each for each in extensions if isinstance(each, SubscriberExtension)),
        extensions=loaded,
    )


def load_registry(config: Config) -> AppRegistry:
    """Load the extensions of a config, without the built-in tools, and check its names. Blocks."""
    registry = build_registry(ExtensionLoader().load(config))
    config.check_names(registry.names())
    return registry


def extension_providers(config: Config) -> Mapping[str, ModelProvider]:
    """Load the extensions of a config and return the model providers among them. Blocks."""
    return load_registry(config).providers


class _Names:
    """The names in use, by kind, and where they come from."""

    def __init__(self, shipped: Iterable[Extension]) -> None:
        names = [
            *((kind_of(each), name_of(each)) for each in shipped),
            *(("tool", name) for name in (*BUILTIN_TOOL_NAMES, LIBRARIAN.delegation_tool.name)),
            *(("model provider", name) for name in PROVIDER_NAMES),
            *(("subscriber", file.stem) for file in BUILTIN_SUBSCRIBERS.glob("*.toml")),
        ]
        self._sources = dict.fromkeys(names, BUILT_IN)

    def add(self, extension: Extension, source: str) -> None:
        """Add the name of an extension, and that of the tool which delegates to a subagent."""
        where = where_declared(extension) or SourceLocation(source)
        self._add(kind_of(extension), name_of(extension), where)
        if isinstance(extension, Subagent):
            self._add("tool", extension.delegation_tool.name, where)

    def _add(self, kind: str, name: str, where: SourceLocation) -> None:
        other = self._sources.get((kind, name))
        self._sources[kind, name] = str(where)
        if other is not None:
            shown = f"Dodona's own {kind}" if other == BUILT_IN else f"the {kind} in {other}"
            raise ExtensionError(
                f"{kind} '{name}' has the name of {shown}.",
                where=where,
                hint="Give it another name.",
            )
