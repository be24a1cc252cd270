"""Generates cli.md from the commands and their options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from cyclopts import App, Argument

from dodona.cli.main import app
from generating.writing import page, prose, table

# A sentence ends at a full stop before a capital letter, so that "e.g. this" is not an end.
_SENTENCE: Final = re.compile(r".+?[.!?](?=\s+[A-Z`]|$)")


def commands(name: str, command: App) -> Iterator[tuple[str, App]]:
    """Yield all executable commands below this one, by name."""
    words = sorted(word for word in command if not word.startswith("-"))
    if not words:
        yield name, command
    for word in words:
        yield from commands(f"{name} {word}", command[word])


def cli_page() -> str:
    """Return the text of cli.md."""
    all_commands = list(commands("dodona", app))
    return page(
        "# Commands",
        prose("""`make setup` installs the command as `.venv/bin/dodona`. Every command has
            `--help`; `dodona --version` prints the version."""),
        table(
            ("command", "description"),
            [
                (f"[`{name}`](#{name.replace(' ', '-')})", first_sentence(_docstring(command)))
                for name, command in all_commands
            ],
        ),
        *(_command(name, command) for name, command in all_commands),
        "## Exit codes",
        prose("""0 means success. 1 means that a tree does not load, a run fails or a test fails.
            Other errors use the exit code of [their class](errors.md). Ctrl-C cancels a run, whose
            `:finally` still runs; `ask` then exits with 130, and `tree run` with 1."""),
        "## Files and values",
        prose("""- `--leaves` takes Python files with leaves and decorators. Dodona executes them.
            A file can import modules from its folder. Commands of `dodona tree` also use the leaves
            of [`extend.python`](config.md#extend) and of installed packages. `tree check` and
            `tree show` also use [the agent's leaves](leaves.md)."""),
        prose("""- `--set key=value` takes a Lisp literal (`3`, `true`, `[1 2]`); anything else is
            a string."""),
        prose("""- `tree test` reads the given files and, for each `NAME.lisp`, the file
            `NAME.test.lisp` in the same folder."""),
    )


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, on one line."""
    joined = " ".join(text.partition("\n\n")[0].split())
    match = _SENTENCE.match(joined)
    return match[0] if match else joined


def _command(name: str, command: App) -> str:
    arguments = [each for each in command.assemble_argument_collection() if each.show]
    return "\n\n".join(
        [
            f"## {name}",
            f"```text\n{' '.join([name, *_positional(arguments), '[OPTIONS]'])}\n```",
            prose(_docstring(command).partition("\n\n")[0]),
            table(("argument", "type", "default", ""), [_row(each) for each in arguments]),
        ]
    )


def _docstring(command: App) -> str:
    """Return the docstring of the command's function, or its help text if it has none."""
    text = inspect.getdoc(command.default_command) if command.default_command else ""
    return text or str(command.help)


def _positional(arguments: Iterable[Argument]) -> Iterator[str]:
    """Yield the placeholders of the positional arguments."""
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
    return {Path: "path", str: "string", int: "integer", float: "number", bool: ""}[hint]
