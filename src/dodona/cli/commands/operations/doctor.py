"""`dodona doctor`: check the installation and apply safe fixes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from dodona.app.config.config import Config, load_config
from dodona.app.config.settings import LoggingSection
from dodona.app.models.credentials import Credentials
from dodona.app.telemetry.logging import configure_logging
from dodona.cli.arguments import flag
from dodona.cli.doctor import gateway, home, models, notes, store
from dodona.cli.doctor.finding import STATE_MARKS, Finding, wrong
from dodona.cli.options import DEFAULTS, CommonOptions, Options
from dodona.cli.terminal.output import REDACTOR, print_json, print_text
from dodona.core.errors import ConfigError

UNHEALTHY_EXIT_CODE = 1


def doctor(
    *,
    fix: Annotated[
        bool, flag("Fix file modes, missing folders, leftover files and damaged indexes.")
    ] = False,
    offline: Annotated[bool, flag("Send no requests to model providers.")] = False,
    options: Options = DEFAULTS,
) -> int:
    """Check the installation for problems. Each model is sent one small request, which may cost."""
    configure_logging(LoggingSection(level="error"), REDACTOR)
    return asyncio.run(_run_doctor(options, fix=fix, offline=offline))


async def _run_doctor(options: CommonOptions, *, fix: bool, offline: bool) -> int:
    documents: list[dict[str, Any]] = []
    async for finding in _findings(options.config, offline=offline):
        fix_result = await asyncio.to_thread(_apply_fix, finding) if fix else ""
        documents.append(_finding_json(finding, fix_result))
        if not options.json:
            print_text(REDACTOR.scrub(_format_finding(finding, fix_result)))
    is_healthy = not any(each["state"] == "wrong" and not each["fixed"] for each in documents)
    if options.json:
        print_json(REDACTOR.scrub_all({"ok": is_healthy, "findings": documents}))
    return 0 if is_healthy else UNHEALTHY_EXIT_CODE


async def _findings(file: Path | None, *, offline: bool) -> AsyncIterator[Finding]:
    try:
        config = await asyncio.to_thread(load_config, os.environ, file)
    except ConfigError as error:
        # The other checks need a config.
        yield home.check_python()
        for problem in error.problems():
            location = f"{problem.where}: " if problem.where else ""
            yield wrong("config", f"{location}{problem.message}", problem.hint)
        return
    credentials = Credentials(config, os.environ, REDACTOR)
    for finding in await asyncio.to_thread(_local_findings, config, credentials):
        yield finding
    async for finding in gateway.run_checks(config, credentials):
        yield finding
    async for finding in models.run_checks(config, credentials, is_offline=offline):
        yield finding


def _local_findings(config: Config, credentials: Credentials) -> list[Finding]:
    """Run the checks that need no network. Blocks."""
    return [
        *home.run_checks(config),
        *store.run_checks(config, credentials),
        *notes.run_checks(config),
    ]


def _apply_fix(finding: Finding) -> str:
    """Apply the fix. Return its description or an error; empty if there is no fix."""
    if finding.fix is None:
        return ""
    try:
        return finding.fix()
    except OSError as error:
        return f"✗ Cannot fix it: {error.strerror}."


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
    detail = fix_result or finding.hint
    if fix_result and not fix_result.startswith("✗"):
        line = f"✓ {finding.name:<12} {finding.message}"
    return f"{line}\n  {'':<12} {detail}" if detail else line
