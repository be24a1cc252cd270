"""Debug a tree run from the keyboard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from dodona.cli.terminal.keyboard import Keyboard
from dodona.trees import Debugger, Outcome, Run
from dodona.trees.runtime.program import Place
from dodona.trees.tooling import show

HELP = "enter: next node · c: continue · b: blackboard · t: tree · q: cancel the run"

PROMPT = "(dodona) "

# Takes a text and its line ending; a prompt has none.
Write = Callable[[str, str], None]


async def debug(run: Run, debugger: Debugger, task: asyncio.Task[Outcome], write: Write) -> None:
    """Prompt for a command at each pause until the run ends."""
    write(HELP, "\n")
    session = asyncio.create_task(_DebugSession(run, debugger, write).run_prompts())
    await asyncio.wait([session, task], return_when=asyncio.FIRST_COMPLETED)
    session.cancel()
    await asyncio.gather(session, return_exceptions=True)


class _DebugSession:
    def __init__(self, run: Run, debugger: Debugger, write: Write) -> None:
        self._run = run
        self._debugger = debugger
        self._write = write
        self._keyboard = Keyboard()

    async def run_prompts(self) -> None:
        while True:
            await self._prompt_at(await self._debugger.wait_paused())

    async def _prompt_at(self, place: Place) -> None:
        """Read commands until one resumes the run."""
        self._write(f"at {place.path}   ({place.node.span})\n{PROMPT}", "")
        while not self._execute(await self._keyboard.read_line()):
            self._write(PROMPT, "")

    def _execute(self, line: str | None) -> bool:
        """Execute a command. Return True if it resumes or cancels the run."""
        command = line.strip() if line is not None else "end"
        if command in ("", "n", "s"):
            self._debugger.step()
        elif command == "c":
            self._debugger.resume()
        elif command == "q":
            self._run.cancel()
        elif command == "end":
            self._debugger.breakpoints.clear()
            self._debugger.resume()
        else:
            self._write(self._inspect(command), "\n")
            return False
        return True

    def _inspect(self, command: str) -> str:
        if command == "b":
            board = self._run.board.snapshot()
            return json.dumps(board, indent=2, ensure_ascii=False, default=str)
        if command == "t" and self._run.options.trace is not None:
            return show.as_ascii(self._run.tree, self._run.options.trace.statuses())
        return HELP
