"""Ask one question and show its answer.

Ctrl-C cancels the run; a second Ctrl-C exits immediately.
"""

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
from dodona.cli.terminal.screen import Screen, format_exact
from dodona.core.errors import Cancelled, DodonaError, from_json

INTERRUPTED_EXIT_CODE: Final = 130  # the shell convention for a process ended by Ctrl-C


class Interrupted(Cancelled):
    """The user cancelled the run with Ctrl-C."""

    exit_code = INTERRUPTED_EXIT_CODE


async def show_answer(
    client: Client, question: Question, screen: Screen, keyboard: Keyboard | None = None
) -> None:
    """Show the answer as it arrives; raise the error of a failed run.

    Approvals are requested at the keyboard if standard input is a terminal.
    """
    prompt = _ApprovalPrompt(client, keyboard)
    try:
        async with (
            _cancel_on_interrupt(client, question),
            aclosing(client.stream(question)) as chunks,
        ):
            async for chunk in chunks:
                screen.show(chunk)
                prompt.handle(chunk)
                if chunk["type"] == "error":
                    raise from_json(chunk["error"])
                if chunk["type"] == "done":
                    return
        raise DodonaError(
            "the run has not ended.", hint="The next `dodona up` or `dodona ask` resumes it."
        )
    finally:
        await prompt.close()
        screen.close()


async def fetch_answer(client: Client, question: Question) -> Mapping[str, Any]:
    """Return the complete answer as one document."""
    async with _cancel_on_interrupt(client, question):
        return await client.answer(question)


class _ApprovalPrompt:
    """Prompts for approvals, one at a time, while the answer continues to stream."""

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
                print_note(f"  To approve: dodona approve {run_id} {call}   (or --deny)")
                return
            self._keyboard = Keyboard()
        async with self._prompt_lock:
            print_note(
                f"  {chunk['name']} {format_exact(chunk['arguments'])}\n  Approve? [y/N] ", end=""
            )
            line = await self._keyboard.read_line()
            approved = (line or "").strip().lower() in ("y", "yes")
            try:
                await self._client.decide(run_id, call, approved=approved)
            except DodonaError as error:
                print_note(str(error))  # decided elsewhere in the meantime


@asynccontextmanager
async def _cancel_on_interrupt(client: Client, question: Question) -> AsyncGenerator[None]:
    """Cancel the run on Ctrl-C inside this context; its partial answer is saved."""
    loop = asyncio.get_running_loop()
    cancellations: list[asyncio.Task[None]] = []

    def on_interrupt() -> None:
        if cancellations:
            os._exit(INTERRUPTED_EXIT_CODE)  # safe: runs survive a crash
        print_note("\nCancelling. Press Ctrl-C again to exit immediately.")
        cancellations.append(asyncio.create_task(_cancel(client, question)))

    loop.add_signal_handler(signal.SIGINT, on_interrupt)
    try:
        yield
    except Cancelled as error:
        if cancellations:
            raise Interrupted(error.message, hint=error.hint) from error
        raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        await asyncio.gather(*cancellations)


async def _cancel(client: Client, question: Question) -> None:
    try:
        await client.cancel(question)
    except DodonaError as error:
        print_note(str(error))  # the answer continues
