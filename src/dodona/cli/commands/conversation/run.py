"""`dodona run`: list runs and show the steps of one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, TypeVar

from cyclopts import App, Parameter, validators

from dodona.agent.views import RunViews
from dodona.app.config.config import Config
from dodona.cli.arguments import AsJson
from dodona.cli.client.connect import load_config_quietly
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.store_access import open_store
from dodona.cli.terminal.output import format_columns, print_json, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import from_json
from dodona.net.redactor import Redactor

app = App(name="run", help="List and show runs.")

MAX_QUESTION_WIDTH = 60
T = TypeVar("T")


@app.command(name="list")
def list_runs(
    *,
    project: Annotated[str | None, Parameter(help="Only runs of this project.")] = None,
    limit: Annotated[
        int, Parameter(help="Maximum number of runs.", validator=validators.Number(gte=1, lte=200))
    ] = 20,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """List runs, newest first."""
    loaded = load_config_quietly(config, redactor)
    runs = asyncio.run(
        _with_views(
            loaded,
            redactor,
            lambda views: views.list(LOCAL_USER, project_id=project, limit=limit),
        )
    )
    if json:
        print_json(redactor.scrub_all({"runs": runs}))
    elif not runs:
        print_text('No runs yet. Try: dodona ask "…"')
    else:
        heading = ("run", "status", "asked", "took", "tokens", "project", "question")
        print_text(redactor.scrub(format_columns([heading, *map(_run_row, runs)])))


@app.command
def show(
    run: Annotated[int, Parameter(name="ID", help="Run ID.")],
    /,
    *,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Show the question, answer and steps of a run."""
    loaded = load_config_quietly(config, redactor)
    document = asyncio.run(_with_views(loaded, redactor, lambda views: views.show(LOCAL_USER, run)))
    if json:
        print_json(redactor.scrub_all(document))
    else:
        print_text(redactor.scrub("\n".join(_format_run(document))))


async def _with_views(
    config: Config, redactor: Redactor, read: Callable[[RunViews], Awaitable[T]]
) -> T:
    async with open_store(config, redactor) as store:
        return await read(RunViews(store))


def _run_row(run: dict[str, Any]) -> tuple[str, ...]:
    question = strip_control_chars(" ".join(run["question"].split()))
    return (
        str(run["id"]),
        run["status"],
        _format_minute(run["created_at"]),
        _format_duration(run["duration_ms"]),
        f"{run['tokens']:,}",
        run["project_id"],
        question
        if len(question) <= MAX_QUESTION_WIDTH
        else f"{question[: MAX_QUESTION_WIDTH - 1]}…",
    )


def _format_run(run: dict[str, Any]) -> Iterator[str]:
    yield format_columns(
        [
            ("run", str(run["id"])),
            ("project", run["project_id"]),
            ("status", _format_status(run)),
            ("asked", _format_minute(run["created_at"])),
            ("took", _format_duration(run["duration_ms"])),
            ("tokens", f"{run['tokens']:,}"),
            ("model", strip_control_chars(run["model"] or "-")),
            ("context", run["context_id"]),
        ]
    )
    yield f"\nQuestion:\n{_indent(run['question'])}"
    if run["answer"]:
        yield f"\nAnswer:\n{_indent(run['answer'])}"
    if run["error"]:
        yield f"\nError:\n{_indent(str(from_json(run['error'])))}"
    if run["steps"]:
        heading = ("step", "leaf", "status", "took", "tokens")
        rows = [heading, *map(_step_row, run["steps"])]
        yield f"\nSteps:\n{_indent(format_columns(rows))}"


def _format_status(run: dict[str, Any]) -> str:
    attempt = run["attempt"]
    return run["status"] if attempt <= 1 else f"{run['status']}, attempt {attempt}"


def _step_row(step: dict[str, Any]) -> tuple[str, ...]:
    tokens = step["tokens"]
    return (
        step["key"],
        step["leaf"],
        step["status"],
        _format_duration(step["ms"]),
        f"{tokens:,}" if isinstance(tokens, int) else "-",
    )


def _indent(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in strip_control_chars(text).splitlines())


def _format_minute(timestamp: str | None) -> str:
    """Format a UTC timestamp to the minute."""
    return "-" if timestamp is None else timestamp[:16].replace("T", " ")


def _format_duration(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "-"
    return f"{milliseconds} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.1f} s"
