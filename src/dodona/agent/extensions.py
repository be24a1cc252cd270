"""The extensions that the agent ships: leaves, decorations, the Librarian and the decision tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

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
from dodona.agent.run_context import registry
from dodona.agent.turn_control import decision
from dodona.core.extensions import Extension, extensions_in
from dodona.trees import Registry
from dodona.trees.nodes import KINDS

_MODULES: Final = (
    *(answer, approval, control, model, notices, retrieval, subagents, tools),
    *(registry, decision),
)


def shipped_extensions() -> Iterator[Extension]:
    """Yield what the agent ships, in the same form as extensions declare theirs."""
    namespaces = (vars(module) for module in _MODULES)
    yield from dict.fromkeys(each for namespace in namespaces for each in extensions_in(namespace))


def shipped_leaves() -> Registry:
    """Return a new registry with the node kinds and the agent's leaves."""
    leaves = Registry(KINDS)
    leaves.add(shipped_extensions())
    return leaves
