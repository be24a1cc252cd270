"""`dodona index`: a folder of code becomes known to a project; indexes are brought up to date.

It works on the files themselves, beside a gateway that uses them too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from dodona.app.config.config import Config
from dodona.app.config.origins import expand_user
from dodona.app.projects.code import CodeIndexes, outermost_folders
from dodona.app.projects.vaults import VaultIndexes
from dodona.cli.arguments import AsJson
from dodona.cli.client.connect import load_config_quietly
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.project_file import project_of
from dodona.cli.store_access import default_code_folders, default_vault_folder, open_store
from dodona.cli.terminal.output import print_json, print_note, print_text
from dodona.cli.terminal.progress import ProgressBar
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.knowledge.code import IndexState
from dodona.core.domain.projects import LOCAL_USER, Project
from dodona.core.errors import BadRequest
from dodona.net.redactor import Redactor
from dodona.store.store import Store
from dodona.tools.code import IndexedCode

INTERRUPTED_EXIT_CODE: Final = 130
MAX_SAMPLED_FILES: Final = 2_000  # files by which a folder of notes is known


@dataclass(frozen=True, slots=True)
class _IndexRequest:
    """What to index for a project; with `path`, this folder, which becomes part of it."""

    project_id: str
    path: Path | None
    rebuild: bool


def index(
    path: Annotated[
        Path | None, Parameter(name="PATH", help="A folder of code or notes; all of the project's.")
    ] = None,
    /,
    *,
    project: Annotated[
        str | None, Parameter(name="--project", help="Which; by default this folder's.")
    ] = None,
    rebuild: Annotated[
        bool, Parameter(negative="", show_default=False, help="Begin from nothing.")
    ] = False,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> int:
    """Index a folder, so that questions are answered from it; later, what has changed there."""
    loaded = load_config_quietly(config, redactor)
    wanted = _IndexRequest(project or project_of(Path.cwd()), _resolve_folder(path), rebuild)
    try:
        told = asyncio.run(_run_index(loaded, redactor, wanted))
    except KeyboardInterrupt:
        print_note("Interrupted. What is done is kept: dodona index goes on from there.")
        return INTERRUPTED_EXIT_CODE
    if json:
        print_json(redactor.scrub_all(told))
    else:
        print_text(redactor.scrub(strip_control_chars("\n".join(_format_report(told)))))
    return 0


def _resolve_folder(path: Path | None) -> Path | None:
    if path is not None and not path.is_dir():
        raise BadRequest(f"{path} is no folder.", hint="Name the folder that the code is in.")
    return path.resolve() if path else None


async def _run_index(config: Config, redactor: Redactor, request: _IndexRequest) -> dict[str, Any]:
    async with open_store(config, redactor) as store:
        notes = await asyncio.to_thread(default_vault_folder, config, redactor)
        vaults = VaultIndexes(store.projects, default=notes, home=config.home)
        vault = await vaults.folder(LOCAL_USER, request.project_id)
        told: dict[str, Any] = {"project": request.project_id}
        if request.path is None or await asyncio.to_thread(_is_notes_folder, request.path, vault):
            folder = (
                vault if request.path is None or _is_inside(request.path, vault) else request.path
            )
            files = await _index_notes(vaults, folder)
            told["notes"] = {"folder": str(folder), "is_vault": folder == vault, "files": files}
        if "notes" not in told or request.path is None:
            code = await asyncio.to_thread(default_code_folders, config, redactor)
            told["code"] = await _index_code(config, store, request=request, default=code)
        return told


async def _index_notes(vaults: VaultIndexes, folder: Path) -> int:
    vault = vaults.at(folder)
    with ProgressBar("notes") as bar:
        await vault.refresh_index(bar.update)
    return len(await vault.list())


async def _index_code(
    config: Config, store: Store, *, request: _IndexRequest, default: tuple[Path, ...]
) -> dict[str, Any] | None:
    """The state of the project's code, after all is taken in; None when it has none."""
    settings = config.settings.code
    async with CodeIndexes(
        store.projects,
        default=default,
        home=config.home,
        max_file_kb=settings.max_file_kb,
    ) as codes:
        roots = await codes.folders(LOCAL_USER, request.project_id)
        if request.path is not None and not any(_is_inside(request.path, root) for root in roots):
            roots = await _add_folder(store, request.project_id, request.path, roots)
        if not roots:
            return None
        state = await _refresh_code(codes.at(roots), rebuild=request.rebuild)
        return {"folders": [str(root) for root in roots], **asdict(state)}


async def _refresh_code(code: IndexedCode, *, rebuild: bool) -> IndexState:
    take = code.rebuild if rebuild else code.refresh
    with ProgressBar("files") as bar:
        return await take(lambda now: bar.update(now.done, now.total, now.size))


async def _add_folder(
    store: Store, project_id: str, path: Path, before: tuple[Path, ...]
) -> tuple[Path, ...]:
    """Make a folder the project's, beside those that it names, or has by the settings."""

    def change(project: Project) -> Project:
        known = [expand_user(each) for each in project.code_paths] or before
        return replace(project, code_paths=tuple(map(str, outermost_folders((*known, path)))))

    changed = await store.projects.update(LOCAL_USER, project_id, change)
    return tuple(map(Path, changed.code_paths))


def _is_inside(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder)


def _is_notes_folder(folder: Path, vault: Path) -> bool:
    """Is it in the vault, or is most of it Markdown?"""
    if _is_inside(folder, vault):
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
            yield f"         To ask about them, make it a project: dodona init {notes['folder']}"
    if code:
        yield from _format_code(code)
    elif "code" in report:
        yield "  code   none; add some: dodona index PATH"


def _format_code(code: dict[str, Any]) -> Iterator[str]:
    speed = code["size"] / 1e6 / code["seconds"] if code["seconds"] else 0.0
    yield f"  code   {code['files']:,} files in {', '.join(code['folders'])}"
    yield (
        f"         {code['indexed']:,} taken in, {code['unchanged']:,} unchanged, "
        f"{code['removed']:,} removed, {code['skipped']:,} skipped (ignored, binary or too large)"
    )
    yield f"         {code['symbols']:,} definitions in {code['chunks']:,} pieces"
    if code["size"]:
        yield (
            f"         {code['size'] / 1e6:,.1f} MB in {code['seconds']:.1f} s: {speed:.1f} MB/s"
        )
    yield '  ask    dodona ask "…"'
