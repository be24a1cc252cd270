"""One thing a client can do: where, with what, and what comes of it.

The routes and the OpenAPI document are both made from these: neither knows more than the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from dodona.core.errors import AccessDenied, BadRequest, DodonaError, did_you_mean
from dodona.gateway.errors import TooManyRequests
from dodona.gateway.http import openai_errors as v1
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.security.auth import audit_rejection, check_run_quota
from dodona.gateway.security.caller import caller_of
from dodona.gateway.state import GatewayState

Handler: TypeAlias = Callable[[ApiRequest], Awaitable[Response]]

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
TOKEN_SCHEME = "token"


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """An answer that is no error: what it means, and its schema's name.

    `events` is the schema of what comes instead when a client wants a stream.
    """

    summary: str
    schema: str | None = None
    media_type: str = JSON
    event_schema: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`errors` are the statuses this one can fail with, beside those that every one can.

    `scope` is what a token needs: by default `read` to look and `chat` for all else; empty for
    what any token will do. What is `is_open` needs none. What `asks` begins a run.
    """

    method: str
    path: str
    name: str
    summary: str
    handle: Handler
    responses: Mapping[int, ResponseSpec]
    parameters: tuple[RequestParameter, ...] = ()
    body: str | None = None
    errors: tuple[int, ...] = ()
    scope: str | None = None
    is_public: bool = False
    starts_run: bool = False

    @property
    def required_scope(self) -> str:
        """The scope that a token needs; empty if none."""
        if self.scope is not None or self.is_public:
            return self.scope or ""
        return "read" if self.method in ("GET", "HEAD") else "chat"

    @property
    def group(self) -> str:
        first, *rest = self.path.strip("/").split("/")
        return rest[0].partition(".")[0] if first == "api" else first or "page"

    async def respond(self, request: Request, state: GatewayState) -> Response:
        if not self.is_public:
            await self._authorize(request, state)
        return await self.handle(ApiRequest(request, state, self.read_parameters(request)))

    async def _authorize(self, request: Request, state: GatewayState) -> None:
        """Refuse a caller who may not do this, and have it on record."""
        caller = caller_of(request)
        try:
            if self.required_scope:
                caller.require_scope(self.required_scope)
            if self.starts_run:
                await check_run_quota(state, caller)
        except (AccessDenied, TooManyRequests) as error:
            audit_rejection(state, request.scope, error, caller)
            raise

    def read_parameters(self, request: Request) -> dict[str, Any]:
        """The values of the parameters. One that we do not know may be one mistyped."""
        wrong = [*self._query_errors(request)]
        values: dict[str, Any] = {}
        for known in self.parameters:
            given = _raw_value(request, known)
            values[known.name] = known.default
            try:
                if given is not None:
                    values[known.name] = known.parse(given)
            except BadRequest as mistake:
                wrong.append(mistake)
        if wrong:
            raise BadRequest.combine(wrong)
        return values

    def as_openapi(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "operationId": self.name,
            "summary": self.summary,
            "tags": [self.group],
            "responses": {
                **_success_responses(self.responses),
                **_error_responses(sorted(self._error_statuses()), v1.error_schema_at(self.path)),
            },
            # On this machine none is needed, hence the empty one.
            "security": []
            if self.is_public
            else [{}, {TOKEN_SCHEME: [self.required_scope] if self.required_scope else []}],
        }
        if self.parameters:
            found["parameters"] = [each.as_openapi() for each in self.parameters]
        if self.body:
            found["requestBody"] = {"required": True, "content": _content(JSON, self.body)}
        return found

    def _error_statuses(self) -> set[int]:
        """Those of errors: the door's too, which looks at everybody and at every body."""
        brings_body = self.method in ("POST", "PUT", "PATCH")
        always = (403, 429, 500, 503, *(() if self.is_public else (401,)))
        return {*self.errors, *always, *((408, 413, 415) if brings_body else ())}

    def _query_errors(self, request: Request) -> Iterator[DodonaError]:
        known = [each.name for each in self.parameters if each.location == "query"]
        given = request.query_params.multi_items()
        names = [name for name, _ in given]
        for name in dict.fromkeys(names):
            if name not in known:
                hint = did_you_mean(name, known)
                yield BadRequest(f"there is no parameter {name!r:.80}.", hint=hint)
            elif names.count(name) > 1:
                yield BadRequest(f"{name} is given more than once.")


def _raw_value(request: Request, parameter: RequestParameter) -> str | None:
    match parameter.location:
        case "path":
            return request.path_params[parameter.name]
        case "query":
            return request.query_params.get(parameter.name)
        case "header":
            return request.headers.get(parameter.name)


def _success_responses(specs: Mapping[int, ResponseSpec]) -> dict[str, Any]:
    return {
        str(status): {"description": says.summary} | ({"content": content} if content else {})
        for status, says in specs.items()
        for content in [_response_content(says)]
    }


def _error_responses(statuses: list[int], schema: str) -> dict[str, Any]:
    return {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": _content(JSON, schema),
        }
        for status in statuses
    }


def _response_content(spec: ResponseSpec) -> dict[str, Any]:
    whole = _content(spec.media_type, spec.schema) if spec.schema else {}
    return whole | (_content(EVENT_STREAM, spec.event_schema) if spec.event_schema else {})


def _content(media_type: str, schema: str) -> dict[str, Any]:
    found: dict[str, Any] = {"$ref": f"#/components/schemas/{schema}"}
    if media_type == EVENT_STREAM:
        data = {"type": "string", "contentMediaType": JSON, "contentSchema": found}
        found = {
            "type": "object",
            "description": "One event of the stream.",
            "properties": {"id": {"type": "string"}, "data": data},
            "required": ["data"],
        }
    return {media_type: {"schema": found}}
