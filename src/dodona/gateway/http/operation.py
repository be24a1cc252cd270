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
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.security.auth import audit_refusal, check_run_quota
from dodona.gateway.security.caller import caller_of
from dodona.gateway.state import GatewayState

Handler: TypeAlias = Callable[[ApiRequest], Awaitable[Response]]

JSON = "application/json"
EVENTS = "text/event-stream"
TOKEN = "token"  # noqa: S105 - the name of the security scheme


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """An answer that is no error: what it means, and its schema's name.

    `events` is the schema of what comes instead when a client wants a stream.
    """

    summary: str
    schema: str | None = None
    media: str = JSON
    events: str | None = None


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
    parameters: tuple[Parameter, ...] = ()
    body: str | None = None
    errors: tuple[int, ...] = ()
    scope: str | None = None
    is_open: bool = False
    starts_run: bool = False

    @property
    def needs(self) -> str:
        """The scope that a token needs; empty if none."""
        if self.scope is not None or self.is_open:
            return self.scope or ""
        return "read" if self.method in ("GET", "HEAD") else "chat"

    @property
    def group(self) -> str:
        first, *rest = self.path.strip("/").split("/")
        return rest[0].partition(".")[0] if first == "api" else first or "page"

    async def answer(self, request: Request, gate: GatewayState) -> Response:
        if not self.is_open:
            await self._authorize(request, gate)
        return await self.handle(ApiRequest(request, gate, self.read(request)))

    async def _authorize(self, request: Request, gate: GatewayState) -> None:
        """Refuse a caller who may not do this, and have it on record."""
        caller = caller_of(request)
        try:
            if self.needs:
                caller.require_scope(self.needs)
            if self.starts_run:
                await check_run_quota(gate, caller)
        except (AccessDenied, TooManyRequests) as error:
            audit_refusal(gate, request.scope, error, caller)
            raise

    def read(self, request: Request) -> dict[str, Any]:
        """The values of the parameters. One that we do not know may be one mistyped."""
        wrong = [*self._unknown(request)]
        values: dict[str, Any] = {}
        for known in self.parameters:
            given = _given(request, known)
            values[known.name] = known.default
            try:
                if given is not None:
                    values[known.name] = known.read(given)
            except BadRequest as mistake:
                wrong.append(mistake)
        if wrong:
            raise BadRequest.gather(wrong)
        return values

    def as_openapi(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "operationId": self.name,
            "summary": self.summary,
            "tags": [self.group],
            "responses": {
                **_says(self.responses),
                **_fails(sorted(self._statuses()), v1.schema_at(self.path)),
            },
            # On this machine none is needed, hence the empty one.
            "security": [] if self.is_open else [{}, {TOKEN: [self.needs] if self.needs else []}],
        }
        if self.parameters:
            found["parameters"] = [each.as_openapi() for each in self.parameters]
        if self.body:
            found["requestBody"] = {"required": True, "content": _content(JSON, self.body)}
        return found

    def _statuses(self) -> set[int]:
        """Those of errors: the door's too, which looks at everybody and at every body."""
        brings_body = self.method in ("POST", "PUT", "PATCH")
        always = (403, 429, 500, 503, *(() if self.is_open else (401,)))
        return {*self.errors, *always, *((408, 413, 415) if brings_body else ())}

    def _unknown(self, request: Request) -> Iterator[DodonaError]:
        known = [each.name for each in self.parameters if each.place == "query"]
        given = request.query_params.multi_items()
        names = [name for name, _ in given]
        for name in dict.fromkeys(names):
            if name not in known:
                hint = did_you_mean(name, known)
                yield BadRequest(f"there is no parameter {name!r:.80}.", hint=hint)
            elif names.count(name) > 1:
                yield BadRequest(f"{name} is given more than once.")


def _given(request: Request, parameter: Parameter) -> str | None:
    match parameter.place:
        case "path":
            return request.path_params[parameter.name]
        case "query":
            return request.query_params.get(parameter.name)
        case "header":
            return request.headers.get(parameter.name)


def _says(answers: Mapping[int, ResponseSpec]) -> dict[str, Any]:
    return {
        str(status): {"description": says.summary} | ({"content": content} if content else {})
        for status, says in answers.items()
        for content in [_contents(says)]
    }


def _fails(statuses: list[int], schema: str) -> dict[str, Any]:
    return {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": _content(JSON, schema),
        }
        for status in statuses
    }


def _contents(says: ResponseSpec) -> dict[str, Any]:
    whole = _content(says.media, says.schema) if says.schema else {}
    return whole | (_content(EVENTS, says.events) if says.events else {})


def _content(media: str, schema: str) -> dict[str, Any]:
    found: dict[str, Any] = {"$ref": f"#/components/schemas/{schema}"}
    if media == EVENTS:
        data = {"type": "string", "contentMediaType": JSON, "contentSchema": found}
        found = {
            "type": "object",
            "description": "One event of the stream.",
            "properties": {"id": {"type": "string"}, "data": data},
            "required": ["data"],
        }
    return {media: {"schema": found}}
