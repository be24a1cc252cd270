"""`dodona backup`: back up the store while it is in use, and restore it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from dodona.app.config.config import Config
from dodona.cli.arguments import AsJson
from dodona.cli.commands.operations.db import load_store_location, report_checks
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.terminal.output import print_json, print_text
from dodona.cli.terminal.progress import ProgressBar
from dodona.net.redactor import Redactor
from dodona.store.backup import backup
from dodona.store.backup.manifest import Manifest
from dodona.store.db.location import StoreLocation
from dodona.store.db.migrate import NEWEST_REVISION

app = App(name="backup", help="Back up and restore the store.")

CONFIG_FILE_NAME = "config.toml"

Folder = Annotated[Path, Parameter(name="PATH", help="Folder of the backup.")]


@app.command
def create(
    path: Annotated[
        Path | None,
        Parameter(name="PATH", help="New folder for the backup. Defaults to dodona-backup-TIME."),
    ] = None,
    /,
    *,
    config: ConfigFile = None,
    json: AsJson = False,
    redactor: InjectedRedactor,
) -> None:
    """Back up the store.

    The backup is a consistent snapshot; the gateway may keep running. The config
    file is included, with anything that looks like a secret redacted. Keys,
    notes and code are not included.
    """
    loaded, location = load_store_location(config, redactor)
    folder = path or Path(f"dodona-backup-{datetime.now():%Y%m%d-%H%M%S}")
    with ProgressBar("backup") as bar:
        manifest = backup.create(
            location, folder, extra_files=_redacted_config(loaded, redactor), on_progress=bar.update
        )
    if json:
        print_json(redactor.scrub_all({"path": str(folder.absolute()), **_manifest_json(manifest)}))
    else:
        print_text(redactor.scrub(f"{folder}: {_format_manifest(manifest)}"))


@app.command
def verify(path: Folder, /, *, json: AsJson = False, redactor: InjectedRedactor) -> int:
    """Verify a backup.

    Checks the checksums, the database and the row counts. The exit code is 0 if
    the backup is intact.
    """
    manifest = Manifest.read(path)
    return report_checks(
        backup.verify(path),
        heading=f"{path}: {_format_manifest(manifest)}",
        facts=_manifest_json(manifest),
        json=json,
        redactor=redactor,
    )


@app.command
def restore(
    path: Folder,
    /,
    *,
    force: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Replace an existing store."),
    ] = False,
    config: ConfigFile = None,
    json: AsJson = False,
    redactor: InjectedRedactor,
) -> None:
    """Restore a backup.

    The existing store is kept under another name. Nothing is changed if the
    backup is damaged or the store is in use.
    """
    _, location = load_store_location(config, redactor)
    manifest = Manifest.read(path)
    with ProgressBar("restore") as bar:
        previous = backup.restore(path, location, force=force, on_progress=bar.update)
    if json:
        report = {"store": str(location), "kept": previous, **_manifest_json(manifest)}
        print_json(redactor.scrub_all(report))
    else:
        print_text(redactor.scrub("\n".join(_format_restored(path, location, manifest, previous))))


def _format_restored(
    path: Path, location: StoreLocation, manifest: Manifest, previous: str | None
) -> Iterator[str]:
    yield f"{location}: restored, {_format_manifest(manifest)}"
    if previous is not None:
        where = "the file" if location.path is not None else "the schema"
        yield f"The previous store is kept in {where} {previous}. Remove it when it is not needed."
    if manifest.schema != NEWEST_REVISION:
        yield f"It will be migrated to schema {NEWEST_REVISION} on first use."
    if CONFIG_FILE_NAME in manifest.files:
        yield f"The config file in the backup was not restored: {path / CONFIG_FILE_NAME}"


def _redacted_config(config: Config, redactor: Redactor) -> dict[str, bytes]:
    """Return the config file, redacted. It should only refer to secrets; this is a safeguard."""
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
        f"schema {manifest.schema}, created {manifest.made_at}"
    )
