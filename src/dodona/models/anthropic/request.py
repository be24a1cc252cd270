"""Encode requests for Anthropic's Messages API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from typing import assert_never

import msgspec

from dodona.core.errors import ProviderError, ProviderErrorKind
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
from dodona.models.anthropic.response import AnthropicAnswerDecoder
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
    valid_arguments,
    wants_thinking,
)
from dodona.models.errors import ProviderErrorFactory
from dodona.models.parameters import rejected_parameters, without_rejected
from dodona.models.provider import ModelEndpoint

API_VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 4096  # the API requires a value
DEFAULT_MAX_TOKENS_THINKING = 16384  # thinking tokens count towards it
MIN_THINKING_BUDGET = 1024

# Models up to 4.5 take a thinking budget; later ones choose it themselves and reject one. Models
# up to 4.6 accept a temperature. Models behind another base_url that are not named Claude are
# treated like the older ones.
_BUDGETED_THINKING_MODELS = re.compile(
    r"(?!claude-)|claude-(?:[123]\b|instant"
    r"|(?:opus|sonnet|haiku)-4(?:[-.][015])?(?:-\d{8}|-latest|@.*)?$)"
)
_TEMPERATURE_MODELS = re.compile(
    rf"{_BUDGETED_THINKING_MODELS.pattern}|claude-(?:opus|sonnet)-4[-.]6"
)


class AnthropicWire:
    """Encodes requests so that their prefix stays byte-identical during a run, for caching.

    Each message is encoded as a JSON array of content blocks. Consecutive messages of one role
    are merged into one message of the API.
    """

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self.url = f"{endpoint.base_url.removesuffix('/v1')}/v1/messages"
        self.headers = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "anthropic-version": API_VERSION,
        }
        if endpoint.api_key:
            self.headers["x-api-key"] = endpoint.api_key
        self.errors = ProviderErrorFactory(endpoint)
        self.rejected = rejected_parameters(endpoint)
        self._endpoint = endpoint
        self._redact = endpoint.redactor.redact
        self._encoding_key = ""  # cache key of encoded messages; changes with each new secret

    def new_decoder(self) -> AnthropicAnswerDecoder:
        """Return a decoder for one response."""
        return AnthropicAnswerDecoder(self._endpoint, self.errors)

    def encode_request(self, request: ModelRequest, rejected: frozenset[str]) -> bytes:
        """Return the JSON body of a request, without the rejected parameters."""
        self._encoding_key = encoding_key(self._endpoint)
        prompt = tuple(takewhile(lambda each: isinstance(each, SystemText), request.messages))
        system = self._encode_system(prompt)
        tools = [self._encode_tool(tool) for tool in request.tools]
        if tools and not system:
            tools[-1] = add_cache_marker(tools[-1])
        return b"".join(
            (
                b'{"model":',
                json_text(self._endpoint.model),
                b',"tools":[' + b",".join(tools) + b"]" if tools else b"",
                b',"system":' + system if system else b"",
                b',"messages":[',
                b",".join(self._encode_messages(request.messages[len(prompt) :])),
                b'],"stream":true',
                *(
                    b"," + each
                    for each in without_rejected(self._encode_settings(request), rejected)
                ),
                b"}",
            )
        )

    def _encode_settings(self, request: ModelRequest) -> Iterator[bytes]:
        thinking = wants_thinking(request, self._endpoint) and may_think(
            request.messages, self._encoding_key, whole_history=False
        )
        choice = request.tool_choice
        thinking = thinking and not (choice is not None and choice.is_forced)
        limit = request.max_tokens or (
            DEFAULT_MAX_TOKENS_THINKING if thinking else DEFAULT_MAX_TOKENS
        )
        budgeted = _BUDGETED_THINKING_MODELS.match(self._endpoint.model) is not None
        # The API requires a budget below max_tokens.
        thinking = thinking and (not budgeted or limit > MIN_THINKING_BUDGET)
        yield b'"max_tokens":%d' % limit
        if thinking and budgeted:
            budget = max(MIN_THINKING_BUDGET, limit // 2)
            yield b'"thinking":{"type":"enabled","budget_tokens":%d}' % budget
        elif thinking:
            yield b'"thinking":{"type":"adaptive","display":"summarized"}'
        elif request.temperature is not None and _TEMPERATURE_MODELS.match(self._endpoint.model):
            yield b'"temperature":' + msgspec.json.encode(request.temperature)
        yield from self._encode_client_options(request)

    def _encode_client_options(self, request: ModelRequest) -> Iterator[bytes]:
        if request.response_format is not None:
            raise ProviderError(
                "the Anthropic API does not support response_format.",
                kind=ProviderErrorKind.REJECTED,
                provider=self._endpoint.provider.name,
                hint="Define a tool with the schema as its parameters, "
                "and force it with tool_choice.",
            )
        if request.stop:
            redacted = redact_all(request.stop, self._endpoint.redactor)
            yield b'"stop_sequences":' + msgspec.json.encode(redacted)
        if request.tools and (request.tool_choice or request.parallel_calls is not None):
            choice = request.tool_choice or ToolChoice("auto")
            yield b'"tool_choice":' + _encode_tool_choice(choice, parallel=request.parallel_calls)

    def _encode_system(self, prompt: Sequence[Message]) -> bytes:
        blocks = [self._encode_cached(message, leading=True)[1:-1] for message in prompt]
        blocks = [block for block in blocks if block]
        if not blocks:
            return b""
        blocks[-1] = add_cache_marker(blocks[-1])
        return b"[" + b",".join(blocks) + b"]"

    def _encode_messages(self, messages: Sequence[Message]) -> Iterator[bytes]:
        encoded = [(message, self._encode_cached(message)) for message in _results_first(messages)]
        encoded = [pair for pair in encoded if pair[1] != b"[]"]
        remaining = [message for message, _ in encoded]
        for index in {index_before_question(remaining), len(remaining) - 1}:
            if index >= 0:
                message, blocks = encoded[index]
                encoded[index] = (message, add_cache_marker(blocks, b"}]"))
        for is_answer, group in groupby(encoded, lambda pair: isinstance(pair[0], AssistantText)):
            role = b"assistant" if is_answer else b"user"
            content = b",".join(blocks[1:-1] for _, blocks in group)
            yield b'{"role":"' + role + b'","content":[' + content + b"]}"

    def _encode_cached(self, message: Message, *, leading: bool = False) -> bytes:
        is_notice = isinstance(message, SystemText) and not leading
        key = f"{self._encoding_key}/notice" if is_notice else self._encoding_key
        encoded = message.encoded.get(key)
        if encoded is None:
            blocks = self._encode_message(message, is_notice=is_notice)
            encoded = blocks if isinstance(blocks, bytes) else b"[" + b",".join(blocks) + b"]"
            message.encoded[key] = encoded
        return encoded

    def _encode_message(self, message: Message, *, is_notice: bool) -> bytes | list[bytes]:
        match message:
            case SystemText():
                text = NOTICE_PREFIX + message.text if is_notice else message.text
                return [self._encode_text(text)] if message.text.strip() else []
            case UserText():
                return [self._encode_text(message.text)]
            case ContextText():
                return [self._encode_text(CONTEXT_PREFIX + message.text)]
            case ToolResult():
                return [self._encode_result(message)]
            case AssistantText():
                raw = reusable_raw(message, self._endpoint.provider.name, self._endpoint.redactor)
                return raw if raw is not None else self._rebuild(message)
            case _:
                assert_never(message)

    def _encode_text(self, text: str) -> bytes:
        quoted = json_text(self._redact(text if text.strip() else EMPTY_TEXT))
        return b'{"type":"text","text":' + quoted + b"}"

    def _encode_result(self, result: ToolResult) -> bytes:
        content = json_text(self._redact(result.text if result.text.strip() else EMPTY_TEXT))
        failed = b',"is_error":true' if result.failed else b""
        id_ = json_text(sanitize_name(result.call_id))
        return (
            b'{"type":"tool_result","tool_use_id":' + id_ + failed + b',"content":' + content + b"}"
        )

    def _rebuild(self, message: AssistantText) -> list[bytes]:
        """Encode text and calls only; thinking of another provider cannot be sent."""
        blocks = [self._encode_text(message.text)] if message.text.strip() else []
        return blocks + [self._encode_call(call) for call in message.calls]

    def _encode_call(self, call: ToolCall) -> bytes:
        return b"".join(
            (
                b'{"type":"tool_use","id":',
                json_text(sanitize_name(call.id)),
                b',"name":',
                json_text(sanitize_name(call.name)),
                b',"input":',
                valid_arguments(self._redact(call.arguments)).encode(),
                b"}",
            )
        )

    def _encode_tool(self, tool: ToolSpec) -> bytes:
        encoded = tool.encoded.get(self._encoding_key)
        if encoded is None:
            redactor = self._endpoint.redactor
            encoded = msgspec.json.encode(
                {
                    "name": tool.name,
                    "description": redactor.redact(tool.description),
                    "input_schema": redact_all(tool.parameters, redactor),
                }
            )
            tool.encoded[self._encoding_key] = encoded
        return encoded


def _encode_tool_choice(choice: ToolChoice, *, parallel: bool | None) -> bytes:
    kinds = {"required": "any", "named": "tool"}
    encoded: dict[str, object] = {"type": kinds.get(choice.mode, choice.mode)}
    if choice.mode == "named":
        encoded["name"] = choice.name
    if parallel is not None and choice.mode != "none":
        encoded["disable_parallel_tool_use"] = not parallel
    return msgspec.json.encode(encoded)


def _results_first(messages: Sequence[Message]) -> Iterator[Message]:
    """Move tool results to the front of each user message, as the API requires."""
    for is_answer, group in groupby(messages, lambda each: isinstance(each, AssistantText)):
        if is_answer:
            yield from group
        else:
            yield from sorted(group, key=lambda each: not isinstance(each, ToolResult))
