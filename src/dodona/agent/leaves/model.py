"""The model's part of a turn: `llm-call` calls it, `oracle.record_answer` reads the response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UnsetType, convert, structs, to_builtins

from dodona.agent.events.dispatch import emit_event
from dodona.agent.leaves.tools import emit_calls
from dodona.agent.model_calls import ModelCall, call_in_run
from dodona.agent.run_context.context import PartialAnswer, RunContext
from dodona.agent.run_context.records import AnswerRecord
from dodona.agent.turn_control.decision import output_limit_warning
from dodona.core.chunks import ContentChunk, RestartChunk, SystemChunk, ThinkingChunk, Untrusted
from dodona.core.errors import DodonaError, as_json
from dodona.core.events import AGENT_TURN_END, Severity
from dodona.core.ports.model import (
    FinishReason,
    ModelEvent,
    ModelRequest,
    Restart,
    TextDelta,
    ThinkingDelta,
)
from dodona.trees import Blackboard, Step, leaf

EMPTY_ANSWER_TEXT: Final = "The model ended without an answer."
PARAGRAPH_BREAK: Final = "\n\n"  # between the texts of two turns


def _request_key(bb: Blackboard, host: RunContext, arguments: Mapping[str, Any]) -> str:
    del bb, arguments
    return f"{host.chosen_model.model.name}\0{host.transcript.digest}"


@leaf(
    "llm-call",
    reads=("failure",),
    writes=("answer", "failure"),
    effect="none",
    request=_request_key,
)
async def llm_call(bb: Blackboard, step: Step, host: RunContext) -> bool:
    """Call the model, and stream its response to the user."""
    output = _ResponseOutput(host, step)
    host.partial_answer = partial_answer = PartialAnswer(host.feed.last_seq)
    try:
        call = _build_call(host, step)
        done = await call_in_run(host, call, output.show, partial_answer, step=step)
    except DodonaError as error:
        bb["failure"] = as_json(error)["error"]
        return False
    if bb["failure"] is not None:
        bb["failure"] = None  # the retry of a tree has succeeded
    answer = AnswerRecord.of(done)
    if not (answer.calls or answer.text.strip()):
        answer = structs.replace(answer, text=EMPTY_ANSWER_TEXT, raw=None)
        output.show(TextDelta(EMPTY_ANSWER_TEXT))
    if answer.calls:
        emit_calls(host, step, answer.calls)
    elif done.finish is FinishReason.LENGTH and not host.is_subagent:
        step.emit(_output_limit_chunk(host, answer))
    bb["answer"] = to_builtins(answer)
    return True


def _output_limit_chunk(host: RunContext, answer: AnswerRecord) -> SystemChunk:
    """The chunk of an answer that was cut at `max_tokens`."""
    limit, model_limit = host.options.max_tokens, host.chosen_model.max_tokens
    is_requested = limit is not None and (host.output_tokens_left() or 0) <= model_limit
    tokens = host.output_tokens + answer.output_tokens if is_requested else answer.output_tokens
    warning = output_limit_warning(
        tokens, limit if limit and is_requested else model_limit, is_requested=is_requested
    )
    return warning.chunk()


class _ResponseOutput:
    """Shows a response to the user as it streams. All content together is the answer."""

    def __init__(self, host: RunContext, step: Step) -> None:
        self._step = step
        self._is_hidden = host.is_subagent  # its text is for the calling agent
        self._untrusted: Untrusted | UnsetType = host.untrusted
        self._start_seq = host.feed.last_seq
        self._failed_answer = host.partial_answer  # of a call that the tree retries
        has_text = any(turn.answer.text.strip() for turn in host.turns)
        self._separator = PARAGRAPH_BREAK if has_text else ""
        self._needs_separator = has_text

    def show(self, event: ModelEvent) -> None:
        """Emit the chunk of an event, or only report progress."""
        step = self._step
        if self._is_hidden:
            step.progress()
            return
        if self._failed_answer is not None:
            self._discard_failed_answer(self._failed_answer)
        match event:
            case TextDelta(text) if text:
                separator = self._separator if self._needs_separator else ""
                self._needs_separator = False
                step.emit(ContentChunk(separator + text, self._untrusted))
            case ThinkingDelta(text):
                step.emit(ThinkingChunk(text, self._untrusted))
            case Restart(reason):
                self._restart(self._start_seq, reason)
            case _:
                step.progress()

    def _discard_failed_answer(self, answer: PartialAnswer) -> None:
        self._failed_answer = None
        if answer.text or answer.thinking:
            self._restart(answer.start_seq, "The model was called again.")

    def _restart(self, last_seq: int, reason: str) -> None:
        self._needs_separator = bool(self._separator)
        self._step.emit(RestartChunk(discard_after=last_seq, reason=reason))


def _build_call(host: RunContext, step: Step) -> ModelCall:
    settings, options, chosen = host.snapshot.settings, host.options, host.chosen_model
    tokens_left = host.output_tokens_left()
    request = ModelRequest(
        messages=host.transcript.messages,
        tools=host.role.tools,
        max_tokens=(
            chosen.max_tokens if tokens_left is None else min(tokens_left, chosen.max_tokens)
        ),
        temperature=(chosen.temperature if options.temperature is None else options.temperature),
        stop=options.stop,
        thinking=(settings.thinking_enabled if options.thinking is None else options.thinking),
        is_thinking_requested=options.thinking is True,
        cache_key=f"dodona-{host.inputs.conversation_id}{host.role.parent_step}",
        allow_restart=True,
    )
    return ModelCall(
        chosen_model=chosen,
        request=request,
        step_key=host.step_key(step),
        estimated_input_tokens=host.transcript.tokens,
    )


@leaf(
    "oracle.record_answer",
    reads=("answer", "state"),
    writes=("state", "tool_calls", "tool_results"),
)
def record_answer(bb: Blackboard, host: RunContext) -> None:
    """Add the response to the transcript, and its tool calls to the blackboard."""
    answer = convert(bb["answer"], AnswerRecord)
    message = answer.message()
    host.partial_answer = None
    host.answered_by = (answer.provider, answer.model)
    host.output_tokens += answer.output_tokens
    # Cached input costs almost nothing and recurs every turn, so the budget does not count it.
    new_tokens = answer.input_tokens - answer.cache_read_tokens + answer.output_tokens
    state = host.load_state(bb)
    host.context_tokens = answer.input_tokens + answer.output_tokens
    host.tokens_used += host.context_tokens
    host.save_state(bb, structs.replace(state, tokens_used=state.tokens_used + max(0, new_tokens)))
    if not message.calls:
        host.final_answer, host.finish_reason = message, answer.finish
        bb["tool_calls"] = []
        emit_event(host, AGENT_TURN_END, Severity.DEBUG, turn=state.turn)
        return
    host.pending_answer = message
    # A model that uses no tokens has no number for its text.
    host.transcript.add(message, answer.output_tokens or host.count_tokens(message.text))
    max_calls = host.role.limits.max_tool_calls_per_turn
    bb["tool_calls"] = to_builtins(message.calls[:max_calls])
    bb["tool_results"] = []


@leaf("has-tool-calls?", reads=("tool_calls",))
def has_tool_calls(bb: Blackboard) -> bool:
    """Whether the model called tools instead of answering."""
    return bool(bb["tool_calls"])
