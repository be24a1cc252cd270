"""`dodona db`: migrate and check the store."""

from __future__ import annotations

import os
from collections.abc import Iterator

from cyclopts import App

from dodona.app.config.config import load_config
from dodona.app.config.store_url import store_url
from dodona.app.models.credentials import Credentials
from dodona.app.telemetry.logging import configure_logging
from dodona.cli.options import DEFAULTS, CommonOptions, Options
from dodona.cli.terminal.output import REDACTOR, print_json, print_text
from dodona.core.errors import StoreError
from dodona.store.db.location import StoreLocation, parse_location
from dodona.store.db.migrate import NEWEST_REVISION
from dodona.store.db.open import migrate as migrate_store
from dodona.store.integrity import CheckResult
from dodona.store.integrity import check as check_store

app = App(name="db", help="Migrate and check the store.")


@app.command
def migrate(*, options: Options = DEFAULTS) -> None:
    """Migrate the store to the current schema, or create it.

    Every command that opens the store does the same.
    """
    location = _store_location(options)
    before = migrate_store(location).revision
    options.print_result(
        {"store": str(location), "before": before or None, "now": NEWEST_REVISION},
        f"{location}: {_format_migration(before)}",
    )


def _format_migration(before: str) -> str:
    if before == NEWEST_REVISION:
        return f"schema {NEWEST_REVISION}, nothing to do"
    if before:
        return f"migrated from schema {before} to {NEWEST_REVISION}"
    return f"created with schema {NEWEST_REVISION}"


@app.command
def check(*, options: Options = DEFAULTS) -> int:
    """Check the integrity of the store without changing it.

    The exit code is 0 if there are no problems.
    """
    location = _store_location(options)
    results: list[CheckResult] = []
    for result in check_store(location):
        if not options.json:
            heading = [] if results else [str(location)]
            print_text(REDACTOR.scrub("\n".join((*heading, *_format_check(result)))))
        results.append(result)
    is_intact = not any(result.problems for result in results)
    if options.json:
        checks = {result.name: list(result.problems) for result in results}
        report = {"ok": is_intact, "store": str(location), "checks": checks}
        print_json(REDACTOR.scrub_all(report))
    return 0 if is_intact else StoreError.exit_code


def _format_check(result: CheckResult) -> Iterator[str]:
    yield f"  {'✗' if result.problems else '✓'} {result.name}"
    for problem in result.problems:
        yield f"      {problem}"


def _store_location(options: CommonOptions) -> StoreLocation:
    config = load_config(os.environ, options.config)
    configure_logging(config.settings.log, REDACTOR)
    return parse_location(store_url(config, Credentials(config, os.environ, REDACTOR)))
