"""cli.md, of the commands and their options."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from cyclopts import App, Argument

from dodona.cli.main import app
from generating.writing import page, prose, table


def commands(name: str, command: App) -> Iterator[tuple[str, App]]:
    """Every command below this one that does something itself, in the order of names."""
    below = sorted(word for word in command if not word.startswith("-"))
    if not below:
        yield name, command
    for word in below:
        yield from commands(f"{name} {word}", command[word])


def cli_page() -> str:
    found = list(commands("dodona", app))
    return page(
        "# Commands",
        prose("""`make setup` leaves the command in `.venv/bin/dodona`. Every command has `--help`;
            `dodona --version` prints the version."""),
        table(
            ("command", "what it does"),
            [
                (f"[`{name}`](#{name.replace(' ', '-')})", _summary(command))
                for name, command in found
            ],
        ),
        *(_command(name, command) for name, command in found),
        "## Exit codes",
        prose("""0 is success. 1 is a tree that does not load, a run that fails, or a test that
            fails. Other errors end with the exit code of [their class](errors.md). Ctrl-C cancels a
            run, whose `:finally` still runs: the exit code of `ask` is 130 then, that of `tree run`
            1."""),
        "## Files and values",
        prose("""- `--leaves` takes Python files. They are run, and register leaves and decorators.
            Each may import its neighbours. Without any, `tree check` and `tree show` know [the
            agent's own](leaves.md)."""),
        prose("""- `--set key=value` takes a literal of the language (`3`, `true`, `[1 2]`);
            anything else is a string."""),
        prose("""- `tree test` reads the named files and, beside each `NAME.lisp`,
            `NAME.test.lisp`."""),
    )


def _command(name: str, command: App) -> str:
    arguments = [each for each in command.assemble_argument_collection() if each.show]
    return "\n\n".join(
        [
            f"## {name}",
            f"```text\n{' '.join([name, *_placed(arguments), '[OPTIONS]'])}\n```",
            _description(command),
            table(("argument", "takes", "default", ""), [_row(each) for each in arguments]),
        ]
    )


def _summary(command: App) -> str:
    """The first paragraph of the help text."""
    return " ".join(inspect.cleandoc(command.help).partition("\n\n")[0].split())


def _description(command: App) -> str:
    """The whole help text."""
    return "\n\n".join(map(prose, inspect.cleandoc(command.help).split("\n\n")))


def _placed(arguments: Iterable[Argument]) -> Iterator[str]:
    """Those that need no name."""
    for argument in arguments:
        if argument.index is not None:
            name = argument.names[0].removeprefix("--").upper()
            info = argument.field_info
            if info.kind is inspect.Parameter.VAR_POSITIONAL:
                yield f"{name}…"
            else:
                yield name if info.default is info.empty else f"[{name}]"


def _row(argument: Argument) -> tuple[str, ...]:
    default = argument.field_info.default
    names = argument.names[0] if argument.index is None else argument.names[0].removeprefix("--")
    shown = names.upper() if argument.index is not None else names
    more = "".join(f", `{other}`" for other in argument.names[1:] if argument.index is None)
    return (
        f"`{shown}`{more}",
        _type(argument.hint),
        "" if default in (None, (), False, argument.field_info.empty) else f"`{default}`",
        argument.parameter.help or "",
    )


def _type(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _type(next(part for part in arguments if part is not type(None)))
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin is tuple:
        return f"{_type(arguments[0])}, one or more"
    return {Path: "a path", str: "text", int: "a number", float: "a number", bool: ""}[hint]
