"""The tree of a conversation: its nodes, branches and labels."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from dodona.agent.views.tree import LONGEST_LABEL, MOST_NODES, VIEWS
from dodona.core.domain.conversations.contexts import ContextStatus
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest, DodonaError, did_you_mean
from dodona.gateway.http.json_schema import (
    Schema,
    document,
    listed,
    named,
    one_of,
    or_null,
    request,
    text,
    time,
    whole,
    yes_or_no,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

_MOST: Final = 10**18 - 1
_LONGEST: Final = 200  # characters of a name


async def shown(visit: ApiRequest) -> Response:
    values = visit.values
    if (view := values["view"]) not in VIEWS:
        raise BadRequest(f"view must be {' or '.join(VIEWS)} (got {view!r:.80}).")
    found = await visit.agency.tree.show(
        visit.user_id,
        values["project_id"],
        view=view,
        before=values["before"],
        limit=values["limit"],
    )
    return json_response(found)


async def checkout(visit: ApiRequest) -> Response:
    """A head that is not given is any; null is the root."""
    asked = _read(await visit.json(), "context_id", "project_id", "expected")
    if "context_id" not in asked:
        raise BadRequest(
            "say which context_id to go on from.", hint="null is before the first message."
        )
    moved = await visit.agency.tree.checkout(
        visit.user_id,
        asked.get("project_id") or DEFAULT_PROJECT,
        asked["context_id"],
        expected=asked.get("expected", ...),
    )
    return json_response(moved)


async def branch(visit: ApiRequest) -> Response:
    asked = _read(await visit.json(), "message_id", "context_id", "project_id", "label")
    moved = await visit.agency.tree.branch(
        visit.user_id,
        asked.get("project_id") or DEFAULT_PROJECT,
        message_id=asked.get("message_id"),
        name=asked.get("context_id"),
        label=asked.get("label"),
    )
    return json_response(moved)


async def label(visit: ApiRequest) -> Response:
    asked = _read(await visit.json(), "context_id", "label")
    if asked.get("context_id") is None or "label" not in asked:
        raise BadRequest(
            "say which context_id gets which label.", hint="null takes the label away."
        )
    found = await visit.agency.tree.label(visit.user_id, asked["context_id"], asked["label"])
    return json_response(found)


async def prune(visit: ApiRequest) -> Response:
    return json_response(await visit.agency.tree.prune(visit.user_id, visit.values["context_id"]))


def _read(asked: dict[str, Any], *names: str) -> dict[str, Any]:
    """The fields of a request, each a text or null; all that is wrong is told at once."""
    wrong: list[DodonaError] = []
    for name, value in asked.items():
        if name not in names:
            hint = did_you_mean(name, names)
            wrong.append(BadRequest(f"there is no field {name!r:.80}.", hint=hint))
        elif value is not None and not (isinstance(value, str) and 0 < len(value) <= _LONGEST):
            told = f"{name} must be a text of 1 to {_LONGEST} characters, or null."
            wrong.append(BadRequest(told))
    if wrong:
        raise BadRequest.gather(wrong)
    return asked


_CONTEXT: Final = text("A context_id or a label.", minLength=1, maxLength=_LONGEST)
_PROJECT_FIELD: Final = or_null(text(minLength=1, maxLength=_LONGEST, default=DEFAULT_PROJECT))
_LABEL: Final = text("One node's in a conversation.", minLength=1, maxLength=LONGEST_LABEL)
_HEAD: Final = or_null(text("Where the next question goes on; null is before the first message."))

SCHEMAS: Final[dict[str, Schema]] = {
    "Tree": document(
        {
            "project_id": text(),
            "status": one_of(*(status.value for status in ContextStatus)),
            "head": _HEAD,
            "nodes": listed(named("TreeNode")),
            "next": or_null(whole("What to give as `before` for older ones.")),
        }
    ),
    "TreeNode": document(
        {
            "id": whole("Of its run."),
            "context_id": text(),
            "parent": or_null(text("The context_id before it; null at the root.")),
            "is_head": yes_or_no(),
            "on_path": yes_or_no("Is it between the root and the head?"),
            "status": one_of(*(status.value for status in RunStatus)),
            "label": or_null(text()),
            "question": or_null(text("How it begins.")),
            "question_id": or_null(text("Of the message.")),
            "answer": or_null(text("How it begins.")),
            "answer_id": or_null(text("Of the message.")),
            "children": whole("How many nodes follow from it directly."),
            "has_summary": yes_or_no("Does a summary stand for it and all before it?"),
            "tokens": whole(),
            "created_at": time(),
        }
    ),
    "Checkout": request(
        {
            "context_id": or_null(_CONTEXT),
            "project_id": _PROJECT_FIELD,
            "expected": or_null(
                text(
                    "The head as you saw it: if it is another by now, nothing is changed.",
                    minLength=1,
                    maxLength=_LONGEST,
                )
            ),
        },
        required=("context_id",),
    ),
    "Branching": {
        "description": "From a message or from a context, one of them.",
        **request(
            {
                "message_id": or_null(
                    text(
                        "A user's: to ask otherwise. Another: to go on from there.",
                        minLength=1,
                        maxLength=_LONGEST,
                    )
                ),
                "context_id": or_null(_CONTEXT),
                "project_id": _PROJECT_FIELD,
                "label": or_null(_LABEL),
            }
        ),
    },
    "Labelling": request(
        {"context_id": text(minLength=1, maxLength=_LONGEST), "label": or_null(_LABEL)},
        required=("context_id", "label"),
    ),
    "TreeHead": document(
        {
            "project_id": text(),
            "head": _HEAD,
            "open_runs": listed(
                whole(), "They go on: the one that runs as a branch, those that wait from the head."
            ),
        }
    ),
    "Labelled": document({"context_id": text(), "label": or_null(text())}),
    "Pruned": document({"pruned": whole("How many nodes are gone."), "head": _HEAD}),
}

_CHANGING: Final = (400, 404, 408, 409, 413, 415, 503)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/api/oracle/tree",
        name="showTree",
        summary="The nodes of a project's conversation, the newest first.",
        handle=shown,
        parameters=(
            Parameter(name="project_id", about="Whose conversation.", default=DEFAULT_PROJECT),
            Parameter(
                name="view",
                about="all, or path: from the head to the root, with what branches off.",
                default="all",
            ),
            Parameter(name="before", about="What the last page gave as next.", bounds=(1, _MOST)),
            Parameter(name="limit", about="How many at most.", bounds=(1, MOST_NODES), default=100),
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
        errors=_CHANGING,
    ),
    Operation(
        method="POST",
        path="/api/oracle/tree/branch",
        name="branch",
        summary="Go on from any message, and label the place.",
        handle=branch,
        body="Branching",
        responses={200: ResponseSpec("Where the head is now.", "TreeHead")},
        errors=_CHANGING,
    ),
    Operation(
        method="POST",
        path="/api/oracle/tree/label",
        name="labelNode",
        summary="Name a node, or take its name away.",
        handle=label,
        body="Labelling",
        responses={200: ResponseSpec("The node's label.", "Labelled")},
        errors=_CHANGING,
    ),
    Operation(
        method="DELETE",
        path="/api/oracle/tree/{context_id}",
        name="pruneTree",
        summary="Remove a node and all that follows from it. What it cost stays on record.",
        handle=prune,
        parameters=(Parameter(name="context_id", about="Which node.", place="path"),),
        responses={200: ResponseSpec("What is left.", "Pruned")},
        errors=(400, 404, 503),
    ),
)
