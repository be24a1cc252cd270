"""`dodona db`: the store's schema and its health."""

from __future__ import annotations

import os
from collections.abc import Iterator

from cyclopts import App

from dodona.app.config.config import load_config
from dodona.app.config.store_url import store_url
from dodona.app.models.credentials import Credentials
from dodona.app.telemetry import logging as logs
from dodona.cli.arguments import AsJson
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.terminal.output import print_json, print_text
from dodona.core.errors import StoreError
from dodona.store.db.location import StoreLocation, parse_location
from dodona.store.db.migrate import NEWEST_REVISION
from dodona.store.db.open import migrate as migrate_store
from dodona.store.integrity import CheckResult
from dodona.store.integrity import check as checks

app = App(name="db", help="Migrate and check the store.")


@app.command
def migrate(*, config: ConfigFile = None, json: AsJson = False, redactor: InjectedRedactor) -> None:
    """Bring the store to this version, or make it. Opening it does the same."""
    location = _store_location(config, redactor)
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
    return f"made, with schema {NEWEST_REVISION}"


@app.command
def check(*, config: ConfigFile = None, json: AsJson = False, redactor: InjectedRedactor) -> int:
    """Look the whole store over, changing nothing; exit 0 when all is well."""
    location = _store_location(config, redactor)
    done: list[CheckResult] = []
    for result in checks(location):
        if not json:
            heading = [] if done else [str(location)]
            print_text(redactor.scrub("\n".join((*heading, *_format_check(result)))))
        done.append(result)
    is_well = not any(result.problems for result in done)
    if json:
        found = {result.name: list(result.problems) for result in done}
        report = {"ok": is_well, "store": str(location), "checks": found}
        print_json(redactor.scrub_all(report))
    return 0 if is_well else StoreError.exit_code


def _format_check(result: CheckResult) -> Iterator[str]:
    yield f"  {'✗' if result.problems else '✓'} {result.name}"
    for problem in result.problems:
        yield f"      {problem}"


def _store_location(config: ConfigFile, redactor: InjectedRedactor) -> StoreLocation:
    loaded = load_config(os.environ, config)
    logs.configure_logging(loaded.settings.log, redactor)
    return parse_location(store_url(loaded, Credentials(loaded, os.environ, redactor)))
