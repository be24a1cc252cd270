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
    plan_compression,
    read_answer,
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

PROMPT: Final = "compression"
PATIENCE: Final = 60.0  # seconds for a model to sum up
MOST_RUNS: Final = 500  # that are summed up at once; what is older was out of sight for long
NO_MODEL: Final = "extractive"  # the provider that only quotes

_ALL: Final = 2**31 - 1
_CHARACTERS: Final = 3  # of a token, if there are many for it

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
    place: ConversationKey
    conversation_id: int
    run_id: int
    token_budget: int
    most_runs: int
    model: str
    prompts: Path | None  # the project's own


class Compressor:
    """Makes room in windows."""

    def __init__(
        self,
        means: RunDeps,
        *,
        prompts: PromptLoader,
        prompt_folder: Callable[[RunInputs], Path | None],
        histories: HistoryCache,
    ) -> None:
        self._means = means
        self._histories = histories
        self._prompts = prompts
        self._folder = prompt_folder

    def plan_after_run(self, host: RunContext, after: History) -> PostRunTask | None:
        """What is to be done once the answer is out; most often nothing."""
        brief, settings = host.brief, host.pins.settings
        window, budget = brief.window, brief.context.token_budget
        most = settings.max_context_nodes
        is_cut = window is not None and window.is_cut
        if not self._means.conduct.compress_context or not (
            is_cut or needs_compression(after.tokens, after.runs, budget=budget, most_runs=most)
        ):
            return None
        crowd = CompressionJob(
            user_id=host.user_id,
            project_id=host.project_id,
            agent_id=host.agent_id,
            session_key=host.session_key,
            place=conversation_key(brief),
            conversation_id=host.claim.conversation_id,
            run_id=host.claim.run_id,
            token_budget=budget,
            most_runs=most,
            model=settings.subagent_model or host.pins.model,
            prompts=self._folder(brief),
        )
        return partial(self.compress, crowd)

    async def compress(self, crowd: CompressionJob) -> None:
        """Sum up what must make room, if that is still so."""
        try:
            folding = await self._plan(crowd)
            if folding is not None:
                await self._keep(crowd, folding)
        except NotFound:
            return  # it was deleted, or pruned, meanwhile
        except DodonaError as error:
            _log.warning("conversation %s is not compressed: %s", crowd.conversation_id, error)

    async def _plan(self, crowd: CompressionJob) -> CompressionPlan | None:
        window = await self._means.storage.conversations.window(
            crowd.user_id,
            crowd.conversation_id,
            budget=_ALL,
            max_runs=MOST_RUNS,
            from_id=crowd.run_id,
        )
        made = partial(
            plan_compression, window, budget=crowd.token_budget, most_runs=crowd.most_runs
        )
        return await asyncio.to_thread(made)

    async def _keep(self, crowd: CompressionJob, folding: CompressionPlan) -> None:
        found = await self._answered(crowd, folding)
        model, answered = found or (None, ModelSummary(folding.known()))
        gist = answered.gist
        most = summary_limit(crowd.token_budget)
        count = partial(self._count, model or crowd.model)
        fitted = await asyncio.to_thread(
            partial(gist.trim_to, most, count, is_prose=found is not None)
        )
        content = fitted.text()
        tokens = await asyncio.to_thread(count, content)
        summary = NewSummary(
            run_id=folding.run_id,
            content=content,
            token_count=tokens,
            model=model,
            decisions=gist.decisions,
            mentioned_symbols=gist.symbols,
            mentioned_files=gist.files,
            insights=answered.insights,
            head_id=crowd.run_id,
            context_tokens=folding.kept_tokens + tokens,
        )
        if await self._means.storage.summaries.keep(crowd.user_id, summary):
            self._histories.invalidate(crowd.place)
            self._tell(crowd, folding, summary)

    def _count(self, model: str, text: str) -> int:
        return max(1, self._means.counter.count(text, model))

    def _tell(self, crowd: CompressionJob, folding: CompressionPlan, summary: NewSummary) -> None:
        payload = {
            "user_id": crowd.user_id,
            "project_id": crowd.project_id,
            "run_id": crowd.run_id,
            "summary_of": summary.run_id,
            "runs": len(folding.told),
            "tokens_before": folding.tokens,
            "tokens_after": summary.context_tokens,
            "model": summary.model,
        }
        self._means.emit(Event(CONTEXT_COMPRESSED, f"agent.{crowd.agent_id}", payload=payload))

    # -- by a model ----------------------------------------------------------------------------

    async def _answered(
        self, crowd: CompressionJob, folding: CompressionPlan
    ) -> tuple[str, ModelSummary] | None:
        """What a model made of it, and its name; None when there is none, or it came to nothing."""
        try:
            chosen = await self._means.models.choose(crowd.model, agent=crowd.agent_id)
            if chosen.model.provider == NO_MODEL:
                return None
            async with asyncio.timeout(PATIENCE):
                said = await self._ask_model(crowd, folding, chosen)
        except TimeoutError:
            _log.warning("no summary came in %g seconds: it is made without a model", PATIENCE)
            return None
        except DodonaError as error:
            _log.warning("a summary is made without a model: %s", error)
            return None
        answered = await asyncio.to_thread(read_answer, said, folding)
        if answered is None:
            _log.warning("%s gave no summary: it is made without it", chosen.model.name)
            return None
        return chosen.model.name, answered

    async def _ask_model(
        self, crowd: CompressionJob, folding: CompressionPlan, chosen: ChosenModel
    ) -> str:
        tokens = summary_limit(crowd.token_budget)
        template = await asyncio.to_thread(self._prompts.text, PROMPT, crowd.prompts)
        values = {"project_id": crowd.project_id, "tokens": tokens // 2}
        prompt = render(template, values, file=f"{PROMPT}.md")
        room = max(1_000, chosen.context_size - chosen.max_tokens) * _CHARACTERS // 2
        shown = await asyncio.to_thread(render_for_model, folding, room)
        request = ModelRequest(
            messages=(SystemText(prompt), UserText(shown)),
            max_tokens=chosen.max_tokens,
            temperature=chosen.temperature,
        )
        call = BackgroundCall(
            user_id=crowd.user_id,
            agent_id=crowd.agent_id,
            session_key=crowd.session_key,
            step_key=PROMPT,
            chosen=chosen,
            request=request,
            input_tokens=await asyncio.to_thread(self._count, chosen.model.name, prompt + shown),
        )
        return (await call_outside_run(self._means, call)).message.text
