"""Extensions while Dodona runs: a changed file is loaded, a broken one changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from dodona.agent.question import Question
from dodona.app.bootstrap import Runtime, open_runtime
from dodona.app.models.credentials import Credentials
from dodona.core.domain.projects import LOCAL_USER
from dodona.net.redactor import Redactor
from tests.agent.opening import until
from tests.app.extensions.files import config_with, read_config, tool_text, write_config

SCRIPT = """
[[answers]]
calls = [{ name = "weather", arguments = { city = "Dodona" } }]

[[answers]]
text = "Done."

[[answers]]
calls = [{ name = "weather", arguments = { city = "Dodona" } }]

[[answers]]
text = "Done."
"""
AGENT = "[agent]\nprovider = 'scripted'\nmodel = 'script.toml'\n"
# It waits for a file, so that a test can change the tool while it runs.
SLOW_TOOL = '''\
import time
from pathlib import Path

from dodona import tool

HERE = Path(__file__).parent


@tool(writes=False, effect="none")
def weather(city: str) -> str:
    """Look up the weather.

    city: the name of the city.
    """
    (HERE / "started").touch()
    while not (HERE / "go").exists():
        time.sleep(0.01)
    return ANSWER


ANSWER = "rain"
'''


@asynccontextmanager
async def running(folder: Path, *, more: str = AGENT) -> AsyncGenerator[Runtime]:
    """Run a Dodona with the extensions in mine.py."""
    await asyncio.to_thread((folder / "script.toml").write_text, SCRIPT)
    config = await asyncio.to_thread(partial(config_with, folder, "mine.py", more=more))
    redactor = Redactor()
    reload_config = partial(read_config, folder)
    credentials = Credentials(config, {}, redactor)
    async with open_runtime(
        config, credentials, redactor, serve=True, reload_config=reload_config
    ) as runtime:
        yield runtime


async def write(folder: Path, text: str, name: str = "mine.py") -> None:
    await asyncio.to_thread((folder / name).write_text, text)


async def ask(runtime: Runtime) -> int:
    return await runtime.api.oracle.submit(Question(question="Why?").to_request(LOCAL_USER))


async def results(runtime: Runtime, run_id: int) -> list[str]:
    """Return the results of the tools that a run has called."""
    batches = [b async for b in runtime.api.oracle.stream_chunks(LOCAL_USER, run_id)]
    chunks = [chunk.as_json() for batch in batches for chunk in batch]
    return [each["result"] for each in chunks if each["type"] == "tool_result"]


def reported(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [m for record in caplog.records if text in (m := record.getMessage())]


async def test_a_changed_file_is_loaded_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next run has the new tool; the log says that extensions were reloaded."""
    caplog.set_level(logging.INFO, logger="dodona")
    await write(tmp_path, tool_text())
    async with running(tmp_path) as runtime:
        assert await results(runtime, await ask(runtime)) == ["rain"]
        old = runtime.get_registry()
        await write(tmp_path, tool_text(answer="a clear sky"))
        await until(lambda: runtime.get_registry() is not old, "the new registry")
        assert await results(runtime, await ask(runtime)) == ["a clear sky"]
    assert len(reported(caplog, "extensions reloaded")) == 1


async def test_a_run_in_progress_keeps_the_tool_it_began_with(tmp_path: Path) -> None:
    """Also if the new version of the file has no such tool."""
    await write(tmp_path, SLOW_TOOL)
    async with running(tmp_path) as runtime:
        run_id = await ask(runtime)
        await until(lambda: asyncio.to_thread((tmp_path / "started").exists), "the call")
        old = runtime.get_registry()
        await write(tmp_path, tool_text("forecast"))
        await until(lambda: runtime.get_registry() is not old, "the new registry")
        assert runtime.get_registry().agent.toolbox.find("weather") is None
        await write(tmp_path, "", "go")
        assert await results(runtime, run_id) == ["rain"]


async def test_a_broken_file_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The old tool stays in use, and the log says once why; the mended file is loaded."""
    await write(tmp_path, tool_text())
    async with running(tmp_path) as runtime:
        old = runtime.get_registry()
        await write(tmp_path, "def broken(:\n")
        message = "invalid extension, keeping the previous one: "
        await until(lambda: reported(caplog, message), "the warning")
        await write(tmp_path, "def broken(:\n\n")
        await asyncio.sleep(1.2)  # two polls
        assert [each.replace(f"{tmp_path}/", "") for each in reported(caplog, message)] == [
            f"{message}mine.py:1: cannot load the file: SyntaxError: invalid syntax (mine.py, "
            "line 1). Fix the error and try again."
        ]
        assert runtime.get_registry() is old
        assert await results(runtime, await ask(runtime)) == ["rain"]
        await write(tmp_path, tool_text(answer="a clear sky"))
        await until(lambda: runtime.get_registry() is not old, "the new registry")
        assert await results(runtime, await ask(runtime)) == ["a clear sky"]


async def test_a_file_without_a_tool_that_an_agent_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The config would be invalid with it, so it is not loaded."""
    await write(tmp_path, tool_text())
    async with running(tmp_path, more=f"{AGENT}tools = ['weather']\n") as runtime:
        old = runtime.get_registry()
        await write(tmp_path, tool_text("forecast"))
        await until(lambda: reported(caplog, "invalid extension"), "the warning")
        assert runtime.get_registry() is old
        (warning,) = reported(caplog, "invalid extension")
        assert warning.replace(f"{tmp_path}/", "").startswith(
            "invalid extension, keeping the previous one: dodona.toml:6: agent.tools[0] is not a "
            'known tool (got "weather"). Tools: delegate_librarian, '
        )


async def test_a_file_that_the_config_adds(tmp_path: Path) -> None:
    """It is loaded without a restart, and watched from then on."""
    await write(tmp_path, tool_text())
    await write(tmp_path, tool_text("forecast"), "more.py")
    async with running(tmp_path) as runtime:
        await asyncio.to_thread(partial(write_config, tmp_path, "mine.py", "more.py", more=AGENT))

        def has(name: str) -> bool:
            return runtime.get_registry().agent.toolbox.find(name) is not None

        await until(lambda: has("forecast"), "the tool of the added file")
        await write(tmp_path, tool_text("outlook"), "more.py")
        await until(lambda: has("outlook"), "the change of the added file")
        assert has("weather")
        assert not has("forecast")


async def test_a_leaf_is_reloaded_with_the_trees_that_call_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A leaf that a tree calls cannot go; a changed one is in the tree of the next run."""
    leaf = (
        "from dodona import leaf\n\n\n@leaf('{name}', effect='none')\n"
        "def mine(bb, step):\n    step.emit('{text}')\n"
    )
    await write(tmp_path, leaf.format(name="my.greet", text="Hello. "))
    tree = '(tree "mine" (action greet :fn "my.greet"))'
    await write(tmp_path, tree, "mine.lisp")
    async with running(tmp_path, more=f"{AGENT}tree = 'mine.lisp'\n") as runtime:

        async def said() -> str:
            run_id = await ask(runtime)
            batches = [b async for b in runtime.api.oracle.stream_chunks(LOCAL_USER, run_id)]
            chunks = [chunk.as_json() for batch in batches for chunk in batch]
            return "".join(each["content"] for each in chunks if each["type"] == "content")

        assert await said() == "Hello. "
        old = runtime.get_registry()
        await write(tmp_path, leaf.format(name="my.greet", text="Good day. "))
        await until(lambda: runtime.get_registry() is not old, "the new registry")
        assert await said() == "Good day. "
        await write(tmp_path, leaf.format(name="your.greet", text=""))
        await until(lambda: reported(caplog, "invalid extension"), "the warning")
        assert "mine.lisp:1:32: no leaf is registered as 'my.greet'" in caplog.text
        assert await said() == "Good day. "
