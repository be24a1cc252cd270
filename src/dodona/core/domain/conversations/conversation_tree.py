"""The tree of a conversation as people look at it: nodes are runs, told by how they begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dodona.core.domain.conversations.conversation import RunNode, RunStatus

MAX_EXCERPT_CHARS: Final = 120  # characters of a question or an answer


@dataclass(frozen=True, slots=True)
class Excerpt:
    """How a message begins."""

    message_id: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """A node in a list. One that waits to follow the head has the head for its parent."""

    id: int
    parent_id: int | None
    status: RunStatus
    label: str | None
    tokens: int
    created_at: float
    child_count: int
    has_summary: bool
    question: Excerpt | None
    answer: Excerpt | None


@dataclass(frozen=True, slots=True)
class TreePage:
    """Some nodes; `on_path` are those between the root and the head, both included.

    `next` is the `before` of the next page, None on the last.
    """

    head_id: int | None
    nodes: tuple[TreeNode, ...]
    on_path: frozenset[int]
    next_before: int | None


@dataclass(frozen=True, slots=True)
class TreeLink:
    """Where a node hangs, and whether it stands out: all that the shape of a tree needs."""

    id: int
    parent_id: int | None
    label: str | None
    is_open: bool


@dataclass(frozen=True, slots=True)
class TreeLinks:
    """A page of links in the order of their ids."""

    head_id: int | None
    links: tuple[TreeLink, ...]


@dataclass(frozen=True, slots=True)
class MessageLocation:
    """Who said a message, and in which run."""

    role: str
    run: RunNode


@dataclass(frozen=True, slots=True)
class PruneResult:
    """How many nodes are gone, and where the head is now."""

    removed_count: int
    head_id: int | None
