"""`dodona backup`: copies of the store, made while it is used, and put back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from dodona.app.config.config import Config, load_config
from dodona.app.config.store_url import store_url
from dodona.app.models.credentials import Credentials
from dodona.app.telemetry import logging as logs
from dodona.cli.arguments import AsJson
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.terminal.output import print_json, print_text
from dodona.cli.terminal.progress import ProgressBar
from dodona.core.errors import StoreError
from dodona.net.redactor import Redactor
from dodona.store.backup import backup
from dodona.store.backup.manifest import Manifest
from dodona.store.db.location import StoreLocation, parse_location
from dodona.store.db.migrate import NEWEST_REVISION
from dodona.store.integrity import CheckResult

app = App(name="backup", help="Back the store up, and restore it.")

CONFIG_FILE_NAME = "config.toml"

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
    redactor: InjectedRedactor,
) -> None:
    """Copy all that is committed now, of one moment, while the gateway goes on.

    The config file goes along, without anything that looks like a secret. Keys, notes and code are
    not copied.
    """
    loaded, location = _load_with_location(config, redactor)
    folder = path or Path(f"dodona-backup-{datetime.now():%Y%m%d-%H%M%S}")
    with ProgressBar("backup") as bar:
        made = backup.create(
            location, folder, extra_files=_redacted_config(loaded, redactor), on_progress=bar.update
        )
    if json:
        print_json(redactor.scrub_all({"path": str(folder.absolute()), **_manifest_json(made)}))
    else:
        print_text(redactor.scrub(f"{folder}: {_format_manifest(made)}"))


@app.command
def verify(path: Folder, /, *, json: AsJson = False, redactor: InjectedRedactor) -> int:
    """Look a backup over: checksums, the database itself, rows; exit 0 when it is whole."""
    manifest = Manifest.read(path)
    done: list[CheckResult] = []
    for result in backup.verify(path):
        if not json:
            heading = [] if done else [f"{path}: {_format_manifest(manifest)}"]
            print_text(redactor.scrub("\n".join((*heading, *_format_check(result)))))
        done.append(result)
    is_whole = not any(result.problems for result in done)
    if json:
        found = {result.name: list(result.problems) for result in done}
        print_json(
            redactor.scrub_all({"ok": is_whole, **_manifest_json(manifest), "checks": found})
        )
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
    redactor: InjectedRedactor,
) -> None:
    """Make a backup the store. A store that is there is kept under another name.

    Nothing is changed unless the backup is whole and nobody uses the store.
    """
    _, location = _load_with_location(config, redactor)
    manifest = Manifest.read(path)
    with ProgressBar("restore") as bar:
        kept = backup.restore(path, location, force=force, on_progress=bar.update)
    if json:
        report = {"store": str(location), "kept": kept, **_manifest_json(manifest)}
        print_json(redactor.scrub_all(report))
    else:
        print_text(redactor.scrub("\n".join(_format_restored(path, location, manifest, kept))))


def _format_restored(
    path: Path, location: StoreLocation, manifest: Manifest, previous: str | None
) -> Iterator[str]:
    yield f"{location}: restored, {_format_manifest(manifest)}"
    if previous is not None:
        where = "the file" if location.path is not None else "the schema"
        yield f"What was there before is in {where} {previous}. Remove it when you need it no more."
    if manifest.schema != NEWEST_REVISION:
        yield f"It is migrated to schema {NEWEST_REVISION} when it is opened."
    if CONFIG_FILE_NAME in manifest.files:
        yield f"The config file of that time is {path / CONFIG_FILE_NAME}. It was not put anywhere."


def _load_with_location(config: ConfigFile, redactor: Redactor) -> tuple[Config, StoreLocation]:
    loaded = load_config(os.environ, config)
    logs.configure_logging(loaded.settings.log, redactor)
    return loaded, parse_location(store_url(loaded, Credentials(loaded, os.environ, redactor)))


def _redacted_config(config: Config, redactor: Redactor) -> dict[str, bytes]:
    """The config file names secrets and holds none; what looks like one is taken out anyway."""
    file = config.origins.file
    if file is None:
        return {}
    return {CONFIG_FILE_NAME: redactor.scrub(file.read_text(encoding="utf-8")).encode()}


def _manifest_json(manifest: Manifest) -> dict[str, object]:
    return {
        "database": manifest.database,
        "schema": manifest.schema,
        "dodona": manifest.dodona,
        "made_at": manifest.made_at,
        "bytes": manifest.bytes,
        "rows": manifest.rows,
    }


def _format_manifest(manifest: Manifest) -> str:
    return (
        f"{manifest.rows:,} rows in {len(manifest.tables)} tables, {manifest.bytes:,} bytes, "
        f"schema {manifest.schema}, made {manifest.made_at}"
    )


def _format_check(result: CheckResult) -> Iterator[str]:
    yield f"  {'✗' if result.problems else '✓'} {result.name}"
    for problem in result.problems:
        yield f"      {problem}"
