"""Decode streamed and whole responses of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dodona.core.messages import AssistantText, RawMessage, ToolCall
from dodona.core.ports.model import CallDelta, FinishReason, TextDelta, ThinkingDelta, Usage
from dodona.models.encoding import has_valid_names, new_call_id, valid_arguments
from dodona.models.errors import ProviderErrorFactory
from dodona.models.provider import ModelEndpoint
from dodona.models.usage import anthropic_usage
from dodona.models.wire import AnswerDecoder

_FINISH_REASONS: Mapping[str, FinishReason] = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.REFUSAL,
}


class _ContentDelta(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""
    stop_reason: str | None = None


class _Message(msgspec.Struct):
    model: str = ""
    usage: dict[str, Any] | None = None


class _Event(msgspec.Struct, gc=False):
    """Every event type in one struct. Unknown types are ignored."""

    type: str = ""
    index: int = 0
    delta: _ContentDelta | None = None
    content_block: dict[str, Any] | None = None
    message: _Message | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class _WholeAnswer(msgspec.Struct):
    """A response that was not streamed."""

    content: list[dict[str, Any]]
    stop_reason: str | None = None
    model: str = ""
    usage: dict[str, Any] | None = None


class _Block:
    """A content block: its start event and the deltas received since."""

    __slots__ = ("call_index", "name", "pieces", "signature_pieces", "start")

    def __init__(self, start: dict[str, Any], call_index: int) -> None:
        self.start = start
        self.call_index = call_index  # number of calls before this block
        self.name = str(start.get("name") or "")
        self.pieces: list[str] = []
        self.signature_pieces: list[str] = []

    @property
    def type(self) -> str:
        return str(self.start.get("type"))

    @property
    def id(self) -> str:
        """The id of a tool call."""
        return str(self.start.get("id") or "")

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def encode(self) -> bytes:
        """Encode the block for the next request; b"" for empty text, which the API rejects."""
        members = dict(self.start)
        match self.type:
            case "text":
                if not self.text.strip():
                    return b""
                members["text"] = self.text
            case "thinking":
                members["thinking"] = self.text
                members["signature"] = "".join(self.signature_pieces)
            case "tool_use":
                members["input"] = msgspec.Raw(valid_arguments(self.text or "{}").encode())
            case _:
                pass
        return msgspec.json.encode(members)


class AnthropicAnswerDecoder(AnswerDecoder[_Event]):
    """Decodes one response, event by event, until `message_stop`."""

    def __init__(self, endpoint: ModelEndpoint, errors: ProviderErrorFactory) -> None:
        super().__init__(endpoint, errors, _Event)
        self._blocks: dict[int, _Block] = {}
        self._call_ids: set[str] = set()

    @property
    def usage(self) -> Usage:
        return anthropic_usage(self._wire_usage)

    def read_event(self, data: bytes) -> None:
        try:
            event = self._decode(data)
        except (msgspec.DecodeError, RecursionError):
            event = self._decode_repaired(data)
        kind = event.type
        if kind == "content_block_delta":
            self._add_delta(event.index, event.delta)
        elif kind == "content_block_start":
            self._start_block(event.index, event.content_block or {})
        elif kind == "message_start" and event.message is not None:
            self._model = event.message.model or self._model
            self._merge_usage(event.message.usage)
        elif kind == "message_delta":
            self._merge_usage(event.usage)
            if event.delta is not None and event.delta.stop_reason:
                self._wire_finish = event.delta.stop_reason
        elif kind == "message_stop":
            self._finish()
        elif kind == "error" or event.error:
            raise self._errors.from_stream_error(event.error or "the provider gave no reason")

    def read_whole(self, body: bytes) -> None:
        try:
            whole = msgspec.json.decode(body, type=_WholeAnswer)
        except (msgspec.DecodeError, RecursionError) as error:
            self.read_event(body)  # raises if the body is an error event
            raise self._errors.malformed("it is neither a stream nor an answer", body) from error
        for index, block in enumerate(whole.content):
            self._start_block(index, block)
        self._model = whole.model or self._model
        self._wire_finish = whole.stop_reason or ""
        self._merge_usage(whole.usage)
        self._finish()

    def end(self) -> None:
        raise self._errors.interrupted()  # there was no `message_stop`

    def _start_block(self, index: int, start: dict[str, Any]) -> None:
        """Start a block: empty in a stream, complete in a response that was not streamed."""
        block = self._blocks[index] = _Block(start, len(self._call_ids))
        match block.type:
            case "tool_use":
                self._ensure_call_id(block)
                arguments = start.get("input")
                text = msgspec.json.encode(arguments).decode() if arguments else ""
                block.pieces += [text] if text else []
                self.ready.append(CallDelta(block.call_index, block.name, text, block.id))
            case "text":
                self._add_text(block, start.get("text"))
            case "thinking":
                self._add_thinking(block, start.get("thinking"))
                block.signature_pieces.append(str(start.get("signature") or ""))
            case _:
                pass

    def _ensure_call_id(self, block: _Block) -> None:
        id_ = str(block.start.get("id") or "")
        if not id_ or id_ in self._call_ids:
            id_ = block.start["id"] = new_call_id()
        self._call_ids.add(id_)

    def _add_delta(self, index: int, delta: _ContentDelta | None) -> None:
        block = self._blocks.get(index)
        if block is None or delta is None:
            raise self._errors.malformed("a delta refers to a content block that was not started")
        kind = delta.type
        if kind == "text_delta":
            self._add_text(block, delta.text)
        elif kind == "input_json_delta":
            block.pieces.append(delta.partial_json)
            self.ready.append(CallDelta(block.call_index, block.name, delta.partial_json, block.id))
        elif kind == "thinking_delta":
            self._add_thinking(block, delta.thinking)
        elif kind == "signature_delta":
            block.signature_pieces.append(delta.signature)

    def _add_text(self, block: _Block, text: str | None) -> None:
        if text:
            block.pieces.append(text)
            self.ready.append(TextDelta(text))

    def _add_thinking(self, block: _Block, text: str | None) -> None:
        if text:
            block.pieces.append(text)
            self.ready.append(ThinkingDelta(text))

    def _merge_usage(self, usage: dict[str, Any] | None) -> None:
        """Merge usage figures: later ones are totals and replace earlier ones."""
        for name, value in (usage or {}).items():
            if value is not None or name not in self._wire_usage:
                self._wire_usage[name] = value

    def _finish(self) -> None:
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        calls = tuple(
            ToolCall(str(block.start["id"]), block.name, block.text or "{}")
            for block in blocks
            if block.type == "tool_use"
        )
        message = AssistantText(
            text="".join(block.text for block in blocks if block.type == "text"),
            calls=calls,
            thinking="".join(block.text for block in blocks if block.type == "thinking"),
            raw=self._build_raw(blocks) if has_valid_names(calls) else None,
        )
        self._queue_done(_FINISH_REASONS.get(self._wire_finish, FinishReason.OTHER), message)

    def _build_raw(self, blocks: list[_Block]) -> RawMessage | None:
        """Encode the blocks for the next request; None if the last is thinking (rejected)."""
        pairs = [(block.type, encoded) for block in blocks if (encoded := block.encode())]
        if not pairs or "thinking" in pairs[-1][0]:
            return None
        body = b"[" + b",".join(encoded for _, encoded in pairs) + b"]"
        return RawMessage(self._endpoint.provider.name, body)
