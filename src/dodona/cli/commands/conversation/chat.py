"""`dodona chat`: one question after another, in one conversation."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from typing import Annotated, Final

from cyclopts import Parameter

from dodona.app.config.config import Config
from dodona.cli.client.ask import show_answer
from dodona.cli.client.connect import connect, quiet_config
from dodona.cli.client.in_process import Client
from dodona.cli.commands.conversation.ask import Wishes
from dodona.cli.commands.project.config import ConfigFile, Hidden
from dodona.cli.terminal.keyboard import Keyboard
from dodona.cli.terminal.output import note, say
from dodona.cli.terminal.screen import Screen
from dodona.core import errors
from dodona.core.errors import DodonaError
from dodona.net.redactor import Redactor

HELP: Final = """\
  /new    begin a new conversation
  /help   this
  /quit   end, as Ctrl-D does
Ctrl-C cancels the answer that is coming; what came of it is saved."""
PROMPT: Final = "› "


def chat(
    *,
    new: Annotated[
        bool, Parameter(negative="", show_default=False, help="Begin a new conversation.")
    ] = False,
    wishes: Annotated[Wishes | None, Parameter(name="*")] = None,
    config: ConfigFile = None,
    redactor: Hidden,
) -> int:
    """Talk with the Oracle, line by line. Ctrl-C cancels an answer, Ctrl-D or /quit ends."""
    asked = wishes or Wishes()
    asked.question("?")  # so that what is wrong is told before anybody has typed
    loaded = quiet_config(config, redactor)
    return asyncio.run(_chat(loaded, _Talk(asked, redactor, new=new)))


async def _chat(config: Config, talk: _Talk) -> int:
    async with connect(config, talk.redactor) as client:
        return await talk.hold(client)


class _Talk:
    """What is said between the first prompt and the last."""

    def __init__(self, wishes: Wishes, redactor: Redactor, *, new: bool) -> None:
        self._wishes = wishes
        self.redactor = redactor
        self._is_new = new
        self._is_typed = os.isatty(0)
        self._code = 0

    async def hold(self, client: Client) -> int:
        """Until there are no more lines; the exit code, which counts where nobody watches."""
        keyboard = Keyboard()
        if self._is_typed:
            note("Ask away. /help tells what else there is.")
        while (line := await self._line(keyboard)) is not None:
            match line.strip():
                case "":
                    continue
                case "/quit" | "/exit":
                    break
                case "/new":
                    self._is_new = True
                    note("The next question begins a new conversation.")
                case "/help":
                    say(HELP)
                case text if text.startswith("/") and " " not in text:
                    note(f"There is no {text}. /help tells what there is.")
                case text:
                    await self._ask(client, text, keyboard)
        return 0 if self._is_typed else self._code

    async def _line(self, keyboard: Keyboard) -> str | None:
        """The next line; while it is awaited, Ctrl-C only begins another one."""
        if not self._is_typed:
            return await keyboard.line()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, say, f"\nCtrl-D ends.\n{PROMPT}", "")
        try:
            say(PROMPT, end="")
            line = await keyboard.line()
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        if line is None:
            say()
        return line

    async def _ask(self, client: Client, text: str, keyboard: Keyboard) -> None:
        try:
            question = self._wishes.question(text, new=self._is_new)
            self._is_new = False
            screen = Screen(shows_thinking=bool(question.thinking))
            await show_answer(client, question, screen, keyboard if self._is_typed else None)
            if self._wishes.context is not None:
                self._wishes = replace(self._wishes, context=screen.context_id)
        except DodonaError as error:
            note(self.redactor.scrub(errors.as_text(error)))
            self._code = error.exit_code
