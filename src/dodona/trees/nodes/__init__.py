"""The nodes of the language, one per file. Each file starts with its truth table."""

from __future__ import annotations

from dodona.trees.language.node import NodeKind
from dodona.trees.nodes import (
    action,
    branching,
    condition,
    constant,
    decorator,
    for_each,
    force,
    guard,
    inverter,
    parallel,
    repeater,
    retry,
    selector,
    sequence,
    set,  # noqa: A004 - the node's name
    subtree,
    timeout,
    wait,
)

KINDS: tuple[NodeKind, ...] = (
    sequence.KIND,
    selector.KIND,
    parallel.KIND,
    for_each.KIND,
    branching.KIND,
    repeater.KIND,
    retry.KIND,
    timeout.KIND,
    guard.KIND,
    inverter.KIND,
    force.SUCCESS_KIND,
    force.FAILURE_KIND,
    decorator.KIND,
    subtree.KIND,
    action.KIND,
    condition.KIND,
    set.KIND,
    wait.KIND,
    constant.SUCCEED_KIND,
    constant.FAIL_KIND,
)
