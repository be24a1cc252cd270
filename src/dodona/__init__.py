"""Dodona runs AI agents whose behaviour you can read.

This is the public API, for extensions and for programs that embed Dodona:

    from dodona import tool, leaf, decorator, decision_tree, subscriber, model, Context

Names are imported on use, so `import dodona` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from dodona.core.version import __version__

if TYPE_CHECKING:
    from dodona.agent.run_context.registry import Subagent
    from dodona.agent.turn_control.config import AgentConfig
    from dodona.agent.turn_control.decision import DefaultDecisionTree, decision_tree
    from dodona.agent.turn_control.state import AgentState
    from dodona.core.chunks import (
        ApprovalChunk,
        ContentChunk,
        DoneChunk,
        RestartChunk,
        SourceChunk,
        SystemChunk,
        ThinkingChunk,
        ToolCallChunk,
        ToolResultChunk,
    )
    from dodona.core.errors import DodonaError, ToolFailed, ToolRetry
    from dodona.core.events import Event
    from dodona.core.messages import ToolCall
    from dodona.core.ports.model import ModelOptions, ModelRequest
    from dodona.extend.app import Answer, App, open  # noqa: A004
    from dodona.extend.asgi import asgi
    from dodona.extend.decorators import model, subscriber
    from dodona.extend.sync_app import SyncApp, open_sync
    from dodona.tools.functions import Context, Result, tool
    from dodona.trees.runtime.blackboard import Blackboard
    from dodona.trees.runtime.leaves import decorator, leaf
    from dodona.trees.runtime.status import Status
    from dodona.trees.runtime.step import Step

_MODULES: Final = {
    "AgentConfig": "agent.turn_control.config",
    "AgentState": "agent.turn_control.state",
    "Answer": "extend.app",
    "App": "extend.app",
    "ApprovalChunk": "core.chunks",
    "Blackboard": "trees.runtime.blackboard",
    "ContentChunk": "core.chunks",
    "Context": "tools.functions",
    "DefaultDecisionTree": "agent.turn_control.decision",
    "DodonaError": "core.errors",
    "DoneChunk": "core.chunks",
    "Event": "core.events",
    "ModelOptions": "core.ports.model",
    "ModelRequest": "core.ports.model",
    "RestartChunk": "core.chunks",
    "Result": "tools.functions",
    "SourceChunk": "core.chunks",
    "Status": "trees.runtime.status",
    "Step": "trees.runtime.step",
    "Subagent": "agent.run_context.registry",
    "SyncApp": "extend.sync_app",
    "SystemChunk": "core.chunks",
    "ThinkingChunk": "core.chunks",
    "ToolCall": "core.messages",
    "ToolCallChunk": "core.chunks",
    "ToolFailed": "core.errors",
    "ToolResultChunk": "core.chunks",
    "ToolRetry": "core.errors",
    "asgi": "extend.asgi",
    "decision_tree": "agent.turn_control.decision",
    "decorator": "trees.runtime.leaves",
    "leaf": "trees.runtime.leaves",
    "model": "extend.decorators",
    "open": "extend.app",
    "open_sync": "extend.sync_app",
    "subscriber": "extend.decorators",
    "tool": "tools.functions",
}

__all__ = [
    "AgentConfig",
    "AgentState",
    "Answer",
    "App",
    "ApprovalChunk",
    "Blackboard",
    "ContentChunk",
    "Context",
    "DefaultDecisionTree",
    "DodonaError",
    "DoneChunk",
    "Event",
    "ModelOptions",
    "ModelRequest",
    "RestartChunk",
    "Result",
    "SourceChunk",
    "Status",
    "Step",
    "Subagent",
    "SyncApp",
    "SystemChunk",
    "ThinkingChunk",
    "ToolCall",
    "ToolCallChunk",
    "ToolFailed",
    "ToolResultChunk",
    "ToolRetry",
    "__version__",
    "asgi",
    "decision_tree",
    "decorator",
    "leaf",
    "model",
    "open",
    "open_sync",
    "subscriber",
    "tool",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'dodona' has no attribute {name!r}")
    value = getattr(import_module(f"dodona.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
