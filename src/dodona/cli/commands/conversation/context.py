"""`dodona context`: show and change the conversation tree of a project."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import App, Parameter

from dodona.agent.views import ContextViews, TreeViews
from dodona.agent.views.contexts import ContextDocument
from dodona.agent.views.exchanges import OracleExchange
from dodona.agent.views.tree import (
    ROOT,
    ConversationNode,
    NodeLabel,
    TreeHead,
    TreeOutline,
    node_document,
)
from dodona.cli.arguments import flag
from dodona.cli.options import DEFAULTS, Options, ProjectName, current_project
from dodona.cli.store_access import run_with_store
from dodona.cli.terminal.conversation_tree import Line, draw_lines, layout_tree, path_to, truncate
from dodona.cli.terminal.keyboard import REVIEW_HINT, confirm, require_terminal
from dodona.cli.terminal.output import (
    REDACTOR,
    format_columns,
    print_json,
    print_note,
    print_text,
)
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.domain.trust import describe_marks
from dodona.core.json_document import to_builtins
from dodona.store.store import Store

app = App(name="context", help="Show and change a project's conversation.")

MAX_MESSAGE_WIDTH = 70

Name = Annotated[str, Parameter(name="NAME", help="A context_id such as node-12, or a label.")]


@app.command
def show(*, project: ProjectName = None, options: Options = DEFAULTS) -> None:
    """Show the conversation: its state, summary and recent messages."""
    config, project_id = options.load_config(), current_project(project)
    state = run_with_store(config, lambda store: ContextViews(store).show(LOCAL_USER, project_id))
    options.print_result(state, "\n".join(_format_context(state)))


@app.command
def tree(
    *,
    every: Annotated[bool, flag("Show all nodes.", name="--all")] = False,
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """Draw the conversation as a tree, oldest node first.

    Nodes on the path to the head are marked with ●.
    """
    config, project_id = options.load_config(), current_project(project)
    lines, document = run_with_store(
        config, lambda store: _load_tree(TreeViews(store), project_id, fold=not every)
    )
    if options.json:
        print_json(REDACTOR.scrub_all(to_builtins(document)))
        return
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else 1_000
    colour = is_terminal and not os.environ.get("NO_COLOR")
    nodes: dict[int, ConversationNode] = {node.id: node for node in document["nodes"]}
    print_text(REDACTOR.scrub("\n".join(draw_lines(lines, nodes, width=width, colour=colour))))


@app.command
def checkout(
    name: Annotated[
        str,
        Parameter(
            name="NAME",
            help="A context_id such as node-12, a label, or root (before the first message).",
        ),
    ],
    /,
    *,
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """Continue the conversation from another node."""
    config, project_id = options.load_config(), current_project(project)
    to = None if name == ROOT else name
    moved = run_with_store(
        config, lambda store: TreeViews(store).checkout(LOCAL_USER, project_id, to)
    )
    options.print_result(moved, _format_head(moved))


@app.command
def branch(
    origin: Annotated[str, Parameter(name="FROM", help="A message ID, a context_id or a label.")],
    /,
    *,
    label: Annotated[str | None, Parameter(help="Label for the branching point.")] = None,
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """Start a branch at a message.

    A branch at a question replaces the question; a branch at an answer continues
    after it.
    """
    config, project_id = options.load_config(), current_project(project)
    start = {"message_id": origin} if origin.isdecimal() else {"name": origin}
    moved = run_with_store(
        config, lambda store: TreeViews(store).branch(LOCAL_USER, project_id, **start, label=label)
    )
    options.print_result(moved, _format_head(moved))


@app.command
def label(
    name: Name,
    label: Annotated[
        str | None, Parameter(name="LABEL", help="New label. Omit it to remove the label.")
    ] = None,
    /,
    *,
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """Set or remove the label of a node."""
    config, project_id = options.load_config(), current_project(project)

    async def change(store: Store) -> NodeLabel:
        trees = TreeViews(store)
        context_id = await trees.find(LOCAL_USER, project_id, name)
        return await trees.label(LOCAL_USER, context_id, label)

    node = run_with_store(config, change)
    state = "has no label now" if node.label is None else f"is labelled {node.label}"
    options.print_result(node, f"{node.context_id} {state}.")


@app.command
def prune(
    name: Name,
    /,
    *,
    yes: Annotated[bool, flag("Skip the confirmation.")] = False,
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """Delete a node and its descendants permanently.

    Their usage and cost stay on record.
    """
    config, project_id = options.load_config(), current_project(project)
    if not yes:
        require_terminal("pruning is permanent.", hint="Confirm with --yes.")
    context_id, nodes = run_with_store(
        config, lambda store: _find_subtree(TreeViews(store), project_id, name)
    )
    if not yes:
        question = f"Delete {context_id} and its descendants ({_format_count(nodes)}) permanently?"
        confirm(question, "nothing was deleted.")
    result = run_with_store(config, lambda store: TreeViews(store).prune(LOCAL_USER, context_id))
    next_line = f"The next question continues from {result.head or 'the root'}."
    options.print_result(result, f"{_format_count(result.pruned)} deleted. {next_line}")


@app.command
def close(*, project: ProjectName = None, options: Options = DEFAULTS) -> None:
    """Close the conversation.

    The next question starts a new one.
    """
    config, project_id = options.load_config(), current_project(project)
    closed = run_with_store(config, lambda store: ContextViews(store).close(LOCAL_USER, project_id))
    line = f"The conversation of {project_id} is closed. The next question starts a new one."
    options.print_result(closed, line)


@app.command
def review(
    *,
    yes: Annotated[bool, flag("Clear the marks without asking.")] = False,
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """Show what untrusted text the conversation contains, and clear its marks.

    Until then, calls that write or send need your approval. Look at the messages
    first: `dodona context show` and `dodona run show`.
    """
    config, project_id = options.load_config(), current_project(project)
    state = run_with_store(config, lambda store: ContextViews(store).show(LOCAL_USER, project_id))
    if not state.marks or state.context_id is None:
        options.print_result(state, "The conversation contains no untrusted text.")
        return
    reviewed_id, sources = state.context_id, strip_control_chars(describe_marks(state.marks))
    if not yes:
        require_terminal(f"the conversation contains untrusted text ({sources}).", hint=REVIEW_HINT)
        print_note(f"Untrusted text in this conversation: {sources}.")
        confirm("Allow calls that write or send without approval again?", "nothing was changed.")
    state = run_with_store(
        config, lambda store: ContextViews(store).review(LOCAL_USER, project_id, reviewed_id)
    )
    options.print_result(state, f"Reviewed: {sources}. The marks are cleared.")


async def _load_tree(
    trees: TreeViews, project: str, *, fold: bool
) -> tuple[list[Line], dict[str, Any]]:
    """Return the lines of the tree and a document with the nodes shown in them."""
    outline = await trees.outline(LOCAL_USER, project)
    head_id = outline.head_id
    on_path = path_to(head_id, outline.links)
    lines = layout_tree(outline.links, head_id=head_id, on_path=on_path, fold=fold)
    ids = [line.node_id for line in lines if line.node_id is not None]
    nodes = [
        node_document(node, head_id=head_id, on_path=node.id in on_path)
        for node in await trees.nodes(LOCAL_USER, outline, ids)
    ]
    head = next((node.context_id for node in nodes if node.is_head), None)
    total = len(outline.links)
    return lines, {"project_id": project, "head": head, "total": total, "nodes": nodes}


async def _find_subtree(trees: TreeViews, project: str, name: str) -> tuple[str, int]:
    """Return the context_id for a name and the number of nodes in its subtree."""
    context_id = await trees.find(LOCAL_USER, project, name)
    outline = await trees.outline(LOCAL_USER, project)
    return context_id, _count_subtree(outline, int(context_id.removeprefix("node-")))


def _count_subtree(outline: TreeOutline, run_id: int) -> int:
    children: dict[int | None, list[int]] = {}
    for link in outline.links:
        if not link.is_open:  # open runs, and nodes below them, are not pruned
            children.setdefault(link.parent_id, []).append(link.id)
    pending, count = [run_id], 0
    while pending:
        count += 1
        pending += children.get(pending.pop(), [])
    return count


def _format_head(moved: TreeHead) -> str:
    lines = [f"The next question continues from {moved.head or 'the root'}."]
    if moved.open_runs:
        runs = ", ".join(map(str, moved.open_runs))
        lines.append(
            f"Open runs: {runs}. An active run becomes a branch; queued runs continue from here."
        )
    return "\n".join(lines)


def _format_context(context: ContextDocument) -> Iterator[str]:
    budget = f"{context.tokens_used:,} of {context.token_budget:,}"
    yield format_columns(
        [
            ("project", context.project_id),
            ("status", context.status.value),
            ("context", context.context_id or "-"),
            ("tokens", budget),
            ("model", strip_control_chars(context.last_model or "-")),
            ("compressed", _format_times(context.compression_count)),
            ("untrusted", strip_control_chars(describe_marks(context.marks)) or "-"),
        ]
    )
    if context.key_decisions:
        yield "\nDecisions:\n" + "\n".join(
            f"  {strip_control_chars(e)}" for e in context.key_decisions
        )
    if context.compressed_summary:
        lines = strip_control_chars(context.compressed_summary).splitlines()
        yield "\nSummary:\n" + "\n".join(f"  {line}".rstrip() for line in lines)
    if context.recent_exchanges:
        rows = [("message", "role", ""), *map(_format_exchange, context.recent_exchanges)]
        yield f"\n{format_columns(rows)}"


def _format_exchange(message: OracleExchange) -> tuple[str, ...]:
    return (
        message.id,
        message.role,
        truncate(strip_control_chars(" ".join(message.content.split())), MAX_MESSAGE_WIDTH),
    )


def _format_times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _format_count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes:,} nodes"
