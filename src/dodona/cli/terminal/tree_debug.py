"""A run under a debugger, steered from the keyboard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from dodona.cli.terminal.keyboard import Keyboard
from dodona.trees import Debugger, Outcome, Run
from dodona.trees.runtime.program import Place
from dodona.trees.tooling import show

HELP = "enter: next node · c: go on · b: blackboard · t: tree · q: cancel the run"

PROMPT = "(dodona) "

# Text, and what ends it: a prompt does not end its line.
Tell = Callable[[str, str], None]


async def debug(run: Run, debugger: Debugger, task: asyncio.Task[Outcome], tell: Tell) -> None:
    """Ask what to do wherever the run stops, until it has ended."""
    tell(HELP, "\n")
    session = asyncio.create_task(_Session(run, debugger, tell).hold())
    await asyncio.wait([session, task], return_when=asyncio.FIRST_COMPLETED)
    session.cancel()
    await asyncio.gather(session, return_exceptions=True)


class _Session:
    def __init__(self, run: Run, debugger: Debugger, tell: Tell) -> None:
        self._run = run
        self._debugger = debugger
        self._tell = tell
        self._keyboard = Keyboard()

    async def hold(self) -> None:
        while True:
            await self._ask(await self._debugger.wait_paused())

    async def _ask(self, place: Place) -> None:
        """Read words until one lets the run go on."""
        self._tell(f"at {place.path}   ({place.node.span})\n{PROMPT}", "")
        while not self._obey(await self._keyboard.line()):
            self._tell(PROMPT, "")

    def _obey(self, line: str | None) -> bool:
        """Do what the line says; True when the run goes on."""
        word = line.strip() if line is not None else "end"
        if word in ("", "n", "s"):
            self._debugger.step()
        elif word == "c":
            self._debugger.resume()
        elif word == "q":
            self._run.cancel()
        elif word == "end":
            self._debugger.breakpoints.clear()
            self._debugger.resume()
        else:
            self._tell(self._look(word), "\n")
            return False
        return True

    def _look(self, word: str) -> str:
        if word == "b":
            board = self._run.board.snapshot()
            return json.dumps(board, indent=2, ensure_ascii=False, default=str)
        if word == "t" and self._run.options.trace is not None:
            return show.as_ascii(self._run.tree, self._run.options.trace.statuses())
        return HELP
