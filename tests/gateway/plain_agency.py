"""An agency of plain classes: what the gateway needs of one, told by the test what to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from dodona.agent.question import Question, context_id
from dodona.agent.run_context.chunk_feed import no_redaction
from dodona.agent.turn_control.settings import ModelSettings, SettingsChange, changed_values
from dodona.agent.views.exchanges import OracleAnswer
from dodona.agent.views.projects import NewProject, ProjectChange, ProjectDocument
from dodona.agent.views.runs import RunDocument
from dodona.agent.views.sessions import SessionHistory
from dodona.core.chunks import AnyChunk, ContentChunk, DoneChunk, ErrorChunk, StreamChunk
from dodona.core.domain.agents import Agents
from dodona.core.domain.conversations.conversation import RunRequest, RunStatus
from dodona.core.errors import Cancelled, DodonaError, NotFound, to_body
from dodona.core.json_document import Timestamp
from dodona.notify import Bus

LONG = 30.0  # seconds that a loaded machine may take for what is immediate


async def until(condition: Any, what: str) -> None:
    """Wait for something that another task does."""
    async with asyncio.timeout(LONG):
        while not condition():  # noqa: ASYNC110 - anything may be waited for
            await asyncio.sleep(0.005)
    assert condition(), what


class PlainRun:
    """Chunks that a test puts in, for whoever follows."""

    def __init__(self, run_id: int, request: RunRequest) -> None:
        self.id = run_id
        self.request = request
        self.status = RunStatus.RUNNING
        self.chunks: list[StreamChunk] = []
        self.failure: DodonaError | None = None
        self.followers = 0
        self.waiting = 0
        self.closings = 0
        self._moved = asyncio.Condition()

    async def put(self, *bodies: AnyChunk) -> None:
        for body in bodies:
            self.chunks.append(StreamChunk(self.id, 1_000_001 + len(self.chunks), body))
        await self._tell()

    async def say(self, *texts: str) -> None:
        await self.put(*map(ContentChunk, texts))

    async def finish(self) -> None:
        self.status = RunStatus.SUCCEEDED
        last = DoneChunk(
            tokens_used=7,
            model_used="plain",
            context_id=context_id(self.id),
            context_tokens_remaining=100,
            termination_reason="finished",
        )
        await self.put(last)

    async def fail(self, failure: DodonaError) -> None:
        self.status, self.failure = RunStatus.FAILED, failure
        await self.put(ErrorChunk(to_body(failure)))

    async def close(self) -> None:
        """End the feeds there are, as a process does that leaves; the run goes on."""
        self.closings += 1
        await self._tell()

    async def stirred(self, at: int) -> None:
        before = self.closings
        async with self._moved:
            await self._moved.wait_for(lambda: self.closings > before or len(self.chunks) > at)

    @property
    def has_ended(self) -> bool:
        return bool(self.chunks) and self.chunks[-1].is_last

    async def _tell(self) -> None:
        async with self._moved:
            self._moved.notify_all()


class PlainOracle:
    """Questions become runs; `refusal` is raised instead of taking one in."""

    def __init__(self) -> None:
        self.runs: dict[int, PlainRun] = {}
        self.refusal: BaseException | None = None
        self.cancelled: list[tuple[str, int]] = []
        self.broken: Exception | None = None  # raised by `events` once all was read

        self.gate = asyncio.Event()  # nothing is taken in while it is not set
        self.gate.set()

    async def ask(self, user_id: str, question: Question) -> int:
        return await self.submit(question.to_request(user_id))

    async def submit(self, request: RunRequest) -> int:
        assert request.session_key is not None or request.user_id == "local"
        await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        run = PlainRun(len(self.runs) + 1, request)
        self.runs[run.id] = run
        return run.id

    async def stream_chunks(
        self, user_id: str, run_id: int, *, after_seq: int = 0
    ) -> AsyncGenerator[list[StreamChunk]]:
        run = self._run(user_id, run_id)
        run.followers += 1
        closings = run.closings
        try:
            at = 0
            while True:
                batch = [chunk for chunk in run.chunks[at:] if chunk.seq > after_seq]
                at = len(run.chunks)
                if batch:
                    yield batch
                if at < len(run.chunks):
                    continue  # more came while somebody read
                if run.has_ended or run.closings > closings:
                    return
                if self.broken is not None:
                    raise self.broken
                await run.stirred(at)
        finally:
            run.followers -= 1

    async def answer(self, user_id: str, run_id: int) -> OracleAnswer:
        run = self._run(user_id, run_id)
        run.waiting += 1
        try:
            while not run.has_ended:
                await run.stirred(len(run.chunks))
        finally:
            run.waiting -= 1
        if run.failure is not None:
            raise run.failure
        texts = [c.chunk.content for c in run.chunks if isinstance(c.chunk, ContentChunk)]
        return OracleAnswer(
            answer="".join(texts),
            sources=[],
            citations=[],
            tool_calls=[],
            tokens_used=7,
            model_used="plain",
            context_id=context_id(run_id),
            run_id=run_id,
            context_tokens_remaining=100,
            finish="stop",
            termination_reason="finished",
            marks=[],
        )

    async def cancel(self, user_id: str, run_id: int) -> RunStatus:
        run = self._run(user_id, run_id)
        if not run.has_ended:
            self.cancelled.append((user_id, run_id))
            await run.fail(Cancelled("the run was cancelled."))
            return RunStatus.CANCELLED
        return run.status

    async def cancel_all(self, user_id: str, project_id: str) -> list[int]:
        found = [
            run.id
            for run in self.runs.values()
            if run.request.project_id == project_id and not run.has_ended
        ]
        for run_id in found:
            await self.cancel(user_id, run_id)
        return found

    def _run(self, user_id: str, run_id: int) -> PlainRun:
        if user_id != "local" or run_id not in self.runs:
            raise NotFound(f"there is no run {run_id}.")
        return self.runs[run_id]


@dataclass
class PlainRuns:
    oracle: PlainOracle
    asked: list[Mapping[str, Any]] = field(default_factory=list)

    async def list(self, user_id: str, **wanted: Any) -> list[RunDocument]:
        self.asked.append({"user_id": user_id, **wanted})
        found = sorted(self.oracle.runs, reverse=True)
        before = wanted.get("before")
        older = [each for each in found if before is None or each < before]
        return [self._document(each) for each in older[: wanted["limit"]]]

    def _document(self, run_id: int) -> RunDocument:
        run = self.oracle.runs[run_id]
        return RunDocument(
            id=run_id,
            project_id=run.request.project_id,
            context_id=context_id(run_id),
            status=run.status,
            session_key=None,
            origin="user",
            attempt=1,
            question=run.request.question,
            tokens=7,
            finish=None,
            termination_reason=None,
            error=None,
            created_at=Timestamp(1),
            started_at=None,
            ended_at=None,
            duration_ms=None,
        )

    async def open_count(self, _user_id: str) -> int:
        return sum(not run.has_ended for run in self.oracle.runs.values())

    async def show(self, user_id: str, run_id: int) -> dict[str, Any]:
        run = self.oracle._run(user_id, run_id)
        return {"id": run.id, "question": run.request.question, "ended_at": None}


class PlainContexts:
    async def show(self, user_id: str, project_id: str) -> dict[str, Any]:
        if project_id == "nowhere":
            raise NotFound(f"there is no project {project_id}.")
        return {
            "user_id": user_id,
            "project_id": project_id,
            "status": "active",
            "recent_exchanges": [],
        }

    async def close(self, user_id: str, project_id: str) -> dict[str, Any]:
        return {**await self.show(user_id, project_id), "status": "closed"}


class PlainPreferences:
    def __init__(self) -> None:
        self.kept = ModelSettings()

    async def get(self, _user_id: str) -> ModelSettings:
        return self.kept

    async def change(self, _user_id: str, change: SettingsChange) -> ModelSettings:
        self.kept = ModelSettings(**self.kept.as_dict() | changed_values(change))
        return self.kept

    async def replace(self, _user_id: str, change: SettingsChange) -> ModelSettings:
        self.kept = ModelSettings(**changed_values(change))
        return self.kept


class PlainProjects:
    def __init__(self) -> None:
        self.kept: dict[str, ProjectDocument] = {"default": _project("default")}

    async def list(self, _user_id: str) -> list[ProjectDocument]:
        return list(self.kept.values())

    async def get(self, _user_id: str, project_id: str) -> ProjectDocument:
        if project_id not in self.kept:
            raise NotFound(f"there is no project {project_id!r}.")
        return self.kept[project_id]

    async def create(self, _user_id: str, project: NewProject) -> ProjectDocument:
        self.kept[project.id] = _project(project.id)
        return await self.change(_user_id, project.id, project)

    async def change(self, user_id: str, project_id: str, change: ProjectChange) -> ProjectDocument:
        found = await self.get(user_id, project_id)
        for name in ("vault_path", "code_paths", "settings"):
            if (value := getattr(change, name)) is not UNSET:
                setattr(found, name, value)
        return found


def _project(name: str) -> ProjectDocument:
    return ProjectDocument(
        id=name, vault_path=None, code_paths=(), settings={}, created_at=Timestamp(1)
    )


class PlainApprovals:
    """Whatever is decided is noted; `refusal` is raised instead."""

    def __init__(self) -> None:
        self.decided: list[tuple[int, str, bool, str]] = []
        self.refusal: DodonaError | None = None
        self.asked = 0

    async def decide(
        self, _user_id: str, run_id: int, call_id: str, *, approved: bool, note: str = ""
    ) -> dict[str, Any]:
        self.asked += 1
        if self.refusal is not None:
            raise self.refusal
        self.decided.append((run_id, call_id, approved, note))
        return {"run_id": run_id, "call": call_id}


class PlainSessions:
    """Those of the messages that were taken in."""

    def __init__(self, oracle: PlainOracle) -> None:
        self.oracle = oracle

    @property
    def keys(self) -> list[str]:
        found = (run.request.session_key for run in self.oracle.runs.values())
        return [*dict.fromkeys(key for key in found if key is not None)]

    async def list(
        self, _user_id: str, *, limit: int = 50, skip: int = 0, **_: Any
    ) -> list[dict[str, Any]]:
        return [{"key": key} for key in self.keys[skip : skip + limit]]

    async def clear(self, _user_id: str, key: str, **_: Any) -> dict[str, Any]:
        if key not in self.keys:
            raise NotFound(f"there is no session {key!r:.80}.")
        return {"key": key}

    async def history(
        self, _user_id: str, key: str, *, before: int | None = None, limit: int = 50, **_: Any
    ) -> SessionHistory:
        asked = [run.request for run in self.oracle.runs.values()]
        texts = [request.question for request in asked if request.session_key == key]
        messages: list[Any] = [{"content": text} for text in texts[-limit:]]
        return SessionHistory(messages, before)


class PlainSpending:
    async def budgets(
        self, _user_id: str | None, *, max_rows: int, **_: Any
    ) -> list[dict[str, Any]]:
        return [{"kind": "daily", "left": 7}][:max_rows]


class PlainAgency:
    """The shape of `dodona.agent.api.AgentApi`; its bus is the real one."""

    def __init__(self) -> None:
        self.redact = no_redaction
        self.oracle = PlainOracle()
        self.sessions = PlainSessions(self.oracle)
        self.agents = Agents
        self.spending = PlainSpending()
        self.runs = PlainRuns(self.oracle)
        self.contexts = PlainContexts()
        self.settings = PlainPreferences()
        self.projects = PlainProjects()
        self.approvals = PlainApprovals()
        self.events = Bus()


@asynccontextmanager
async def ended(task: asyncio.Task[None]) -> AsyncGenerator[None]:
    """The task, cancelled and over when this is left."""
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
