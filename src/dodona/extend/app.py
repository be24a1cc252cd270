"""Dodona inside of another program.

    async with dodona.open(vault="notes", tools=[book_room]) as app:
        answer = await app.ask("Which room is free?")
        async for chunk in app.stream("Book it."):
            ...

Apps share nothing, so a program may have several. None of them configures logging or handles
signals: Dodona logs to the loggers below `dodona`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypedDict, TypeVar, Unpack

from msgspec import UNSET

from dodona.agent.question import Name, Question
from dodona.agent.views.exchanges import OracleAnswer
from dodona.app.bootstrap import Runtime, open_runtime
from dodona.app.config.config import Config
from dodona.app.models.credentials import Credentials
from dodona.core.chunks import AnyChunk, ApprovalChunk, DoneFinish, ErrorChunk, StreamChunk
from dodona.core.domain.conversations.conversation import RunRequest
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import Conflict, DodonaError, NotFound, StoreError, from_body
from dodona.core.json_document import parse_document, parse_value
from dodona.core.ports.tools import SourceReference
from dodona.extend.options import AnyPath, AppOptions, OpenOptions
from dodona.gateway.shutdown import Shutdown
from dodona.net.redactor import Redactor

T = TypeVar("T")

CHANNEL: Final = "app"  # of the sessions with agents other than the default one
NO_APPROVER: Final = "this program does not ask for approvals (ask() has no approve=)."

Approve: TypeAlias = Callable[[ApprovalChunk], bool | Awaitable[bool]]


class QuestionOptions(TypedDict, total=False):
    """What can be said about a question, as in `POST /api/oracle`; and who asks which agent.

    Questions of one user about one project are one conversation with the default agent, and one
    with each other `agent`. `new` begins another, `context_id` continues from an earlier answer.
    """

    user_id: str
    project_id: str
    agent: str | None
    context_id: str | None
    new: bool
    model: str | None
    max_tokens: int | None
    sources: tuple[str, ...] | None
    thinking: bool | None


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """A tool call of an answer."""

    name: str
    arguments: Mapping[str, Any]
    result: str
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a run. `str(answer)` is its text."""

    text: str
    sources: tuple[SourceReference, ...]
    tool_calls: tuple[AnswerCall, ...]
    tokens_used: int
    model: str
    run_id: int
    context_id: str
    finish: DoneFinish
    termination_reason: str

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of(cls, answer: OracleAnswer) -> Self:
        """Return the answer that a document of the API describes."""
        reason = answer.termination_reason
        return cls(
            text=answer.answer,
            sources=tuple(answer.sources),
            tool_calls=tuple(
                AnswerCall(each.name, each.arguments, each.result or "", each.status == "error")
                for each in answer.tool_calls
            ),
            tokens_used=answer.tokens_used,
            model=answer.model_used,
            run_id=answer.run_id,
            context_id=answer.context_id,
            finish=answer.finish,
            termination_reason="" if reason is UNSET else reason,
        )


@dataclass(frozen=True, slots=True)
class LiveApp:
    """What an app has opened, for the other parts of Dodona."""

    runtime: Runtime
    config: Config
    redactor: Redactor
    loop: asyncio.AbstractEventLoop
    shutdown: Shutdown = field(default_factory=Shutdown)


class AnswerStream:
    """The chunks of an answer. Closing it before its end cancels the run.

    `run_id` and `seq` are those of the last chunk. A RestartChunk refers to `seq`.
    """

    def __init__(self, chunks: AsyncGenerator[StreamChunk]) -> None:
        self._chunks = chunks
        self.run_id = 0
        self.seq = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyChunk:
        chunk = await anext(self._chunks)
        self.run_id, self.seq = chunk.run_id, chunk.seq
        return chunk.chunk

    async def aclose(self) -> None:
        """End the stream; cancel the run if it has not ended."""
        await self._chunks.aclose()


class App:
    """A Dodona in this program, open inside of `async with`. `dodona.open` returns it.

    When it closes, it cancels the runs of its open calls.
    """

    def __init__(self, options: AppOptions) -> None:
        self._options = options
        self._stack: AsyncExitStack | None = None  # None before the first use
        self._live: LiveApp | None = None
        self._runs: dict[int, str] = {}  # the users of the runs of open calls
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise RuntimeError("an app can be opened once: call dodona.open() again.")
        self._stack = AsyncExitStack()
        options, redactor = self._options, Redactor()
        config = await asyncio.to_thread(options.load_config)
        runtime = await self._stack.enter_async_context(
            open_runtime(
                config,
                Credentials(config, options.find_environment(), redactor),
                redactor,
                serve=options.serve,
                loader=options.build_loader(),
                reload_config=options.load_config if options.serve else None,
            )
        )
        self._live = LiveApp(runtime, config, redactor, asyncio.get_running_loop())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        live, self._live = self._live, None
        assert live is not None
        assert self._stack is not None
        try:
            live.shutdown.start()
            await self._finish_tasks()
            for run_id, user_id in self._runs.items():
                self._start(_cancel_run(live.runtime, user_id, run_id))
            self._runs.clear()
            await self._finish_tasks()
        finally:
            live.shutdown.finish()
            await self._stack.aclose()

    @property
    def is_open(self) -> bool:
        """Whether the app is open."""
        return self._live is not None

    @property
    def live(self) -> LiveApp:
        """What the app has opened. Raises RuntimeError if it is not open in this event loop."""
        if self._live is None:
            state = "not open" if self._stack is None else "closed"
            raise RuntimeError(f"this app is {state}: use it inside of `async with`.")
        if asyncio.get_running_loop() is not self._live.loop:
            raise RuntimeError(
                "this app was opened in another event loop: open one in each, or use open_sync()."
            )
        return self._live

    async def ask(
        self, question: str, *, approve: Approve | None = None, **options: Unpack[QuestionOptions]
    ) -> Answer:
        """Ask a question and return the answer. Raises the DodonaError of a failed run.

        `approve` decides about tool calls that need an approval; without it, they are denied.
        Cancelling the task cancels the run.
        """
        stream, user_id = self.stream(question, **options), options.get("user_id", LOCAL_USER)
        async with aclosing(stream):
            async for chunk in stream:
                if isinstance(chunk, ApprovalChunk):
                    approved = await _decide(approve, chunk)
                    note = "" if approve else NO_APPROVER
                    with suppress(Conflict):  # expired, or decided by another client
                        await self.decide(
                            *(stream.run_id, chunk.approval),
                            approved=approved, note=note, user_id=user_id,
                        )  # fmt: skip
        return await self.find_answer(stream.run_id, user_id=user_id)

    def stream(self, question: str, **options: Unpack[QuestionOptions]) -> AnswerStream:
        """Ask a question and return the chunks of its answer, as an async iterator.

        Iterating raises the DodonaError of a failed run. Leaving the loop early, or cancelling
        the task, cancels the run. Answer an ApprovalChunk with `decide`.
        """
        return AnswerStream(self._stream_run(question, options))

    async def decide(
        self,
        run_id: int,
        approval: str,
        *,
        approved: bool,
        note: str = "",
        user_id: str = LOCAL_USER,
    ) -> None:
        """Approve or deny a tool call. Raises Conflict if that has been decided before."""
        approvals = self.live.runtime.api.approvals
        await approvals.decide(user_id, run_id, approval, approved=approved, note=note)

    async def find_answer(self, run_id: int, *, user_id: str = LOCAL_USER) -> Answer:
        """Wait for a run to end and return its answer. Raises the DodonaError of a failed run."""
        return Answer.of(await self.live.runtime.api.oracle.answer(user_id, run_id))

    async def _stream_run(
        self, question: str, options: QuestionOptions
    ) -> AsyncGenerator[StreamChunk]:
        live = self.live
        request = await _build_request(live.runtime, question, options)
        submission = self._start(self._submit(live.runtime, request))
        has_ended = False
        try:
            run_id = await asyncio.shield(submission)
            chunks = live.runtime.api.oracle.stream_chunks(request.user_id, run_id)
            async with aclosing(chunks):
                async for batch in chunks:
                    for each in batch:
                        has_ended = each.is_last
                        if isinstance(each.chunk, ErrorChunk):
                            raise from_body(each.chunk.error)
                        yield each
            if not has_ended:
                raise StoreError(f"run {run_id} was interrupted: its app was closed.")
        finally:
            if has_ended:
                self._runs.pop(submission.result(), None)
            else:
                await asyncio.shield(self._start(self._abandon(live.runtime, submission)))

    async def _submit(self, runtime: Runtime, request: RunRequest) -> int:
        run_id = await runtime.api.oracle.submit(request)
        self._runs[run_id] = request.user_id
        return run_id

    async def _abandon(self, runtime: Runtime, submission: asyncio.Task[int]) -> None:
        """Cancel a run whose caller has gone, as soon as it is submitted."""
        await asyncio.wait([submission])
        if submission.cancelled() or submission.exception() is not None:
            return
        user_id = self._runs.pop(submission.result(), None)
        if user_id is not None:
            await _cancel_run(runtime, user_id, submission.result())

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that the app waits for when it closes."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _finish_tasks(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)


def open(  # noqa: A001 - used as `dodona.open`
    config: AnyPath | None = None, **options: Unpack[OpenOptions]
) -> App:
    """Return an app, to be opened with `async with`. All arguments are optional.

    config: the path of a config file. Without it, only the environment applies, including
        DODONA_CONFIG: never a `dodona.toml` in the current folder, nor `config.toml` in the
        Dodona folder, which the program did not name.
    home: the Dodona folder, with the database. By default DODONA_HOME, or `~/.dodona`.
    vault: the folder of notes.
    code: the folder of source code, or several.
    model: the model of all agents that do not name one: "provider/model", or a `Model`.
    tools: functions with @tool, and any other extensions, or modules of them.
    settings: sections of a config, which override the file and the environment: a mapping such
        as {"agent": {"max_tokens": 500}}. None removes a setting. `log` has no effect.
    serve: resume interrupted runs, and reload changed files, as a gateway does.
    """
    return App(AppOptions(config=config, **options))


async def _build_request(runtime: Runtime, question: str, options: QuestionOptions) -> RunRequest:
    values: dict[str, Any] = {**options, "question": question}
    user_id = parse_value(Name, "user_id", values.pop("user_id", LOCAL_USER))
    agent = values.pop("agent", None)
    parsed = parse_document(Question, values)
    request = parsed.to_request(user_id)
    api = runtime.api
    if agent is None or agent == api.agents().default.id:
        return request
    key = session_key(agent, CHANNEL, parsed.project_id)
    if parsed.new:
        with suppress(NotFound):  # there is no session yet
            await api.sessions.clear(user_id, key)
    return replace(request, agent_id=agent, session_key=key, new_conversation=False)


async def _decide(approve: Approve | None, chunk: ApprovalChunk) -> bool:
    decision = approve(chunk) if approve is not None else False
    return bool(await decision if inspect.isawaitable(decision) else decision)


async def _cancel_run(runtime: Runtime, user_id: str, run_id: int) -> None:
    """Cancel a run and wait for its end."""
    with suppress(DodonaError):  # the store may be unavailable
        await runtime.api.oracle.cancel(user_id, run_id)
        async for _ in runtime.api.oracle.stream_chunks(user_id, run_id):
            pass
