"""Dodona in this process, as programs embed it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

import dodona
from dodona import leaf, model, tool
from dodona.agent.api import ORACLE_TREE
from dodona.agent.turn_control.decision import DefaultDecisionTree, decision_tree
from dodona.agent.turn_control.state import AgentState
from dodona.core.chunks import (
    AnyChunk,
    ApprovalChunk,
    ContentChunk,
    DoneChunk,
    ToolCallChunk,
    ToolResultChunk,
)
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.errors import (
    BadRequest,
    Cancelled,
    ConfigError,
    Conflict,
    ExtensionError,
    ProviderError,
    ProviderErrorKind,
)
from dodona.extend.app import App
from dodona.testing import ScriptedModel, call, open_test_app
from dodona.trees import Blackboard

LONG = 30.0
EXTRACTIVE = {"agent": {"provider": "extractive", "model": None}}
ASK_FIRST = """
[rule]
id = "ask-first"
trigger = "on_tool_call"
condition = 'context.event.payload.tool == "book_room"'
[action]
kind = "require_approval"
reason = "Rooms cost money."
"""


@tool
async def book_room(room: str) -> str:
    """Book a meeting room."""
    return f"{room} is yours."


class Slow:
    """A tool that waits until it is cancelled."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    def tool(self) -> Callable[..., object]:
        @tool
        async def wait_long() -> str:
            """Wait."""
            self.started.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "Waited."

        return wait_long


async def status_of(app: App, run_id: int = 1) -> RunStatus:
    return RunStatus((await app.live.runtime.api.runs.show("local", run_id)).status)


@pytest.fixture
def rules(tmp_path: Path) -> dict[str, object]:
    """Settings with the rule that bookings need an approval."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "ask_first.toml").write_text(ASK_FIRST, encoding="utf-8")
    return {"rules": {"folder": tmp_path / "rules"}}


# -- answers -------------------------------------------------------------------------------------


async def test_an_answer_has_text_calls_and_numbers() -> None:
    """`str(answer)` is its text."""
    answers = [call("book_room", room="Oak"), "Oak is booked."]
    async with open_test_app(answers, tools=[book_room]) as app:
        answer = await app.ask("Book the room Oak.")
    assert str(answer) == answer.text == "Oak is booked."
    (booking,) = answer.tool_calls
    assert (booking.name, booking.arguments) == ("book_room", {"room": "Oak"})
    assert (booking.result, booking.failed) == ("Oak is yours.", False)
    assert (answer.run_id, answer.context_id) == (1, "node-1")
    assert (answer.model, answer.finish, answer.termination_reason) == (
        "scripted",
        "stop",
        "finished",
    )
    assert answer.tokens_used > 0


async def test_an_answer_has_its_sources() -> None:
    """The embedded default quotes the vault of the app."""
    notes = {"oak.md": "# Oaks\n\nOaks bear acorns in autumn.\n"}
    async with open_test_app(vault=notes, settings=EXTRACTIVE) as app:
        answer = await app.ask("What do oaks bear?")
    assert "acorns" in answer.text
    assert [source.path for source in answer.sources] == ["oak.md"]


async def test_a_stream_yields_typed_chunks() -> None:
    """In order, with the run of each; the last is a DoneChunk."""
    answers = [call("book_room", room="Oak"), "Oak is booked."]
    kinds: list[type[AnyChunk]] = []
    async with open_test_app(answers, tools=[book_room]) as app:
        stream = app.stream("Book the room Oak.")
        text = ""
        async for chunk in stream:
            kinds.append(type(chunk))
            text += chunk.content if isinstance(chunk, ContentChunk) else ""
            assert stream.run_id == 1
            assert stream.seq > 1_000_000
    assert text == "Oak is booked."
    assert kinds.index(ToolCallChunk) < kinds.index(ToolResultChunk) < kinds.index(ContentChunk)
    assert kinds[-1] is DoneChunk


async def test_a_failed_run_raises_its_error() -> None:
    """From `ask`, and from the iteration over a stream; the app goes on."""
    error = ProviderError("no.", kind=ProviderErrorKind.REJECTED, provider="scripted")
    async with open_test_app([error, error, "Yes."]) as app:
        with pytest.raises(ProviderError):
            await app.ask("One?")
        with pytest.raises(ProviderError):
            async for _ in app.stream("Two?"):
                pass
        assert str(await app.ask("Three?")) == "Yes."


async def test_an_invalid_question_names_the_field() -> None:
    """As over HTTP, with the nearest right word."""
    async with open_test_app() as app:
        with pytest.raises(BadRequest) as error:
            await app.ask("Hm?", contxt_id="node-1")  # type: ignore[call-arg]
        assert str(error.value) == "there is no field 'contxt_id'. Did you mean 'context_id'?"
        for invalid in ({"question": " "}, {"question": "Hm?", "user_id": ""}):
            with pytest.raises(BadRequest):
                await app.ask(**invalid)


# -- conversations -------------------------------------------------------------------------------


def asked_before(scripted: ScriptedModel) -> list[str]:
    """Which of the questions A, B, C each request to the model contained."""
    return [
        "".join(each for each in "ABC" if f"question {each}" in str(request.messages))
        for request in scripted.requests
    ]


async def test_questions_of_a_user_are_one_conversation() -> None:
    """Unless `new` begins another, or `context_id` goes back."""
    scripted = ScriptedModel(["1.", "2.", "3."])
    async with open_test_app(model=scripted) as app:
        await app.ask("question A")
        await app.ask("question B", new=True)
        await app.ask("question C")
    assert asked_before(scripted) == ["A", "B", "BC"]


async def test_a_question_may_continue_from_an_earlier_answer() -> None:
    """The answers after it are left out."""
    scripted = ScriptedModel(["1.", "2.", "3."])
    async with open_test_app(model=scripted) as app:
        first = await app.ask("question A")
        await app.ask("question B")
        await app.ask("question C", context_id=first.context_id)
    assert asked_before(scripted) == ["A", "AB", "AC"]


async def test_users_have_their_own_conversations() -> None:
    """And none sees the run of another one."""
    scripted = ScriptedModel(["1.", "2."])
    async with open_test_app(model=scripted) as app:
        answer = await app.ask("question A", user_id="ada")
        await app.ask("question B", user_id="bob")
        with pytest.raises(dodona.DodonaError):
            await app.find_answer(answer.run_id, user_id="bob")
    assert asked_before(scripted) == ["A", "B"]


# -- agents --------------------------------------------------------------------------------------


@leaf("my.greet", writes=("retrieved",))
def greet(bb: Blackboard) -> None:
    """Greet the model."""
    bb["retrieved"] = "Hello from a leaf."


@decision_tree("one-turn")
class OneTurn(DefaultDecisionTree):
    """Allows one turn."""

    def should_continue(self, state: AgentState) -> tuple[bool, str]:
        return (False, "enough") if state.turn else super().should_continue(state)


async def test_a_configured_agent_has_a_conversation_of_its_own(tmp_path: Path) -> None:
    """With its own tree, leaf and decision tree; the settings name them."""
    tree = (await asyncio.to_thread(ORACLE_TREE.read_text)).replace(
        '(action retrieve-context :fn "oracle.retrieve_context")', '(action greet :fn "my.greet")'
    )
    await asyncio.to_thread((tmp_path / "mine.lisp").write_text, tree)
    agent = {"tree": tmp_path / "mine.lisp", "decision_tree": "one-turn"}
    scripted = ScriptedModel(["1.", call("book_room", room="Oak"), "3."])
    async with open_test_app(
        model=scripted, tools=[book_room, greet, OneTurn], settings={"agents": {"mine": agent}}
    ) as app:
        await app.ask("question A")
        answer = await app.ask("question B", agent="mine")
        assert answer.termination_reason == "enough"
        await app.ask("question C", agent="mine", new=True)
        with pytest.raises(dodona.DodonaError, match="there is no agent 'mien'"):
            await app.ask("question C", agent="mien")
    assert asked_before(scripted) == ["A", "B", "C"]


# -- approvals -----------------------------------------------------------------------------------


async def test_without_approve_a_call_is_denied_at_once(rules: dict[str, object]) -> None:
    """The model reads why; nothing waits for a person who is not there."""
    answers = [call("book_room", room="Oak"), "I may not."]
    async with open_test_app(answers, tools=[book_room], settings=rules) as app:
        answer = await app.ask("Book the room Oak.")
    assert [each.failed for each in answer.tool_calls] == [True]
    assert answer.tool_calls[0].result == (
        "book_room was not called: the user denied it. Their note: this program does not ask for "
        "approvals (ask() has no approve=)."
    )


@pytest.mark.parametrize("is_async", [True, False])
async def test_approve_decides_about_each_call(rules: dict[str, object], *, is_async: bool) -> None:
    """It may be a function or a coroutine function."""

    async def approve_later(chunk: ApprovalChunk) -> bool:
        await asyncio.sleep(0)
        return chunk.arguments == {"room": "Oak"}

    def approve_now(chunk: ApprovalChunk) -> bool:
        return chunk.arguments == {"room": "Oak"}

    answers = [call("book_room", room="Oak"), call("book_room", room="Elm"), "Done."]
    async with open_test_app(answers, tools=[book_room], settings=rules) as app:
        answer = await app.ask("Book.", approve=approve_later if is_async else approve_now)
    assert [each.failed for each in answer.tool_calls] == [False, True]


async def test_a_stream_waits_for_decide(rules: dict[str, object]) -> None:
    """A second decision is a conflict."""
    answers = [call("book_room", room="Oak"), "Booked."]
    results: list[str] = []
    async with open_test_app(answers, tools=[book_room], settings=rules) as app:
        stream = app.stream("Book the room Oak.")
        async for chunk in stream:
            if isinstance(chunk, ApprovalChunk):
                await app.decide(stream.run_id, chunk.approval, approved=True)
                with pytest.raises(Conflict):
                    await app.decide(stream.run_id, chunk.approval, approved=False)
            if isinstance(chunk, ToolResultChunk):
                results.append(chunk.result)
    assert results == ["Oak is yours."]


async def test_an_error_of_approve_cancels_the_run(rules: dict[str, object]) -> None:
    """And reaches the caller."""

    def approve(chunk: ApprovalChunk) -> bool:
        raise LookupError(chunk.name)

    answers = [call("book_room", room="Oak"), "Booked."]
    async with open_test_app(answers, tools=[book_room], settings=rules) as app:
        with pytest.raises(LookupError, match="book_room"):
            await app.ask("Book.", approve=approve)
        assert await status_of(app) is RunStatus.CANCELLED


# -- cancellation --------------------------------------------------------------------------------


async def test_cancelling_the_task_cancels_the_run() -> None:
    """Its tool is cancelled, and the next question is answered."""
    slow = Slow()
    async with open_test_app([call("wait_long"), "Next."], tools=[slow.tool()]) as app:
        task = asyncio.create_task(app.ask("Wait."))
        await asyncio.wait_for(slow.started.wait(), LONG)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert slow.cancelled.is_set()
        assert await status_of(app) is RunStatus.CANCELLED
        assert str(await app.ask("Go on.")) == "Next."


async def test_a_task_may_be_cancelled_at_any_moment() -> None:
    """Also while the question is being stored: no run stays behind."""
    scripted = ScriptedModel([f"{n}." for n in range(100)])
    async with open_test_app(model=scripted) as app:
        for steps in range(0, 40, 3):
            task = asyncio.create_task(app.ask("Hm?"))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        assert str(await app.ask("Well?")).endswith(".")
        runs = app.live.runtime.api.runs
        for run in await runs.list("local"):
            assert RunStatus(run.status).has_ended


async def test_leaving_a_stream_cancels_its_run() -> None:
    """By closing it, or by `break` alone."""
    slow = Slow()
    async with open_test_app([call("wait_long"), call("wait_long")], tools=[slow.tool()]) as app:
        async with aclosing(app.stream("Wait.")) as stream:
            async for chunk in stream:
                if isinstance(chunk, ToolCallChunk):
                    break
        assert await status_of(app) is RunStatus.CANCELLED
        slow.cancelled.clear()
        async for chunk in app.stream("Wait."):
            if isinstance(chunk, ToolCallChunk):
                break
        async with asyncio.timeout(LONG):
            while await status_of(app, 2) is not RunStatus.CANCELLED:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_closing_an_app_cancels_its_open_calls() -> None:
    """They raise Cancelled; nothing is left to be resumed."""
    slow = Slow()
    async with open_test_app([call("wait_long")], tools=[slow.tool()]) as app:
        task = asyncio.create_task(app.ask("Wait."))
        await asyncio.wait_for(slow.started.wait(), LONG)
    with pytest.raises(Cancelled):
        await task
    assert slow.cancelled.is_set()


# -- use -----------------------------------------------------------------------------------------


async def test_an_app_that_is_not_open_says_so(tmp_path: Path) -> None:
    """Before and after; and it opens once."""
    app = dodona.open(home=tmp_path, model="extractive")
    with pytest.raises(RuntimeError) as early:
        await app.ask("Hm?")
    assert str(early.value) == "this app is not open: use it inside of `async with`."
    async with app:
        assert app.is_open
    with pytest.raises(RuntimeError) as late:
        async for _ in app.stream("Hm?"):
            pass
    assert str(late.value) == "this app is closed: use it inside of `async with`."
    with pytest.raises(RuntimeError) as again:
        await app.__aenter__()
    assert str(again.value) == "an app can be opened once: call dodona.open() again."


async def test_an_app_belongs_to_its_event_loop(tmp_path: Path) -> None:
    """Another loop gets an error, and does not hang."""
    async with dodona.open(home=tmp_path, model="extractive") as app:

        def ask_elsewhere() -> str:
            with pytest.raises(RuntimeError) as error:
                asyncio.run(app.ask("Hm?"))
            return str(error.value)

        assert await asyncio.to_thread(ask_elsewhere) == (
            "this app was opened in another event loop: open one in each, or use open_sync()."
        )


async def test_an_app_that_cannot_open_leaves_nothing_open(tmp_path: Path) -> None:
    """What is wrong with an extension is raised by `async with`."""
    with pytest.raises(ExtensionError, match="is not an extension"):
        async with dodona.open(home=tmp_path, tools=[len]):
            pass
    async with dodona.open(home=tmp_path, model="extractive") as app:
        assert (await app.ask("Hello?")).model == "extractive"


async def test_apps_share_nothing() -> None:
    """Each has its tools, its conversations and its secrets, at the same time."""

    def named(name: str) -> Callable[..., object]:
        @tool
        async def who() -> str:
            """Return the name."""
            return name

        return who

    def open_one(name: str) -> object:
        return open_test_app([call("who"), f"I am {name}."], tools=[named(name)])

    async with open_one("ada") as ada, open_one("bob") as bob:  # type: ignore[attr-defined]
        first, second = await asyncio.gather(ada.ask("Who?"), bob.ask("Who?"))
        assert first.tool_calls[0].result == "ada"
        assert second.tool_calls[0].result == "bob"
        assert (first.run_id, second.run_id) == (1, 1)
        ada.live.redactor.add("A_KEY", "a-secret-of-ada")
        assert bob.live.redactor.redact("a-secret-of-ada") == "a-secret-of-ada"


async def test_two_apps_may_have_one_home(tmp_path: Path) -> None:
    """They share its database, as two processes would."""
    options = {"home": tmp_path / "home", "vault": tmp_path}
    first = dodona.open(model=ScriptedModel(["1.", "2."]), **options)  # type: ignore[arg-type]
    second = dodona.open(model=ScriptedModel(["a.", "b."]), **options)  # type: ignore[arg-type]
    async with first, second:
        answers = await asyncio.gather(*(app.ask("Hm?") for app in (first, second, first, second)))
    assert sorted(map(str, answers)) == ["1.", "2.", "a.", "b."]
    assert len({answer.run_id for answer in answers}) == 4


async def test_logging_and_signals_belong_to_the_program(tmp_path: Path) -> None:
    """Whatever the settings say."""
    root, signals = logging.getLogger(), (signal.SIGINT, signal.SIGTERM)
    level = logging.getLogger("dodona").level
    before = ([*root.handlers], root.level, [*map(signal.getsignal, signals)])
    async with dodona.open(
        home=tmp_path, model="extractive", serve=True, settings={"log": {"level": "debug"}}
    ) as app:
        await app.ask("Hello?")
        assert ([*root.handlers], root.level, [*map(signal.getsignal, signals)]) == before
        assert logging.getLogger("dodona").level == level


# -- configuration -------------------------------------------------------------------------------


async def test_only_a_config_that_is_named_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of the current folder or of the home, whose owners the program may not know."""
    monkeypatch.chdir(tmp_path)
    for name in ("dodona.toml", "config.toml"):
        (tmp_path / name).write_text("[agent]\nmax_tokens = 7\n", encoding="utf-8")
    async with dodona.open(home=tmp_path, model="extractive") as app:
        assert app.live.config.settings.agent.max_tokens == 4096
    async with dodona.open("dodona.toml", home=tmp_path, model="extractive") as app:
        assert app.live.config.settings.agent.max_tokens == 7
    monkeypatch.setenv("DODONA_CONFIG", "dodona.toml")
    async with dodona.open(home=tmp_path, model="extractive") as app:
        assert app.live.config.settings.agent.max_tokens == 7


async def test_arguments_override_the_environment_and_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None removes a setting; shorthands are those of the file."""
    (tmp_path / "b").mkdir()
    file = tmp_path / "my.toml"
    file.write_text('[agent]\nmax_tokens = 1\nsystem_prompt = "Hm."\n[vault]\npath = "a"\n')
    monkeypatch.setenv("DODONA_AGENT__MAX_TOKENS", "2")
    settings = {
        "agent": {"max_tokens": 3, "system_prompt": None},
        "budgets": {"daily": 500_000},
    }
    app = dodona.open(
        file, home=tmp_path, vault=tmp_path / "b", code=tmp_path, settings=settings,
        model="extractive",
    )  # fmt: skip
    async with app:
        config = app.live.config
        assert config.settings.agent.max_tokens == 3
        assert config.settings.agent.system_prompt is None
        assert config.settings.budgets.daily.tokens == 500_000
        assert app.live.runtime.vault == tmp_path / "b"
        assert config.settings.code.paths == (str(tmp_path),)
        assert str(config.origins.of(("agent", "max_tokens"))) == "open(settings=…)"
        assert str(config.origins.of(("vault", "path"))) == "open(vault=…)"


async def test_errors_show_the_argument(tmp_path: Path) -> None:
    """All at once, with those of the file."""
    file = tmp_path / "my.toml"
    file.write_text("[agent]\nmax_tokens = -5\n", encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        async with dodona.open(
            file, home=tmp_path, settings={"agent": {"temprature": 1}, "vault": {"versions_mb": 0}}
        ):
            pass
    assert str(error.value) == (
        f"{file}:2: agent.max_tokens must be > 0 (got -5).\n"
        "open(settings=…): unknown key agent.temprature. Did you mean 'temperature'?\n"
        "open(settings=…): vault.versions_mb must be >= 1 (got 0)."
    )


async def test_a_model_takes_no_key_of_another_provider(tmp_path: Path) -> None:
    """Nor its URL: only the provider of the key may receive it."""
    file = tmp_path / "my.toml"
    file.write_text(
        '[agent]\nprovider = "openai"\nbase_url = "https://x.example/v1"\napi_key = "env:A_KEY"\n'
        '[agents.other]\nprovider = "ollama"\n[agents.same]\nmax_tokens = 5\n'
    )
    app = dodona.open(file, home=tmp_path, model="anthropic/some-model")
    settings = (await asyncio.to_thread(app._options.load_config)).settings
    assert (settings.agent.provider, settings.agent.model) == ("anthropic", "some-model")
    assert (settings.agent.base_url, settings.agent.api_key) == (None, None)
    assert settings.agents["other"].provider == "ollama"
    assert settings.agents["same"].provider == "anthropic"
    app = dodona.open(file, home=tmp_path, model="openai/some-model")
    settings = (await asyncio.to_thread(app._options.load_config)).settings
    assert settings.agent.api_key == "env:A_KEY"


# -- crashes -------------------------------------------------------------------------------------

CRASHING = """
import asyncio, sys
import dodona

@dodona.model("slow")
async def slow(request):
    yield "It "
    print("asked", flush=True)
    await asyncio.sleep(3600)

async def main():
    async with dodona.open(home=sys.argv[1], model="slow/one", tools=[slow]) as app:
        await app.ask("question A")

asyncio.run(main())
"""


async def test_a_run_survives_a_crash_of_the_program(tmp_path: Path) -> None:
    """With `serve`, an app resumes the runs of processes that died."""

    @model("slow")
    async def slow(request: dodona.ModelRequest):  # type: ignore[no-untyped-def]
        assert "question A" in str(request.messages)
        yield "It grows."

    def crash() -> None:
        with subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", CRASHING, str(tmp_path / "home")], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout
            assert process.stdout.readline() == b"asked\n"
            os.kill(process.pid, signal.SIGKILL)

    await asyncio.to_thread(crash)
    options = {"home": tmp_path / "home", "model": "slow/one", "tools": [slow], "serve": True}
    async with asyncio.timeout(LONG), dodona.open(**options) as app:  # type: ignore[arg-type]
        assert str(await app.find_answer(1)) == "It grows."


# -- imports -------------------------------------------------------------------------------------

HEAVY = ("aiohttp", "alembic", "pydantic", "sqlalchemy", "starlette", "uvicorn")
IMPORTS = "from dodona import Context, decision_tree, decorator, leaf, model, subscriber, tool"


@pytest.mark.parametrize("line", ["import dodona", IMPORTS, f"{IMPORTS}, Result, ToolRetry"])
def test_importing_the_api_is_cheap(line: str) -> None:
    """An extension, and a program that only might use Dodona, loads none of its libraries."""
    script = f"{line}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    shown = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script], stdout=subprocess.PIPE, check=True
    ).stdout
    assert not {*json.loads(shown)} & {*HEAVY}


def test_every_public_name_exists() -> None:
    """`from dodona import *` imports them all."""
    for name in dodona.__all__:
        assert getattr(dodona, name) is not None
