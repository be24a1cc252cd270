"""`dodona run`: which runs there were, and what each of them did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, TypeVar

from cyclopts import App, Parameter, validators

from dodona.agent.views import RunViews
from dodona.app.config.config import Config
from dodona.cli.arguments import AsJson
from dodona.cli.client.connect import quiet_config
from dodona.cli.commands.project.config import ConfigFile, Hidden
from dodona.cli.store_access import opened_store
from dodona.cli.terminal.output import columns, document, say
from dodona.cli.terminal.screen import plain
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import from_json
from dodona.net.redactor import Redactor

app = App(name="run", help="List and show runs.")

WIDEST = 60
T = TypeVar("T")


@app.command(name="list")
def list_runs(
    *,
    project: Annotated[str | None, Parameter(help="Only those of this project.")] = None,
    limit: Annotated[
        int, Parameter(help="How many at most.", validator=validators.Number(gte=1, lte=200))
    ] = 20,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: Hidden,
) -> None:
    """List runs, the newest first."""
    loaded = quiet_config(config, redactor)
    found = asyncio.run(
        _look(
            loaded,
            redactor,
            lambda views: views.list(LOCAL_USER, project_id=project, limit=limit),
        )
    )
    if json:
        document(redactor.scrub_all({"runs": found}))
    elif not found:
        say('There are no runs yet. Ask: dodona ask "…"')
    else:
        heading = ("run", "status", "asked", "took", "tokens", "project", "question")
        say(redactor.scrub(columns([heading, *map(_row, found)])))


@app.command
def show(
    run: Annotated[int, Parameter(name="ID", help="The number of a run.")],
    /,
    *,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: Hidden,
) -> None:
    """Show a run: what was asked, what came of it, and its steps."""
    loaded = quiet_config(config, redactor)
    found = asyncio.run(_look(loaded, redactor, lambda views: views.show(LOCAL_USER, run)))
    if json:
        document(redactor.scrub_all(found))
    else:
        say(redactor.scrub("\n".join(_lines(found))))


async def _look(config: Config, redactor: Redactor, read: Callable[[RunViews], Awaitable[T]]) -> T:
    async with opened_store(config, redactor) as store:
        return await read(RunViews(store))


def _row(run: dict[str, Any]) -> tuple[str, ...]:
    question = plain(" ".join(run["question"].split()))
    return (
        str(run["id"]),
        run["status"],
        _minute(run["created_at"]),
        _took(run["duration_ms"]),
        f"{run['tokens']:,}",
        run["project_id"],
        question if len(question) <= WIDEST else f"{question[: WIDEST - 1]}…",
    )


def _lines(run: dict[str, Any]) -> Iterator[str]:
    yield columns(
        [
            ("run", str(run["id"])),
            ("project", run["project_id"]),
            ("status", _status(run)),
            ("asked", _minute(run["created_at"])),
            ("took", _took(run["duration_ms"])),
            ("tokens", f"{run['tokens']:,}"),
            ("model", plain(run["model"] or "-")),
            ("context", run["context_id"]),
        ]
    )
    yield f"\nQuestion:\n{_indented(run['question'])}"
    if run["answer"]:
        yield f"\nAnswer:\n{_indented(run['answer'])}"
    if run["error"]:
        yield f"\nError:\n{_indented(str(from_json(run['error'])))}"
    if run["steps"]:
        heading = ("step", "leaf", "status", "took", "tokens")
        rows = [heading, *map(_step, run["steps"])]
        yield f"\nSteps:\n{_indented(columns(rows))}"


def _status(run: dict[str, Any]) -> str:
    times = run["attempt"]
    return run["status"] if times <= 1 else f"{run['status']}, at the {times}. attempt"


def _step(step: dict[str, Any]) -> tuple[str, ...]:
    tokens = step["tokens"]
    return (
        step["key"],
        step["leaf"],
        step["status"],
        _took(step["ms"]),
        f"{tokens:,}" if isinstance(tokens, int) else "-",
    )


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in plain(text).splitlines())


def _minute(moment: str | None) -> str:
    """As far as people want to know it; in UTC."""
    return "-" if moment is None else moment[:16].replace("T", " ")


def _took(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "-"
    return f"{milliseconds} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.1f} s"
