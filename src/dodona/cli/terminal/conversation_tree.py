"""Draw the tree of a conversation as text, oldest node first.

A branch that does not lead to the head is drawn indented under the node it starts from; the path
to the head continues below it in its own column. Long runs of plain nodes are folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from unicodedata import combining, east_asian_width

from dodona.agent.views.tree import ConversationNode
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.domain.conversations.conversation_tree import TreeLink

MAX_UNFOLDED: Final = 20  # more plain nodes in a row than this are folded
_SHOWN_AT_ENDS: Final = 3  # nodes shown at each end of a folded stretch
_MAX_DEPTH: Final = 16  # branch levels with an indentation of their own
_MIN_QUESTION_WIDTH: Final = 16  # columns

_COLOURS: Final = {"head": "1;32", "names": "33", "aside": "2"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a node, a number of `folded` nodes, or (with neither) the root."""

    level: int
    node_id: int | None = None
    folded: int = 0
    is_fork: bool = False  # the first node of a branch


def path_to(head_id: int | None, links: Iterable[TreeLink]) -> frozenset[int]:
    """Return the head and all its ancestors."""
    parents = {link.id: link.parent_id for link in links}
    path: set[int] = set()
    node_id = head_id
    while node_id in parents and node_id not in path:
        path.add(node_id)
        node_id = parents[node_id]
    return frozenset(path)


def layout_tree(
    links: Sequence[TreeLink], *, head_id: int | None, on_path: frozenset[int], fold: bool
) -> list[Line]:
    """Return the lines of a tree, without their texts."""
    children = _children(links)
    lines = list(_walk_lines(children, on_path))
    if head_id is None or len(children.get(None, ())) > 1:
        lines.insert(0, Line(0))
    if not fold:
        return lines
    notable = {link.id for link in links if link.label is not None or link.is_open}
    shown = notable | {head_id}
    plain = {each for each, below in children.items() if each not in shown and len(below) == 1}
    return list(_fold_lines(lines, plain))


def draw_lines(
    lines: Iterable[Line], nodes: Mapping[int, ConversationNode], *, width: int, colour: bool
) -> Iterator[str]:
    """Render the lines with their texts, none wider than `width`."""
    for line in lines:
        node = None if line.node_id is None else nodes.get(line.node_id)
        if line.folded:
            text = _colour_text(f"⋮ {line.folded:,} more", "aside", colour)
            yield f"{_indent(line)}{text}"
        elif line.node_id is None:
            yield f"{_indent(line)}◇ root"
        elif node is not None:  # None: pruned in the meantime
            yield _format_node(line, node, width=width, colour=colour)


def _children(links: Sequence[TreeLink]) -> dict[int | None, list[int]]:
    """Group nodes by parent, oldest first. A node whose parent is missing belongs to the root."""
    ids = {link.id for link in links}
    children: dict[int | None, list[int]] = {}
    for link in links:
        children.setdefault(link.parent_id if link.parent_id in ids else None, []).append(link.id)
    return children


def _walk_lines(
    children: Mapping[int | None, list[int]], on_path: frozenset[int]
) -> Iterator[Line]:
    # Iterative: conversations are deeper than Python's recursion limit.
    pending = _next_lines(children.get(None, []), Line(0), on_path)
    while pending:
        line = pending.pop()
        yield line
        pending += _next_lines(children.get(line.node_id, []), line, on_path)


def _next_lines(below: list[int], line: Line, on_path: frozenset[int]) -> list[Line]:
    """Return the lines after this one as a stack: branches on top, the main path at the bottom."""
    if not below:
        return []
    main = next((each for each in below if each in on_path), below[-1])
    forks = [Line(line.level + 1, each, is_fork=True) for each in below if each != main]
    return [Line(line.level, main), *reversed(forks)]


def _fold_lines(lines: Iterable[Line], plain_nodes: set[int | None]) -> Iterator[Line]:
    stretch: list[Line] = []
    for line in lines:
        if line.node_id in plain_nodes and not line.is_fork:
            stretch.append(line)
            continue
        yield from _shorten_stretch(stretch)
        stretch = []
        yield line
    yield from _shorten_stretch(stretch)


def _shorten_stretch(stretch: list[Line]) -> list[Line]:
    if len(stretch) <= MAX_UNFOLDED:
        return stretch
    hidden = len(stretch) - 2 * _SHOWN_AT_ENDS
    fold = replace(stretch[0], node_id=None, folded=hidden)
    return [*stretch[:_SHOWN_AT_ENDS], fold, *stretch[-_SHOWN_AT_ENDS:]]


def _format_node(line: Line, node: ConversationNode, *, width: int, colour: bool) -> str:
    mark = "●" if node.on_path else "○"
    names = ", ".join(_node_tags(node))
    indent, start = _indent(line), f"{mark} {node.context_id}"
    used = len(indent) + len(start) + 2 + (_display_width(names) + 3 if names else 0)
    question = strip_control_chars(" ".join((node.question or node.answer or "").split()))
    text = truncate(question, max(_MIN_QUESTION_WIDTH, width - used))
    if colour:
        start = _colour_text(start, "head" if node.is_head else "", colour)
        names = _colour_text(names, "names", bool(names))
        text = _colour_text(text, "" if node.on_path else "aside", colour)
    return f"{indent}{start}{f' ({names})' if names else ''}  {text}".rstrip()


def _node_tags(node: ConversationNode) -> Iterator[str]:
    if node.is_head:
        yield "head"
    if node.label:
        yield strip_control_chars(node.label)
    if node.status is not RunStatus.SUCCEEDED:
        yield node.status.value
    if node.has_summary:
        yield "summary"


def _indent(line: Line) -> str:
    level = line.level - line.is_fork
    bars = "│ " * level if level < _MAX_DEPTH else "│ " * (_MAX_DEPTH - 1) + "⋮ "
    return f"{bars}├─" if line.is_fork else bars


def truncate(text: str, width: int) -> str:
    """Cut a text to a number of terminal columns."""
    if _display_width(text) <= width:
        return text
    room, end = width - 1, 0
    for character in text:
        room -= _display_width(character)
        if room < 0:
            break
        end += 1
    return f"{text[:end]}…"


def _display_width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text
    )


def _colour_text(text: str, name: str, colour: bool) -> str:  # noqa: FBT001 - private, three short arguments
    code = _COLOURS.get(name)
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code else text
