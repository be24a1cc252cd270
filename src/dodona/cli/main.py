"""The entry of `dodona`. Commands are named by string and imported on use."""

from __future__ import annotations

import sys

from cyclopts import App, CycloptsError

from dodona import __version__
from dodona.cli.output import fail
from dodona.core.errors import BadRequest, DodonaError

app = App(
    name="dodona",
    help="Runs AI agents whose behaviour you can read.",
    version=__version__,
    result_action="return_value",
)
app.command("dodona.cli.tree:app", name="tree", help="Check, show, run, trace and test trees.")


def main() -> None:
    """Run the command line; every error ends here, in one shape."""
    as_json = "--json" in sys.argv
    try:
        code = app(exit_on_error=False, print_error=False)
    except CycloptsError as error:
        code = fail(_usage(error), as_json=as_json)
    except DodonaError as error:
        code = fail(error, as_json=as_json)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `| head` has.
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _usage(error: CycloptsError) -> BadRequest:
    words = " ".join(str(error).split())
    command = " ".join(("dodona", *(error.command_chain or ())))
    return BadRequest(words, hint=f"See: {command} --help")


if __name__ == "__main__":
    main()
