"""The tree of a conversation: its nodes, branches and labels."""

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
_MAX_NAME_LENGTH: Final = 200  # characters of a name


async def get_tree(request: ApiRequest) -> Response:
    values = request.params
    if (view := values["view"]) not in VIEWS:
        raise BadRequest(f"view must be {' or '.join(VIEWS)} (got {view!r:.80}).")
    found = await request.api.tree.show(
        request.user_id,
        values["project_id"],
        view=view,
        before=values["before"],
        limit=values["limit"],
    )
    return json_response(found)


async def checkout(request: ApiRequest) -> Response:
    """A head that is not given is any; null is the root."""
    asked = _read_fields(await request.json(), "context_id", "project_id", "expected")
    if "context_id" not in asked:
        raise BadRequest(
            "say which context_id to go on from.", hint="null is before the first message."
        )
    moved = await request.api.tree.checkout(
        request.user_id,
        asked.get("project_id") or DEFAULT_PROJECT,
        asked["context_id"],
        expected=asked.get("expected", ...),
    )
    return json_response(moved)


async def branch(request: ApiRequest) -> Response:
    asked = _read_fields(await request.json(), "message_id", "context_id", "project_id", "label")
    moved = await request.api.tree.branch(
        request.user_id,
        asked.get("project_id") or DEFAULT_PROJECT,
        message_id=asked.get("message_id"),
        name=asked.get("context_id"),
        label=asked.get("label"),
    )
    return json_response(moved)


async def label(request: ApiRequest) -> Response:
    asked = _read_fields(await request.json(), "context_id", "label")
    if asked.get("context_id") is None or "label" not in asked:
        raise BadRequest(
            "say which context_id gets which label.", hint="null takes the label away."
        )
    found = await request.api.tree.label(request.user_id, asked["context_id"], asked["label"])
    return json_response(found)


async def prune(request: ApiRequest) -> Response:
    return json_response(
        await request.api.tree.prune(request.user_id, request.params["context_id"])
    )


def _read_fields(body: dict[str, Any], *names: str) -> dict[str, Any]:
    """The fields of a request, each a text or null; all that is wrong is told at once."""
    wrong: list[DodonaError] = []
    for name, value in body.items():
        if name not in names:
            hint = did_you_mean(name, names)
            wrong.append(BadRequest(f"there is no field {name!r:.80}.", hint=hint))
        elif value is not None and not (
            isinstance(value, str) and 0 < len(value) <= _MAX_NAME_LENGTH
        ):
            told = f"{name} must be a text of 1 to {_MAX_NAME_LENGTH} characters, or null."
            wrong.append(BadRequest(told))
    if wrong:
        raise BadRequest.combine(wrong)
    return body


_CONTEXT: Final = string("A context_id or a label.", minLength=1, maxLength=_MAX_NAME_LENGTH)
_PROJECT_FIELD: Final = nullable(
    string(minLength=1, maxLength=_MAX_NAME_LENGTH, default=DEFAULT_PROJECT)
)
_LABEL: Final = string("One node's in a conversation.", minLength=1, maxLength=MAX_LABEL_CHARS)
_HEAD: Final = nullable(
    string("Where the next question goes on; null is before the first message.")
)

SCHEMAS: Final[dict[str, Schema]] = {
    "Tree": response_object(
        {
            "project_id": string(),
            "status": enum(*(status.value for status in ContextStatus)),
            "head": _HEAD,
            "nodes": array(ref("TreeNode")),
            "next": nullable(integer("What to give as `before` for older ones.")),
        }
    ),
    "TreeNode": response_object(
        {
            "id": integer("Of its run."),
            "context_id": string(),
            "parent": nullable(string("The context_id before it; null at the root.")),
            "is_head": boolean(),
            "on_path": boolean("Is it between the root and the head?"),
            "status": enum(*(status.value for status in RunStatus)),
            "label": nullable(string()),
            "question": nullable(string("How it begins.")),
            "question_id": nullable(string("Of the message.")),
            "answer": nullable(string("How it begins.")),
            "answer_id": nullable(string("Of the message.")),
            "children": integer("How many nodes follow from it directly."),
            "has_summary": boolean("Does a summary stand for it and all before it?"),
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
                    "The head as you saw it: if it is another by now, nothing is changed.",
                    minLength=1,
                    maxLength=_MAX_NAME_LENGTH,
                )
            ),
        },
        required=("context_id",),
    ),
    "Branching": {
        "description": "From a message or from a context, one of them.",
        **request_object(
            {
                "message_id": nullable(
                    string(
                        "A user's: to ask otherwise. Another: to go on from there.",
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
                "They go on: the one that runs as a branch, those that wait from the head.",
            ),
        }
    ),
    "Labelled": response_object({"context_id": string(), "label": nullable(string())}),
    "Pruned": response_object({"pruned": integer("How many nodes are gone."), "head": _HEAD}),
}

_WRITE_ERRORS: Final = (400, 404, 408, 409, 413, 415, 503)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/api/oracle/tree",
        name="showTree",
        summary="The nodes of a project's conversation, the newest first.",
        handle=get_tree,
        parameters=(
            RequestParameter(
                name="project_id", description="Whose conversation.", default=DEFAULT_PROJECT
            ),
            RequestParameter(
                name="view",
                description="all, or path: from the head to the root, with what branches off.",
                default="all",
            ),
            RequestParameter(
                name="before",
                description="What the last page gave as next.",
                bounds=(1, _MAX_INTEGER),
            ),
            RequestParameter(
                name="limit", description="How many at most.", bounds=(1, MAX_NODES), default=100
            ),
        ),
        responses={200: ResponseSpec("A page of nodes.", "Tree")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="POST",
        path="/api/oracle/tree/checkout",
        name="checkout",
        summary="Let the next question go on from another node.",
        handle=checkout,
        body="Checkout",
        responses={200: ResponseSpec("Where the head is now.", "TreeHead")},
        errors=_WRITE_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/oracle/tree/branch",
        name="branch",
        summary="Go on from any message, and label the place.",
        handle=branch,
        body="Branching",
        responses={200: ResponseSpec("Where the head is now.", "TreeHead")},
        errors=_WRITE_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/oracle/tree/label",
        name="labelNode",
        summary="Name a node, or take its name away.",
        handle=label,
        body="Labelling",
        responses={200: ResponseSpec("The node's label.", "Labelled")},
        errors=_WRITE_ERRORS,
    ),
    Operation(
        method="DELETE",
        path="/api/oracle/tree/{context_id}",
        name="pruneTree",
        summary="Remove a node and all that follows from it. What it cost stays on record.",
        handle=prune,
        parameters=(
            RequestParameter(name="context_id", description="Which node.", location="path"),
        ),
        responses={200: ResponseSpec("What is left.", "Pruned")},
        errors=(400, 404, 503),
    ),
)
