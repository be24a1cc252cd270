"""The OpenAPI document says all that can be asked for, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from msgspec import to_builtins
from msgspec.structs import asdict
from starlette.routing import WebSocketRoute

from dodona.agent.question import Question
from dodona.agent.turn_control.settings import ModelSettings, SettingsChange
from dodona.core import chunks
from dodona.core.errors import BadRequest, Cancelled, as_json, to_body
from dodona.core.json_document import parse_document
from dodona.core.ports.tools import SourceReference
from dodona.gateway.app import make_app
from dodona.gateway.openapi import build_openapi
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.state import GatewayState
from tests.gateway.plain_agency import PlainAgency
from tests.gateway.talking import Gateway, ready

DOCUMENT = build_openapi()
SCHEMAS = DOCUMENT["components"]["schemas"]


def validator(name: str) -> jsonschema_rs.Draft202012Validator:
    """Of one schema, with all that it refers to."""
    whole = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(whole)


def refers_to(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].removeprefix("#/components/schemas/")
        for below in value.values():
            yield from refers_to(below)
    elif isinstance(value, list):
        for below in value:
            yield from refers_to(below)


async def test_it_names_every_route_and_only_those() -> None:
    """Of the application itself, not of our tables."""
    app = make_app(
        GatewayState(api=PlainAgency(), settings=GatewaySettings(), check_readiness=ready)
    )
    plain = [route for route in app.routes if not isinstance(route, WebSocketRoute)]
    assert [route.path for route in plain] == list(DOCUMENT["paths"])


@pytest.mark.parametrize("path", DOCUMENT["paths"])
async def test_it_names_every_method_and_only_those(gateway: Gateway, path: str) -> None:
    """What it does not name is refused with 405, what it names is not."""
    named = {method.upper() for method in DOCUMENT["paths"][path]}
    here = path.format(
        run_id=1,
        thread_id=1,
        notice_id=1,
        context_id="node-1",
        project_id="default",
        rule_id="token_budget",
        subscriber_id="self_notify",
        call="call-1",
        change=1,
        file="app.js",
        model="oracle",
    )
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        if (method, path) == ("GET", "/api/events"):
            continue  # it would not end
        status, *_ = await _status(gateway, method, here)
        assert (status != 405) == (method in named), method


async def test_it_is_served(gateway: Gateway) -> None:
    """As it is made."""
    status, served, _ = await gateway.call("GET", "/api/openapi.json")
    assert (status, served) == (200, DOCUMENT)


def test_every_schema_is_one_and_is_used() -> None:
    """Nothing refers to what is not there, and nothing is left over."""
    used = set(refers_to(DOCUMENT))
    assert used == set(SCHEMAS)
    for name in SCHEMAS:
        jsonschema_rs.meta.validate(SCHEMAS[name] | {"$schema": _DIALECT})
        validator(name)


_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def test_operations_have_names_of_their_own() -> None:
    """Clients are generated from them."""
    names = [o["operationId"] for path in DOCUMENT["paths"].values() for o in path.values()]
    assert len(names) == len(set(names))


def test_path_parameters_are_those_in_the_path() -> None:
    """Both ways."""
    for path, operations in DOCUMENT["paths"].items():
        for operation in operations.values():
            named = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"]
            assert [f"{{{name}}}" in path for name in named] == [True] * path.count("{")


@pytest.mark.parametrize(
    "question",
    [
        {"question": "Why?"},
        {"question": "x" * 10_000, "project_id": "p", "context_id": "node-1", "model": "m"},
        {"question": "Why?", "max_tokens": 1, "sources": ["vault"], "thinking": True, "new": True},
        {"question": "Why?", "model": None, "sources": []},
        {"question": ""},
        {"question": "x" * 10_001},
        {"question": 5},
        {},
        {"question": "Why?", "max_tokens": 0},
        {"question": "Why?", "max_tokens": 1_000_001},
        {"question": "Why?", "max_tokens": True},
        {"question": "Why?", "sources": ["stars"]},
        {"question": "Why?", "thinking": 1},
        {"question": "Why?", "model": ""},
        {"question": "Why?", "modle": "m"},
    ],
)
def test_the_schema_of_a_question_is_what_is_taken(question: dict[str, Any]) -> None:
    """It allows what `parse_document` reads, and no more."""
    try:
        parse_document(Question, question)
    except BadRequest:
        assert not validator("Question").is_valid(question)
    else:
        validator("Question").validate(question)


@pytest.mark.parametrize("name", ModelSettings().as_dict())
def test_the_schema_of_settings_has_their_bounds(name: str) -> None:
    """At each bound the setting is taken, past it refused, by the schema and by the code."""
    default = ModelSettings().as_dict()[name]
    schema = SCHEMAS["ModelSettings"]["properties"][name]
    if schema["type"] == "integer":
        lowest, highest = schema["minimum"], schema["maximum"]
        cases = [(lowest, True), (highest, True), (lowest - 1, False), (highest + 1, False)]
    else:
        cases = [(default, True), (5, False), (["x"], False)]
    for value, is_right in cases:
        assert validator("SettingsChange").is_valid({name: value}) is is_right
        if is_right:
            parse_document(SettingsChange, {name: value})
        else:
            with pytest.raises(BadRequest):
                parse_document(SettingsChange, {name: value})
    validator("ModelSettings").validate(ModelSettings().as_dict())


@pytest.mark.parametrize(
    "chunk",
    [
        chunks.ThinkingChunk("hm"),
        chunks.ContentChunk("Because"),
        chunks.SourceChunk(
            **asdict(SourceReference(path="a.md", title="A", lines="1-2", excerpt="…"))
        ),
        chunks.ToolCallChunk(id="1", name="vault_read", arguments={"path": "a"}, status="pending"),
        chunks.ToolResultChunk(id="1", name="vault_read", result="…", status="success", sources=[]),
        chunks.SystemChunk(system_type="limit", system_message="Enough.", metadata={"limit": 5}),
        chunks.ContextUpdateChunk(context_tokens=1, max_context_tokens=2),
        chunks.RestartChunk(discard_after=5, reason="again"),
        chunks.DoneChunk(
            tokens_used=1, model_used="m", context_id="node-1", context_tokens_remaining=2
        ),
        chunks.ErrorChunk(to_body(Cancelled("it was cancelled."))),
    ],
    ids=lambda chunk: type(chunk).__name__,
)
def test_every_chunk_has_its_schema(chunk: chunks.AnyChunk) -> None:
    """And each is exactly one of them."""
    validator("Chunk").validate(chunks.StreamChunk(1, 2, chunk).as_json())
    assert not validator("Chunk").is_valid(to_builtins(chunk)), "without its place it is none"


def test_errors_have_their_schema() -> None:
    """Also several at once."""
    with pytest.raises(BadRequest) as caught:
        parse_document(Question, {"question": "", "modle": 1})
    validator("ErrorDocument").validate(as_json(caught.value))


async def _status(gateway: Gateway, method: str, path: str) -> tuple[int]:
    async with gateway.client.request(method, gateway.url + path, json={}) as response:
        return (response.status,)
