"""What the agent's trees call: small functions, each registered under its name."""

from __future__ import annotations

# Importing them registers them.
from dodona.agent.leaves import (
    answer,
    control,
    leave,
    model,
    notices,
    session,
    subagents,
    surroundings,
    tools,
)
from dodona.agent.leaves.registry import REGISTRY

__all__ = [
    "REGISTRY",
    "answer",
    "control",
    "leave",
    "model",
    "notices",
    "session",
    "subagents",
    "surroundings",
    "tools",
]
