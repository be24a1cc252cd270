"""Behaviour trees in a small Lisp dialect: declare leaves, load trees, run them.

from dodona.trees import leaf, load, run
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dodona.core.extensions import Extension, extensions_of
from dodona.core.ports.journal import Effect
from dodona.trees.language import loader as _loader
from dodona.trees.language.loader import LoadResult, load_files
from dodona.trees.language.tree import Tree
from dodona.trees.nodes import KINDS
from dodona.trees.runtime.blackboard import Blackboard
from dodona.trees.runtime.debugger import Debugger
from dodona.trees.runtime.leaves import Decoration, Leaf, decorator, leaf
from dodona.trees.runtime.registry import Registry
from dodona.trees.runtime.run import Options, Outcome, Run, run
from dodona.trees.runtime.status import FAILURE, RUNNING, SUCCESS, Status
from dodona.trees.runtime.step import Step
from dodona.trees.runtime.trace import Trace
from dodona.trees.runtime.watchdog import Watchdog
from dodona.trees.tooling.keyvalue import FileKeyValue
from dodona.trees.tooling.reload import Reloader, ReloadPolicy

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
    "LoadResult",
    "Options",
    "Outcome",
    "Registry",
    "ReloadPolicy",
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
    "run",
]


def load(
    source: str | Path,
    *,
    leaves: Iterable[Callable[..., Any] | Extension] = (),
    registry: Registry | None = None,
    host_keys: Iterable[str] = (),
) -> Tree:
    """Load a file, or source text if the str contains a parenthesis. See `loader.load`.

    The tree may use `leaves`, functions with `@leaf` or `@decorator`, and those of the registry.
    """
    declared = Registry()
    declared.add(each for function in leaves for each in extensions_of(function))
    registry = registry or Registry(KINDS)
    if declared.leaves or declared.decorations:
        registry = registry.extended_with(declared)
    return _loader.load(source, registry=registry, host_keys=host_keys)
