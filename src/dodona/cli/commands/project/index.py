"""`dodona index`: add a folder of code to a project and update the indexes.

It works directly on the index files. A running gateway may use them at the same time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from dodona.app.config.config import Config
from dodona.app.config.origins import expand_user
from dodona.app.projects.code import CodeIndexes, outermost_folders
from dodona.app.projects.vaults import VaultIndexes
from dodona.cli.arguments import flag
from dodona.cli.options import DEFAULTS, Options, ProjectName, current_project
from dodona.cli.store_access import default_code_folders, default_vault_folder, run_with_store
from dodona.cli.terminal.output import REDACTOR, print_note
from dodona.cli.terminal.progress import ProgressBar
from dodona.core.domain.knowledge.code import IndexState
from dodona.core.domain.projects import LOCAL_USER, Project
from dodona.core.errors import BadRequest
from dodona.core.json_document import to_builtins
from dodona.store.store import Store
from dodona.tools.code import IndexedCode

INTERRUPTED_EXIT_CODE: Final = 130
MAX_SAMPLED_FILES: Final = 2_000  # files looked at to recognise a folder of notes


@dataclass(frozen=True, slots=True)
class _IndexRequest:
    """What to index for a project: all its folders, or the folder `path`, which is added to it."""

    project_id: str
    path: Path | None
    rebuild: bool


def index(
    path: Annotated[
        Path | None,
        Parameter(name="PATH", help="Folder of code or notes. Defaults to all folders."),
    ] = None,
    /,
    *,
    project: ProjectName = None,
    rebuild: Annotated[bool, flag("Rebuild the index from scratch.")] = False,
    options: Options = DEFAULTS,
) -> int:
    """Index a folder of code or notes, or all folders of the project."""
    config = options.load_config()
    request = _IndexRequest(current_project(project), _resolve_folder(path), rebuild)
    try:
        report = run_with_store(config, lambda store: _run_index(config, store, request))
    except KeyboardInterrupt:
        print_note("Interrupted. Run dodona index again to continue.")
        return INTERRUPTED_EXIT_CODE
    options.print_result(report, "\n".join(_format_report(report)))
    return 0


def _resolve_folder(path: Path | None) -> Path | None:
    if path is not None and not path.is_dir():
        raise BadRequest(f"{path} is not a folder.", hint="Give the folder with the code.")
    return path.resolve() if path else None


async def _run_index(config: Config, store: Store, request: _IndexRequest) -> dict[str, Any]:
    notes = await asyncio.to_thread(default_vault_folder, config, REDACTOR)
    vaults = VaultIndexes(store, default=notes, home=config.home)
    vault = await vaults.folder(LOCAL_USER, request.project_id)
    report: dict[str, Any] = {"project": request.project_id}
    if request.path is None or await asyncio.to_thread(_is_notes_folder, request.path, vault):
        folder = (
            vault if request.path is None or request.path.is_relative_to(vault) else request.path
        )
        files = await _index_notes(vaults, folder)
        report["notes"] = {"folder": str(folder), "is_vault": folder == vault, "files": files}
    if "notes" not in report or request.path is None:
        code = await asyncio.to_thread(default_code_folders, config, REDACTOR)
        report["code"] = await _index_code(config, store, request=request, default=code)
    return report


async def _index_notes(vaults: VaultIndexes, folder: Path) -> int:
    vault = vaults.at(folder)
    with ProgressBar("notes") as bar:
        await vault.refresh_index(bar.update)
    return len(await vault.list())


async def _index_code(
    config: Config, store: Store, *, request: _IndexRequest, default: tuple[Path, ...]
) -> dict[str, Any] | None:
    """Index the project's code and return its state; None if it has no code."""
    settings = config.settings.code
    async with CodeIndexes(
        store.projects,
        default=default,
        home=config.home,
        max_file_kb=settings.max_file_kb,
    ) as codes:
        roots = await codes.folders(LOCAL_USER, request.project_id)
        if request.path is not None and not any(
            request.path.is_relative_to(root) for root in roots
        ):
            roots = await _add_folder(store, request.project_id, request.path, roots)
        if not roots:
            return None
        state = await _refresh_code(codes.at(roots), rebuild=request.rebuild)
        return {"folders": [str(root) for root in roots], **to_builtins(state)}


async def _refresh_code(code: IndexedCode, *, rebuild: bool) -> IndexState:
    update = code.rebuild if rebuild else code.refresh
    with ProgressBar("files") as bar:
        return await update(
            lambda progress: bar.update(progress.done, progress.total, progress.size)
        )


async def _add_folder(
    store: Store, project_id: str, path: Path, before: tuple[Path, ...]
) -> tuple[Path, ...]:
    """Add a folder to those of the project, or to those from the settings."""

    def change(project: Project) -> Project:
        folders = [expand_user(each) for each in project.code_paths] or before
        return replace(project, code_paths=tuple(map(str, outermost_folders((*folders, path)))))

    changed = await store.projects.update(LOCAL_USER, project_id, change)
    return tuple(map(Path, changed.code_paths))


def _is_notes_folder(folder: Path, vault: Path) -> bool:
    """Whether the folder is in the vault, or most of its files are Markdown."""
    if folder.is_relative_to(vault):
        return True
    names = list(islice(_walk_file_names(folder), MAX_SAMPLED_FILES))
    return 2 * sum(name.lower().endswith(".md") for name in names) > len(names)


def _walk_file_names(folder: Path) -> Iterator[str]:
    with suppress(OSError):
        for _, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            yield from (name for name in files if not name.startswith("."))


def _format_report(report: dict[str, Any]) -> Iterator[str]:
    yield f"Project {report['project']}"
    notes, code = report.get("notes"), report.get("code")
    if notes:
        yield f"  notes  {notes['files']:,} in {notes['folder']}"
        if not notes["is_vault"]:
            yield f"         To ask questions about them: dodona init {notes['folder']}"
    if code:
        yield from _format_code(code)
    elif "code" in report:
        yield "  code   none; to add a folder: dodona index PATH"


def _format_code(code: dict[str, Any]) -> Iterator[str]:
    speed = code["size"] / 1e6 / code["seconds"] if code["seconds"] else 0.0
    yield f"  code   {code['files']:,} files in {', '.join(code['folders'])}"
    yield (
        f"         {code['indexed']:,} indexed, {code['unchanged']:,} unchanged, "
        f"{code['removed']:,} removed, {code['skipped']:,} skipped (ignored, binary or too large)"
    )
    yield f"         {code['symbols']:,} definitions in {code['chunks']:,} chunks"
    if code["size"]:
        yield (
            f"         {code['size'] / 1e6:,.1f} MB in {code['seconds']:.1f} s: {speed:.1f} MB/s"
        )
    yield '  ask    dodona ask "…"'
