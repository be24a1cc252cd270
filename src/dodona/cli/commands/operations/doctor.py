"""`dodona doctor`: looks over all that Dodona needs, and mends what it safely can."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dodona.app.config.config import load
from dodona.app.config.settings import Log
from dodona.app.models.credentials import Credentials
from dodona.app.telemetry import logging as logs
from dodona.cli import doctor as checkups
from dodona.cli.arguments import AsJson
from dodona.cli.commands.project.config import ConfigFile, Hidden
from dodona.cli.doctor import home
from dodona.cli.doctor.finding import SIGNS, Finding, wrong
from dodona.cli.terminal.output import document, say
from dodona.core.errors import ConfigError
from dodona.net.redactor import Redactor

SICK = 1  # the exit code


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
    redactor: Hidden,
) -> int:
    """Look over all that Dodona needs: ✓ is well, ! may matter, ✗ must be mended; exit 0 if none.

    Nothing that is billed is asked of a model, and nothing is changed without --fix.
    """
    logs.configure_logging(Log(level="error"), redactor)
    return asyncio.run(_doctor(config, redactor, fix=fix, json=json))


async def _doctor(config: Path | None, redactor: Redactor, *, fix: bool, json: bool) -> int:
    told: list[dict[str, Any]] = []
    async for finding in _findings(config, redactor):
        done = await asyncio.to_thread(_mended, finding) if fix else ""
        told.append(_as_json(finding, done))
        if not json:
            say(redactor.scrub(_line(finding, done)))
    is_well = not any(each["state"] == "wrong" and not each["fixed"] for each in told)
    if json:
        document(redactor.scrub_all({"ok": is_well, "findings": told}))
    return 0 if is_well else SICK


async def _findings(file: Path | None, redactor: Redactor) -> AsyncIterator[Finding]:
    try:
        config = await asyncio.to_thread(load, os.environ, file)
    except ConfigError as error:
        # Without a config nobody knows where the rest is.
        yield home.python()
        for problem in error.problems():
            place = f"{problem.where}: " if problem.where else ""
            yield wrong("config", f"{place}{problem.message}", problem.hint)
        return
    credentials = Credentials(config, os.environ, redactor)
    for finding in await asyncio.to_thread(lambda: [*checkups.local(config, credentials)]):
        yield finding
    async for finding in checkups.remote(config, credentials, redactor):
        yield finding


def _mended(finding: Finding) -> str:
    """What was done, or why nothing was; empty when there is nothing to do."""
    if finding.mend is None:
        return ""
    try:
        return finding.mend()
    except OSError as error:
        return f"✗ it cannot be mended: {error.strerror}."


def _as_json(finding: Finding, done: str) -> dict[str, Any]:
    return {
        "name": finding.name,
        "state": finding.state,
        "message": finding.said,
        "hint": finding.advice,
        "fixable": finding.mend is not None,
        "fixed": bool(done) and not done.startswith("✗"),
        "done": done,
    }


def _line(finding: Finding, done: str) -> str:
    line = f"{SIGNS[finding.state]} {finding.name:<12} {finding.said}"
    rest = done or finding.advice
    if done and not done.startswith("✗"):
        line = f"✓ {finding.name:<12} {finding.said}"
    return f"{line}\n  {'':<12} {rest}" if rest else line
