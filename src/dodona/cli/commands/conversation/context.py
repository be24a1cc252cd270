"""`dodona context`: the conversation of a project, its tree and where it goes on."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import App, Parameter

from dodona.agent.views import ContextViews, TreeViews
from dodona.agent.views.tree import ROOT, TreeOutline, node_json
from dodona.app.config.config import Config
from dodona.cli.arguments import AsJson
from dodona.cli.client.connect import load_config_quietly
from dodona.cli.commands.conversation.ask import ProjectName
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.project_file import project_of
from dodona.cli.store_access import open_store
from dodona.cli.terminal.conversation_tree import Line, draw_lines, layout_tree, path_to, truncate
from dodona.cli.terminal.output import format_columns, print_json, print_note, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import BadRequest, Cancelled
from dodona.net.redactor import Redactor

app = App(name="context", help="Show and change a conversation's tree.")

MAX_MESSAGE_WIDTH = 70
T = TypeVar("T")

Name = Annotated[str, Parameter(name="NAME", help="A context_id like node-12, or a label.")]


@app.command
def show(
    *,
    project: ProjectName = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Show what the Oracle remembers of a project."""
    place = _ProjectContext(project, config, redactor)
    found = place.run(lambda _, contexts: contexts.show(LOCAL_USER, place.project))
    place.print_result(found, as_json=json, text=lambda: "\n".join(_format_context(found)))


@app.command
def tree(
    *,
    every: Annotated[
        bool,
        Parameter(
            name="--all", negative="", show_default=False, help="Fold no long stretches of nodes."
        ),
    ] = False,
    project: ProjectName = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Draw the conversation as a tree, the oldest first; ● leads to the head."""
    place = _ProjectContext(project, config, redactor)
    lines, found = place.run(lambda trees, _: _load_tree(trees, place.project, fold=not every))

    def text() -> str:
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else 1_000
        colour = is_terminal and not os.environ.get("NO_COLOR")
        nodes = {node["id"]: node for node in found["nodes"]}
        return "\n".join(draw_lines(lines, nodes, width=width, colour=colour))

    place.print_result(found, as_json=json, text=text)


@app.command
def checkout(
    name: Annotated[
        str,
        Parameter(
            name="NAME", help="A context_id like node-12, a label, or root: before all messages."
        ),
    ],
    /,
    *,
    project: ProjectName = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Let the next question go on from another node."""
    place = _ProjectContext(project, config, redactor)
    to = None if name == ROOT else name
    moved = place.run(lambda trees, _: trees.checkout(LOCAL_USER, place.project, to))
    place.print_result(moved, as_json=json, text=lambda: _format_head(moved))


@app.command
def branch(
    origin: Annotated[
        str, Parameter(name="FROM", help="The number of a message, a context_id or a label.")
    ],
    /,
    *,
    label: Annotated[str | None, Parameter(help="A name for the place.")] = None,
    project: ProjectName = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Go on from any message: from a question to ask it otherwise, from an answer after it."""
    place = _ProjectContext(project, config, redactor)
    start = {"message_id": origin} if origin.isdecimal() else {"name": origin}
    moved = place.run(
        lambda trees, _: trees.branch(LOCAL_USER, place.project, **start, label=label)
    )
    place.print_result(moved, as_json=json, text=lambda: _format_head(moved))


@app.command
def label(
    name: Name,
    label: Annotated[
        str | None, Parameter(name="LABEL", help="The new label; without one it is taken away.")
    ] = None,
    /,
    *,
    project: ProjectName = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Name a node, so that it can be checked out by that name."""
    place = _ProjectContext(project, config, redactor)

    async def change(trees: TreeViews, _: ContextViews) -> dict[str, Any]:
        found = await trees.find(LOCAL_USER, place.project, name)
        return await trees.label(LOCAL_USER, found, label)

    done = place.run(change)
    told = "has no label now" if done["label"] is None else f"is labelled {done['label']}"
    place.print_result(done, as_json=json, text=lambda: f"{done['context_id']} {told}.")


@app.command
def prune(
    name: Name,
    /,
    *,
    yes: Annotated[
        bool, Parameter(negative="", show_default=False, help="Do it without asking.")
    ] = False,
    project: ProjectName = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Remove a node and all that follows from it, for good. What it cost stays on record."""
    place = _ProjectContext(project, config, redactor)
    if not yes and not sys.stdin.isatty():
        raise BadRequest("what is pruned is gone for good.", hint="If that is meant, say --yes.")
    found, nodes = place.run(lambda trees, _: _find_subtree(trees, place.project, name))
    if not yes:
        _confirm(f"Remove {found} and all that follows from it ({_format_count(nodes)}) for good?")
    done = place.run(lambda trees, _: trees.prune(LOCAL_USER, found))
    left = f"The next question goes on from {done['head'] or 'the root'}."
    place.print_result(
        done, as_json=json, text=lambda: f"{_format_count(done['pruned'])} removed. {left}"
    )


@app.command
def close(
    *,
    project: ProjectName = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Close the context: the next question begins a new conversation."""
    place = _ProjectContext(project, config, redactor)
    closed = place.run(lambda _, contexts: contexts.close(LOCAL_USER, place.project))
    told = "is closed. The next question begins a new conversation."
    place.print_result(closed, as_json=json, text=lambda: f"The context of {place.project} {told}")


class _ProjectContext:
    """The project that a command is about, in the store that the config names."""

    def __init__(self, project: str | None, file: Path | None, redactor: Redactor) -> None:
        self._config = load_config_quietly(file, redactor)
        self._redactor = redactor
        self.project = project_of(Path.cwd()) if project is None else project

    def run(self, action: Callable[[TreeViews, ContextViews], Awaitable[T]]) -> T:
        return asyncio.run(_run_with_views(self._config, self._redactor, action))

    def print_result(
        self, result: dict[str, Any], *, as_json: bool, text: Callable[[], str]
    ) -> None:
        if as_json:
            print_json(self._redactor.scrub_all(result))
        else:
            print_text(self._redactor.scrub(text()))


async def _run_with_views(
    config: Config, redactor: Redactor, action: Callable[[TreeViews, ContextViews], Awaitable[T]]
) -> T:
    """Beside a gateway that uses the store too: it looks again where the head is."""
    async with open_store(config, redactor) as store:
        return await action(TreeViews(store), ContextViews(store))


async def _load_tree(
    trees: TreeViews, project: str, *, fold: bool
) -> tuple[list[Line], dict[str, Any]]:
    """The lines, and the nodes that are in them; of the rest only how many they are."""
    outline = await trees.outline(LOCAL_USER, project)
    head_id = outline.head_id
    on_path = path_to(head_id, outline.links)
    lines = layout_tree(outline.links, head_id=head_id, on_path=on_path, fold=fold)
    ids = [line.node_id for line in lines if line.node_id is not None]
    nodes = [
        node_json(node, head_id=head_id, on_path=node.id in on_path)
        for node in await trees.nodes(LOCAL_USER, outline, ids)
    ]
    head = next((node["context_id"] for node in nodes if node["is_head"]), None)
    total = len(outline.links)
    return lines, {"project_id": project, "head": head, "total": total, "nodes": nodes}


async def _find_subtree(trees: TreeViews, project: str, name: str) -> tuple[str, int]:
    """The node that a name means, and how many there are with it and after it."""
    found = await trees.find(LOCAL_USER, project, name)
    outline = await trees.outline(LOCAL_USER, project)
    return found, _count_subtree(outline, int(found.removeprefix("node-")))


def _count_subtree(outline: TreeOutline, run_id: int) -> int:
    children: dict[int | None, list[int]] = {}
    for link in outline.links:
        if not link.is_open:  # below it nothing is pruned, and what waits for the head stays
            children.setdefault(link.parent_id, []).append(link.id)
    pending, count = [run_id], 0
    while pending:
        count += 1
        pending += children.get(pending.pop(), [])
    return count


def _confirm(question: str) -> None:
    print_note(f"{question} [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Cancelled("nothing was removed.")


def _format_head(moved: dict[str, Any]) -> str:
    lines = [f"The next question goes on from {moved['head'] or 'the root'}."]
    if moved["open_runs"]:
        told = ", ".join(map(str, moved["open_runs"]))
        lines.append(
            f"Not ended: run {told}. The one that runs becomes a branch; those that wait go on "
            "from here."
        )
    return "\n".join(lines)


def _format_context(context: dict[str, Any]) -> Iterator[str]:
    budget = f"{context['tokens_used']:,} of {context['token_budget']:,}"
    yield format_columns(
        [
            ("project", context["project_id"]),
            ("status", context["status"]),
            ("context", context["context_id"] or "-"),
            ("tokens", budget),
            ("model", strip_control_chars(context["last_model"] or "-")),
            ("compressed", _format_times(context["compression_count"])),
        ]
    )
    if context["key_decisions"]:
        yield "\nDecisions:\n" + "\n".join(
            f"  {strip_control_chars(e)}" for e in context["key_decisions"]
        )
    if context["compressed_summary"]:
        lines = strip_control_chars(context["compressed_summary"]).splitlines()
        yield "\nSummary:\n" + "\n".join(f"  {line}".rstrip() for line in lines)
    if context["recent_exchanges"]:
        rows = [("message", "by", ""), *map(_format_exchange, context["recent_exchanges"])]
        yield f"\n{format_columns(rows)}"


def _format_exchange(message: dict[str, Any]) -> tuple[str, ...]:
    return (
        message["id"],
        message["role"],
        truncate(strip_control_chars(" ".join(message["content"].split())), MAX_MESSAGE_WIDTH),
    )


def _format_times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _format_count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes:,} nodes"
