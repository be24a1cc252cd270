"""Decode responses of OpenAI's chat completions API and compatible servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from dodona.core.messages import AssistantText, RawMessage, ToolCall
from dodona.core.ports.model import FinishReason, TextDelta, ThinkingDelta, Usage
from dodona.models.encoding import has_valid_names, json_text, valid_arguments
from dodona.models.errors import ProviderErrorFactory
from dodona.models.openai.tool_calls import CallAssembler, CallPiece
from dodona.models.provider import ModelEndpoint
from dodona.models.usage import openai_usage
from dodona.models.wire import AnswerDecoder

_FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.REFUSAL,
}


class _ChoiceDelta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallPiece] | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    extra_content: dict[str, Any] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _ChoiceDelta | None = None
    finish_reason: str | None = None
    message: _ChoiceDelta | None = None  # in a response that was not streamed


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    model: str | None = None
    error: Any = None


class _ReasoningDetail:
    """One of OpenRouter's reasoning details, assembled from its pieces."""

    __slots__ = ("_members", "_pieces")

    def __init__(self) -> None:
        self._members: dict[str, Any] = {}
        self._pieces: list[str] = []

    def continues_with(self, piece: Mapping[str, Any]) -> bool:
        """Return whether the piece belongs to this detail."""
        same = all(self._members.get(name) == piece.get(name) for name in ("type", "index"))
        return same and _text_key(piece) != ""

    def add(self, piece: Mapping[str, Any]) -> None:
        """Append a piece."""
        text_key = _text_key(piece)
        for name, value in piece.items():
            if name == text_key and isinstance(value, str):
                self._pieces.append(value)
            elif value is not None or name not in self._members:
                self._members[name] = value

    def as_json(self) -> dict[str, Any]:
        """Return the assembled detail."""
        text_key = _text_key(self._members)
        return {**self._members, text_key: "".join(self._pieces)} if text_key else self._members


def _text_key(detail: Mapping[str, Any]) -> str:
    """Return the member whose value is sent in pieces; "" if there is none."""
    kind = str(detail.get("type"))
    return {"reasoning.text": "text", "reasoning.summary": "summary"}.get(kind, "")


class OpenAiAnswerDecoder(AnswerDecoder[_Chunk]):
    """Decodes one response, chunk by chunk.

    It is complete with `[DONE]`, or with a finish reason and the usage; several providers omit
    one of these.
    """

    def __init__(self, endpoint: ModelEndpoint, errors: ProviderErrorFactory) -> None:
        super().__init__(endpoint, errors, _Chunk)
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._in_thought = False
        self._details: list[_ReasoningDetail] = []
        self._extra: dict[str, Any] | None = None
        self._calls = CallAssembler()
        self._has_refusal = False
        self._has_final_usage = False  # usage was sent with or after the finish reason

    @property
    def usage(self) -> Usage:
        return openai_usage(
            self._wire_usage,
            output_excludes_reasoning=self._endpoint.provider.output_excludes_reasoning,
        )

    def read_event(self, data: bytes) -> None:
        if data.startswith(b"[DONE]"):
            if not (self._wire_finish or self._texts or self._calls):
                raise self._errors.interrupted()
            self._finish()
            return
        try:
            chunk = self._decode(data)
        except (msgspec.DecodeError, RecursionError):
            chunk = self._decode_repaired(data)
        if chunk.error:
            raise self._errors.from_stream_error(chunk.error)
        if chunk.choices:
            choice = chunk.choices[0]
            delta = choice.delta or choice.message
            if delta is not None:
                self._add_delta(delta)
            if choice.finish_reason:
                self._wire_finish = choice.finish_reason
                if choice.finish_reason == "error":
                    raise self._errors.from_stream_error("the provider gave no reason")
        if chunk.model:
            self._model = chunk.model
        if chunk.usage:
            self._wire_usage = chunk.usage
            self._has_final_usage = bool(self._wire_finish)

    def read_whole(self, body: bytes) -> None:
        self.read_event(body)
        if not self._wire_finish:
            raise self._errors.malformed("it is neither a stream nor an answer", body)
        self._finish()

    def end(self) -> None:
        if not self._has_final_usage:
            raise self._errors.interrupted()
        self._finish()

    def _add_delta(self, delta: _ChoiceDelta) -> None:
        thought = delta.reasoning_content or delta.reasoning
        if delta.reasoning_details:
            thought = thought or _reasoning_text(delta.reasoning_details)
            self._add_details(delta.reasoning_details)
        if thought:
            self._add_thinking(thought)
        text = delta.content
        if text:
            if delta.extra_content or self._in_thought:
                self._add_gemini_text(text, delta.extra_content)
            else:
                self._texts.append(text)
                self.ready.append(TextDelta(text))
        elif delta.extra_content:
            self._extra = delta.extra_content
        if delta.refusal:
            self._has_refusal = True
            self._add_text(delta.refusal)
        if delta.tool_calls:
            for piece in delta.tool_calls:
                self.ready.append(self._calls.add(piece))

    def _add_text(self, text: str) -> None:
        if text:
            self._texts.append(text)
            self.ready.append(TextDelta(text))

    def _add_thinking(self, text: str) -> None:
        if text:
            self._thoughts.append(text)
            self.ready.append(ThinkingDelta(text))

    def _add_gemini_text(self, text: str, extra: dict[str, Any] | None) -> None:
        """Separate Gemini's thoughts from content: they come in tags, marked in `extra`."""
        google: object = (extra or {}).get("google")
        flags = cast("dict[str, Any]", google) if isinstance(google, dict) else {}
        if flags.get("thought"):
            self._add_thinking(text if self._in_thought else text.removeprefix("<thought>"))
            self._in_thought = True
            return
        self._extra = extra or self._extra
        self._add_text(text.removeprefix("</thought>") if self._in_thought else text)
        self._in_thought = False

    def _add_details(self, details: Iterable[dict[str, Any]]) -> None:
        """Assemble OpenRouter's reasoning details, which must be sent back complete."""
        for detail in details:
            if not (self._details and self._details[-1].continues_with(detail)):
                self._details.append(_ReasoningDetail())
            self._details[-1].add(detail)

    def _finish(self) -> None:
        text, thinking = "".join(self._texts), "".join(self._thoughts)
        calls, extras = self._calls.finish()
        message = AssistantText(
            text=text,
            calls=calls,
            thinking=thinking,
            raw=self._build_raw(text, thinking, calls, extras),
        )
        self._queue_done(self._finish_reason(calls), message)

    def _finish_reason(self, calls: tuple[ToolCall, ...]) -> FinishReason:
        finish = _FINISH_REASONS.get(self._wire_finish.lower(), FinishReason.OTHER)
        if self._has_refusal:
            return FinishReason.REFUSAL
        if calls and finish in {FinishReason.STOP, FinishReason.OTHER}:
            return FinishReason.TOOL_CALLS  # some servers report "stop"
        return finish

    def _build_raw(
        self, text: str, thinking: str, calls: tuple[ToolCall, ...], extras: list[bytes]
    ) -> RawMessage | None:
        """Encode the message for the next request; None if the provider would reject it."""
        if not has_valid_names(calls):
            return None
        provider = self._endpoint.provider
        members = [b'"role":"assistant","content":', json_text(text) if text else b"null"]
        if calls:
            encoded_calls = (
                encode_call(call, b',"extra_content":' + extra if extra else b"")
                for call, extra in zip(calls, extras, strict=True)
            )
            members += [b',"tool_calls":[', b",".join(encoded_calls), b"]"]
            if provider.returns_reasoning and thinking:
                members += [b',"reasoning_content":', json_text(thinking)]
        if self._details:
            details = [detail.as_json() for detail in self._details]
            members += [b',"reasoning_details":', msgspec.json.encode(details)]
        if self._extra:
            members += [b',"extra_content":', msgspec.json.encode(self._extra)]
        return RawMessage(provider.name, b"".join((b"{", *members, b"}")))


def encode_call(call: ToolCall, extra_members: bytes = b"") -> bytes:
    """Encode a tool call as a member of `tool_calls`; `extra_members` are JSON to append."""
    return b"".join(
        (
            b'{"id":',
            json_text(call.id),
            b',"type":"function","function":{"name":',
            json_text(call.name),
            b',"arguments":',
            json_text(valid_arguments(call.arguments)),
            b"}",
            extra_members,
            b"}",
        )
    )


def _reasoning_text(details: Iterable[Mapping[str, Any]]) -> str:
    texts = (detail.get("text") or detail.get("summary") for detail in details)
    return "".join(text for text in texts if isinstance(text, str))
