"""What providers say when they fail, and what it means."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from dodona.core.errors import ProviderErrorKind
from dodona.core.messages import UserText
from dodona.core.ports.model import ModelRequest
from dodona.models.errors import parse_retry_after
from dodona.net.redactor import Redactor
from tests.models.wire_server import Reply, named, refusal, sse

GO = ModelRequest((UserText("go"),))
JSON = {"Content-Type": "application/json"}


def told(message: str = "because", **members: Any) -> dict[str, Any]:
    return {"error": {"message": message, **members}}


STATUSES: list[tuple[str, int, Any, ProviderErrorKind, str]] = [
    ("openai", 400, told(), ProviderErrorKind.REJECTED, ""),
    (
        "openai",
        401,
        told("Incorrect API key"),
        ProviderErrorKind.UNAUTHORIZED,
        "Set OPENAI_API_KEY to a valid API key.",
    ),
    (
        "gemini",
        400,
        [told("API key not valid. Please pass a valid API key.")],
        ProviderErrorKind.UNAUTHORIZED,
        "Set GEMINI_API_KEY or GOOGLE_API_KEY to a valid API key.",
    ),
    (
        "anthropic",
        403,
        told(type="permission_error"),
        ProviderErrorKind.UNAUTHORIZED,
        "Set ANTHROPIC_API_KEY to a valid API key.",
    ),
    (
        "openrouter",
        402,
        told(),
        ProviderErrorKind.UNAUTHORIZED,
        "Add credit to the account, or use another provider.",
    ),
    (
        "openai",
        429,
        told(code="insufficient_quota"),
        ProviderErrorKind.UNAUTHORIZED,
        "Add credit to the account, or use another provider.",
    ),
    ("openai", 429, told("too many tokens per minute"), ProviderErrorKind.RATE_LIMITED, ""),
    (
        "openai",
        400,
        told(code="context_length_exceeded"),
        ProviderErrorKind.CONTEXT_TOO_LONG,
        "Shorten",
    ),
    (
        "anthropic",
        400,
        told("prompt is too long: 250000 tokens > 200000 maximum"),
        ProviderErrorKind.CONTEXT_TOO_LONG,
        "Shorten",
    ),
    (
        "gemini",
        400,
        [told("The input token count (9) exceeds the maximum")],
        ProviderErrorKind.CONTEXT_TOO_LONG,
        "Shorten",
    ),
    (
        "openai-compatible",
        400,
        told(type="exceed_context_size_error"),
        ProviderErrorKind.CONTEXT_TOO_LONG,
        "Shorten",
    ),
    ("anthropic", 413, "<html>", ProviderErrorKind.CONTEXT_TOO_LONG, "Shorten"),
    (
        "openai",
        404,
        told("no such model"),
        ProviderErrorKind.REJECTED,
        "Check the model name 'test-model'.",
    ),
    ("openai", 500, "oops", ProviderErrorKind.SERVER, ""),
    ("openai", 503, None, ProviderErrorKind.SERVER, ""),
    ("anthropic", 529, told(type="overloaded_error"), ProviderErrorKind.SERVER, ""),
    ("openai-compatible", 422, {"detail": [{"msg": "?"}]}, ProviderErrorKind.REJECTED, ""),
    ("openai", 302, "moved", ProviderErrorKind.REJECTED, "Check base_url (http://127.0.0.1:"),
]


@pytest.mark.parametrize(("provider", "status", "body", "fault", "hint"), STATUSES)
async def test_a_status_says_who_must_act(
    provider: str, status: int, body: Any, fault: ProviderErrorKind, hint: str
) -> None:
    """By the status and by the words; with what to do about it."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode() if body else b""
    headers = {**JSON, "Location": "http://127.0.0.1:9/elsewhere"}
    error = await refusal(provider, Reply([data], status=status, headers=headers), GO)
    assert (error.kind, error.status, error.provider) == (fault, status, provider)
    assert error.hint.startswith(hint)
    assert bool(error.hint) == bool(hint)
    assert str(status) in error.message


INSIDE: list[tuple[str, bytes, ProviderErrorKind]] = [
    (
        "openrouter",
        sse({"error": {"code": 502, "message": "gone"}, "choices": []}),
        ProviderErrorKind.SERVER,
    ),
    (
        "openrouter",
        sse({"error": {"code": 429, "message": "slow"}}),
        ProviderErrorKind.RATE_LIMITED,
    ),
    (
        "openai",
        sse({"error": {"type": "server_error", "message": "gone"}}),
        ProviderErrorKind.SERVER,
    ),
    (
        "openai",
        sse({"error": {"code": "rate_limit_exceeded", "message": "slow"}}),
        ProviderErrorKind.RATE_LIMITED,
    ),
    (
        "openai",
        sse({"error": {"type": "invalid_request_error", "message": "no"}}),
        ProviderErrorKind.REJECTED,
    ),
    (
        "openai",
        sse({"error": {"code": "context_length_exceeded"}}),
        ProviderErrorKind.CONTEXT_TOO_LONG,
    ),
    ("ollama", sse({"error": "the runner stopped"}), ProviderErrorKind.SERVER),
    (
        "openrouter",
        sse({"choices": [{"delta": {}, "finish_reason": "error"}]}),
        ProviderErrorKind.SERVER,
    ),
    (
        "anthropic",
        named({"type": "error", "error": {"type": "overloaded_error"}}),
        ProviderErrorKind.SERVER,
    ),
    (
        "anthropic",
        named({"type": "error", "error": {"type": "rate_limit_error"}}),
        ProviderErrorKind.RATE_LIMITED,
    ),
    (
        "anthropic",
        named({"type": "error", "error": {"type": "api_error"}}),
        ProviderErrorKind.SERVER,
    ),
    (
        "anthropic",
        named({"type": "error", "error": {"type": "authentication_error"}}),
        ProviderErrorKind.UNAUTHORIZED,
    ),
    ("anthropic", named({"type": "error"}), ProviderErrorKind.SERVER),
]


@pytest.mark.parametrize(("provider", "data", "fault"), INSIDE)
async def test_an_error_inside_a_stream_is_one(
    provider: str, data: bytes, fault: ProviderErrorKind
) -> None:
    """The status said 200, and was wrong."""
    error = await refusal(provider, Reply([data]), GO)
    assert error.kind is fault
    assert "while streaming" in error.message


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_an_error_in_one_piece_is_one(provider: str) -> None:
    """JSON with a status of 200."""
    body = json.dumps({"type": "error", **told(type="overloaded_error")}).encode()
    error = await refusal(provider, Reply([body], headers=JSON), GO)
    assert error.kind is ProviderErrorKind.SERVER


GARBAGE: list[tuple[str, Reply]] = [
    ("openai", Reply([b"data: {broken\n\n"])),
    ("openai", Reply([sse({"choices": "none"})])),
    ("openai", Reply([sse([1])])),
    ("openai", Reply([b'data: {"error":' + b"[" * 100_000 + b"\n\n"])),
    ("openai", Reply([b'{"hello":"world"}'], headers=JSON)),
    ("openai", Reply([b"<html>Sign in</html>"], headers={"Content-Type": "text/html"})),
    ("anthropic", Reply([b"data: {broken\n\n"])),
    ("anthropic", Reply([b'{"hello":"world"}'], headers=JSON)),
    (
        "anthropic",
        Reply(
            [named({"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta"}})]
        ),
    ),
]


@pytest.mark.parametrize(("provider", "reply"), GARBAGE)
async def test_what_does_not_follow_the_protocol_is_said(provider: str, reply: Reply) -> None:
    """With a look at the address: it may not be a provider's at all."""
    error = await refusal(provider, reply, GO)
    assert error.kind is ProviderErrorKind.MALFORMED
    assert error.hint.startswith("Check base_url (http://127.0.0.1:")


async def test_errors_hold_no_secrets_and_are_short() -> None:
    """Providers quote keys, and send pages."""
    redactor = Redactor()
    redactor.add("THE_KEY", "hunter2-hunter2")
    body = json.dumps(told("key hunter2-hunter2 or sk-aaaaaaaaaaaaaaaaaaaaaaaa\n" + "x " * 5_000))
    error = await refusal(
        "openai", Reply([body.encode()], status=400, headers=JSON), GO, redactor=redactor
    )
    assert "hunter2" not in str(error)
    assert "sk-aaaa" not in str(error)
    assert "[secret THE_KEY]" in str(error)
    assert len(error.message) < 360
    assert "\n" not in error.message


async def test_how_long_to_wait_is_passed_on() -> None:
    """With the error, in seconds for programs and in words for people."""
    headers = {**JSON, "Retry-After": "7.5"}
    error = await refusal("openai", Reply([b"{}"], status=429, headers=headers), GO)
    assert (error.retry_after, error.hint) == (7.5, "Try again in 8 seconds.")


def test_the_wait_may_be_a_number_or_a_date() -> None:
    """What makes no sense is no wait at all."""
    assert parse_retry_after({}) is None
    assert parse_retry_after({"retry-after": "3"}) == 3
    assert parse_retry_after({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5
    for strange in ("-1", "nan", "inf", "soon", "99999999999999999999 GMT", ""):
        assert parse_retry_after({"retry-after": strange}) is None
    now = datetime.now(UTC)
    soon = parse_retry_after(
        {"retry-after": format_datetime(now + timedelta(minutes=5), usegmt=True)}
    )
    assert soon is not None
    assert 200 < soon <= 300
    assert parse_retry_after({"retry-after": format_datetime(now - timedelta(minutes=5))}) == 0
