"""The tree of a project's conversation: looked at, checked out, branched, labelled, pruned.

A run that is under way keeps its parent. When the head is moved meanwhile, its answer becomes a
branch; a question that still waits for its turn follows the head, wherever that is by then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Final, Literal

from dodona.agent.question import context_id
from dodona.agent.views.documents import iso
from dodona.core.domain.conversations.contexts import ContextStatus, OracleContext
from dodona.core.domain.conversations.conversation import Conversation, RunStatus
from dodona.core.domain.conversations.conversation_tree import MessageLocation, TreeLink, TreeNode
from dodona.core.errors import BadRequest, HeadMoved, NotFound
from dodona.store import Store

MAX_NODES: Final = 200  # on a page
MAX_LABEL_CHARS: Final = 80  # characters
ROOT: Final = "root"  # no label: commands mean by it what is before the first message
VIEWS: Final = ("all", "path")

View = Literal["all", "path"]

_LINKS_PER_PAGE: Final = 10_000  # on a page
_CONTEXT_ID_PATTERN = re.compile(r"node-([1-9][0-9]{0,17})")
_MESSAGE_ID_PATTERN = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class TreeOutline:
    """The shape of a whole tree, without a word of what was said."""

    conversation_id: int
    head_id: int | None
    links: tuple[TreeLink, ...]


class TreeViews:
    """The trees of all users' contexts; every call says whose."""

    def __init__(self, storage: Store) -> None:
        self._storage = storage

    async def show(
        self,
        user_id: str,
        project_id: str,
        *,
        view: View = "all",
        before: int | None = None,
        limit: int = 100,
    ) -> dict[str, Any]:
        """A page of nodes: all of them, the newest first, or the path from the head to the root.

        A path comes with the first nodes of what branches off from it.
        """
        if not 1 <= limit <= MAX_NODES:
            raise BadRequest(f"limit must be a whole number from 1 to {MAX_NODES} (got {limit}).")
        context, talk = await self._load_tree(user_id, project_id)
        kept = self._storage.conversations
        read = kept.tree_path if view == "path" else kept.tree_page
        page = await read(user_id, talk.id, before=before, limit=limit)
        return {
            "project_id": project_id,
            "status": context.status.value,
            "head": _optional_context_id(page.head_id),
            "nodes": [
                node_json(node, head_id=page.head_id, on_path=node.id in page.on_path)
                for node in page.nodes
            ],
            "next": page.next_before,
        }

    async def outline(self, user_id: str, project_id: str) -> TreeOutline:
        """The shape of the tree, read in pages; what happens meanwhile may be in it or not."""
        _, talk = await self._load_tree(user_id, project_id)
        found: list[TreeLink] = []
        while True:
            after = found[-1].id if found else 0
            page = await self._storage.conversations.tree_links(
                user_id, talk.id, after=after, limit=_LINKS_PER_PAGE
            )
            found += page.links
            if len(page.links) < _LINKS_PER_PAGE:
                return TreeOutline(talk.id, page.head_id, tuple(found))

    async def nodes(self, user_id: str, outline: TreeOutline, ids: Sequence[int]) -> list[TreeNode]:
        """Some nodes of an outline; those that are gone by now are left out."""
        kept = self._storage.conversations
        return list(await kept.tree_nodes(user_id, outline.conversation_id, ids))

    async def find(self, user_id: str, project_id: str, name: str) -> str:
        """The context_id that a name in this conversation means: one itself, or a label."""
        _, talk = await self._load_tree(user_id, project_id)
        run_id = await self._resolve_node(talk, name)
        found = await self._storage.runs.get(user_id, run_id)
        if found.conversation_id != talk.id:
            raise _unknown_context_error(name)
        return context_id(run_id)

    async def checkout(
        self,
        user_id: str,
        project_id: str,
        name: str | None,
        *,
        expected: str | EllipsisType | None = ...,
    ) -> dict[str, Any]:
        """Let the next question go on from a node (a context_id or a label), or from the root.

        `expected` is the head as the caller saw it: if it is another by now, nothing is changed.
        """
        talk = await self._load_open_tree(user_id, project_id)
        to = None if name is None else await self._resolve_node(talk, name)
        seen = talk.head_id
        if not isinstance(expected, EllipsisType):
            seen = None if expected is None else await self._resolve_node(talk, expected)
        return await self._move_head(talk, expected=seen, to=to)

    async def branch(
        self,
        user_id: str,
        project_id: str,
        *,
        message_id: str | None = None,
        name: str | None = None,
        label: str | None = None,
    ) -> dict[str, Any]:
        """Go on from a message or a node, and label it there if asked.

        From a user's message it goes on before its run, so that it can be asked otherwise; from
        an answer, after it.
        """
        if (message_id is None) == (name is None):
            raise BadRequest("name either a message or a context to branch from.")
        talk = await self._load_open_tree(user_id, project_id)
        if name is not None:
            to: int | None = await self._resolve_node(talk, name)
        else:
            to = _branch_point(await self._find_message(talk, message_id or ""))
        wanted = None if label is None else validate_label(label)
        if wanted is not None and to is None:
            raise BadRequest("what is before the first message has no label.")
        return await self._move_head(talk, expected=talk.head_id, to=to, label=wanted)

    async def label(self, user_id: str, name: str, label: str | None) -> dict[str, Any]:
        """Name a node, or take its name away."""
        wanted = None if label is None else validate_label(label)
        run_id = _parse_context_id(name)
        await self._storage.conversations.set_label(user_id, run_id, wanted)
        return {"context_id": context_id(run_id), "label": wanted}

    async def prune(self, user_id: str, name: str) -> dict[str, Any]:
        """Remove a node and all that follows from it; the head, if it goes too, moves before it."""
        pruned = await self._storage.conversations.prune(user_id, _parse_context_id(name))
        return {"pruned": pruned.removed_count, "head": _optional_context_id(pruned.head_id)}

    async def _move_head(
        self,
        conversation: Conversation,
        *,
        expected: int | None,
        to: int | None,
        label: str | None = None,
    ) -> dict[str, Any]:
        moved = await self._storage.conversations.move_head(
            conversation.user_id, conversation.id, expected=expected, to=to, label=label
        )
        if not moved:
            raise HeadMoved(
                "the conversation has gone on elsewhere meanwhile.",
                hint="Look where its head is now, then choose again.",
            )
        open_runs = await self._storage.runs.list_unfinished(
            conversation.user_id, conversation.project_id
        )
        return {
            "project_id": conversation.project_id,
            "head": _optional_context_id(to),
            "open_runs": open_runs,
        }

    async def _resolve_node(self, conversation: Conversation, name: str) -> int:
        if found := _CONTEXT_ID_PATTERN.fullmatch(name):
            return int(found[1])
        run_id = await self._storage.conversations.find_by_label(
            conversation.user_id, conversation.id, name
        )
        if run_id is None:
            raise _unknown_context_error(name)
        return run_id

    async def _find_message(self, conversation: Conversation, message_id: str) -> MessageLocation:
        missing = NotFound(
            f"there is no message {message_id!r:.80} in this conversation.",
            hint="Use the id of a message that an exchange or a node shows.",
        )
        if not _MESSAGE_ID_PATTERN.fullmatch(message_id):
            raise missing
        try:
            place = await self._storage.conversations.locate_message(
                conversation.user_id, int(message_id)
            )
        except NotFound:
            raise missing from None
        if place.run.conversation_id != conversation.id:
            raise missing
        return place

    async def _load_open_tree(self, user_id: str, project_id: str) -> Conversation:
        """The tree, if questions go on in it."""
        context, talk = await self._load_tree(user_id, project_id)
        if context.status is ContextStatus.CLOSED:
            raise BadRequest(
                f"the context of project {project_id} is closed.",
                hint="The next question begins a new conversation.",
            )
        return talk

    async def _load_tree(self, user_id: str, project_id: str) -> tuple[OracleContext, Conversation]:
        await self._storage.projects.get(user_id, project_id)
        try:
            context = await self._storage.contexts.get(user_id, project_id)
            talk = context.conversation_id or 0  # there is none with that id
            return context, await self._storage.conversations.get(user_id, talk)
        except NotFound as missing:
            raise NotFound(
                f"project {project_id} has no conversation yet.",
                hint="The first question begins it.",
            ) from missing


def _branch_point(location: MessageLocation) -> int | None:
    """The node that one goes on from: before a question, after an answer."""
    run = location.run
    if location.role != "user":
        return run.id
    if run.status is RunStatus.QUEUED and run.parent_id is None:
        raise BadRequest(
            f"run {run.id} is queued: what it will follow is not known yet.",
            hint="Wait until it has begun, or cancel it.",
        )
    return run.parent_id


def validate_label(label: str) -> str:
    """The label without the space around it; raises unless it is one, and no other name."""
    text = label.strip()
    if not 1 <= len(text) <= MAX_LABEL_CHARS or not text.isprintable():
        raise BadRequest(
            f"a label must be a text of 1 to {MAX_LABEL_CHARS} characters on one line "
            f"(got {label!r:.100})."
        )
    if text == ROOT or text.isdecimal() or _CONTEXT_ID_PATTERN.fullmatch(text):
        raise BadRequest(
            f"{text!r} would be taken for something else.", hint="Choose another label."
        )
    return text


def node_json(node: TreeNode, *, head_id: int | None, on_path: bool) -> dict[str, Any]:
    question, answer = node.question, node.answer
    return {
        "id": node.id,
        "context_id": context_id(node.id),
        "parent": _optional_context_id(node.parent_id),
        "is_head": node.id == head_id,
        "on_path": on_path,
        "status": node.status.value,
        "label": node.label,
        "question": question.text if question else None,
        "question_id": str(question.message_id) if question else None,
        "answer": answer.text if answer else None,
        "answer_id": str(answer.message_id) if answer else None,
        "children": node.child_count,
        "has_summary": node.has_summary,
        "tokens": node.tokens,
        "created_at": iso(node.created_at),
    }


def _optional_context_id(run_id: int | None) -> str | None:
    return None if run_id is None else context_id(run_id)


def _parse_context_id(name: str) -> int:
    found = _CONTEXT_ID_PATTERN.fullmatch(name)
    if found is None:
        raise _unknown_context_error(name)
    return int(found[1])


def _unknown_context_error(name: str) -> NotFound:
    return NotFound(
        f"there is no context {name!r:.80}.",
        hint="Use a context_id or a label that the tree shows.",
    )
