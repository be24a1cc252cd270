"""`dodona run`: list runs and show the steps of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from cyclopts import App, Parameter, validators

from dodona.agent.views.runs import RunDetails, RunDocument, RunViews, StepDocument
from dodona.cli.options import DEFAULTS, Options
from dodona.cli.store_access import run_with_store
from dodona.cli.terminal.output import format_columns, format_minute
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import from_body

app = App(name="run", help="List and show runs.")

MAX_QUESTION_WIDTH = 60


@app.command(name="list")
def list_runs(
    *,
    project: Annotated[str | None, Parameter(help="Only runs of this project.")] = None,
    limit: Annotated[
        int, Parameter(help="Maximum number of runs.", validator=validators.Number(gte=1, lte=200))
    ] = 20,
    options: Options = DEFAULTS,
) -> None:
    """List runs, newest first."""
    runs = run_with_store(
        options.load_config(),
        lambda store: RunViews(store).list(LOCAL_USER, project_id=project, limit=limit),
    )
    options.print_table(
        {"runs": runs},
        ("run", "status", "asked", "took", "tokens", "project", "question"),
        map(_run_row, runs),
        empty='No runs yet. Try: dodona ask "…"',
    )


@app.command
def show(
    run: Annotated[int, Parameter(name="ID", help="Run ID.")], /, *, options: Options = DEFAULTS
) -> None:
    """Show the question, answer and steps of a run."""
    document = run_with_store(
        options.load_config(), lambda store: RunViews(store).show(LOCAL_USER, run)
    )
    options.print_result(document, "\n".join(_format_run(document)))


def _run_row(run: RunDocument) -> tuple[str, ...]:
    question = strip_control_chars(" ".join(run.question.split()))
    return (
        str(run.id),
        _format_status(run),
        format_minute(run.created_at),
        _format_duration(run.duration_ms),
        f"{run.tokens:,}",
        run.project_id,
        question
        if len(question) <= MAX_QUESTION_WIDTH
        else f"{question[: MAX_QUESTION_WIDTH - 1]}…",
    )


def _format_run(run: RunDetails) -> Iterator[str]:
    yield format_columns(
        [
            ("run", str(run.id)),
            ("project", run.project_id),
            ("status", _format_status(run)),
            ("asked", format_minute(run.created_at)),
            ("took", _format_duration(run.duration_ms)),
            ("tokens", f"{run.tokens:,}"),
            ("model", strip_control_chars(run.model or "-")),
            ("context", run.context_id),
        ]
    )
    yield f"\nQuestion:\n{_indent(run.question)}"
    if run.answer:
        yield f"\nAnswer:\n{_indent(run.answer)}"
    if run.error:
        yield f"\nError:\n{_indent(str(from_body(run.error)))}"
    if run.steps:
        heading = ("step", "leaf", "status", "took", "tokens")
        rows = [heading, *map(_step_row, run.steps)]
        yield f"\nSteps:\n{_indent(format_columns(rows))}"


def _format_status(run: RunDocument) -> str:
    """The status, the limit that has ended the run, and the attempt if there were several."""
    parts = [run.status.value]
    if run.finish == "length" and run.termination_reason:
        parts.append(run.termination_reason)
    if run.attempt > 1:
        parts.append(f"attempt {run.attempt}")
    return ", ".join(parts)


def _step_row(step: StepDocument) -> tuple[str, ...]:
    tokens = step.tokens
    return (
        step.key,
        step.leaf,
        step.status,
        _format_duration(step.ms),
        f"{tokens:,}" if isinstance(tokens, int) else "-",
    )


def _indent(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in strip_control_chars(text).splitlines())


def _format_duration(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "-"
    return f"{milliseconds} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.1f} s"
