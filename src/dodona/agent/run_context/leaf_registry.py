"""The names that the agent's trees may use."""

from __future__ import annotations

from dodona.trees import Registry
from dodona.trees.nodes import KINDS

REGISTRY = Registry(KINDS)

leaf = REGISTRY.leaf
decorator = REGISTRY.decorator
