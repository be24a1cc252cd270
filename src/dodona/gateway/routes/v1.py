"""OpenAI's chat completions: agents are models. Any client that speaks it can ask them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from starlette.responses import Response

from dodona.core.domain.agents import AgentDef
from dodona.core.errors import DodonaError, did_you_mean
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.http.json_schema import (
    Schema,
    document,
    listed,
    mapped,
    named,
    number,
    one_of,
    or_null,
    text,
    whole,
    yes_or_no,
)
from dodona.gateway.http.openai_errors import UnknownModel, as_openai
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.http.tasks import first_completed, wait_disconnect
from dodona.gateway.routes.oracle import RUN_HEADER
from dodona.gateway.v1 import passthrough as relays
from dodona.gateway.v1 import run_completion as runs
from dodona.gateway.v1.completion import data
from dodona.gateway.v1.request import FIXED, MOST_TOKENS, WITHOUT_EFFECT, ChatRequest

_OWNER: Final = "dodona"


async def models(visit: ApiRequest) -> Response:
    return json_response(
        {"object": "list", "data": [_model(name) for name in visit.agency.agents().names()]}
    )


async def model(visit: ApiRequest) -> Response:
    agent, _ = _found(visit, visit.values["model"])
    return json_response(_model(agent.id))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": _OWNER}


async def complete(visit: ApiRequest) -> Response:
    """A run of the agent, or an answer of its model to a client that brings tools."""
    asked = ChatRequest.read(await visit.json())
    agent, wanted = _found(visit, asked.model)
    agency, user_id = visit.agency, visit.user_id
    if asked.is_relayed:
        relaying = relays.begin(agency, user_id=user_id, asked=asked, agent=agent, model=wanted)
        return await _answered(visit, asked, relaying, {})
    answering = await runs.begin(
        agency, visit.gate.closing, user_id=user_id, asked=asked, names=(agent.id, wanted)
    )
    return await _answered(visit, asked, answering, {RUN_HEADER: str(answering.run_id)})


async def _answered(
    visit: ApiRequest,
    asked: ChatRequest,
    making: runs.RunCompletion | relays.PassthroughCompletion,
    headers: dict[str, str],
) -> Response:
    if asked.stream:
        # An error before the first piece is a plain answer: its status decides what clients raise.
        pieces = _told_within(visit, making.pieces())
        return visit.stream(pieces, headers, begins_within=visit.gate.rules.heartbeat)

    async def made() -> Response:
        return json_response(await making.whole(), headers=headers)

    async def left() -> Response:
        await wait_disconnect(visit.request.receive)
        if isinstance(making, runs.RunCompletion):
            await making.cancel()
        return Response(status_code=204)  # nobody is there to read it

    async def closed() -> Response:
        await visit.gate.closing.wait()
        raise ShuttingDown("Dodona is stopping.", hint="Ask again when it is back.")

    return await first_completed(made(), left(), closed())


async def _told_within(visit: ApiRequest, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Tell an error in the stream once that has begun; such a stream has no [DONE]."""
    has_begun = False
    async with aclosing(pieces):
        try:
            async for piece in pieces:
                yield piece
                has_begun = True
        except DodonaError as error:
            if not has_begun:
                raise
            told, redactor = as_openai(error), visit.gate.redactor
            yield data(told if redactor is None else redactor.scrub_all(told))


def _found(visit: ApiRequest, name: str) -> tuple[AgentDef, str]:
    """The agent of this name, and what comes after a slash: a model that is wanted of it."""
    agents = visit.agency.agents()
    id_, _, wanted = name.partition("/")
    agent = agents.get(id_)
    if agent is None or (not wanted and id_ != name):
        raise UnknownModel(
            f"there is no model {name!r:.80}.",
            hint=did_you_mean(id_, agents.names()) or "GET /v1/models lists the agents.",
        )
    return agent, wanted


_ASKING: Final = (400, 401, 404, 408, 409, 413, 415, 429, 502, 503)

OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/chat/completions",
        name="createChatCompletion",
        summary="Ask an agent as OpenAI's clients ask a model; with `stream`, piece by piece.",
        starts_run=True,
        handle=complete,
        body="V1Request",
        responses={
            200: ResponseSpec(
                "The answer; with `stream`, events, the last of which is [DONE].",
                "V1Answer",
                events="V1Chunk",
            )
        },
        errors=_ASKING,
    ),
    Operation(
        method="GET",
        path="/v1/models",
        name="listModels",
        summary="The agents, as models.",
        handle=models,
        responses={200: ResponseSpec("All of them.", "V1Models")},
        errors=(400, 401, 429, 503),
    ),
    Operation(
        method="GET",
        path="/v1/models/{model}",
        name="retrieveModel",
        summary="An agent, as a model.",
        handle=model,
        parameters=(Parameter(name="model", about="Which agent.", place="path"),),
        responses={200: ResponseSpec("The model.", "V1Model")},
        errors=(400, 401, 404, 429, 503),
    ),
)

_MESSAGE: Final = {
    "type": "object",
    "properties": {
        "role": one_of("system", "developer", "user", "assistant", "tool"),
        "content": {"description": "A text, or a list of parts of type text."},
        "tool_calls": listed(mapped(), "An assistant's, of tools that the client brought."),
        "tool_call_id": text("Of the call that a tool's message answers."),
    },
    "required": ["role"],
}

_REQUEST: Final[dict[str, Schema]] = {
    "model": text("An agent; after a slash, a model that it is to use.", examples=["oracle"]),
    "messages": {"type": "array", "items": _MESSAGE, "minItems": 1, "maxItems": 2000},
    "user": or_null(text("Names a session, which goes on by itself.", maxLength=200)),
    "stream": or_null(yes_or_no()),
    "stream_options": or_null(mapped('{"include_usage": true} tells at the end what was used.')),
    "max_tokens": or_null(whole(minimum=1, maximum=MOST_TOKENS)),
    "max_completion_tokens": or_null(whole(minimum=1, maximum=MOST_TOKENS)),
    "temperature": or_null(number(minimum=0, maximum=2)),
    "stop": {"description": "A text, or up to four."},
    "reasoning_effort": or_null(one_of("none", "minimal", "low", "medium", "high", "xhigh")),
    "tools": or_null(listed(mapped(), "The client's own: the agent's model answers directly.")),
    "tool_choice": {"description": "As OpenAI has it."},
    "parallel_tool_calls": or_null(yes_or_no()),
    "response_format": or_null(mapped("With tools only.")),
    **{name: {"description": "Without effect."} for name in WITHOUT_EFFECT},
    **{
        name: {"description": f"Only {values[0]!r}." if values else "Not possible."}
        for name, values in FIXED.items()
    },
}

_USAGE: Final = document(
    {
        "prompt_tokens": whole(),
        "completion_tokens": whole(),
        "total_tokens": whole(),
        "prompt_tokens_details": mapped(),
        "completion_tokens_details": mapped(),
    }
)

SCHEMAS: Final[dict[str, Schema]] = {
    "V1Request": {
        "type": "object",
        "properties": _REQUEST,
        "additionalProperties": False,
        "required": ["model", "messages"],
    },
    "V1Answer": document(
        {
            "id": text(),
            "object": {"const": "chat.completion"},
            "created": whole(),
            "model": text(),
            "choices": listed(mapped()),
            "usage": _USAGE,
        }
    ),
    "V1Chunk": document(
        {
            "id": text(),
            "object": {"const": "chat.completion.chunk"},
            "created": whole(),
            "model": text(),
            "choices": listed(mapped(), "None in the last one, which tells what was used."),
            "usage": or_null(_USAGE),
        },
        optional=("usage",),
    ),
    "V1Model": document(
        {"id": text(), "object": {"const": "model"}, "created": whole(), "owned_by": text()}
    ),
    "V1Models": document({"object": {"const": "list"}, "data": listed(named("V1Model"))}),
    "V1Error": document(
        {
            "error": document(
                {
                    "message": text("What happened, and what to do next."),
                    "type": text(),
                    "param": or_null(text("Which field is wrong.")),
                    "code": text("For programs."),
                }
            )
        }
    ),
}
