"""`dodona backup`: copies of the store, made while it is used, and put back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from dodona.app.config.config import Config, load
from dodona.app.config.store_url import store_url
from dodona.app.models.credentials import Credentials
from dodona.app.telemetry import logging as logs
from dodona.cli.arguments import AsJson
from dodona.cli.commands.project.config import ConfigFile, Hidden
from dodona.cli.terminal.output import document, say
from dodona.cli.terminal.progress import Bar
from dodona.core.errors import StoreError
from dodona.net.redactor import Redactor
from dodona.store.backup import backup
from dodona.store.backup.manifest import Manifest
from dodona.store.db.location import Location, locate
from dodona.store.db.migrate import NEWEST
from dodona.store.integrity import Check

app = App(name="backup", help="Back the store up, and restore it.")

CONFIG = "config.toml"

Folder = Annotated[Path, Parameter(name="PATH", help="The folder of the backup.")]


@app.command
def create(
    path: Annotated[
        Path | None,
        Parameter(name="PATH", help="The folder to make; dodona-backup-TIME here by default."),
    ] = None,
    /,
    *,
    config: ConfigFile = None,
    json: AsJson = False,
    redactor: Hidden,
) -> None:
    """Copy all that is committed now, of one moment, while the gateway goes on.

    The config file goes along, without anything that looks like a secret. Keys, notes and code are
    not copied.
    """
    loaded, location = _loaded(config, redactor)
    folder = path or Path(f"dodona-backup-{datetime.now():%Y%m%d-%H%M%S}")
    with Bar("backup") as bar:
        made = backup.create(location, folder, more=_config(loaded, redactor), show=bar.show)
    if json:
        document(redactor.scrub_all({"path": str(folder.absolute()), **_facts(made)}))
    else:
        say(redactor.scrub(f"{folder}: {_told(made)}"))


@app.command
def verify(path: Folder, /, *, json: AsJson = False, redactor: Hidden) -> int:
    """Look a backup over: checksums, the database itself, rows; exit 0 when it is whole."""
    manifest = Manifest.read(path)
    done: list[Check] = []
    for result in backup.verify(path):
        if not json:
            heading = [] if done else [f"{path}: {_told(manifest)}"]
            say(redactor.scrub("\n".join((*heading, *_lines(result)))))
        done.append(result)
    is_whole = not any(result.problems for result in done)
    if json:
        found = {result.name: list(result.problems) for result in done}
        document(redactor.scrub_all({"ok": is_whole, **_facts(manifest), "checks": found}))
    return 0 if is_whole else StoreError.exit_code


@app.command
def restore(
    path: Folder,
    /,
    *,
    force: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Replace the store that is there."),
    ] = False,
    config: ConfigFile = None,
    json: AsJson = False,
    redactor: Hidden,
) -> None:
    """Make a backup the store. A store that is there is kept under another name.

    Nothing is changed unless the backup is whole and nobody uses the store.
    """
    _, location = _loaded(config, redactor)
    manifest = Manifest.read(path)
    with Bar("restore") as bar:
        kept = backup.restore(path, location, force=force, show=bar.show)
    if json:
        report = {"store": str(location), "kept": kept, **_facts(manifest)}
        document(redactor.scrub_all(report))
    else:
        say(redactor.scrub("\n".join(_restored(path, location, manifest, kept))))


def _restored(
    path: Path, location: Location, manifest: Manifest, kept: str | None
) -> Iterator[str]:
    yield f"{location}: restored, {_told(manifest)}"
    if kept is not None:
        where = "the file" if location.path is not None else "the schema"
        yield f"What was there before is in {where} {kept}. Remove it when you need it no more."
    if manifest.schema != NEWEST:
        yield f"It is migrated to schema {NEWEST} when it is opened."
    if CONFIG in manifest.files:
        yield f"The config file of that time is {path / CONFIG}. It was not put anywhere."


def _loaded(config: ConfigFile, redactor: Redactor) -> tuple[Config, Location]:
    loaded = load(os.environ, config)
    logs.configure_logging(loaded.settings.log, redactor)
    return loaded, locate(store_url(loaded, Credentials(loaded, os.environ, redactor)))


def _config(config: Config, redactor: Redactor) -> dict[str, bytes]:
    """The config file names secrets and holds none; what looks like one is taken out anyway."""
    file = config.places.file
    if file is None:
        return {}
    return {CONFIG: redactor.scrub(file.read_text(encoding="utf-8")).encode()}


def _facts(manifest: Manifest) -> dict[str, object]:
    return {
        "database": manifest.database,
        "schema": manifest.schema,
        "dodona": manifest.dodona,
        "made_at": manifest.made_at,
        "bytes": manifest.bytes,
        "rows": manifest.rows,
    }


def _told(manifest: Manifest) -> str:
    return (
        f"{manifest.rows:,} rows in {len(manifest.tables)} tables, {manifest.bytes:,} bytes, "
        f"schema {manifest.schema}, made {manifest.made_at}"
    )


def _lines(result: Check) -> Iterator[str]:
    yield f"  {'✗' if result.problems else '✓'} {result.name}"
    for problem in result.problems:
        yield f"      {problem}"
