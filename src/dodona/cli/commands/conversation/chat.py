"""`dodona chat`: an interactive conversation."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from typing import Annotated, Final

from cyclopts import Parameter

from dodona.app.config.config import Config
from dodona.cli.arguments import flag
from dodona.cli.client.ask import show_answer
from dodona.cli.client.connect import connect
from dodona.cli.client.in_process import Client
from dodona.cli.commands.conversation.ask import AskOptions
from dodona.cli.options import CommonOptions, ConfigFile
from dodona.cli.terminal.keyboard import Keyboard
from dodona.cli.terminal.output import REDACTOR, print_note, print_text
from dodona.cli.terminal.screen import Screen
from dodona.core import errors
from dodona.core.errors import DodonaError

HELP: Final = """\
  /new    start a new conversation
  /help   show this help
  /quit   exit (or Ctrl-D)
Ctrl-C cancels the current answer and saves it."""
PROMPT: Final = "› "


def chat(
    *,
    new: Annotated[bool, flag("Start a new conversation.")] = False,
    options: Annotated[AskOptions | None, Parameter(name="*")] = None,
    config: ConfigFile = None,
) -> int:
    """Answer one question per line until the end of input."""
    ask_options = options or AskOptions()
    ask_options.question("?")  # report invalid options before the first prompt
    loaded = CommonOptions(config=config).load_config()
    return asyncio.run(_chat(loaded, _ChatSession(ask_options, new=new)))


async def _chat(config: Config, session: _ChatSession) -> int:
    async with connect(config, REDACTOR) as client:
        return await session.run(client)


class _ChatSession:
    """One interactive conversation."""

    def __init__(self, options: AskOptions, *, new: bool) -> None:
        self._options = options
        self._is_new = new
        self._is_interactive = os.isatty(0)
        self._exit_code = 0

    async def run(self, client: Client) -> int:
        """Answer lines until the end of input. Return the exit code, 0 if interactive."""
        keyboard = Keyboard()
        if self._is_interactive:
            print_note("Type a question, or /help for commands.")
        while (line := await self._read_line(keyboard)) is not None:
            match line.strip():
                case "":
                    continue
                case "/quit" | "/exit":
                    break
                case "/new":
                    self._is_new = True
                    print_note("The next question starts a new conversation.")
                case "/help":
                    print_text(HELP)
                case text if text.startswith("/") and " " not in text:
                    print_note(f"Unknown command {text}. Type /help for commands.")
                case text:
                    await self._ask(client, text, keyboard)
        return 0 if self._is_interactive else self._exit_code

    async def _read_line(self, keyboard: Keyboard) -> str | None:
        """Return the next line. Ctrl-C at the prompt only prints a new prompt."""
        if not self._is_interactive:
            return await keyboard.read_line()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, print_text, f"\nPress Ctrl-D to exit.\n{PROMPT}", "")
        try:
            print_text(PROMPT, end="")
            line = await keyboard.read_line()
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        if line is None:
            print_text()
        return line

    async def _ask(self, client: Client, text: str, keyboard: Keyboard) -> None:
        try:
            question = self._options.question(text, new=self._is_new)
            self._is_new = False
            screen = Screen(shows_thinking=bool(question.thinking))
            await show_answer(client, question, screen, keyboard if self._is_interactive else None)
            if self._options.context is not None:
                self._options = replace(self._options, context=screen.context_id)
        except DodonaError as error:
            print_note(REDACTOR.scrub(errors.as_text(error)))
            self._exit_code = error.exit_code
