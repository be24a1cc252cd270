"""The conversation tree of a project: show, check out, branch, label and prune nodes.

A running run keeps its parent: if the head moves meanwhile, its answer becomes a branch. A queued
run follows the head at the time it starts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Annotated, Final, Literal

from msgspec import Meta

from dodona.agent.question import context_id
from dodona.core.domain.conversations.contexts import ContextStatus, OracleContext
from dodona.core.domain.conversations.conversation import Conversation, RunStatus
from dodona.core.domain.conversations.conversation_tree import MessageLocation, TreeLink, TreeNode
from dodona.core.errors import BadRequest, HeadMoved, NotFound
from dodona.core.json_document import JsonDocument, NextBefore, Timestamp
from dodona.store import Store

MAX_NODES: Final = 200  # per page
MAX_LABEL_CHARS: Final = 80
ROOT: Final = "root"  # the point before the first message; not allowed as a label

TreeView = Literal["all", "path"]

_LINKS_PER_PAGE: Final = 10_000
_CONTEXT_ID_PATTERN = re.compile(r"node-([1-9][0-9]{0,17})")
_MESSAGE_ID_PATTERN = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class TreeOutline:
    """The shape of a whole tree, without its texts."""

    conversation_id: int
    head_id: int | None
    links: tuple[TreeLink, ...]


Head = Annotated[
    str | None,
    Meta(
        description="The node that the next question continues; null is before the first message."
    ),
]


class ConversationNode(JsonDocument, kw_only=True):
    """A run as a node of the conversation tree."""

    id: Annotated[int, Meta(description="The id of its run.")]
    context_id: str
    parent: Annotated[
        str | None, Meta(description="The context_id of the parent; null at the root.")
    ]
    is_head: bool
    on_path: Annotated[bool, Meta(description="Whether it is between the root and the head.")]
    status: RunStatus
    label: str | None
    question: Annotated[str | None, Meta(description="The beginning of the question.")]
    question_id: Annotated[str | None, Meta(description="The id of the message.")]
    answer: Annotated[str | None, Meta(description="The beginning of the answer.")]
    answer_id: Annotated[str | None, Meta(description="The id of the message.")]
    children: Annotated[int, Meta(description="Number of direct children.")]
    has_summary: Annotated[
        bool, Meta(description="Whether a summary replaces it and all nodes before it.")
    ]
    tokens: int
    created_at: Timestamp


class ConversationTree(JsonDocument, kw_only=True):
    """A page of nodes."""

    project_id: str
    status: ContextStatus
    head: Head
    nodes: list[ConversationNode]
    next: NextBefore


class TreeHead(JsonDocument, kw_only=True):
    """The new head."""

    project_id: str
    head: Head
    open_runs: Annotated[
        list[int],
        Meta(
            description="Open runs. The active one becomes a branch; queued ones continue from "
            "the head."
        ),
    ]


class NodeLabel(JsonDocument):
    """The label of a node."""

    context_id: str
    label: str | None


class PrunedTree(JsonDocument):
    """The number of deleted nodes, and the head."""

    pruned: Annotated[int, Meta(description="Number of deleted nodes.")]
    head: Head


class TreeViews:
    """Conversation trees of all users; each call names the user."""

    def __init__(self, storage: Store) -> None:
        self._storage = storage

    async def show(
        self,
        user_id: str,
        project_id: str,
        *,
        view: TreeView = "all",
        before: int | None = None,
        limit: int = 100,
    ) -> ConversationTree:
        """Return a page of nodes: all, newest first, or the path from the head to the root.

        A path includes the first node of each branch off it.
        """
        if not 1 <= limit <= MAX_NODES:
            raise BadRequest(f"limit must be a whole number from 1 to {MAX_NODES} (got {limit}).")
        context, conversation = await self._load_tree(user_id, project_id)
        conversations = self._storage.conversations
        read_page = conversations.tree_path if view == "path" else conversations.tree_page
        page = await read_page(user_id, conversation.id, before=before, limit=limit)
        return ConversationTree(
            project_id=project_id,
            status=context.status,
            head=_optional_context_id(page.head_id),
            nodes=[
                node_document(node, head_id=page.head_id, on_path=node.id in page.on_path)
                for node in page.nodes
            ],
            next=page.next_before,
        )

    async def outline(self, user_id: str, project_id: str) -> TreeOutline:
        """Return the shape of the tree. It is read in pages, so recent changes may be missing."""
        _, conversation = await self._load_tree(user_id, project_id)
        links: list[TreeLink] = []
        while True:
            after = links[-1].id if links else 0
            page = await self._storage.conversations.tree_links(
                user_id, conversation.id, after=after, limit=_LINKS_PER_PAGE
            )
            links += page.links
            if len(page.links) < _LINKS_PER_PAGE:
                return TreeOutline(conversation.id, page.head_id, tuple(links))

    async def nodes(self, user_id: str, outline: TreeOutline, ids: Sequence[int]) -> list[TreeNode]:
        """Return nodes of an outline by ID; deleted nodes are omitted."""
        conversations = self._storage.conversations
        return list(await conversations.tree_nodes(user_id, outline.conversation_id, ids))

    async def find(self, user_id: str, project_id: str, name: str) -> str:
        """Resolve a context_id or a label to a context_id in this conversation."""
        _, conversation = await self._load_tree(user_id, project_id)
        run_id = await self._resolve_node(conversation, name)
        run = await self._storage.runs.get(user_id, run_id)
        if run.conversation_id != conversation.id:
            raise _unknown_context_error(name)
        return context_id(run_id)

    async def checkout(
        self,
        user_id: str,
        project_id: str,
        name: str | None,
        *,
        expected: str | EllipsisType | None = ...,
    ) -> TreeHead:
        """Move the head to a node (a context_id or a label), or to the root (None).

        The next question continues from there. `expected` is the head that the caller saw: if the
        head has changed since, raise `HeadMoved` and change nothing.
        """
        conversation = await self._load_open_tree(user_id, project_id)
        to = None if name is None else await self._resolve_node(conversation, name)
        expected_id = conversation.head_id
        if not isinstance(expected, EllipsisType):
            expected_id = (
                None if expected is None else await self._resolve_node(conversation, expected)
            )
        return await self._move_head(conversation, expected=expected_id, to=to)

    async def branch(
        self,
        user_id: str,
        project_id: str,
        *,
        message_id: str | None = None,
        name: str | None = None,
        label: str | None = None,
    ) -> TreeHead:
        """Move the head to a message or a node, and optionally label that node.

        For a user message, the head moves before its run, so that the question can be rephrased;
        for an answer, after its run.
        """
        if (message_id is None) == (name is None):
            raise BadRequest("specify either a message or a context to branch from.")
        conversation = await self._load_open_tree(user_id, project_id)
        if name is not None:
            to: int | None = await self._resolve_node(conversation, name)
        else:
            to = _branch_point(await self._find_message(conversation, message_id or ""))
        valid_label = None if label is None else validate_label(label)
        if valid_label is not None and to is None:
            raise BadRequest("the root, before the first message, cannot have a label.")
        return await self._move_head(
            conversation, expected=conversation.head_id, to=to, label=valid_label
        )

    async def label(self, user_id: str, name: str, label: str | None) -> NodeLabel:
        """Set the label of a node; None removes it."""
        valid_label = None if label is None else validate_label(label)
        run_id = _parse_context_id(name)
        await self._storage.conversations.set_label(user_id, run_id, valid_label)
        return NodeLabel(context_id(run_id), valid_label)

    async def prune(self, user_id: str, name: str) -> PrunedTree:
        """Delete a node and its descendants. If the head is among them, it moves to the parent."""
        result = await self._storage.conversations.prune(user_id, _parse_context_id(name))
        return PrunedTree(result.removed_count, _optional_context_id(result.head_id))

    async def _move_head(
        self,
        conversation: Conversation,
        *,
        expected: int | None,
        to: int | None,
        label: str | None = None,
    ) -> TreeHead:
        has_moved = await self._storage.conversations.move_head(
            conversation.user_id, conversation.id, expected=expected, to=to, label=label
        )
        if not has_moved:
            raise HeadMoved(
                "the head of the conversation has changed.",
                hint="Load the tree again, then retry.",
            )
        open_runs = await self._storage.runs.list_unfinished(
            conversation.user_id, conversation.project_id
        )
        return TreeHead(
            project_id=conversation.project_id,
            head=_optional_context_id(to),
            open_runs=open_runs,
        )

    async def _resolve_node(self, conversation: Conversation, name: str) -> int:
        if match := _CONTEXT_ID_PATTERN.fullmatch(name):
            return int(match[1])
        run_id = await self._storage.conversations.find_by_label(
            conversation.user_id, conversation.id, name
        )
        if run_id is None:
            raise _unknown_context_error(name)
        return run_id

    async def _find_message(self, conversation: Conversation, message_id: str) -> MessageLocation:
        missing = NotFound(
            f"there is no message {message_id!r:.80} in this conversation.",
            hint="Use a message ID from an exchange or a node.",
        )
        if not _MESSAGE_ID_PATTERN.fullmatch(message_id):
            raise missing
        try:
            location = await self._storage.conversations.locate_message(
                conversation.user_id, int(message_id)
            )
        except NotFound:
            raise missing from None
        if location.run.conversation_id != conversation.id:
            raise missing
        return location

    async def _load_open_tree(self, user_id: str, project_id: str) -> Conversation:
        """The conversation; raise if its context is closed."""
        context, conversation = await self._load_tree(user_id, project_id)
        if context.status is ContextStatus.CLOSED:
            raise BadRequest(
                f"the context of project {project_id} is closed.",
                hint="The next question starts a new conversation.",
            )
        return conversation

    async def _load_tree(self, user_id: str, project_id: str) -> tuple[OracleContext, Conversation]:
        await self._storage.projects.get(user_id, project_id)
        try:
            context = await self._storage.contexts.get(user_id, project_id)
            conversation_id = context.conversation_id or 0  # 0 raises NotFound
            return context, await self._storage.conversations.get(user_id, conversation_id)
        except NotFound as missing:
            raise NotFound(
                f"project {project_id} has no conversation yet.",
                hint="The first question starts it.",
            ) from missing


def _branch_point(location: MessageLocation) -> int | None:
    """The node to continue from: before a question, after an answer."""
    run = location.run
    if location.role != "user":
        return run.id
    if run.status is RunStatus.QUEUED and run.parent_id is None:
        raise BadRequest(
            f"run {run.id} is queued: its parent is not known yet.",
            hint="Wait until it has started, or cancel it.",
        )
    return run.parent_id


def validate_label(label: str) -> str:
    """Return the label without surrounding space; raise if it is invalid or reserved."""
    text = label.strip()
    if not 1 <= len(text) <= MAX_LABEL_CHARS or not text.isprintable():
        raise BadRequest(
            f"a label must have 1 to {MAX_LABEL_CHARS} printable characters on one line "
            f"(got {label!r:.100})."
        )
    if text == ROOT or text.isdecimal() or _CONTEXT_ID_PATTERN.fullmatch(text):
        raise BadRequest(
            f"the label {text!r} is reserved.",
            hint="Labels cannot be 'root', a number or a context_id.",
        )
    return text


def node_document(node: TreeNode, *, head_id: int | None, on_path: bool) -> ConversationNode:
    """Return the document of a tree node."""
    question, answer = node.question, node.answer
    return ConversationNode(
        id=node.id,
        context_id=context_id(node.id),
        parent=_optional_context_id(node.parent_id),
        is_head=node.id == head_id,
        on_path=on_path,
        status=node.status,
        label=node.label,
        question=question.text if question else None,
        question_id=str(question.message_id) if question else None,
        answer=answer.text if answer else None,
        answer_id=str(answer.message_id) if answer else None,
        children=node.child_count,
        has_summary=node.has_summary,
        tokens=node.tokens,
        created_at=Timestamp(node.created_at),
    )


def _optional_context_id(run_id: int | None) -> str | None:
    return None if run_id is None else context_id(run_id)


def _parse_context_id(name: str) -> int:
    match = _CONTEXT_ID_PATTERN.fullmatch(name)
    if match is None:
        raise _unknown_context_error(name)
    return int(match[1])


def _unknown_context_error(name: str) -> NotFound:
    return NotFound(
        f"there is no context {name!r:.80}.",
        hint="Use a context_id or a label from the tree.",
    )
