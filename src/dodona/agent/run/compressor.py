"""The compressor: after an answer, older exchanges of a crowded window become a summary.

It works while nobody waits for it, and holds nothing: if it is cut, the next run finds the window
as crowded as it was.
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
from dodona.agent.model_calls import BackgroundCall, call_outside_run
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.deps import RunDeps
from dodona.core.domain.conversations.conversation import NewSummary, RunInputs
from dodona.core.errors import DodonaError, NotFound
from dodona.core.events import CONTEXT_COMPRESSED, Event
from dodona.core.messages import SystemText, UserText
from dodona.core.ports.model import ChosenModel, ModelRequest

PROMPT_NAME: Final = "compression"
SUMMARY_TIMEOUT_SECONDS: Final = 60.0  # seconds for a model to sum up
MAX_RUNS: Final = 500  # that are summed up at once; what is older was out of sight for long
EXTRACTIVE_PROVIDER: Final = "extractive"  # the provider that only quotes

_NO_TOKEN_LIMIT: Final = 2**31 - 1
_CHARS_PER_TOKEN: Final = 3  # of a token, if there are many for it

_log = logging.getLogger(__name__)

# What is left to do once an answer is out.
PostRunTask: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionJob:
    """A window that is crowded after a run, and with what it is to be summed up."""

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
    prompt_folder: Path | None  # the project's own


class Compressor:
    """Makes room in windows."""

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

    def plan_after_run(self, host: RunContext, history: History) -> PostRunTask | None:
        """What is to be done once the answer is out; most often nothing."""
        brief, settings = host.inputs, host.snapshot.settings
        window, budget = brief.window, brief.context.token_budget
        most = settings.max_context_nodes
        is_cut = window is not None and window.is_truncated
        if not self._deps.policy.compress_context or not (
            is_cut or needs_compression(history.tokens, history.runs, budget=budget, max_runs=most)
        ):
            return None
        crowd = CompressionJob(
            user_id=host.user_id,
            project_id=host.project_id,
            agent_id=host.agent_id,
            session_key=host.session_key,
            cache_key=conversation_key(brief),
            conversation_id=host.claim.conversation_id,
            run_id=host.claim.run_id,
            token_budget=budget,
            max_runs=most,
            model=settings.subagent_model or host.snapshot.model,
            prompt_folder=self._prompt_folder(brief),
        )
        return partial(self.compress, crowd)

    async def compress(self, job: CompressionJob) -> None:
        """Sum up what must make room, if that is still so."""
        try:
            folding = await self._plan_compression(job)
            if folding is not None:
                await self._store_summary(job, folding)
        except NotFound:
            return  # it was deleted, or pruned, meanwhile
        except DodonaError as error:
            _log.warning("conversation %s is not compressed: %s", job.conversation_id, error)

    async def _plan_compression(self, job: CompressionJob) -> CompressionPlan | None:
        window = await self._deps.storage.conversations.load_window(
            job.user_id,
            job.conversation_id,
            budget=_NO_TOKEN_LIMIT,
            max_runs=MAX_RUNS,
            from_id=job.run_id,
        )
        made = partial(plan_compression, window, budget=job.token_budget, max_runs=job.max_runs)
        return await asyncio.to_thread(made)

    async def _store_summary(self, job: CompressionJob, plan: CompressionPlan) -> None:
        found = await self._summarise_with_model(job, plan)
        model, answered = found or (None, ModelSummary(plan.build_extractive_summary()))
        gist = answered.summary
        most = summary_limit(job.token_budget)
        count = partial(self._count_tokens, model or job.model)
        fitted = await asyncio.to_thread(
            partial(gist.trim_to, most, count, is_prose=found is not None)
        )
        content = fitted.to_text()
        tokens = await asyncio.to_thread(count, content)
        summary = NewSummary(
            run_id=plan.run_id,
            content=content,
            token_count=tokens,
            model=model,
            decisions=gist.decisions,
            mentioned_symbols=gist.symbols,
            mentioned_files=gist.files,
            insights=answered.insights,
            head_id=job.run_id,
            context_tokens=plan.remaining_tokens + tokens,
        )
        if await self._deps.storage.summaries.save(job.user_id, summary):
            self._histories.invalidate(job.cache_key)
            self._emit_compressed(job, plan, summary)

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

    # -- by a model ----------------------------------------------------------------------------

    async def _summarise_with_model(
        self, job: CompressionJob, plan: CompressionPlan
    ) -> tuple[str, ModelSummary] | None:
        """What a model made of it, and its name; None when there is none, or it came to nothing."""
        try:
            chosen = await self._deps.models.choose(job.model, agent=job.agent_id)
            if chosen.model.provider == EXTRACTIVE_PROVIDER:
                return None
            async with asyncio.timeout(SUMMARY_TIMEOUT_SECONDS):
                said = await self._ask_model(job, plan, chosen)
        except TimeoutError:
            _log.warning(
                "no summary came in %g seconds: it is made without a model", SUMMARY_TIMEOUT_SECONDS
            )
            return None
        except DodonaError as error:
            _log.warning("a summary is made without a model: %s", error)
            return None
        answered = await asyncio.to_thread(parse_model_summary, said, plan)
        if answered is None:
            _log.warning("%s gave no summary: it is made without it", chosen.model.name)
            return None
        return chosen.model.name, answered

    async def _ask_model(
        self, job: CompressionJob, plan: CompressionPlan, chosen_model: ChosenModel
    ) -> str:
        tokens = summary_limit(job.token_budget)
        template = await asyncio.to_thread(self._prompts.load, PROMPT_NAME, job.prompt_folder)
        values = {"project_id": job.project_id, "tokens": tokens // 2}
        prompt = render(template, values, file=f"{PROMPT_NAME}.md")
        room = (
            max(1_000, chosen_model.context_size - chosen_model.max_tokens) * _CHARS_PER_TOKEN // 2
        )
        shown = await asyncio.to_thread(render_for_model, plan, room)
        request = ModelRequest(
            messages=(SystemText(prompt), UserText(shown)),
            max_tokens=chosen_model.max_tokens,
            temperature=chosen_model.temperature,
        )
        call = BackgroundCall(
            user_id=job.user_id,
            agent_id=job.agent_id,
            session_key=job.session_key,
            step_key=PROMPT_NAME,
            chosen_model=chosen_model,
            request=request,
            input_tokens=await asyncio.to_thread(
                self._count_tokens, chosen_model.model.name, prompt + shown
            ),
        )
        return (await call_outside_run(self._deps, call)).message.text
