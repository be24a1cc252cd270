"""Generates nodes.md from the node kinds and the docstrings of their modules."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from dodona.trees import nodes
from dodona.trees.language import loader
from dodona.trees.language.node import NodeKind, Option
from dodona.trees.nodes import KINDS, leaf
from dodona.trees.runtime import blackboard, program
from generating.writing import page, prose, table


def docstring(module: ModuleType) -> str:
    """Return the docstring of a module, with links to the section on leaves."""
    text = module.__doc__ or ""
    return text.replace("leaf.py", "[Leaves](#leaves)").strip()


def modules() -> Iterator[ModuleType]:
    """Yield the modules that define nodes."""
    for info in pkgutil.iter_modules(nodes.__path__):
        yield importlib.import_module(f"{nodes.__name__}.{info.name}")


def homes() -> dict[str, list[NodeKind]]:
    """Return the node kinds by the module that defines them, in the order of KINDS."""
    owners = {
        id(value): module.__name__
        for module in modules()
        for value in vars(module).values()
        if isinstance(value, NodeKind)
    }
    kinds_by_module: dict[str, list[NodeKind]] = {}
    for kind in KINDS:
        kinds_by_module.setdefault(owners[id(kind)], []).append(kind)
    return kinds_by_module


def nodes_page() -> str:
    """Return the text of nodes.md."""
    sections = [_node_section(home, kinds) for home, kinds in homes().items()]
    return page(
        "# Nodes",
        prose("""All nodes of the language. A node is written `(KIND NAME :option VALUE CHILD …)`.
            The optional name identifies the node in traces, paths and journal keys. A number can
            be a literal or an [expression](expressions.md)."""),
        prose("""A tree is written `(tree "name" :description "text" :blackboard-schema {…} NODE
            :finally NODE)`. `:finally` runs at the end in every case: success, failure, timeout or
            cancellation."""),
        table(
            ("node", "takes", "description"),
            [(f"`{kind.name}`", _takes(kind), kind.summary) for kind in KINDS],
        ),
        *sections,
        "## Leaves",
        _body(docstring(leaf)),
        "[How to write leaves](../how-to/write-leaves.md) shows how to write them.",
        "## Limits",
        table(
            ("limit", "maximum"),
            [
                ("nesting of forms", f"{loader.MAX_FORM_DEPTH:,} levels"),
                ("nesting of nodes, including subtrees", f"{program.MAX_DEPTH:,} levels"),
                ("nodes per tree, including subtrees", f"{program.MAX_PLACES:,}"),
                ("keys per blackboard scope", f"{blackboard.MAX_KEYS:,}"),
                ("length of a value", f"{blackboard.MAX_LENGTH:,}"),
            ],
        ),
    )


def _node_section(home: str, kinds: list[NodeKind]) -> str:
    text = docstring(importlib.import_module(home))
    syntax, _, first = text.partition("\n")[0].partition("): ")
    title = ", ".join(kind.name for kind in kinds)
    parts = [f"## {title}", f"```text\n{_forms(syntax + ')')}\n```"]
    rest = "\n".join(text.splitlines()[1:]).strip()
    parts += [_sentence(first)] if not rest else [_sentence(first), rest]
    options = [row for kind in kinds for row in _options(kind)]
    if options:
        parts.append(table(("option", "type", ""), options))
    return "\n\n".join(parts)


def _forms(syntax: str) -> str:
    """Put each form of `(a), (b)` on a separate line."""
    return syntax.replace("), (", ")\n(")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _body(text: str) -> str:
    first, _, rest = text.partition(": ")
    return rest[:1].upper() + rest[1:] if first == "Leaves" else text


def _takes(kind: NodeKind) -> str:
    words = (
        []
        if kind.test_arity.maximum == 0
        else ["an expression" if kind.test_arity.minimum else "or an expression"]
    )
    if kind.binds == "leaf":
        words.insert(0, "a leaf")
    elif kind.binds == "tree":
        words.append("one child, or the name of a tree")
    elif kind.arity.maximum != 0:
        words.append("a test and 1 to 2 children" if kind.first_is_condition else str(kind.arity))
    if not words:
        words.append("keys and values" if kind.allows_extra_options else "nothing")
    joined = " ".join(words) if "or an expression" in words else " and ".join(words)
    return f"the name of a decorator and {joined}" if kind.binds == "decoration" else joined


def _options(kind: NodeKind) -> Iterator[tuple[str, str, str]]:
    for name, option in kind.options.items():
        yield f"`:{name}`", _option(option), "required" if option.required else ""
    if kind.allows_extra_options:
        meaning = "a key to write" if kind.binds is None else "an argument of the leaf"
        yield "`:…`", "a value", meaning


def _option(option: Option) -> str:
    if option.value_type == "choice":
        return ", ".join(f"`:{choice}`" for choice in option.choices) + "; default: the first"
    return str(option)
