"""The conversation tree: nodes, branches and labels."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from dodona.agent.views.tree import MAX_LABEL_CHARS, MAX_NODES, VIEWS
from dodona.core.domain.conversations.contexts import ContextStatus
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest, DodonaError, did_you_mean
from dodona.gateway.http.json_schema import (
    Schema,
    array,
    boolean,
    date_time,
    enum,
    integer,
    nullable,
    ref,
    request_object,
    response_object,
    string,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

_MAX_INTEGER: Final = 10**18 - 1
_MAX_NAME_LENGTH: Final = 200  # characters of a context_id or label


async def get_tree(request: ApiRequest) -> Response:
    """Return a page of nodes."""
    values = request.params
    if (view := values["view"]) not in VIEWS:
        raise BadRequest(f"view must be {' or '.join(VIEWS)} (got {view!r:.80}).")
    page = await request.api.tree.show(
        request.user_id,
        values["project_id"],
        view=view,
        before=values["before"],
        limit=values["limit"],
    )
    return json_response(page)


async def checkout(request: ApiRequest) -> Response:
    """Move the head. Without `expected` the current head is not checked; null is the root."""
    fields = _read_fields(await request.json(), "context_id", "project_id", "expected")
    if "context_id" not in fields:
        raise BadRequest(
            "context_id is required.", hint="null is the place before the first message."
        )
    head = await request.api.tree.checkout(
        request.user_id,
        fields.get("project_id") or DEFAULT_PROJECT,
        fields["context_id"],
        expected=fields.get("expected", ...),
    )
    return json_response(head)


async def branch(request: ApiRequest) -> Response:
    """Move the head to a message or context, and label it."""
    fields = _read_fields(await request.json(), "message_id", "context_id", "project_id", "label")
    head = await request.api.tree.branch(
        request.user_id,
        fields.get("project_id") or DEFAULT_PROJECT,
        message_id=fields.get("message_id"),
        name=fields.get("context_id"),
        label=fields.get("label"),
    )
    return json_response(head)


async def label(request: ApiRequest) -> Response:
    """Set or remove the label of a node."""
    fields = _read_fields(await request.json(), "context_id", "label")
    if fields.get("context_id") is None or "label" not in fields:
        raise BadRequest(
            "context_id and label are required.", hint="The label null removes the label."
        )
    labelled = await request.api.tree.label(request.user_id, fields["context_id"], fields["label"])
    return json_response(labelled)


async def prune(request: ApiRequest) -> Response:
    """Remove a node and its descendants."""
    return json_response(
        await request.api.tree.prune(request.user_id, request.params["context_id"])
    )


def _read_fields(body: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the fields, each a string or null. Raises BadRequest with all problems together."""
    errors: list[DodonaError] = []
    for name, value in body.items():
        if name not in names:
            hint = did_you_mean(name, names)
            errors.append(BadRequest(f"there is no field {name!r:.80}.", hint=hint))
        elif value is not None and not (
            isinstance(value, str) and 0 < len(value) <= _MAX_NAME_LENGTH
        ):
            problem = f"{name} must be a string of 1 to {_MAX_NAME_LENGTH} characters, or null."
            errors.append(BadRequest(problem))
    if errors:
        raise BadRequest.combine(errors)
    return body


_CONTEXT: Final = string("A context_id or a label.", minLength=1, maxLength=_MAX_NAME_LENGTH)
_PROJECT_FIELD: Final = nullable(
    string(minLength=1, maxLength=_MAX_NAME_LENGTH, default=DEFAULT_PROJECT)
)
_LABEL: Final = string(
    "A label, unique within the conversation.", minLength=1, maxLength=MAX_LABEL_CHARS
)
_HEAD: Final = nullable(
    string("The node that the next question continues; null is before the first message.")
)

SCHEMAS: Final[dict[str, Schema]] = {
    "Tree": response_object(
        {
            "project_id": string(),
            "status": enum(*(status.value for status in ContextStatus)),
            "head": _HEAD,
            "nodes": array(ref("TreeNode")),
            "next": nullable(
                integer("Pass it as `before` to get older nodes; null on the last page.")
            ),
        }
    ),
    "TreeNode": response_object(
        {
            "id": integer("The id of its run."),
            "context_id": string(),
            "parent": nullable(string("The context_id of the parent; null at the root.")),
            "is_head": boolean(),
            "on_path": boolean("Whether it is between the root and the head."),
            "status": enum(*(status.value for status in RunStatus)),
            "label": nullable(string()),
            "question": nullable(string("The beginning of the question.")),
            "question_id": nullable(string("The id of the message.")),
            "answer": nullable(string("The beginning of the answer.")),
            "answer_id": nullable(string("The id of the message.")),
            "children": integer("Number of direct children."),
            "has_summary": boolean("Whether a summary replaces it and all nodes before it."),
            "tokens": integer(),
            "created_at": date_time(),
        }
    ),
    "Checkout": request_object(
        {
            "context_id": nullable(_CONTEXT),
            "project_id": _PROJECT_FIELD,
            "expected": nullable(
                string(
                    "The head you expect. If it differs, the request fails.",
                    minLength=1,
                    maxLength=_MAX_NAME_LENGTH,
                )
            ),
        },
        required=("context_id",),
    ),
    "Branching": {
        "description": "Branch from a message or from a context: exactly one of them.",
        **request_object(
            {
                "message_id": nullable(
                    string(
                        "A user message, to rephrase it, or an answer, to continue from it.",
                        minLength=1,
                        maxLength=_MAX_NAME_LENGTH,
                    )
                ),
                "context_id": nullable(_CONTEXT),
                "project_id": _PROJECT_FIELD,
                "label": nullable(_LABEL),
            }
        ),
    },
    "Labelling": request_object(
        {"context_id": string(minLength=1, maxLength=_MAX_NAME_LENGTH), "label": nullable(_LABEL)},
        required=("context_id", "label"),
    ),
    "TreeHead": response_object(
        {
            "project_id": string(),
            "head": _HEAD,
            "open_runs": array(
                integer(),
                "Open runs. The active one becomes a branch; queued ones continue from the head.",
            ),
        }
    ),
    "Labelled": response_object({"context_id": string(), "label": nullable(string())}),
    "Pruned": response_object({"pruned": integer("Number of removed nodes."), "head": _HEAD}),
}

_WRITE_ERRORS: Final = (400, 404, 408, 409, 413, 415, 503)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/api/oracle/tree",
        operation_id="showTree",
        summary="List the nodes of a project's conversation, newest first.",
        handler=get_tree,
        parameters=(
            RequestParameter(
                name="project_id", description="The project.", default=DEFAULT_PROJECT
            ),
            RequestParameter(
                name="view",
                description="all, or path: from the head to the root, plus the start of branches.",
                default="all",
            ),
            RequestParameter(
                name="before",
                description="The `next` of the previous page.",
                bounds=(1, _MAX_INTEGER),
            ),
            RequestParameter(
                name="limit",
                description="Maximum number to return.",
                bounds=(1, MAX_NODES),
                default=100,
            ),
        ),
        responses={200: ResponseSpec("A page of nodes.", "Tree")},
        error_statuses=(400, 404, 503),
    ),
    Operation(
        method="POST",
        path="/api/oracle/tree/checkout",
        operation_id="checkout",
        summary="Continue from another node with the next question.",
        handler=checkout,
        body_schema="Checkout",
        responses={200: ResponseSpec("The new head.", "TreeHead")},
        error_statuses=_WRITE_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/oracle/tree/branch",
        operation_id="branch",
        summary="Continue from any message, and label the node.",
        handler=branch,
        body_schema="Branching",
        responses={200: ResponseSpec("The new head.", "TreeHead")},
        error_statuses=_WRITE_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/oracle/tree/label",
        operation_id="labelNode",
        summary="Set or remove the label of a node.",
        handler=label,
        body_schema="Labelling",
        responses={200: ResponseSpec("The node's label.", "Labelled")},
        error_statuses=_WRITE_ERRORS,
    ),
    Operation(
        method="DELETE",
        path="/api/oracle/tree/{context_id}",
        operation_id="pruneTree",
        summary="Delete a node and its descendants. Their usage stays recorded.",
        handler=prune,
        parameters=(
            RequestParameter(
                name="context_id", description="A context_id or a label.", location="path"
            ),
        ),
        responses={200: ResponseSpec("The number of deleted nodes, and the head.", "Pruned")},
        error_statuses=(400, 404, 503),
    ),
)
