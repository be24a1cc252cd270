"""nodes.md, of the kinds of nodes and what their modules say of them."""

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
    text = module.__doc__ or ""
    return text.replace("leaf.py", "[Leaves](#leaves)").strip()


def modules() -> Iterator[ModuleType]:
    """The modules of nodes."""
    for found in pkgutil.iter_modules(nodes.__path__):
        yield importlib.import_module(f"{nodes.__name__}.{found.name}")


def homes() -> dict[str, list[NodeKind]]:
    """The kinds of the language by the module that defines them, in the order of KINDS."""
    owners = {
        id(value): module.__name__
        for module in modules()
        for value in vars(module).values()
        if isinstance(value, NodeKind)
    }
    found: dict[str, list[NodeKind]] = {}
    for kind in KINDS:
        found.setdefault(owners[id(kind)], []).append(kind)
    return found


def nodes_page() -> str:
    sections = [_node_section(home, kinds) for home, kinds in homes().items()]
    return page(
        "# Nodes",
        prose("""Every node of the language. A node is written `(KIND NAME :option VALUE CHILD …)`;
            the name is optional and is what traces, paths and journal keys call it. A number may
            be a literal or an [expression](expressions.md)."""),
        prose("""A tree is written `(tree "name" :description "text" :blackboard-schema {…} NODE
            :finally NODE)`. `:finally` runs whatever ended the tree: success, failure, a timeout
            or a cancellation."""),
        table(
            ("node", "takes", "what it does"),
            [(f"`{kind.name}`", _takes(kind), kind.summary) for kind in KINDS],
        ),
        *sections,
        "## Leaves",
        _body(docstring(leaf)),
        "[How to write leaves](../how-to/write-leaves.md) tells how to register them.",
        "## Limits",
        table(
            ("limit", "at most"),
            [
                ("forms in each other", f"{loader.MAX_FORM_DEPTH:,} deep"),
                ("nodes in each other, subtrees included", f"{program.MAX_DEPTH:,} deep"),
                ("nodes of a tree, subtrees included", f"{program.MAX_PLACES:,}"),
                ("keys of one scope of the blackboard", f"{blackboard.MAX_KEYS:,}"),
                ("length of one value", f"{blackboard.MAX_LENGTH:,}"),
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
        parts.append(table(("option", "takes", ""), options))
    return "\n\n".join(parts)


def _forms(syntax: str) -> str:
    """`(a), (b)` on lines of their own."""
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
        what = "a key to write" if kind.binds is None else "an argument of the leaf"
        yield "`:…`", "a value", what


def _option(option: Option) -> str:
    if option.value_type == "choice":
        return ", ".join(f"`:{choice}`" for choice in option.choices) + "; the first if left out"
    return str(option)
