"""Leaves: the functions that the agent's trees call, each registered under a name."""

from __future__ import annotations

# Importing these modules registers their leaves.
from dodona.agent.leaves import (
    answer,
    approval,
    control,
    model,
    notices,
    retrieval,
    subagents,
    tools,
)
from dodona.agent.run_context.registries import REGISTRY

__all__ = [
    "REGISTRY",
    "answer",
    "approval",
    "control",
    "model",
    "notices",
    "retrieval",
    "subagents",
    "tools",
]
