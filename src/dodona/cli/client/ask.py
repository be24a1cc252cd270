"""One question, from a command to its end. Ctrl-C cancels the run; a second one ends us."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from dodona.agent.question import Question
from dodona.cli.client.in_process import ChunkJson, Client
from dodona.cli.terminal.keyboard import Keyboard
from dodona.cli.terminal.output import print_note
from dodona.cli.terminal.screen import Screen, format_brief
from dodona.core.errors import Cancelled, DodonaError, from_json

INTERRUPTED_EXIT_CODE: Final = 130  # what shells expect of whoever Ctrl-C has ended


class Interrupted(Cancelled):
    """The run was cancelled from here."""

    exit_code = INTERRUPTED_EXIT_CODE


async def show_answer(
    client: Client, question: Question, screen: Screen, keyboard: Keyboard | None = None
) -> None:
    """Show the answer as it comes; raise what the run ended with.

    What waits for a person is asked at the keyboard, if somebody sits there.
    """
    desk = _ApprovalPrompt(client, keyboard)
    try:
        async with (
            _cancel_on_interrupt(client, question),
            aclosing(client.stream(question)) as chunks,
        ):
            async for chunk in chunks:
                screen.show(chunk)
                desk.handle(chunk)
                if chunk["type"] == "error":
                    raise from_json(chunk["error"])
                if chunk["type"] == "done":
                    return
        raise DodonaError(
            "the run has not ended.", hint="It goes on with the next `dodona up` or `dodona ask`."
        )
    finally:
        await desk.close()
        screen.close()


async def fetch_answer(client: Client, question: Question) -> Mapping[str, Any]:
    """The answer as one document."""
    async with _cancel_on_interrupt(client, question):
        return await client.answer(question)


class _ApprovalPrompt:
    """Asks for leave to make calls, one after the other, while the answer goes on coming."""

    def __init__(self, client: Client, keyboard: Keyboard | None) -> None:
        self._client = client
        self._keyboard = keyboard
        self._prompts: dict[str, asyncio.Task[None]] = {}
        self._prompt_lock = asyncio.Lock()

    def handle(self, chunk: ChunkJson) -> None:
        if chunk["type"] == "approval":
            self._prompts[chunk["id"]] = asyncio.create_task(self._prompt(chunk))
        elif chunk["type"] == "tool_result" and chunk["id"] in self._prompts:
            self._prompts.pop(chunk["id"]).cancel()  # decided, here or elsewhere

    async def close(self) -> None:
        for task in self._prompts.values():
            task.cancel()
        await asyncio.gather(*self._prompts.values(), return_exceptions=True)

    async def _prompt(self, chunk: ChunkJson) -> None:
        run_id, call = chunk["run_id"], chunk["approval"]
        if self._keyboard is None:
            if not os.isatty(0):
                print_note(f"  Decide with: dodona approve {run_id} {call}   (or --deny)")
                return
            self._keyboard = Keyboard()
        async with self._prompt_lock:
            print_note(
                f"  {chunk['name']} {format_brief(chunk['arguments'])}\n  Allow it? [y/N] ", end=""
            )
            line = await self._keyboard.read_line()
            approved = (line or "").strip().lower() in ("y", "yes")
            try:
                await self._client.decide(run_id, call, approved=approved)
            except DodonaError as error:
                print_note(str(error))  # somebody else was faster


@asynccontextmanager
async def _cancel_on_interrupt(client: Client, question: Question) -> AsyncGenerator[None]:
    """While it lasts, Ctrl-C is a wish to end the run: what came is kept, and saved."""
    loop = asyncio.get_running_loop()
    wishes: list[asyncio.Task[None]] = []

    def strike() -> None:
        if wishes:
            os._exit(INTERRUPTED_EXIT_CODE)  # the journal has all that a crash may leave
        print_note("\nCancelling. Ctrl-C again quits at once.")
        wishes.append(asyncio.create_task(_cancel(client, question)))

    loop.add_signal_handler(signal.SIGINT, strike)
    try:
        yield
    except Cancelled as error:
        if wishes:
            raise Interrupted(error.message, hint=error.hint) from error
        raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        await asyncio.gather(*wishes)


async def _cancel(client: Client, question: Question) -> None:
    try:
        await client.cancel(question)
    except DodonaError as error:
        print_note(str(error))  # and the answer goes on
