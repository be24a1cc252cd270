"""Behaviour trees in a small text language: load, leaf, run.

from dodona.trees import leaf, load, run
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from dodona.core.ports import Effect
from dodona.trees import loader as _loader
from dodona.trees.blackboard import Blackboard
from dodona.trees.debugger import Debugger
from dodona.trees.keyvalue import FileKeyValue
from dodona.trees.leaves import Decoration, Leaf
from dodona.trees.loader import Loaded, load_files
from dodona.trees.nodes import KINDS
from dodona.trees.registry import Registry
from dodona.trees.reload import Policy, Reloader
from dodona.trees.run import Options, Outcome, Run, run
from dodona.trees.status import FAILURE, RUNNING, SUCCESS, Status
from dodona.trees.step import Step
from dodona.trees.trace import Trace
from dodona.trees.tree import Tree
from dodona.trees.watchdog import Watchdog

__all__ = [
    "FAILURE",
    "RUNNING",
    "SUCCESS",
    "Blackboard",
    "Debugger",
    "Decoration",
    "Effect",
    "FileKeyValue",
    "Leaf",
    "Loaded",
    "Options",
    "Outcome",
    "Policy",
    "Registry",
    "Reloader",
    "Run",
    "Status",
    "Step",
    "Trace",
    "Tree",
    "Watchdog",
    "decorator",
    "leaf",
    "load",
    "load_files",
    "registry",
    "run",
]

# What `leaf` and `decorator` register in, and `load` looks in, unless told otherwise.
registry = Registry(KINDS)
leaf = registry.leaf
decorator = registry.decorator


def load(
    source: str | Path,
    *,
    registry: Registry = registry,
    library: Mapping[str, Tree] | None = None,
    host_keys: Iterable[str] = (),
) -> Tree:
    """Load a file, or a text: a str with a parenthesis in it is one. See `loader.load`."""
    return _loader.load(source, registry=registry, library=library, host_keys=host_keys)
