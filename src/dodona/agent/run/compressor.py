"""The compressor: after an answer, older exchanges of a full window become a summary.

It runs in the background and keeps no state: if it is interrupted, the next run finds the window
unchanged and compression is planned again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from dodona.agent.conversation.compression import (
    CompressionPlan,
    ModelSummary,
    needs_compression,
    parse_model_summary,
    plan_compression,
    render_for_model,
    summary_limit,
)
from dodona.agent.conversation.history import History, HistoryCache, conversation_key
from dodona.agent.conversation.prompts import PromptLoader, render
from dodona.agent.model_calls import ModelCall, call_outside_run
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.deps import RunDeps
from dodona.agent.run_context.snapshot import EXTRACTIVE_PROVIDER
from dodona.core.domain.conversations.conversation import ClaimedRun, NewSummary, Window
from dodona.core.errors import DodonaError, NotFound
from dodona.core.events import CONTEXT_COMPRESSED, Event
from dodona.core.messages import SystemText, UserText
from dodona.core.ports.model import ChosenModel, ModelRequest

PROMPT_NAME: Final = "compression"
SUMMARY_TIMEOUT_SECONDS: Final = 60.0  # for the model call
MAX_RUNS: Final = 500  # summarised at once; older runs left the window long ago

_NO_TOKEN_LIMIT: Final = 2**31 - 1
_CHARS_PER_TOKEN: Final = 3  # a low estimate

_log = logging.getLogger(__name__)

# Work to do after an answer has been delivered.
PostRunTask: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Compressor:
    """Replaces older exchanges of a conversation window with a summary."""

    def __init__(
        self,
        deps: RunDeps,
        *,
        prompts: PromptLoader,
        prompt_folder: Callable[[ClaimedRun], Path | None],
        histories: HistoryCache,
    ) -> None:
        self._deps = deps
        self._histories = histories
        self._prompts = prompts
        self._prompt_folder = prompt_folder

    def plan_after_run(self, context: RunContext, history: History) -> PostRunTask | None:
        """Return the compression to run after the answer; None if the window has room."""
        inputs, settings = context.inputs, context.snapshot.settings
        window, budget = inputs.window, inputs.context.token_budget
        max_runs = settings.max_context_nodes
        is_cut = isinstance(window, Window) and window.is_truncated
        if not self._deps.policy.compress_context or not (
            is_cut
            or needs_compression(history.tokens, history.runs, budget=budget, max_runs=max_runs)
        ):
            return None
        return partial(self.compress, context)

    async def compress(self, context: RunContext) -> None:
        """Summarise older exchanges, if the window is still too full. Failures are logged."""
        try:
            plan = await self._plan_compression(context)
            if plan is not None:
                await self._store_summary(context, plan)
        except NotFound:
            return  # deleted or pruned in the meantime
        except DodonaError as error:
            _log.warning(
                "could not compress conversation %s: %s", context.inputs.conversation_id, error
            )

    async def _plan_compression(self, context: RunContext) -> CompressionPlan | None:
        window = await self._deps.storage.conversations.load_window(
            context.user_id,
            context.inputs.conversation_id,
            budget=_NO_TOKEN_LIMIT,
            max_runs=MAX_RUNS,
            from_id=context.run_id,
        )
        budget = context.inputs.context.token_budget
        max_runs = context.snapshot.settings.max_context_nodes
        plan = partial(plan_compression, window, budget=budget, max_runs=max_runs)
        return await asyncio.to_thread(plan)

    async def _store_summary(self, context: RunContext, plan: CompressionPlan) -> None:
        by_model = await self._summarise_with_model(context, plan)
        model, result = by_model or (None, ModelSummary(plan.build_extractive_summary()))
        summary = result.summary
        max_tokens = summary_limit(context.inputs.context.token_budget)
        count = partial(self._count_tokens, model or _model_name(context))
        trimmed = await asyncio.to_thread(
            partial(summary.trim_to, max_tokens, count, is_prose=by_model is not None)
        )
        content = trimmed.to_text()
        tokens = await asyncio.to_thread(count, content)
        new_summary = NewSummary(
            run_id=plan.run_id,
            content=content,
            token_count=tokens,
            model=model,
            decisions=summary.decisions,
            mentioned_symbols=summary.symbols,
            mentioned_files=summary.files,
            # With untrusted text among the exchanges, it may be in the insight of any of them.
            insights={} if plan.provenance.marks else result.insights,
            marks=plan.provenance.marks,
            is_private=plan.provenance.is_private,
            head_id=context.run_id,
            context_tokens=plan.remaining_tokens + tokens,
        )
        if await self._deps.storage.summaries.save(context.user_id, new_summary):
            self._histories.invalidate(conversation_key(context.inputs))
            self._emit_compressed(context, plan, new_summary)

    def _count_tokens(self, model: str, text: str) -> int:
        return max(1, self._deps.token_counter.count(text, model))

    def _emit_compressed(
        self, context: RunContext, plan: CompressionPlan, summary: NewSummary
    ) -> None:
        payload = {
            "user_id": context.user_id,
            "project_id": context.project_id,
            "run_id": context.run_id,
            "summary_of": summary.run_id,
            "runs": len(plan.exchanges),
            "tokens_before": plan.tokens_before,
            "tokens_after": summary.context_tokens,
            "model": summary.model,
        }
        self._deps.emit(Event(CONTEXT_COMPRESSED, f"agent.{context.agent_id}", payload=payload))

    # -- model summaries -----------------------------------------------------------------------

    async def _summarise_with_model(
        self, context: RunContext, plan: CompressionPlan
    ) -> tuple[str, ModelSummary] | None:
        """Return the model's name and its summary; None without a model, or if the call failed."""
        try:
            chosen = await context.choose_model(_model_name(context))
            if chosen.model.provider == EXTRACTIVE_PROVIDER:
                return None
            async with asyncio.timeout(SUMMARY_TIMEOUT_SECONDS):
                text = await self._ask_model(context, plan, chosen)
        except TimeoutError:
            _log.warning(
                "the model returned no summary within %g seconds; using an extractive summary",
                SUMMARY_TIMEOUT_SECONDS,
            )
            return None
        except DodonaError as error:
            _log.warning("the model call failed; using an extractive summary: %s", error)
            return None
        result = await asyncio.to_thread(parse_model_summary, text, plan)
        if result is None:
            _log.warning(
                "%s returned no valid summary; using an extractive summary", chosen.model.name
            )
            return None
        return chosen.model.name, result

    async def _ask_model(
        self, context: RunContext, plan: CompressionPlan, chosen_model: ChosenModel
    ) -> str:
        tokens = summary_limit(context.inputs.context.token_budget)
        folder = self._prompt_folder(context.inputs)
        template = await asyncio.to_thread(self._prompts.load, PROMPT_NAME, folder)
        values = {"project_id": context.project_id, "tokens": tokens // 2}
        prompt = render(template, values, file=f"{PROMPT_NAME}.md")
        max_chars = (
            max(1_000, chosen_model.context_size - chosen_model.max_tokens) * _CHARS_PER_TOKEN // 2
        )
        text = await asyncio.to_thread(render_for_model, plan, max_chars)
        request = ModelRequest(
            messages=(SystemText(prompt), UserText(text)),
            max_tokens=chosen_model.max_tokens,
            temperature=chosen_model.temperature,
        )
        call = ModelCall(
            step_key=PROMPT_NAME,
            chosen_model=chosen_model,
            request=request,
            estimated_input_tokens=await asyncio.to_thread(
                self._count_tokens, chosen_model.model.name, prompt + text
            ),
        )
        return (await call_outside_run(self._deps, context.billing, call)).message.text


def _model_name(context: RunContext) -> str:
    return context.snapshot.settings.subagent_model or context.snapshot.model
