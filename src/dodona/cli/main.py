"""The entry point of `dodona`. Commands are named by string and imported on use."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final

from cyclopts import App, CycloptsError

from dodona.cli.terminal.output import REDACTOR, print_error, print_note
from dodona.core.errors import BadRequest, DodonaError, UntrustedConfig
from dodona.core.version import __version__

app = App(
    name="dodona",
    help="Run AI agents whose behaviour you can read.",
    version=__version__,
    help_format="plaintext",  # importing a Markdown renderer takes a third of the start time
    result_action="return_value",
)
# Command: its function or app in `dodona.cli.commands`, and its help.
_COMMANDS: Final = {
    "up": (
        "operations.up:up",
        """Start the gateway.

    It runs until Ctrl-C and resumes interrupted runs.""",
    ),
    "ask": (
        "conversation.ask:ask",
        """Ask a question.

    The answer is printed as it arrives. Ctrl-C cancels the run and saves the
    partial answer.""",
    ),
    "chat": (
        "conversation.chat:chat",
        """Start an interactive conversation.

    Ctrl-C cancels the current answer and saves it. Ctrl-D or /quit ends the
    conversation.""",
    ),
    "onboard": (
        "project.onboard:onboard",
        """Choose a model provider and save its API key.

    Without options, you are prompted for each value. The key is never shown, is
    saved in a file that only you can read, and is not checked yet. Comments and
    other settings in the config file are preserved.""",
    ),
    "init": (
        "project.init:init",
        """Turn a folder of notes into a project.

    Questions asked in this folder or below it are answered from its notes.""",
    ),
    "index": (
        "project.index:index",
        """Index a folder of code or notes.

    A new folder of code is added to the project. Later runs index only the
    changed files.""",
    ),
    "vault": ("project.vault:app", "List, search and move notes."),
    "context": ("conversation.context:app", "Show and change a project's conversation."),
    "rules": ("project.rules:app", "List, check, test and change rules."),
    "approve": (
        "conversation.approve:approve",
        """Approve or deny pending tool calls.

    Without arguments, pending calls are listed. CALL may be omitted if the run
    has only one pending call.""",
    ),
    "run": ("conversation.run:app", "List and show runs."),
    "sessions": ("conversation.sessions:app", "List, show and clear sessions."),
    "tree": ("project.tree:app", "Check, show, run, trace and test trees."),
    "usage": (
        "operations.usage:usage",
        """Show model usage and cost.

    The cost covers only calls to models with a known price.""",
    ),
    "budget": ("operations.budget:app", "Show and set budgets."),
    "route": ("conversation.route:route", "Show which agent would answer a message, and why."),
    "config": ("project.config:app", "Check, show and change settings."),
    "trust": (
        "project.trust:trust",
        """Trust the config file of a folder.

    A dodona.toml in the current folder that you did not name may come from
    another person. Until you trust it, it cannot use paths outside its folder,
    send data to an address, read secrets or run programs. A change to the file
    ends the trust.""",
    ),
    "new": ("project.new:app", "Write a tool, a tree or an agent to start from."),
    "extensions": ("project.extensions:app", "List and check extensions in Python."),
    "backup": ("operations.backup:app", "Back up and restore the store."),
    "doctor": (
        "operations.doctor:doctor",
        """Check the installation for problems.

    ✓ is fine, ! is a warning, ✗ is an error. The exit code is 0 if there are no
    errors. Models are not called, so nothing is billed. Nothing is changed
    without --fix.""",
    ),
    "token": ("operations.token:app", "Create, list and revoke API tokens."),
    "audit": (
        "operations.audit:audit",
        """Show the audit log, oldest entry first.

    The log records denied requests and administrative changes.""",
    ),
    "db": ("operations.db:app", "Migrate and check the store."),
    "status": (
        "operations.status:status",
        """Show the model, the store and the gateway in use.

    The exit code is 0 if everything is usable.""",
    ),
}
for _name, (_path, _help) in _COMMANDS.items():
    app.command(f"dodona.cli.commands.{_path}", name=_name, help=_help)


def main() -> None:
    """Run the command line. Every error is printed here, in one format and without secrets."""
    sys.excepthook = _print_traceback
    as_json = "--json" in sys.argv
    try:
        command, bound, _ = app.parse_args(exit_on_error=False, print_error=False)
        code = _run(partial(command, *bound.args, **bound.kwargs), as_json=as_json)
    except CycloptsError as error:
        code = print_error(_usage_error(error), as_json=as_json)
    except DodonaError as error:
        code = print_error(error, as_json=as_json)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # The reader has closed the pipe, as `| head` does. Discard the remaining output: Python
        # would flush it again at exit and report an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _run(command: Callable[[], Any], *, as_json: bool) -> Any:
    """Run a command. On a terminal, ask about a config file that is not trusted, and run again.

    Commands load the config before they do anything else.
    """
    try:
        return command()
    except UntrustedConfig:
        if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        from dodona.cli.commands.project.trust import confirm_local_file  # noqa: PLC0415 - slow

        if not confirm_local_file():
            raise
    return command()


def _print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print the traceback of an uncaught exception without secrets."""
    print_note(REDACTOR.scrub("".join(traceback.format_exception(kind, error, trace))), end="")


def _usage_error(error: CycloptsError) -> BadRequest:
    message = " ".join(str(error).split())
    command = " ".join(("dodona", *(error.command_chain or ())))
    return BadRequest(message, hint=f"See: {command} --help")


if __name__ == "__main__":
    main()
