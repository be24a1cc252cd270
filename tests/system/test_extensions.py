"""Tools and agents in Python, in a gateway: whatever an extension does, nothing else suffers."""

from __future__ import annotations

import asyncio
import json
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import run_dodona
from tests.system.client import Client, of_type, text_of
from tests.system.waiting import until
from tests.system.wire_model import Asked, Call, Reply, Script, WireModel, calls, says

TOOLS = '''
import asyncio
import time
from pathlib import Path

from dodona import Context, tool

OPTIONS = {"effect": "none", "writes": False, "sends": False, "reads_private": False}


@tool(**OPTIONS)
def good(text: str) -> str:
    """Return the text."""
    return text


@tool(**OPTIONS)
def raises(text: str) -> str:
    """Raise an error."""
    raise RuntimeError(f"a detail of {text}")


@tool(**OPTIONS, timeout_seconds=1)
async def hangs(text: str) -> str:
    """Never return."""
    await asyncio.Event().wait()


@tool(**OPTIONS, timeout_seconds=1)
def hangs_in_thread(ctx: Context, text: str) -> str:
    """Return after the timeout only."""
    ctx.wait_cancelled(60)
    return "too late"


@tool(**OPTIONS)
def large(text: str) -> str:
    """Return 5 MB."""
    return text * 5_000_000


@tool(**OPTIONS)
async def blocks(text: str) -> str:
    """Block the event loop."""
    started = time.time()
    time.sleep(3)
    return f"{started} {time.time()}"


@tool(**OPTIONS)
def slow(text: str) -> str:
    """Wait for a file."""
    while not Path(text).exists():
        time.sleep(0.01)
    return "version 1"
'''


@pytest.fixture
def tools(own: Client) -> Path:
    """The file of tools; the gateway is not started yet."""
    file = own.up.home.folder / "my_tools.py"
    file.write_text(TOOLS)
    url = own.up.home.config.read_text().split('base_url = "')[1].split('"')[0]
    own.up.home.write(base_url=url, more=f'[extend]\npython = ["{file}"]')
    return file


def write(file: Path, text: str) -> None:
    file.write_text(text)


def call_once(script: Script, name: str, text: str = "oak") -> None:
    script.will(calls(Call(name, {"text": text})), says("Done."))


async def result_of(own: Client, script: Script, name: str) -> str:
    """Call a tool in a run of its own, and return what the model reads."""
    call_once(script, name)
    answer = await own.ask(f"Call {name}.")
    assert answer["answer"] == "Done."
    return script.asked[-1].results[-1]


@pytest.mark.usefixtures("tools")
async def test_a_tool_that_fails_harms_nothing(own: Client, script: Script) -> None:
    """The model reads a clear error, or a summary of 5 MB; the next call of another works."""
    await own.up.begin()
    assert await result_of(own, script, "raises") == (
        "Error: raises failed: an error inside the tool. Repeating the call may not help."
    )
    assert "RuntimeError: a detail of oak" in own.up.said()
    for name in ("hangs", "hangs_in_thread"):
        text = await result_of(own, script, name)
        assert text == f"Error: {name} took longer than 1 seconds and was stopped."
    large = await result_of(own, script, "large")
    assert large.startswith("[Summary by the Librarian; the full result has ")
    assert len(large) < 1000
    assert await result_of(own, script, "good") == "oak"
    assert (await own.get("/healthz"))["status"] == "ok"


@pytest.mark.usefixtures("tools")
async def test_a_tool_that_hangs_stops_no_other_run(own: Client, script: Script) -> None:
    """A question in another project is answered meanwhile."""
    other = own.in_project("other")
    await own.up.begin()
    await other.make_project()
    flag = own.up.home.folder / "flag"

    def answer(asked: Asked) -> Reply:
        if "Quick" in asked.question:
            return says("Yes.")
        return says("Done.") if asked.round else calls(Call("slow", {"text": str(flag)}))

    script.will_by(answer)
    async with own.stream("Wait.") as chunks:
        await chunks.until("tool_call")
        assert (await other.ask("Quick?"))["answer"] == "Yes."
        flag.touch()
        assert text_of(await chunks.rest()) == "Done."


async def test_a_tool_that_changes_is_used_by_the_next_run(
    own: Client, script: Script, tools: Path
) -> None:
    """A run in progress keeps the tool that it started with; a broken file changes nothing."""
    await own.up.begin()
    flag = own.up.home.folder / "flag"
    call_once(script, "slow", str(flag))
    async with own.stream("Wait.") as chunks:
        await chunks.until("tool_call")
        changed = TOOLS.replace("def slow(text: str)", "def slow(place: str)")
        write(tools, changed.replace("Path(text)", "Path(place)").replace("sion 1", "sion 2"))
        await until(lambda: "extensions reloaded" in own.up.said(), "the new file")
        flag.touch()
        (result,) = of_type(await chunks.rest(), "tool_result")
    assert (result["status"], result["result"]) == ("success", "version 1")
    write(tools, TOOLS.replace("def good(text: str)", "def good(text)"))
    await until(lambda: "keeping the previous one" in own.up.said(), "the error")
    assert f"{tools}:11: tool 'good' has no type hint for 'text'" in own.up.said()
    script.will(calls(Call("slow", {"place": str(flag)})), says("Done."))
    await own.ask("Again.")
    assert script.asked[-1].results[-1] == "version 2"


async def test_a_tool_that_changed_during_a_crash_is_not_called(
    own: Client, script: Script, tools: Path
) -> None:
    """Its arguments may mean something else now: the model reads that, and answers."""
    await own.up.begin()
    call_once(script, "slow", "/nowhere")
    async with own.stream("Wait.") as chunks:
        await chunks.until("tool_call")
        await until(lambda: own.up.home.rows("SELECT * FROM steps"), "the journal")
        own.up.kill()
    changed = TOOLS.replace("def slow(text: str)", "def slow(place: str)")
    write(tools, changed.replace("Path(text)", "Path(place)"))
    await own.up.begin()
    run = await own.ended(chunks.run_id)
    assert run["status"] == "succeeded"
    (result,) = script.asked[-1].results
    assert result.startswith("Error: Not called")
    assert "the tool slow changed while this run was interrupted." in result


async def dodona(own: Client, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the config of the gateway."""
    home = own.up.home
    return await asyncio.to_thread(run_dodona, *words, cwd=home.folder, env=home.environment)


async def test_the_name_of_another_tool_is_an_error(own: Client, tools: Path) -> None:
    """Dodona names both places; the names of built-in tools are reserved too."""
    write(tools, f'{TOOLS}\n\n@tool(name="good")\ndef other() -> str:\n    """Nothing."""\n')
    done = await dodona(own, "extensions", "check")
    assert done.returncode != 0
    assert f"tool 'good' has the name of the tool in {tools}:11. Give it another" in done.stderr
    write(tools, TOOLS.replace("def good", "def vault_read"))
    done = await dodona(own, "extensions", "check")
    assert f"{tools}:11: tool 'vault_read' has the name of Dodona's own tool." in done.stderr


@pytest.mark.usefixtures("tools")
async def test_a_tool_that_blocks_the_loop_is_named(own: Client, script: Script) -> None:
    """In the log, while it blocks; afterwards in `dodona doctor`."""
    await own.up.begin()
    started, ended = map(float, (await result_of(own, script, "blocks")).split())
    (entry,) = [each for each in log_entries(own) if "blocks the event loop" in each["event"]]
    assert entry["event"].startswith("tool blocks blocks the event loop at ")
    assert entry["event"].endswith("Make it a plain function (def), which runs in a thread.")
    assert started < datetime.fromisoformat(entry["timestamp"]).timestamp() < ended
    doctor = await dodona(own, "doctor")
    assert "tool blocks has blocked the event loop at" in doctor.stdout
    assert "Make it a plain function (def), which runs in a thread." in doctor.stdout


def log_entries(own: Client) -> list[dict[str, Any]]:
    return [json.loads(line) for line in own.up.said().splitlines() if line.startswith("{")]


AGENT = '''
import asyncio

from dodona import Blackboard, DefaultDecisionTree, Step, decision_tree, leaf


@leaf("mine.greet", reads=("question",), effect="none")
async def greet(bb: Blackboard, step: Step) -> None:
    """Greet, and repeat the question."""
    step.emit(f"You asked: {bb['question'][:5]} ")


@decision_tree("mine")
class Mine(DefaultDecisionTree):
    """Ends a run after the second tool call."""

    def on_tool_result(self, state, result):
        state = super().on_tool_result(state, result)
        calls = state.extensions.get("calls", 0) + 1
        state = state.with_extensions(calls=calls)
        return state if calls < 2 else state.terminated("two_calls")
'''
SECTION = """
[extend]
python = ["{agent}", "{tools}"]

[agents.mine]
provider = "openai-compatible"
base_url = "{url}"
model = "test-model"
tree = "{tree}"
decision_tree = "mine"
tools = ["good", "slow"]
"""


async def test_an_agent_of_ones_own_survives_a_crash(
    own: Client, script: Script, tools: Path, wire: WireModel
) -> None:
    """Its tree, leaf, decision tree and tool answer over HTTP, also after kill -9."""
    folder = own.up.home.folder
    (folder / "agent.py").write_text(AGENT)
    assert (await dodona(own, "new", "tree", "mine")).returncode == 0
    tree = (folder / "mine.lisp").read_text()
    greet = '(action greet :fn "mine.greet")\n    (selector answer'
    (folder / "mine.lisp").write_text(tree.replace("(selector answer", greet))
    section = SECTION.format(
        agent=folder / "agent.py", tools=tools, url=wire.url, tree=folder / "mine.lisp"
    )
    own.up.home.write(base_url=wire.url, more=section)
    flag = folder / "flag"
    good, slow = Call("good", {"text": "oak"}), Call("slow", {"text": str(flag)})
    script.will(calls(good), calls(slow), says("Not reached."))
    await own.up.begin()
    body = {
        "model": "mine",
        "messages": [{"role": "user", "content": f"Hello {script.tag}"}],
    }
    asked = asyncio.create_task(own.send("POST", "/v1/chat/completions", body))
    await script.reached(2)
    async with own.follow(1) as chunks:
        await chunks.until("tool_call", lambda chunk: chunk["name"] == "slow")
        await until(lambda: has_answered(own, turn=1), "the second answer of the model")
        own.up.kill()
    await asyncio.gather(asked, return_exceptions=True)
    flag.touch()
    await own.up.begin()
    run = await own.ended(1)
    assert run["attempt"] == 2
    assert (run["status"], run["termination_reason"]) == ("succeeded", "two_calls")
    assert run["answer"].startswith("You asked: Hello ")
    assert run["answer"].count("You asked") == 1
    assert len(script.asked) == 2


def has_answered(own: Client, turn: int) -> bool:
    """Whether the journal has the model's answer of a turn."""
    query = "SELECT key FROM steps WHERE key LIKE ? AND status = 'succeeded'"
    return bool(own.up.home.rows(query, f"%loop[{turn}]%llm-call"))
