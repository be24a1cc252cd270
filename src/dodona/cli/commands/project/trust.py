"""`dodona trust`: trust the config file of a folder."""

from __future__ import annotations

import json as json_text
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from dodona.app.config.config import LOCAL_FILE, MAX_CONFIG_BYTES, home_folder
from dodona.app.config.shape import is_secret
from dodona.app.config.trust import TrustRequest, requests_of_file
from dodona.app.config.trusted_files import TrustedFiles, content_hash, location_of
from dodona.cli.arguments import AsJson, flag
from dodona.cli.options import CommonOptions
from dodona.cli.terminal.output import REDACTOR, format_minute, print_note
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.errors import BadRequest, Cancelled, NotFound
from dodona.documents import Document, dotted_key, read_document

_MAX_VALUE_LENGTH: Final = 300  # characters; a longer value could hide what follows it
_SOURCES: Final = ("env:", "file:")


def trust(
    path: Annotated[
        Path, Parameter(name="PATH", help="Config file, or its folder. Defaults to ./dodona.toml.")
    ] = LOCAL_FILE,
    /,
    *,
    yes: Annotated[bool, flag("Skip the confirmation.")] = False,
    list_: Annotated[bool, flag("List the trusted files.", name="--list")] = False,
    remove: Annotated[bool, flag("Trust the file no longer.")] = False,
    json: AsJson = False,
) -> None:
    """Show what a config file needs trust for, and trust its current content."""
    options = CommonOptions(json=json)
    trusted_files = TrustedFiles(home_folder(os.environ))
    file = path / LOCAL_FILE if path.is_dir() else path
    if list_:
        _print_trusted(trusted_files, options)
    elif remove:
        if not trusted_files.remove(file):
            raise NotFound(f"{file} is not a trusted file.", hint="See: dodona trust --list")
        options.print_result({"file": location_of(file)}, f"{file} is not trusted any more.")
    else:
        _trust_file(file, trusted_files, options, yes=yes)


def confirm_local_file() -> bool:
    """Ask on the terminal whether to trust `./dodona.toml`; return whether it is trusted now."""
    document = read_config(LOCAL_FILE)
    if not _confirm(document, requests_of_file(document)):
        return False
    TrustedFiles(home_folder(os.environ)).add(document)
    return True


def read_config(file: Path) -> Document:
    """Read and parse a config file."""
    return read_document(file, label="the config file", max_bytes=MAX_CONFIG_BYTES)


def _trust_file(
    file: Path, trusted_files: TrustedFiles, options: CommonOptions, *, yes: bool
) -> None:
    document = read_config(file)
    requests = requests_of_file(document)
    is_trusted = trusted_files.trusts(document)
    if requests and not is_trusted:
        if not yes and (options.json or not sys.stdin.isatty()):
            raise BadRequest(
                f"{file} needs trust for {_format_count(requests)}.",
                hint=f"Read it, then confirm with: dodona trust --yes {file}",
            )
        if not yes and not _confirm(document, requests):
            raise Cancelled("the file is not trusted.")
        trusted_files.add(document)
    result = {
        "file": location_of(file),
        "sha256": content_hash(document),
        "settings": [_as_json(document, each) for each in requests],
    }
    text = f"{file} is trusted until it changes." if requests else f"{file} needs no trust."
    options.print_result(result, "\n".join([*_lines(document, requests if yes else ()), text]))


def _confirm(document: Document, requests: Sequence[TrustRequest]) -> bool:
    """Show the requests and ask."""
    print_note(f"{document.file} was found in the current folder. It is not trusted, and would:")
    for line in _lines(document, requests):
        print_note(line)
    print_note("Trust the file with this content? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _lines(document: Document, requests: Sequence[TrustRequest]) -> list[str]:
    lines = (
        f"{document.nearest_location(each.path)}: {each.action}: "
        f"{dotted_key(each.path)} = {_format_value(each)}"
        for each in requests
    )
    return [REDACTOR.scrub(strip_control_chars(line)) for line in lines]


def _format_value(request: TrustRequest) -> str:
    """Format a value in ASCII: a file could hide what it does with invisible characters."""
    value: Any = request.value
    if is_secret(request.path) and not str(value).startswith(_SOURCES):
        return "(hidden)"
    text = json_text.dumps(value, default=str)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"


def _as_json(document: Document, request: TrustRequest) -> dict[str, Any]:
    return {
        "key": dotted_key(request.path),
        "value": _format_value(request),
        "action": request.action,
        "origin": str(document.nearest_location(request.path)),
    }


def _print_trusted(trusted_files: TrustedFiles, options: CommonOptions) -> None:
    entries = trusted_files.list()
    rows = [
        (format_minute(entry.trusted_at), entry.sha256[:12], path)
        for path, entry in sorted(entries.items())
    ]
    documents = [
        {"file": path, "sha256": entry.sha256, "trusted_at": entry.trusted_at}
        for path, entry in sorted(entries.items())
    ]
    options.print_table(
        {"files": documents}, ("trusted at", "sha256", "file"), rows, empty="No file is trusted."
    )


def _format_count(requests: Sequence[TrustRequest]) -> str:
    return "1 setting" if len(requests) == 1 else f"{len(requests)} settings"
