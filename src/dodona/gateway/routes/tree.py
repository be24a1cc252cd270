"""The conversation tree: nodes, branches and labels."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from dodona.agent.views.tree import (
    MAX_LABEL_CHARS,
    MAX_NODES,
    ConversationTree,
    NodeLabel,
    PrunedTree,
    TreeHead,
    TreeView,
)
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.json_document import RequestDocument
from dodona.gateway.http.operation import Routes
from dodona.gateway.http.parameter import MAX_TEXT_LENGTH, ProjectId, text, up_to, whole
from dodona.gateway.http.request import ApiRequest

routes = Routes()

NodeName: TypeAlias = Annotated[str, text("A context_id or a label.")]
Label: TypeAlias = Annotated[
    str, text("A label, unique within the conversation.", max_length=MAX_LABEL_CHARS)
]


class Checkout(RequestDocument, kw_only=True):
    """Move the head. Without `expected` the current head is not checked; null is the root."""

    context_id: NodeName | None
    project_id: ProjectId = DEFAULT_PROJECT
    expected: (
        Annotated[str, text("The head you expect. If it differs, the request fails.")]
        | UnsetType
        | None
    ) = UNSET


class NewBranch(RequestDocument, kw_only=True):
    """Branch from a message or from a context: exactly one of them."""

    message_id: (
        Annotated[str, text("A user message, to rephrase it, or an answer, to continue from it.")]
        | None
    ) = None
    context_id: NodeName | None = None
    project_id: ProjectId = DEFAULT_PROJECT
    label: Label | None = None


class NewLabel(RequestDocument):
    """A label for a node; null removes it."""

    context_id: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT_LENGTH)]
    label: Label | None


@routes.get("/api/oracle/tree", errors=(404,))
async def show_tree(
    request: ApiRequest,
    project_id: ProjectId = DEFAULT_PROJECT,
    view: Annotated[
        TreeView,
        Meta(description="all, or path: from the head to the root, plus the start of branches."),
    ] = "all",
    before: Annotated[int, whole("The `next` of the previous page.", 1)] | None = None,
    limit: Annotated[int, up_to(MAX_NODES)] = 100,
) -> ConversationTree:
    """List the nodes of a project's conversation, newest first."""
    tree = request.api.tree
    return await tree.show(request.user_id, project_id, view=view, before=before, limit=limit)


@routes.post("/api/oracle/tree/checkout", errors=(404, 409))
async def checkout(request: ApiRequest, body: Checkout) -> TreeHead:
    """Continue from another node with the next question."""
    expected = ... if body.expected is UNSET else body.expected
    return await request.api.tree.checkout(
        request.user_id, body.project_id, body.context_id, expected=expected
    )


@routes.post("/api/oracle/tree/branch", errors=(404, 409))
async def branch(request: ApiRequest, body: NewBranch) -> TreeHead:
    """Continue from any message, and label the node."""
    return await request.api.tree.branch(
        request.user_id,
        body.project_id,
        message_id=body.message_id,
        name=body.context_id,
        label=body.label,
    )


@routes.post("/api/oracle/tree/label", errors=(404, 409))
async def label_node(request: ApiRequest, body: NewLabel) -> NodeLabel:
    """Set or remove the label of a node."""
    return await request.api.tree.label(request.user_id, body.context_id, body.label)


@routes.delete("/api/oracle/tree/{context_id}", errors=(404,))
async def prune_tree(request: ApiRequest, context_id: NodeName) -> PrunedTree:
    """Delete a node and its descendants. Their usage stays recorded."""
    return await request.api.tree.prune(request.user_id, context_id)
