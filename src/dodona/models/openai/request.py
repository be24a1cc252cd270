"""Encode requests for OpenAI's chat completions API and compatible servers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import assert_never

import msgspec

from dodona.core.messages import (
    AssistantText,
    ContextText,
    Message,
    SystemText,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserText,
)
from dodona.core.ports.model import ModelRequest, ToolChoice
from dodona.models.encoding import (
    CONTEXT_PREFIX,
    EMPTY_TEXT,
    NOTICE_PREFIX,
    add_cache_marker,
    encoding_key,
    index_before_question,
    json_text,
    may_think,
    redact_all,
    reusable_raw,
    sanitize_name,
    wants_thinking,
)
from dodona.models.errors import ProviderErrorFactory
from dodona.models.openai.response import OpenAiAnswerDecoder, encode_call
from dodona.models.parameters import rejected_parameters, swap_max_tokens, without_rejected
from dodona.models.provider import ModelEndpoint

# OpenAI models that accept no temperature.
_REASONING_MODELS = re.compile(r"(o\d|gpt-([5-9]|\d\d))")
# OpenAI models that accept tools on this API only with reasoning turned off; it is on by default.
_TOOLS_OR_REASONING_MODELS = re.compile(r"gpt-(5\.[2-9]|[6-9]|\d\d)(?!.*chat)")


class OpenAiWire:
    """Encodes requests so that their prefix stays byte-identical during a run, for caching."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        provider = endpoint.provider
        self.url = f"{endpoint.base_url}/chat/completions"
        self.headers = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        if endpoint.api_key:
            self.headers["Authorization"] = f"Bearer {endpoint.api_key}"
        self.errors = ProviderErrorFactory(endpoint)
        self.rejected = rejected_parameters(endpoint)
        self._endpoint = endpoint
        self._provider = provider
        self._redact = endpoint.redactor.redact
        # A cache marker belongs to a content part, so every message is encoded in parts.
        self._uses_cache_markers = provider.cache == "markers" and endpoint.model.startswith(
            "anthropic/"
        )
        self._encoding_key = ""  # cache key of encoded messages; changes with each new secret

    def new_decoder(self) -> OpenAiAnswerDecoder:
        """Return a decoder for one response."""
        return OpenAiAnswerDecoder(self._endpoint, self.errors)

    def encode_request(self, request: ModelRequest, rejected: frozenset[str]) -> bytes:
        """Return the JSON body of a request, without the rejected parameters."""
        self._encoding_key = encoding_key(self._endpoint) + (
            "/parts" if self._uses_cache_markers else ""
        )
        messages = self._encode_messages(request.messages)
        tools = b",".join(self._encode_tool(tool) for tool in request.tools)
        settings = without_rejected(self._encode_settings(request, rejected), rejected)
        return b"".join(
            (
                b'{"model":',
                json_text(self._endpoint.model),
                b',"tools":[' + tools + b"]" if tools else b"",
                b',"messages":[',
                b",".join(messages),
                b'],"stream":true',
                *(b"," + member for member in settings),
                b"}",
            )
        )

    def _encode_settings(self, request: ModelRequest, rejected: frozenset[str]) -> Iterator[bytes]:
        yield b'"stream_options":{"include_usage":true}'
        thinking = self._is_thinking(request)
        if request.max_tokens is not None:
            member = swap_max_tokens(self._provider.max_tokens_member, rejected)
            yield f'"{member}":{request.max_tokens}'.encode()
        if request.temperature is not None and not self._has_fixed_temperature(thinking=thinking):
            yield b'"temperature":' + msgspec.json.encode(request.temperature)
        if self._provider.cache == "key" and request.cache_key:
            yield b'"prompt_cache_key":' + json_text(self._redact(request.cache_key)[:64])
        reasoning = self._provider.thinking_on if thinking else b""
        if not thinking and self._endpoint.can_think:
            reasoning = self._provider.thinking_off
        if (
            self._is_openai
            and request.tools
            and _TOOLS_OR_REASONING_MODELS.match(self._endpoint.model)
        ):
            reasoning = b'"reasoning_effort":"none"'
        if reasoning:
            yield reasoning
        yield from self._encode_client_options(request)

    def _encode_client_options(self, request: ModelRequest) -> Iterator[bytes]:
        """Yield the options that a client of our OpenAI-compatible endpoint set."""
        redactor = self._endpoint.redactor
        if request.stop:
            yield b'"stop":' + msgspec.json.encode(redact_all(request.stop, redactor))
        if request.tools and request.tool_choice is not None:
            yield b'"tool_choice":' + _encode_tool_choice(request.tool_choice)
        if request.tools and request.parallel_calls is not None:
            yield b'"parallel_tool_calls":' + msgspec.json.encode(request.parallel_calls)
        if request.response_format is not None:
            response_format = redact_all(request.response_format, redactor)
            yield b'"response_format":' + msgspec.json.encode(response_format)

    def _is_thinking(self, request: ModelRequest) -> bool:
        return wants_thinking(request, self._endpoint) and may_think(
            request.messages,
            self._encoding_key,
            whole_history=self._provider.thinking_needs_history,
        )

    def _has_fixed_temperature(self, *, thinking: bool) -> bool:
        if self._is_openai:
            return thinking or _REASONING_MODELS.match(self._endpoint.model) is not None
        return thinking and self._uses_cache_markers  # Anthropic's rule, behind OpenRouter

    @property
    def _is_openai(self) -> bool:
        return self._provider.name == "openai"

    def _encode_messages(self, messages: Sequence[Message]) -> list[bytes]:
        encoded: list[bytes] = []
        key = self._encoding_key
        leading = True
        for message in messages:
            # During a run, all but the last few messages are already encoded.
            cached = message.encoded.get(key)
            if cached is None or type(message) is SystemText:
                leading = leading and isinstance(message, SystemText)
                cached = self._encode_cached(message, leading=leading)
            else:
                leading = False
            encoded.append(cached)
        if self._uses_cache_markers:
            for index in _marker_positions(messages, encoded):
                encoded[index] = add_cache_marker(encoded[index], b"}]}")
        return [message for message in encoded if message]

    def _encode_cached(self, message: Message, *, leading: bool) -> bytes:
        is_notice = isinstance(message, SystemText) and not leading
        is_notice = is_notice and not self._provider.allows_late_system
        key = f"{self._encoding_key}/notice" if is_notice else self._encoding_key
        encoded = message.encoded.get(key)
        if encoded is None:
            encoded = self._encode_message(message, is_notice=is_notice)
            message.encoded[key] = encoded
        return encoded

    def _encode_message(self, message: Message, *, is_notice: bool) -> bytes:
        match message:
            case SystemText():
                if not message.text.strip():
                    return b""
                if is_notice:
                    return self._encode_text(b'"role":"user"', NOTICE_PREFIX + message.text)
                return self._encode_text(b'"role":"system"', message.text)
            case UserText():
                return self._encode_text(b'"role":"user"', message.text)
            case ContextText():
                return self._encode_text(b'"role":"user"', CONTEXT_PREFIX + message.text)
            case ToolResult():
                text = f"Error: {message.text}" if message.failed else message.text
                id_ = json_text(message.call_id)
                return self._encode_text(b'"role":"tool","tool_call_id":' + id_, text)
            case AssistantText():
                raw = reusable_raw(message, self._provider.name, self._endpoint.redactor)
                return raw if raw is not None else self._rebuild(message)
            case _:
                assert_never(message)

    def _encode_text(self, role: bytes, text: str) -> bytes:
        quoted = json_text(self._redact(text if text.strip() else EMPTY_TEXT))
        if self._uses_cache_markers:
            quoted = b'[{"type":"text","text":' + quoted + b"}]"
        return b"{" + role + b',"content":' + quoted + b"}"

    def _rebuild(self, message: AssistantText) -> bytes:
        """Encode text and calls only; thinking of another provider cannot be sent."""
        if not (message.text.strip() or message.calls):
            return b""
        text = json_text(self._redact(message.text)) if message.text.strip() else b"null"
        calls = b",".join(
            encode_call(
                ToolCall(call.id, sanitize_name(call.name), self._redact(call.arguments)),
                self._provider.foreign_call_members,
            )
            for call in message.calls
        )
        tail = b',"tool_calls":[' + calls + b"]}" if calls else b"}"
        return b'{"role":"assistant","content":' + text + tail

    def _encode_tool(self, tool: ToolSpec) -> bytes:
        encoded = tool.encoded.get(self._encoding_key)
        if encoded is None:
            redactor = self._endpoint.redactor
            function = {
                "name": tool.name,
                "description": redactor.redact(tool.description),
                "parameters": redact_all(tool.parameters, redactor),
            }
            if tool.strict is not None:
                function["strict"] = tool.strict
            encoded = msgspec.json.encode({"type": "function", "function": function})
            tool.encoded[self._encoding_key] = encoded
        return encoded


def _encode_tool_choice(choice: ToolChoice) -> bytes:
    if choice.mode == "named":
        encoded = {"type": "function", "function": {"name": choice.name}}
        return msgspec.json.encode(encoded)
    return msgspec.json.encode(choice.mode)


def _marker_positions(messages: Sequence[Message], encoded: Sequence[bytes]) -> set[int]:
    """Return the ends of the system prompt, of the prefix that later runs share, and of all."""
    prompt = sum(1 for _ in takewhile(lambda each: isinstance(each, SystemText), messages))
    positions: set[int] = set()
    for end in (prompt - 1, index_before_question(messages), len(messages) - 1):
        # An answer is sent back unchanged, so the marker goes to the message before it.
        for index in range(end, -1, -1):
            if encoded[index] and not isinstance(messages[index], AssistantText):
                positions.add(index)
                break
    return positions
