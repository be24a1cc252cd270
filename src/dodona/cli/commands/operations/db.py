"""`dodona db`: the store's schema and its health."""

from __future__ import annotations

import os
from collections.abc import Iterator

from cyclopts import App

from dodona.app.config.config import load
from dodona.app.config.store_url import store_url
from dodona.app.models.credentials import Credentials
from dodona.app.telemetry import logging as logs
from dodona.cli.arguments import AsJson
from dodona.cli.commands.project.config import ConfigFile, Hidden
from dodona.cli.terminal.output import document, say
from dodona.core.errors import StoreError
from dodona.store.db.location import Location, locate
from dodona.store.db.migrate import NEWEST
from dodona.store.db.open import migrate as migrate_store
from dodona.store.integrity import Check
from dodona.store.integrity import check as checks

app = App(name="db", help="Migrate and check the store.")


@app.command
def migrate(*, config: ConfigFile = None, json: AsJson = False, redactor: Hidden) -> None:
    """Bring the store to this version, or make it. Opening it does the same."""
    location = _location(config, redactor)
    before = migrate_store(location).revision
    if json:
        report = {"store": str(location), "before": before or None, "now": NEWEST}
        document(redactor.scrub_all(report))
    else:
        say(redactor.scrub(f"{location}: {_done(before)}"))


def _done(before: str) -> str:
    if before == NEWEST:
        return f"schema {NEWEST}, nothing to do"
    if before:
        return f"migrated from schema {before} to {NEWEST}"
    return f"made, with schema {NEWEST}"


@app.command
def check(*, config: ConfigFile = None, json: AsJson = False, redactor: Hidden) -> int:
    """Look the whole store over, changing nothing; exit 0 when all is well."""
    location = _location(config, redactor)
    done: list[Check] = []
    for result in checks(location):
        if not json:
            heading = [] if done else [str(location)]
            say(redactor.scrub("\n".join((*heading, *_lines(result)))))
        done.append(result)
    is_well = not any(result.problems for result in done)
    if json:
        found = {result.name: list(result.problems) for result in done}
        report = {"ok": is_well, "store": str(location), "checks": found}
        document(redactor.scrub_all(report))
    return 0 if is_well else StoreError.exit_code


def _lines(result: Check) -> Iterator[str]:
    yield f"  {'✗' if result.problems else '✓'} {result.name}"
    for problem in result.problems:
        yield f"      {problem}"


def _location(config: ConfigFile, redactor: Hidden) -> Location:
    loaded = load(os.environ, config)
    logs.configure_logging(loaded.settings.log, redactor)
    return locate(store_url(loaded, Credentials(loaded, os.environ, redactor)))
