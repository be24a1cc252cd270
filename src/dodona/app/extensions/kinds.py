"""The kinds of extensions, their names, and the functions that declare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.agent.run_context.registry import Subagent
from dodona.agent.turn_control.decision import DecisionTreeExtension
from dodona.core.domain.notices import SubscriberExtension
from dodona.core.errors import SourceLocation
from dodona.core.extensions import Extension, location_of
from dodona.core.ports.model import ModelProvider
from dodona.tools.functions import ToolDeclaration
from dodona.tools.registry import FunctionTool
from dodona.trees import Decoration, Leaf

# The kinds of extensions, as people call them.
KIND_NAMES: Final[Mapping[type[Extension], str]] = {
    ToolDeclaration: "tool",
    FunctionTool: "tool",
    Leaf: "leaf",
    Decoration: "decorator",
    DecisionTreeExtension: "decision tree",
    Subagent: "subagent",
    SubscriberExtension: "subscriber",
    ModelProvider: "model provider",
}


def kind_of(extension: Extension) -> str:
    """Return the kind of an extension, as people call it."""
    return KIND_NAMES[type(extension)]


def name_of(extension: Extension) -> str:
    """Return the name of an extension."""
    name: str = getattr(extension, "name")  # noqa: B009 - every kind has one
    return name


def function_of(extension: Extension) -> Any:
    """Return the function or class that declares an extension; None for a subagent."""
    match extension:
        case Decoration():
            return extension.enter.function
        case DecisionTreeExtension():
            return extension.make
        case ModelProvider():
            return extension.build
        case Subagent():
            return None
        case _:
            return getattr(extension, "function", None)


def where_declared(extension: Extension) -> SourceLocation | None:
    """Return file and line of the function or class that declares an extension."""
    function = function_of(extension)
    return location_of(function) if function is not None else None
