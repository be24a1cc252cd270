"""What the agent's trees call: small functions, each registered under its name."""

from __future__ import annotations

# Importing them registers them.
from dodona.agent.leaves import answer, control, model, notices, session, subagents, tools
from dodona.agent.leaves import approval as leave
from dodona.agent.leaves import retrieval as surroundings
from dodona.agent.run_context.registries import REGISTRY

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
