"""Asking the Oracle, and what it remembers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from dodona.agent.question import Question
from dodona.core.chunks import Chunk
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.http.operation import EVENTS, Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.http.sse import encode_events
from dodona.gateway.http.tasks import first_completed, wait_disconnect

RUN_HEADER = "dodona-run"
_MOST = 10**18 - 1


async def ask(visit: ApiRequest) -> Response:
    """Waits for the whole answer. A client that leaves, leaves the run alone."""
    question = Question.read(await visit.json())
    oracle, user_id = visit.agency.oracle, visit.user_id
    run_id = await oracle.ask(user_id, question)

    async def answered() -> Response:
        found = await oracle.answer(user_id, run_id)
        return json_response(found.as_json(), headers={RUN_HEADER: str(run_id)})

    async def left() -> Response:
        await wait_disconnect(visit.request.receive)
        return Response(status_code=204)  # nobody is there to read it

    async def closed() -> Response:
        await visit.gate.closing.wait()
        raise ShuttingDown(
            f"Dodona is stopping. Run {run_id} goes on when it is back.",
            hint=f"Then GET /api/runs/{run_id}/events.",
        )

    return await first_completed(answered(), left(), closed())


async def stream(visit: ApiRequest) -> Response:
    """The answer as it comes. What is wrong with the question is told before the stream begins."""
    question = Question.read(await visit.json())
    run_id = await visit.agency.oracle.ask(visit.user_id, question)
    batches = visit.agency.oracle.events(visit.user_id, run_id)
    return visit.stream(pieces(batches, at_once=True), {RUN_HEADER: str(run_id)})


async def pieces(
    batches: AsyncGenerator[list[Chunk]], *, at_once: bool = False
) -> AsyncGenerator[bytes]:
    """Batches of chunks as they go out; `at_once` begins the stream before there is one."""
    if at_once:
        yield b""
    async with aclosing(batches):
        async for batch in batches:
            yield encode_events(batch)


async def cancel(visit: ApiRequest) -> Response:
    asked = await visit.json()
    project_id, run_id = _to_cancel(asked)
    oracle = visit.agency.oracle
    if run_id is None:
        return json_response({"run_ids": await oracle.cancel_all(visit.user_id, project_id)})
    status = await oracle.cancel(visit.user_id, run_id)
    is_over = status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
    return json_response({"run_ids": [] if is_over else [run_id], "status": status.value})


def _to_cancel(asked: dict[str, Any]) -> tuple[str, int | None]:
    match asked:
        case {"run_id": int() as run_id, **rest} if not rest and type(run_id) is int:
            if 0 <= run_id <= _MOST:
                return "", run_id
        case {"project_id": str() as project_id, **rest} if not rest and project_id:
            return project_id, None
        case {**rest} if not rest:
            return DEFAULT_PROJECT, None
        case _:
            pass
    raise BadRequest(
        "say what to cancel.",
        hint='Send {"run_id": 12}, or {"project_id": "default"} for all that runs there.',
    )


async def context(visit: ApiRequest) -> Response:
    project_id = visit.values["project_id"]
    return json_response(await visit.agency.contexts.show(visit.user_id, project_id))


async def close(visit: ApiRequest) -> Response:
    project_id = visit.values["project_id"]
    return json_response(await visit.agency.contexts.close(visit.user_id, project_id))


_PROJECT = Parameter(name="project_id", about="Whose context.", default=DEFAULT_PROJECT)
_ASKING = (400, 404, 408, 409, 413, 415, 429, 502, 503)

OPERATIONS = (
    Operation(
        method="POST",
        path="/api/oracle",
        name="ask",
        summary="Ask, and wait for the whole answer.",
        handle=ask,
        body="Question",
        responses={200: ResponseSpec("The answer.", "Answer")},
        errors=_ASKING,
        starts_run=True,
    ),
    Operation(
        method="POST",
        path="/api/oracle/stream",
        name="askAndStream",
        summary="Ask, and get the answer chunk by chunk. The header Dodona-Run names the run.",
        handle=stream,
        body="Question",
        responses={200: ResponseSpec("Each event's id is its chunk's seq.", "Chunk", EVENTS)},
        errors=_ASKING,
        starts_run=True,
    ),
    Operation(
        method="POST",
        path="/api/oracle/cancel",
        name="cancel",
        summary="End a run, or all runs of a project's context. What came so far is kept.",
        handle=cancel,
        body="Cancelling",
        responses={200: ResponseSpec("The runs whose end was asked for.", "Cancelled")},
        errors=(400, 404, 408, 413, 415, 503),
    ),
    Operation(
        method="GET",
        path="/api/oracle/context",
        name="showContext",
        summary="What the Oracle remembers of a project.",
        handle=context,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The context.", "Context")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="DELETE",
        path="/api/oracle/context",
        name="closeContext",
        summary="Close a context: the next question begins a new conversation.",
        handle=close,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The context, closed.", "Context")},
        errors=(400, 404, 503),
    ),
)
