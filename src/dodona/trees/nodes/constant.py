"""(succeed), (fail): return SUCCESS or FAILURE immediately."""

from __future__ import annotations

from dodona.trees.language.node import Node, NodeKind
from dodona.trees.nodes.leaf import halt_nothing
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import FAILURE, SUCCESS, Status


def _succeed(frame: Frame) -> Status:
    del frame
    return SUCCESS


def _fail(frame: Frame) -> Status:
    del frame
    return FAILURE


def compile_succeed(node: Node, build: Build) -> Compiled:
    """Compile a `succeed` node."""
    del node, build
    return Compiled(_succeed, halt_nothing)


def compile_fail(node: Node, build: Build) -> Compiled:
    """Compile a `fail` node."""
    del node, build
    return Compiled(_fail, halt_nothing)


SUCCEED_KIND = NodeKind("succeed", "Succeeds immediately.", compile_succeed, usage="(succeed)")
FAIL_KIND = NodeKind("fail", "Fails immediately.", compile_fail, usage="(fail)")
