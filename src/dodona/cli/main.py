"""The entry of `dodona`. Commands are named by string and imported on use."""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType

from cyclopts import App, CycloptsError

from dodona import __version__
from dodona.cli.terminal.output import print_error, print_note
from dodona.core.errors import BadRequest, DodonaError
from dodona.net.redactor import Redactor

app = App(
    name="dodona",
    help="Runs AI agents whose behaviour you can read.",
    version=__version__,
    help_format="plaintext",  # what draws Markdown takes a third of the time to import
    result_action="return_value",
)
app.command(
    "dodona.cli.commands.operations.up:up",
    name="up",
    help="Start the gateway, and keep it running.",
)
app.command("dodona.cli.commands.conversation.ask:ask", name="ask", help="Ask a question.")
app.command(
    "dodona.cli.commands.conversation.chat:chat",
    name="chat",
    help="Ask one question after another.",
)
app.command(
    "dodona.cli.commands.project.onboard:onboard",
    name="onboard",
    help="Choose who answers, with a key.",
)
app.command(
    "dodona.cli.commands.project.init:init", name="init", help="Make a folder of notes a project."
)
app.command(
    "dodona.cli.commands.project.index:index", name="index", help="Index a folder of code or notes."
)
app.command(
    "dodona.cli.commands.project.vault:app", name="vault", help="Look at the notes, and undo moves."
)
app.command(
    "dodona.cli.commands.conversation.context:app",
    name="context",
    help="Show and change a conversation's tree.",
)
app.command(
    "dodona.cli.commands.project.rules:app", name="rules", help="List, check and test rules."
)
app.command(
    "dodona.cli.commands.conversation.approve:approve",
    name="approve",
    help="Allow calls that wait for you.",
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
    help="Tell what calls of models came to.",
)
app.command(
    "dodona.cli.commands.operations.budget:app",
    name="budget",
    help="Tell and set what may be spent.",
)
app.command(
    "dodona.cli.commands.conversation.route:route",
    name="route",
    help="Tell which agent answers a message.",
)
app.command(
    "dodona.cli.commands.project.config:app",
    name="config",
    help="Check, show and change the settings.",
)
app.command(
    "dodona.cli.commands.operations.backup:app",
    name="backup",
    help="Back the store up, and restore it.",
)
app.command(
    "dodona.cli.commands.operations.doctor:doctor",
    name="doctor",
    help="Look over all that Dodona needs.",
)
app.command(
    "dodona.cli.commands.operations.token:app", name="token", help="Make, list and revoke tokens."
)
app.command(
    "dodona.cli.commands.operations.audit:audit",
    name="audit",
    help="Show who was turned away, and who changed what.",
)
app.command("dodona.cli.commands.operations.db:app", name="db", help="Migrate and check the store.")
app.command(
    "dodona.cli.commands.operations.status:status",
    name="status",
    help="Tell which model answers and why, and where everything is.",
)


def main() -> None:
    """Run the command line; every error ends here, in one shape and without secrets."""
    redactor = Redactor()
    _redact_tracebacks(redactor)
    as_json = "--json" in sys.argv
    try:
        code = _run(redactor)
    except CycloptsError as error:
        code = print_error(_usage_error(error), as_json=as_json, redactor=redactor)
    except DodonaError as error:
        code = print_error(error, as_json=as_json, redactor=redactor)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `| head` has. What is left to write goes
        # nowhere: Python would try once more at its end, and call that a failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _run(redactor: Redactor) -> object:
    """Call the command; one that finds secrets takes the redactor, which no one can type."""
    command, bound, injected = app.parse_args(exit_on_error=False, print_error=False)
    return command(*bound.args, **bound.kwargs, **dict.fromkeys(injected, redactor))


def _redact_tracebacks(redactor: Redactor) -> None:
    """A bug crashes loudly, but what it says may hold a secret too."""

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        print_note(redactor.scrub("".join(traceback.format_exception(kind, error, trace))), end="")

    sys.excepthook = tell


def _usage_error(error: CycloptsError) -> BadRequest:
    words = " ".join(str(error).split())
    command = " ".join(("dodona", *(error.command_chain or ())))
    return BadRequest(words, hint=f"See: {command} --help")


if __name__ == "__main__":
    main()
