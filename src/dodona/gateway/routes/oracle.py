"""Asking the Oracle, and what it remembers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from dodona.agent.question import Question
from dodona.core.chunks import StreamChunk
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.http.operation import EVENT_STREAM, Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.http.sse import encode_events
from dodona.gateway.http.tasks import first_completed, wait_disconnect

RUN_HEADER = "dodona-run"
_MAX_INTEGER = 10**18 - 1


async def ask(request: ApiRequest) -> Response:
    """Waits for the whole answer. A client that leaves, leaves the run alone."""
    question = Question.read(await request.json())
    oracle, user_id = request.api.oracle, request.user_id
    run_id = await oracle.ask(user_id, question)

    async def answered() -> Response:
        found = await oracle.answer(user_id, run_id)
        return json_response(found.as_json(), headers={RUN_HEADER: str(run_id)})

    async def left() -> Response:
        await wait_disconnect(request.http_request.receive)
        return Response(status_code=204)  # nobody is there to read it

    async def closed() -> Response:
        await request.state.shutdown.wait_finished()
        raise ShuttingDown(
            f"Dodona is stopping. Run {run_id} goes on when it is back.",
            hint=f"Then GET /api/runs/{run_id}/events.",
        )

    return await first_completed(answered(), left(), closed())


async def ask_and_stream(request: ApiRequest) -> Response:
    """The answer as it comes. What is wrong with the question is told before the stream begins."""
    question = Question.read(await request.json())
    run_id = await request.api.oracle.ask(request.user_id, question)
    batches = request.api.oracle.stream_chunks(request.user_id, run_id)
    return request.stream(
        encode_batches(batches, start_immediately=True), {RUN_HEADER: str(run_id)}
    )


async def encode_batches(
    batches: AsyncGenerator[list[StreamChunk]], *, start_immediately: bool = False
) -> AsyncGenerator[bytes]:
    """Batches of chunks as they go out; `at_once` begins the stream before there is one."""
    if start_immediately:
        yield b""
    async with aclosing(batches):
        async for batch in batches:
            yield encode_events(batch)


async def cancel(request: ApiRequest) -> Response:
    asked = await request.json()
    project_id, run_id = _read_cancel_target(asked)
    oracle = request.api.oracle
    if run_id is None:
        return json_response({"run_ids": await oracle.cancel_all(request.user_id, project_id)})
    status = await oracle.cancel(request.user_id, run_id)
    is_over = status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
    return json_response({"run_ids": [] if is_over else [run_id], "status": status.value})


def _read_cancel_target(body: dict[str, Any]) -> tuple[str, int | None]:
    match body:
        case {"run_id": int() as run_id, **rest} if not rest and type(run_id) is int:
            if 0 <= run_id <= _MAX_INTEGER:
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


async def get_context(request: ApiRequest) -> Response:
    project_id = request.params["project_id"]
    return json_response(await request.api.contexts.show(request.user_id, project_id))


async def close_context(request: ApiRequest) -> Response:
    project_id = request.params["project_id"]
    return json_response(await request.api.contexts.close(request.user_id, project_id))


_PROJECT = RequestParameter(
    name="project_id", description="Whose context.", default=DEFAULT_PROJECT
)
_ASK_ERRORS = (400, 404, 408, 409, 413, 415, 429, 502, 503)

OPERATIONS = (
    Operation(
        method="POST",
        path="/api/oracle",
        name="ask",
        summary="Ask, and wait for the whole answer.",
        handle=ask,
        body="Question",
        responses={200: ResponseSpec("The answer.", "Answer")},
        errors=_ASK_ERRORS,
        starts_run=True,
    ),
    Operation(
        method="POST",
        path="/api/oracle/stream",
        name="askAndStream",
        summary="Ask, and get the answer chunk by chunk. The header Dodona-Run names the run.",
        handle=ask_and_stream,
        body="Question",
        responses={200: ResponseSpec("Each event's id is its chunk's seq.", "Chunk", EVENT_STREAM)},
        errors=_ASK_ERRORS,
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
        handle=get_context,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The context.", "Context")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="DELETE",
        path="/api/oracle/context",
        name="closeContext",
        summary="Close a context: the next question begins a new conversation.",
        handle=close_context,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The context, closed.", "Context")},
        errors=(400, 404, 503),
    ),
)
