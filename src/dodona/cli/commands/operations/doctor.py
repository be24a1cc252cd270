"""`dodona doctor`: looks over all that Dodona needs, and mends what it safely can."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dodona.app.config.config import load_config
from dodona.app.config.settings import LoggingSection
from dodona.app.models.credentials import Credentials
from dodona.app.telemetry import logging as logs
from dodona.cli import doctor as checkups
from dodona.cli.arguments import AsJson
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.doctor import home
from dodona.cli.doctor.finding import STATE_MARKS, Finding, wrong
from dodona.cli.terminal.output import print_json, print_text
from dodona.core.errors import ConfigError
from dodona.net.redactor import Redactor

UNHEALTHY_EXIT_CODE = 1  # the exit code


def doctor(
    *,
    fix: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Mend what is safe: modes, missing folders, what others left, damaged indexes.",
        ),
    ] = False,
    config: ConfigFile = None,
    json: AsJson = False,
    redactor: InjectedRedactor,
) -> int:
    """Look over all that Dodona needs: ✓ is well, ! may matter, ✗ must be mended; exit 0 if none.

    Nothing that is billed is asked of a model, and nothing is changed without --fix.
    """
    logs.configure_logging(LoggingSection(level="error"), redactor)
    return asyncio.run(_run_doctor(config, redactor, fix=fix, json=json))


async def _run_doctor(config: Path | None, redactor: Redactor, *, fix: bool, json: bool) -> int:
    told: list[dict[str, Any]] = []
    async for finding in _findings(config, redactor):
        done = await asyncio.to_thread(_apply_fix, finding) if fix else ""
        told.append(_finding_json(finding, done))
        if not json:
            print_text(redactor.scrub(_format_finding(finding, done)))
    is_well = not any(each["state"] == "wrong" and not each["fixed"] for each in told)
    if json:
        print_json(redactor.scrub_all({"ok": is_well, "findings": told}))
    return 0 if is_well else UNHEALTHY_EXIT_CODE


async def _findings(file: Path | None, redactor: Redactor) -> AsyncIterator[Finding]:
    try:
        config = await asyncio.to_thread(load_config, os.environ, file)
    except ConfigError as error:
        # Without a config nobody knows where the rest is.
        yield home.check_python()
        for problem in error.problems():
            place = f"{problem.where}: " if problem.where else ""
            yield wrong("config", f"{place}{problem.message}", problem.hint)
        return
    credentials = Credentials(config, os.environ, redactor)
    for finding in await asyncio.to_thread(
        lambda: [*checkups.run_local_checks(config, credentials)]
    ):
        yield finding
    async for finding in checkups.run_remote_checks(config, credentials, redactor):
        yield finding


def _apply_fix(finding: Finding) -> str:
    """What was done, or why nothing was; empty when there is nothing to do."""
    if finding.fix is None:
        return ""
    try:
        return finding.fix()
    except OSError as error:
        return f"✗ it cannot be mended: {error.strerror}."


def _finding_json(finding: Finding, fix_result: str) -> dict[str, Any]:
    return {
        "name": finding.name,
        "state": finding.state,
        "message": finding.message,
        "hint": finding.hint,
        "fixable": finding.fix is not None,
        "fixed": bool(fix_result) and not fix_result.startswith("✗"),
        "done": fix_result,
    }


def _format_finding(finding: Finding, fix_result: str) -> str:
    line = f"{STATE_MARKS[finding.state]} {finding.name:<12} {finding.message}"
    rest = fix_result or finding.hint
    if fix_result and not fix_result.startswith("✗"):
        line = f"✓ {finding.name:<12} {finding.message}"
    return f"{line}\n  {'':<12} {rest}" if rest else line
