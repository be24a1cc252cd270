"""`dodona db`: the store's schema and its health."""

from __future__ import annotations

import os

from cyclopts import App

from dodona.app import logs
from dodona.app.config import load
from dodona.app.credentials import Credentials
from dodona.app.store_url import store_url
from dodona.cli.arguments import AsJson
from dodona.cli.config import ConfigFile, Hidden
from dodona.cli.output import document, say
from dodona.core.errors import StoreError
from dodona.store.check import Check
from dodona.store.check import check as checks
from dodona.store.location import Location, locate
from dodona.store.migrate import NEWEST
from dodona.store.opening import migrate as migrate_store

app = App(name="db", help="Migrate and check the store.")


@app.command
def migrate(*, config: ConfigFile = None, json: AsJson = False, redactor: Hidden) -> None:
    """Bring the store to this version, or make it. Opening it does the same."""
    location = _location(config, redactor)
    before = migrate_store(location).revision
    if json:
        document({"store": str(location), "before": before or None, "now": NEWEST})
    elif before == NEWEST:
        say(f"{location}: schema {NEWEST}, nothing to do")
    elif before:
        say(f"{location}: migrated from schema {before} to {NEWEST}")
    else:
        say(f"{location}: made, with schema {NEWEST}")


@app.command
def check(*, config: ConfigFile = None, json: AsJson = False, redactor: Hidden) -> int:
    """Look the whole store over, changing nothing; exit 0 when all is well."""
    location = _location(config, redactor)
    done: list[Check] = []
    for result in checks(location):
        if not json:
            _tell(result, location if not done else None)
        done.append(result)
    is_well = not any(result.problems for result in done)
    if json:
        found = {result.name: list(result.problems) for result in done}
        document({"ok": is_well, "store": str(location), "checks": found})
    return 0 if is_well else StoreError.exit_code


def _tell(result: Check, heading: Location | None) -> None:
    if heading is not None:
        say(str(heading))
    say(f"  {'✗' if result.problems else '✓'} {result.name}")
    for problem in result.problems:
        say(f"      {problem}")


def _location(config: ConfigFile, redactor: Hidden) -> Location:
    loaded = load(os.environ, config)
    logs.start(loaded.settings.log, redactor)
    return locate(store_url(loaded, Credentials(loaded, os.environ, redactor)))
