"""The default without a language model: it searches and quotes, and generates no text.

It considers the last question and the tool results since then; the question before that only
explains a pronoun. What it reads is quoted, but never followed as an instruction. The same request
always produces the same events.

It uses no tokens. A limit of output tokens counts as four characters per token.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Self

from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.core.messages import AssistantText, ContextText, Message, ToolCall, UserText
from dodona.core.ports.model import (
    CallDelta,
    Done,
    FinishReason,
    ModelEvent,
    ModelRequest,
    TextDelta,
    Usage,
)
from dodona.models.extractive.answer import (
    NO_MODEL_NOTICE,
    NO_USABLE_TOOLS,
    NO_WORDS,
    format_answer,
)
from dodona.models.extractive.plan import Inquiry, build_inquiry
from dodona.models.extractive.small_talk import answer_small_talk

PROVIDER_NAME: Final = "extractive"  # also the name of its only model
CHARACTERS_PER_TOKEN: Final = 4


class ExtractiveModel:
    """A `Model` that quotes tool results instead of generating text."""

    @property
    def provider(self) -> str:
        return PROVIDER_NAME

    @property
    def name(self) -> str:
        return PROVIDER_NAME

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[ExtractiveStream]:
        """Answer a request with tool calls or with quotes."""
        _reject_unsupported(request)
        yield ExtractiveStream(_answer_request(request))


class ExtractiveStream:
    """The events of an answer that is complete before the first event."""

    def __init__(self, done: Done) -> None:
        self._done = done
        self._events = _events(done)

    @property
    def usage(self) -> Usage:
        return self._done.usage

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        event = next(self._events, None)
        if event is None:
            raise StopAsyncIteration
        return event


def _events(done: Done) -> Iterator[ModelEvent]:
    """Yield the text by paragraph, one delta for each call, then `Done`."""
    text, end = done.message.text, 0
    while end < len(text):
        start, end = end, text.find("\n\n", end) + 2
        end = end if end > 1 else len(text)
        yield TextDelta(text[start:end])
    for index, call in enumerate(done.message.calls):
        yield CallDelta(index, call.name, call.arguments, call.id)
    yield done


def _reject_unsupported(request: ModelRequest) -> None:
    choice, format_ = request.tool_choice, request.response_format
    forced = choice is not None and choice.is_forced
    if forced or format_ is not None:
        feature = "tool_choice" if forced else "response_format"
        raise ProviderError(
            f"{feature} needs a language model, and none is configured.",
            kind=ProviderErrorKind.REJECTED,
            provider=PROVIDER_NAME,
            hint="Set a provider and a model under [agent].",
        )


def _answer_request(request: ModelRequest) -> Done:
    inquiry = build_inquiry(request.messages, request.tools)
    small_talk = answer_small_talk(request.messages)
    max_chars = None if request.max_tokens is None else request.max_tokens * CHARACTERS_PER_TOKEN
    choice = request.tool_choice
    may_call = not small_talk and (choice is None or choice.mode != "none")
    calls = _plan_calls(inquiry, request.messages) if may_call else ()
    if calls and _fits("".join(call.name + call.arguments for call in calls), max_chars):
        return _build_done(FinishReason.TOOL_CALLS, AssistantText(calls=calls))
    text = _answer_text(inquiry, request.messages, small_talk)
    text = _cut_at_stop(text, request.stop)
    if _fits(text, max_chars):
        return _build_done(FinishReason.STOP, AssistantText(text))
    return _build_done(FinishReason.LENGTH, AssistantText(text[:max_chars]))


def _cut_at_stop(text: str, stops: Sequence[str]) -> str:
    ends = [start for stop in stops if stop and (start := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text


def _fits(text: str, max_chars: int | None) -> bool:
    return max_chars is None or len(text) <= max_chars


def _plan_calls(inquiry: Inquiry, messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    for name, arguments in inquiry.next_calls():
        text = json.dumps(arguments, ensure_ascii=False)
        # Unique within the conversation, and the same whenever this request is repeated.
        seed = f"{len(messages)}\0{name}\0{text}".encode("utf-8", "replace")
        calls.append(ToolCall(f"call_{hashlib.sha256(seed).hexdigest()[:24]}", name, text))
    return tuple(calls)


def _answer_text(inquiry: Inquiry, messages: Sequence[Message], small_talk: str) -> str:
    """Return the answer, with a notice at its end that the conversation contains only once."""
    if small_talk:
        text = small_talk
    elif not inquiry.results:
        is_empty = bool(inquiry.searches) and not inquiry.question.words
        text = NO_WORDS if is_empty else NO_USABLE_TOOLS
    else:
        text = format_answer(inquiry.findings(), inquiry.failed_results())
    return f"{text}\n" if _has_notice(messages) else f"{text}\n\n{NO_MODEL_NOTICE}\n"


def _has_notice(messages: Sequence[Message]) -> bool:
    """Whether an earlier answer has the notice, or is part of a summary and may have it.

    A summary precedes all questions. After it, an answer of a language model has `raw`.
    """
    answers = [message for message in messages if isinstance(message, AssistantText)]
    if any(NO_MODEL_NOTICE in each.text for each in answers):
        return True
    questions = [at for at, each in enumerate(messages) if isinstance(each, UserText)]
    has_summary = questions[1:] and any(
        isinstance(each, ContextText) for each in messages[: questions[0]]
    )
    return bool(has_summary) and all(each.raw is None for each in answers)


def _build_done(finish: FinishReason, message: AssistantText) -> Done:
    return Done(
        finish=finish,
        message=message,
        usage=Usage(cost_usd=0.0),
        provider=PROVIDER_NAME,
        model=PROVIDER_NAME,
    )
