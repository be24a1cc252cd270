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
    array,
    boolean,
    enum,
    integer,
    nullable,
    number,
    object_,
    ref,
    response_object,
    string,
)
from dodona.gateway.http.openai_errors import UnknownModel, as_openai
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.http.tasks import first_completed, wait_disconnect
from dodona.gateway.routes.oracle import RUN_HEADER
from dodona.gateway.v1 import passthrough as relays
from dodona.gateway.v1 import run_completion as runs
from dodona.gateway.v1.completion import encode_event
from dodona.gateway.v1.request import FIXED_FIELDS, IGNORED_FIELDS, MAX_TOKENS, ChatRequest

_OWNED_BY: Final = "dodona"


async def list_models(request: ApiRequest) -> Response:
    return json_response(
        {"object": "list", "data": [_model_json(name) for name in request.api.agents().ids()]}
    )


async def get_model(request: ApiRequest) -> Response:
    agent, _ = _resolve_model(request, request.params["model"])
    return json_response(_model_json(agent.id))


def _model_json(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": _OWNED_BY}


async def create_completion(request: ApiRequest) -> Response:
    """A run of the agent, or an answer of its model to a client that brings tools."""
    asked = ChatRequest.parse(await request.json())
    agent, wanted = _resolve_model(request, asked.model)
    agency, user_id = request.api, request.user_id
    if asked.is_passthrough:
        relaying = relays.start_passthrough(
            agency, user_id=user_id, chat_request=asked, agent=agent, model=wanted
        )
        return await _respond(request, asked, relaying, {})
    answering = await runs.start_run(
        agency,
        request.state.shutdown,
        user_id=user_id,
        chat_request=asked,
        names=(agent.id, wanted),
    )
    return await _respond(request, asked, answering, {RUN_HEADER: str(answering.run_id)})


async def _respond(
    request: ApiRequest,
    chat_request: ChatRequest,
    completion: runs.RunCompletion | relays.PassthroughCompletion,
    headers: dict[str, str],
) -> Response:
    if chat_request.stream:
        # An error before the first piece is a plain answer: its status decides what clients raise.
        pieces = _stream_with_errors(request, completion.stream())
        return request.stream(
            pieces, headers, begins_within=request.state.settings.heartbeat_interval
        )

    async def made() -> Response:
        return json_response(await completion.collect(), headers=headers)

    async def left() -> Response:
        await wait_disconnect(request.http_request.receive)
        if isinstance(completion, runs.RunCompletion):
            await completion.cancel()
        return Response(status_code=204)  # nobody is there to read it

    async def closed() -> Response:
        await request.state.shutdown.wait_finished()
        raise ShuttingDown("Dodona is stopping.", hint="Ask again when it is back.")

    return await first_completed(made(), left(), closed())


async def _stream_with_errors(
    request: ApiRequest, pieces: AsyncGenerator[bytes]
) -> AsyncGenerator[bytes]:
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
            told, redactor = as_openai(error), request.state.redactor
            yield encode_event(told if redactor is None else redactor.scrub_all(told))


def _resolve_model(request: ApiRequest, name: str) -> tuple[AgentDef, str]:
    """The agent of this name, and what comes after a slash: a model that is wanted of it."""
    agents = request.api.agents()
    id_, _, wanted = name.partition("/")
    agent = agents.get(id_)
    if agent is None or (not wanted and id_ != name):
        raise UnknownModel(
            f"there is no model {name!r:.80}.",
            hint=did_you_mean(id_, agents.ids()) or "GET /v1/models lists the agents.",
        )
    return agent, wanted


_ASK_ERRORS: Final = (400, 401, 404, 408, 409, 413, 415, 429, 502, 503)

OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/chat/completions",
        name="createChatCompletion",
        summary="Ask an agent as OpenAI's clients ask a model; with `stream`, piece by piece.",
        starts_run=True,
        handle=create_completion,
        body="V1Request",
        responses={
            200: ResponseSpec(
                "The answer; with `stream`, events, the last of which is [DONE].",
                "V1Answer",
                event_schema="V1Chunk",
            )
        },
        errors=_ASK_ERRORS,
    ),
    Operation(
        method="GET",
        path="/v1/models",
        name="listModels",
        summary="The agents, as models.",
        handle=list_models,
        responses={200: ResponseSpec("All of them.", "V1Models")},
        errors=(400, 401, 429, 503),
    ),
    Operation(
        method="GET",
        path="/v1/models/{model}",
        name="retrieveModel",
        summary="An agent, as a model.",
        handle=get_model,
        parameters=(RequestParameter(name="model", description="Which agent.", location="path"),),
        responses={200: ResponseSpec("The model.", "V1Model")},
        errors=(400, 401, 404, 429, 503),
    ),
)

_MESSAGE: Final = {
    "type": "object",
    "properties": {
        "role": enum("system", "developer", "user", "assistant", "tool"),
        "content": {"description": "A text, or a list of parts of type text."},
        "tool_calls": array(object_(), "An assistant's, of tools that the client brought."),
        "tool_call_id": string("Of the call that a tool's message answers."),
    },
    "required": ["role"],
}

_REQUEST: Final[dict[str, Schema]] = {
    "model": string("An agent; after a slash, a model that it is to use.", examples=["oracle"]),
    "messages": {"type": "array", "items": _MESSAGE, "minItems": 1, "maxItems": 2000},
    "user": nullable(string("Names a session, which goes on by itself.", maxLength=200)),
    "stream": nullable(boolean()),
    "stream_options": nullable(object_('{"include_usage": true} tells at the end what was used.')),
    "max_tokens": nullable(integer(minimum=1, maximum=MAX_TOKENS)),
    "max_completion_tokens": nullable(integer(minimum=1, maximum=MAX_TOKENS)),
    "temperature": nullable(number(minimum=0, maximum=2)),
    "stop": {"description": "A text, or up to four."},
    "reasoning_effort": nullable(enum("none", "minimal", "low", "medium", "high", "xhigh")),
    "tools": nullable(array(object_(), "The client's own: the agent's model answers directly.")),
    "tool_choice": {"description": "As OpenAI has it."},
    "parallel_tool_calls": nullable(boolean()),
    "response_format": nullable(object_("With tools only.")),
    **{name: {"description": "Without effect."} for name in IGNORED_FIELDS},
    **{
        name: {"description": f"Only {values[0]!r}." if values else "Not possible."}
        for name, values in FIXED_FIELDS.items()
    },
}

_USAGE: Final = response_object(
    {
        "prompt_tokens": integer(),
        "completion_tokens": integer(),
        "total_tokens": integer(),
        "prompt_tokens_details": object_(),
        "completion_tokens_details": object_(),
    }
)

SCHEMAS: Final[dict[str, Schema]] = {
    "V1Request": {
        "type": "object",
        "properties": _REQUEST,
        "additionalProperties": False,
        "required": ["model", "messages"],
    },
    "V1Answer": response_object(
        {
            "id": string(),
            "object": {"const": "chat.completion"},
            "created": integer(),
            "model": string(),
            "choices": array(object_()),
            "usage": _USAGE,
        }
    ),
    "V1Chunk": response_object(
        {
            "id": string(),
            "object": {"const": "chat.completion.chunk"},
            "created": integer(),
            "model": string(),
            "choices": array(object_(), "None in the last one, which tells what was used."),
            "usage": nullable(_USAGE),
        },
        optional=("usage",),
    ),
    "V1Model": response_object(
        {"id": string(), "object": {"const": "model"}, "created": integer(), "owned_by": string()}
    ),
    "V1Models": response_object({"object": {"const": "list"}, "data": array(ref("V1Model"))}),
    "V1Error": response_object(
        {
            "error": response_object(
                {
                    "message": string("What happened, and what to do next."),
                    "type": string(),
                    "param": nullable(string("Which field is wrong.")),
                    "code": string("For programs."),
                }
            )
        }
    ),
}
