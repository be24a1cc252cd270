"""The compressor: after an answer, older exchanges of a full window become a summary.

It runs in the background and keeps no state: if it is interrupted, the next run finds the window
unchanged and compression is planned again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
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
from dodona.agent.conversation.history import (
    ConversationKey,
    History,
    HistoryCache,
    conversation_key,
)
from dodona.agent.conversation.prompts import PromptLoader, render
from dodona.agent.model_calls import CallOutsideRun, call_outside_run
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.deps import RunDeps
from dodona.core.domain.conversations.conversation import NewSummary, RunInputs
from dodona.core.errors import DodonaError, NotFound
from dodona.core.events import CONTEXT_COMPRESSED, Event
from dodona.core.messages import SystemText, UserText
from dodona.core.ports.model import ChosenModel, ModelRequest

PROMPT_NAME: Final = "compression"
SUMMARY_TIMEOUT_SECONDS: Final = 60.0  # for the model call
MAX_RUNS: Final = 500  # summarised at once; older runs left the window long ago
EXTRACTIVE_PROVIDER: Final = "extractive"  # a built-in provider that only quotes its input

_NO_TOKEN_LIMIT: Final = 2**31 - 1
_CHARS_PER_TOKEN: Final = 3  # a low estimate

_log = logging.getLogger(__name__)

# Work to do after an answer has been delivered.
PostRunTask: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionJob:
    """A window that is too full after a run, and the model and prompts for its summary."""

    user_id: str
    project_id: str
    agent_id: str
    session_key: str
    cache_key: ConversationKey
    conversation_id: int
    run_id: int
    token_budget: int
    max_runs: int
    model: str
    prompt_folder: Path | None  # of the project


class Compressor:
    """Replaces older exchanges of a conversation window with a summary."""

    def __init__(
        self,
        deps: RunDeps,
        *,
        prompts: PromptLoader,
        prompt_folder: Callable[[RunInputs], Path | None],
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
        is_cut = window is not None and window.is_truncated
        if not self._deps.policy.compress_context or not (
            is_cut
            or needs_compression(history.tokens, history.runs, budget=budget, max_runs=max_runs)
        ):
            return None
        job = CompressionJob(
            user_id=context.user_id,
            project_id=context.project_id,
            agent_id=context.agent_id,
            session_key=context.session_key,
            cache_key=conversation_key(inputs),
            conversation_id=context.claim.conversation_id,
            run_id=context.claim.run_id,
            token_budget=budget,
            max_runs=max_runs,
            model=settings.subagent_model or context.snapshot.model,
            prompt_folder=self._prompt_folder(inputs),
        )
        return partial(self.compress, job)

    async def compress(self, job: CompressionJob) -> None:
        """Summarise older exchanges, if the window is still too full. Failures are logged."""
        try:
            plan = await self._plan_compression(job)
            if plan is not None:
                await self._store_summary(job, plan)
        except NotFound:
            return  # deleted or pruned in the meantime
        except DodonaError as error:
            _log.warning("could not compress conversation %s: %s", job.conversation_id, error)

    async def _plan_compression(self, job: CompressionJob) -> CompressionPlan | None:
        window = await self._deps.storage.conversations.load_window(
            job.user_id,
            job.conversation_id,
            budget=_NO_TOKEN_LIMIT,
            max_runs=MAX_RUNS,
            from_id=job.run_id,
        )
        plan = partial(plan_compression, window, budget=job.token_budget, max_runs=job.max_runs)
        return await asyncio.to_thread(plan)

    async def _store_summary(self, job: CompressionJob, plan: CompressionPlan) -> None:
        by_model = await self._summarise_with_model(job, plan)
        model, result = by_model or (None, ModelSummary(plan.build_extractive_summary()))
        summary = result.summary
        max_tokens = summary_limit(job.token_budget)
        count = partial(self._count_tokens, model or job.model)
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
            insights=result.insights,
            head_id=job.run_id,
            context_tokens=plan.remaining_tokens + tokens,
        )
        if await self._deps.storage.summaries.save(job.user_id, new_summary):
            self._histories.invalidate(job.cache_key)
            self._emit_compressed(job, plan, new_summary)

    def _count_tokens(self, model: str, text: str) -> int:
        return max(1, self._deps.token_counter.count(text, model))

    def _emit_compressed(
        self, job: CompressionJob, plan: CompressionPlan, summary: NewSummary
    ) -> None:
        payload = {
            "user_id": job.user_id,
            "project_id": job.project_id,
            "run_id": job.run_id,
            "summary_of": summary.run_id,
            "runs": len(plan.exchanges),
            "tokens_before": plan.tokens_before,
            "tokens_after": summary.context_tokens,
            "model": summary.model,
        }
        self._deps.emit(Event(CONTEXT_COMPRESSED, f"agent.{job.agent_id}", payload=payload))

    # -- model summaries -----------------------------------------------------------------------

    async def _summarise_with_model(
        self, job: CompressionJob, plan: CompressionPlan
    ) -> tuple[str, ModelSummary] | None:
        """Return the model's name and its summary; None without a model, or if the call failed."""
        try:
            chosen = await self._deps.models.choose(job.model, agent=job.agent_id)
            if chosen.model.provider == EXTRACTIVE_PROVIDER:
                return None
            async with asyncio.timeout(SUMMARY_TIMEOUT_SECONDS):
                text = await self._ask_model(job, plan, chosen)
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
        self, job: CompressionJob, plan: CompressionPlan, chosen_model: ChosenModel
    ) -> str:
        tokens = summary_limit(job.token_budget)
        template = await asyncio.to_thread(self._prompts.load, PROMPT_NAME, job.prompt_folder)
        values = {"project_id": job.project_id, "tokens": tokens // 2}
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
        call = CallOutsideRun(
            user_id=job.user_id,
            agent_id=job.agent_id,
            session_key=job.session_key,
            step_key=PROMPT_NAME,
            chosen_model=chosen_model,
            request=request,
            estimated_input_tokens=await asyncio.to_thread(
                self._count_tokens, chosen_model.model.name, prompt + text
            ),
        )
        return (await call_outside_run(self._deps, call)).message.text
