"""The model's part of a turn: `llm-call` calls it, `oracle.record_answer` reads the response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import convert, structs, to_builtins

from dodona.agent.events.dispatch import emit_event
from dodona.agent.model_calls import ModelCall, call_in_run
from dodona.agent.run_context.context import PartialAnswer, RunContext
from dodona.agent.run_context.records import AnswerRecord
from dodona.agent.run_context.registries import leaf
from dodona.core.chunks import ContentChunk, RestartChunk, ThinkingChunk
from dodona.core.errors import DodonaError, as_json
from dodona.core.events import AGENT_TURN_END, Severity
from dodona.core.ports.model import (
    ModelEvent,
    ModelRequest,
    Restart,
    TextDelta,
    ThinkingDelta,
)
from dodona.trees import Blackboard, Step

EMPTY_ANSWER_TEXT: Final = "The model ended without an answer."


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
    before, untrusted = host.feed.last_seq, host.untrusted

    def emit_chunk(event: ModelEvent) -> None:
        match event:
            case _ if host.is_subagent:
                step.progress()  # its text is for the calling agent, not for the user
            case TextDelta(text):
                step.emit(ContentChunk(text, untrusted))
            case ThinkingDelta(text):
                step.emit(ThinkingChunk(text, untrusted))
            case Restart(reason):
                step.emit(RestartChunk(discard_after=before, reason=reason))
            case _:
                step.progress()

    partial_answer = PartialAnswer()
    host.partial_answer = partial_answer
    try:
        call = _build_call(host, step)
        done = await call_in_run(host, call, emit_chunk, partial_answer, step=step)
    except DodonaError as error:
        bb["failure"] = as_json(error)["error"]
        return False
    if bb["failure"] is not None:
        bb["failure"] = None  # the retry of a tree has succeeded
    answer = AnswerRecord.of(done)
    if not (answer.calls or answer.text.strip()):
        answer = structs.replace(answer, text=EMPTY_ANSWER_TEXT, raw=None)
        if not host.is_subagent:
            step.emit(ContentChunk(EMPTY_ANSWER_TEXT))
    bb["answer"] = to_builtins(answer)
    return True


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
