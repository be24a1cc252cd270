"""The tree of a conversation for display: nodes are runs, shown by their first words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dodona.core.domain.conversations.conversation import RunNode, RunStatus

MAX_EXCERPT_CHARS: Final = 120  # characters of a question or an answer


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a message."""

    message_id: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """A node in a list. A queued node that will follow the head has the head as its parent."""

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
    """A page of nodes; `on_path` are the nodes from the root to the head, both included.

    `next_before` is the `before` of the next page, None on the last page.
    """

    head_id: int | None
    nodes: tuple[TreeNode, ...]
    on_path: frozenset[int]
    next_before: int | None


@dataclass(frozen=True, slots=True)
class TreeLink:
    """A node's parent and whether it is highlighted: all that drawing the tree needs."""

    id: int
    parent_id: int | None
    label: str | None
    is_open: bool


@dataclass(frozen=True, slots=True)
class TreeLinks:
    """A page of links, ordered by id."""

    head_id: int | None
    links: tuple[TreeLink, ...]


@dataclass(frozen=True, slots=True)
class MessageLocation:
    """The role of a message's author, and the run of the message."""

    role: str
    run: RunNode


@dataclass(frozen=True, slots=True)
class PruneResult:
    """The number of removed nodes, and the new head."""

    removed_count: int
    head_id: int | None
