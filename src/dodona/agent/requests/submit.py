"""Submission of questions and messages; streaming and cancellation of their runs.

All channels enter the agent layer here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

from dodona.agent.conversation.history import HistoryCache
from dodona.agent.question import MAX_QUESTION_CHARS
from dodona.agent.run.engine import LocalEngine
from dodona.agent.run.replay import load_answer, load_stored_run
from dodona.agent.run_context.deps import RunDeps
from dodona.agent.views.exchanges import OracleAnswer
from dodona.core.chunks import StreamChunk
from dodona.core.domain.agents import AgentDef
from dodona.core.domain.conversations.conversation import RunRequest, RunStatus
from dodona.core.errors import BadRequest, InvalidField, NotFound, did_you_mean
from dodona.core.messages import Origin
from dodona.core.ports.tools import ToolCategory


class Oracle:
    """Answers questions. An accepted question is always answered, even with no client connected."""

    def __init__(self, deps: RunDeps, engine: LocalEngine, *, histories: HistoryCache) -> None:
        self._deps = deps
        self._storage = deps.storage
        self._engine = engine
        self._histories = histories

    async def submit(self, request: RunRequest, *, max_chars: int = MAX_QUESTION_CHARS) -> int:
        """Accept a question, and return the ID of the run that answers it.

        On return it is durable and will be answered: in a context by the default agent, in a
        session by that of the request.
        """
        deps, text = self._deps, request.question
        agent = self._find_agent(request)
        await self._check_token(request, agent)
        self._check_sources(request)
        if not text.strip() or len(text) > max_chars:
            raise BadRequest(
                f"a message must have 1 to {max_chars:,} characters (got {len(text):,})."
            )
        user_id, project_id, session_key = request.user_id, request.project_id, request.session_key
        # Others have written what an adapter sends, also in the user's name.
        is_relayed = request.token is not None and request.token.relays_others
        return await self._engine.submit(
            replace(
                request,
                agent_id=agent.id,
                origin=Origin.PEER.value if is_relayed else request.origin,
                token_count=max(1, deps.token_counter.count(text, request.options.model or "")),
                queueing=agent.queueing,
                queue_limit=agent.queue_limit,
                token_budget=deps.policy.token_budget,
                cached_window=self._histories.get(user_id, project_id, session_key),
            )
        )

    async def _check_token(self, request: RunRequest, agent: AgentDef) -> None:
        """Raise AccessDenied if the request's token does not allow the agent or the model."""
        token, model = request.token, request.options.model
        if token is None:
            return
        token.check_agent(agent.id)
        if model and token.limits.models is not None:
            await self._deps.models.choose(model, agent=agent.id, token=token)

    def _check_sources(self, request: RunRequest) -> None:
        """Raise InvalidField if a source is neither a built-in category nor one of a tool's own."""
        own = self._deps.registry().toolbox.categories()
        available = {*ToolCategory, *own} - {ToolCategory.META}  # those tools are always available
        unknown = next((s for s in request.options.sources or () if s not in available), None)
        if unknown is not None:
            names = [str(each) for each in sorted(available)]
            raise InvalidField(
                f"sources must be a list with any of {', '.join(names)}, or null "
                f"(got {unknown!r:.80}).",
                field="sources",
                hint=did_you_mean(unknown, names),
            )

    def _find_agent(self, request: RunRequest) -> AgentDef:
        agents, name = self._deps.agents(), request.agent_id
        agent = agents.default if request.session_key is None else agents.get(name)
        if agent is None:
            raise NotFound(
                f"there is no agent {name!r:.80}.", hint=did_you_mean(name, agents.ids())
            )
        return agent

    async def stream_chunks(
        self, user_id: str, run_id: int, *, after_seq: int = 0
    ) -> AsyncGenerator[list[StreamChunk]]:
        """Stream the chunks of a run after a sequence number, in batches: stored ones, then live.

        Ends after the final chunk, or without it if this process releases the run at shutdown.
        """
        feed = self._engine.find_feed(run_id)
        if feed is None or feed.user_id != user_id:
            async for batch in self._stream_stored_chunks(user_id, run_id, after_seq):
                yield batch
            return
        async for batch in feed.stream(after_seq):
            yield batch

    async def _stream_stored_chunks(
        self, user_id: str, run_id: int, after_seq: int
    ) -> AsyncGenerator[list[StreamChunk]]:
        """Stream the chunks of a run that is queued, has ended, or is driven by another process.

        Stops when the run ends; switches to the live feed when this process claims the run.
        """
        while True:
            run, stored = await load_stored_run(self._storage, user_id, run_id)
            batch = [chunk for chunk in stored if chunk.seq > after_seq]
            if batch:
                after_seq = batch[-1].seq
                yield batch
            if run.status.has_ended or self._engine.is_shutting_down:
                return
            if (feed := self._engine.find_feed(run_id)) is not None:
                async for batch in feed.stream(after_seq):
                    yield batch
                return
            await self._engine.wait_for_change()

    async def answer(self, user_id: str, run_id: int) -> OracleAnswer:
        """Wait for a run to end; return its answer or raise its error."""
        async for _ in self.stream_chunks(user_id, run_id):
            pass
        return await load_answer(self._storage, user_id, run_id)

    async def cancel(self, user_id: str, run_id: int) -> RunStatus:
        """Request cancellation of a run; the request is durable on return."""
        return await self._engine.cancel(user_id, run_id)

    async def cancel_all(self, user_id: str, project_id: str) -> list[int]:
        """Cancel all unfinished runs of a project and return their IDs."""
        await self._storage.projects.get(user_id, project_id)
        run_ids = await self._storage.runs.list_unfinished(user_id, project_id)
        # Queued runs first: cancelling the running one first would start the next in its lane.
        for run_id in reversed(run_ids):
            await self._engine.cancel(user_id, run_id)
        return run_ids
