"""`dodona db`: migrate and check the store."""

from __future__ import annotations

import os
from collections.abc import Iterable

from cyclopts import App

from dodona.app.config.config import Config, load_config
from dodona.app.config.store_url import store_url
from dodona.app.models.credentials import Credentials
from dodona.app.telemetry.logging import configure_logging
from dodona.cli.arguments import AsJson
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.terminal.output import print_json, print_text
from dodona.core.errors import StoreError
from dodona.net.redactor import Redactor
from dodona.store.db.location import StoreLocation, parse_location
from dodona.store.db.migrate import NEWEST_REVISION
from dodona.store.db.open import migrate as migrate_store
from dodona.store.integrity import CheckResult
from dodona.store.integrity import check as check_store

app = App(name="db", help="Migrate and check the store.")


@app.command
def migrate(*, config: ConfigFile = None, json: AsJson = False, redactor: InjectedRedactor) -> None:
    """Migrate the store to the current schema, or create it.

    Every command that opens the store does the same.
    """
    _, location = load_store_location(config, redactor)
    before = migrate_store(location).revision
    if json:
        report = {"store": str(location), "before": before or None, "now": NEWEST_REVISION}
        print_json(redactor.scrub_all(report))
    else:
        print_text(redactor.scrub(f"{location}: {_format_migration(before)}"))


def _format_migration(before: str) -> str:
    if before == NEWEST_REVISION:
        return f"schema {NEWEST_REVISION}, nothing to do"
    if before:
        return f"migrated from schema {before} to {NEWEST_REVISION}"
    return f"created with schema {NEWEST_REVISION}"


@app.command
def check(*, config: ConfigFile = None, json: AsJson = False, redactor: InjectedRedactor) -> int:
    """Check the integrity of the store without changing it.

    The exit code is 0 if there are no problems.
    """
    _, location = load_store_location(config, redactor)
    return report_checks(
        check_store(location),
        heading=str(location),
        facts={"store": str(location)},
        json=json,
        redactor=redactor,
    )


def report_checks(
    checks: Iterable[CheckResult],
    *,
    heading: str,
    facts: dict[str, object],
    json: bool,
    redactor: Redactor,
) -> int:
    """Print the results of checks, as text one by one or as JSON; return the exit code."""
    results: list[CheckResult] = []
    for result in checks:
        if not json:
            lines = [] if results else [heading]
            lines.append(f"  {'✗' if result.problems else '✓'} {result.name}")
            lines += [f"      {problem}" for problem in result.problems]
            print_text(redactor.scrub("\n".join(lines)))
        results.append(result)
    is_intact = not any(result.problems for result in results)
    if json:
        problems = {result.name: list(result.problems) for result in results}
        print_json(redactor.scrub_all({"ok": is_intact, **facts, "checks": problems}))
    return 0 if is_intact else StoreError.exit_code


def load_store_location(config: ConfigFile, redactor: Redactor) -> tuple[Config, StoreLocation]:
    """Load the config, start logging, and return the config with the location of its store."""
    loaded = load_config(os.environ, config)
    configure_logging(loaded.settings.log, redactor)
    return loaded, parse_location(store_url(loaded, Credentials(loaded, os.environ, redactor)))
