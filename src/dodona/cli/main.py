"""The entry point of `dodona`. Commands are named by string and imported on use."""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType

from cyclopts import App, CycloptsError

from dodona import __version__
from dodona.cli.terminal.output import REDACTOR, print_error, print_note
from dodona.core.errors import BadRequest, DodonaError

app = App(
    name="dodona",
    help="Run AI agents whose behaviour you can read.",
    version=__version__,
    help_format="plaintext",  # importing a Markdown renderer takes a third of the start time
    result_action="return_value",
)
app.command(
    "dodona.cli.commands.operations.up:up",
    name="up",
    help="""Start the gateway.

    It runs until Ctrl-C and resumes interrupted runs.""",
)
app.command(
    "dodona.cli.commands.conversation.ask:ask",
    name="ask",
    help="""Ask a question.

    The answer is printed as it arrives. Ctrl-C cancels the run and saves the
    partial answer.""",
)
app.command(
    "dodona.cli.commands.conversation.chat:chat",
    name="chat",
    help="""Start an interactive conversation.

    Ctrl-C cancels the current answer and saves it. Ctrl-D or /quit ends the
    conversation.""",
)
app.command(
    "dodona.cli.commands.project.onboard:onboard",
    name="onboard",
    help="""Choose a model provider and save its API key.

    Without options, you are prompted for each value. The key is never shown, is
    saved in a file that only you can read, and is not checked yet. Comments and
    other settings in the config file are preserved.""",
)
app.command(
    "dodona.cli.commands.project.init:init",
    name="init",
    help="""Turn a folder of notes into a project.

    Questions asked in this folder or below it are answered from its notes.""",
)
app.command(
    "dodona.cli.commands.project.index:index",
    name="index",
    help="""Index a folder of code or notes.

    A new folder of code is added to the project. Later runs index only the
    changed files.""",
)
app.command(
    "dodona.cli.commands.project.vault:app", name="vault", help="List, search and move notes."
)
app.command(
    "dodona.cli.commands.conversation.context:app",
    name="context",
    help="Show and change a project's conversation.",
)
app.command(
    "dodona.cli.commands.project.rules:app",
    name="rules",
    help="List, check, test and change rules.",
)
app.command(
    "dodona.cli.commands.conversation.approve:approve",
    name="approve",
    help="""Approve or deny pending tool calls.

    Without arguments, pending calls are listed. CALL may be omitted if the run
    has only one pending call.""",
)
app.command("dodona.cli.commands.conversation.run:app", name="run", help="List and show runs.")
app.command(
    "dodona.cli.commands.conversation.sessions:app",
    name="sessions",
    help="List, show and clear sessions.",
)
app.command(
    "dodona.cli.commands.project.tree:app",
    name="tree",
    help="Check, show, run, trace and test trees.",
)
app.command(
    "dodona.cli.commands.operations.usage:usage",
    name="usage",
    help="""Show model usage and cost.

    The cost covers only calls to models with a known price.""",
)
app.command(
    "dodona.cli.commands.operations.budget:app",
    name="budget",
    help="Show and set budgets.",
)
app.command(
    "dodona.cli.commands.conversation.route:route",
    name="route",
    help="Show which agent would answer a message, and why.",
)
app.command(
    "dodona.cli.commands.project.config:app",
    name="config",
    help="Check, show and change settings.",
)
app.command(
    "dodona.cli.commands.operations.backup:app",
    name="backup",
    help="Back up and restore the store.",
)
app.command(
    "dodona.cli.commands.operations.doctor:doctor",
    name="doctor",
    help="""Check the installation for problems.

    ✓ is fine, ! is a warning, ✗ is an error. The exit code is 0 if there are no
    errors. Models are not called, so nothing is billed. Nothing is changed
    without --fix.""",
)
app.command(
    "dodona.cli.commands.operations.token:app",
    name="token",
    help="Create, list and revoke API tokens.",
)
app.command(
    "dodona.cli.commands.operations.audit:audit",
    name="audit",
    help="""Show the audit log, oldest entry first.

    The log records denied requests and administrative changes.""",
)
app.command("dodona.cli.commands.operations.db:app", name="db", help="Migrate and check the store.")
app.command(
    "dodona.cli.commands.operations.status:status",
    name="status",
    help="""Show the model, the store and the gateway in use.

    The exit code is 0 if everything is usable.""",
)


def main() -> None:
    """Run the command line. Every error is printed here, in one format and without secrets."""
    sys.excepthook = _print_traceback
    as_json = "--json" in sys.argv
    try:
        command, bound, _ = app.parse_args(exit_on_error=False, print_error=False)
        code = command(*bound.args, **bound.kwargs)
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
