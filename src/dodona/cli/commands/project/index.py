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
from dodona.app.config.origins import expanded
from dodona.app.projects.code import CodeIndexes, outermost
from dodona.app.projects.vaults import VaultIndexes
from dodona.cli.arguments import AsJson
from dodona.cli.client.connect import quiet_config
from dodona.cli.commands.project.config import ConfigFile, Hidden
from dodona.cli.project_file import project_of
from dodona.cli.store_access import default_code, default_vault, opened_store
from dodona.cli.terminal.output import document, note, say
from dodona.cli.terminal.progress import Bar
from dodona.cli.terminal.screen import plain
from dodona.core.domain.knowledge.code import IndexState
from dodona.core.domain.projects import LOCAL_USER, Project
from dodona.core.errors import BadRequest
from dodona.net.redactor import Redactor
from dodona.store.store import Store
from dodona.tools.code import IndexedCode

INTERRUPTED: Final = 130
MOST_LOOKED_AT: Final = 2_000  # files by which a folder of notes is known


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What to index for a project; with `path`, this folder, which becomes part of it."""

    project_id: str
    path: Path | None
    rebuilds: bool


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
    redactor: Hidden,
) -> int:
    """Index a folder, so that questions are answered from it; later, what has changed there."""
    loaded = quiet_config(config, redactor)
    wanted = _Wanted(project or project_of(Path.cwd()), _folder(path), rebuild)
    try:
        told = asyncio.run(_indexed(loaded, redactor, wanted))
    except KeyboardInterrupt:
        note("Interrupted. What is done is kept: dodona index goes on from there.")
        return INTERRUPTED
    if json:
        document(redactor.scrub_all(told))
    else:
        say(redactor.scrub(plain("\n".join(_lines(told)))))
    return 0


def _folder(path: Path | None) -> Path | None:
    if path is not None and not path.is_dir():
        raise BadRequest(f"{path} is no folder.", hint="Name the folder that the code is in.")
    return path.resolve() if path else None


async def _indexed(config: Config, redactor: Redactor, wanted: _Wanted) -> dict[str, Any]:
    async with opened_store(config, redactor) as store:
        notes = await asyncio.to_thread(default_vault, config, redactor)
        vaults = VaultIndexes(store.projects, default=notes, home=config.home)
        vault = await vaults.folder(LOCAL_USER, wanted.project_id)
        told: dict[str, Any] = {"project": wanted.project_id}
        if wanted.path is None or await asyncio.to_thread(_is_notes, wanted.path, vault):
            folder = vault if wanted.path is None or _is_in(wanted.path, vault) else wanted.path
            files = await _notes(vaults, folder)
            told["notes"] = {"folder": str(folder), "is_vault": folder == vault, "files": files}
        if "notes" not in told or wanted.path is None:
            code = await asyncio.to_thread(default_code, config, redactor)
            told["code"] = await _code(config, store, wanted=wanted, default=code)
        return told


async def _notes(vaults: VaultIndexes, folder: Path) -> int:
    vault = vaults.at(folder)
    with Bar("notes") as bar:
        await vault.prepared(bar.show)
    return len(await vault.list())


async def _code(
    config: Config, store: Store, *, wanted: _Wanted, default: tuple[Path, ...]
) -> dict[str, Any] | None:
    """The state of the project's code, after all is taken in; None when it has none."""
    settings = config.settings.code
    async with CodeIndexes(
        store.projects,
        default=default,
        home=config.home,
        max_file_kb=settings.max_file_kb,
    ) as codes:
        roots = await codes.folders(LOCAL_USER, wanted.project_id)
        if wanted.path is not None and not any(_is_in(wanted.path, root) for root in roots):
            roots = await _added(store, wanted.project_id, wanted.path, roots)
        if not roots:
            return None
        state = await _taken(codes.at(roots), rebuilds=wanted.rebuilds)
        return {"folders": [str(root) for root in roots], **asdict(state)}


async def _taken(code: IndexedCode, *, rebuilds: bool) -> IndexState:
    take = code.rebuild if rebuilds else code.refresh
    with Bar("files") as bar:
        return await take(lambda now: bar.show(now.done, now.total, now.size))


async def _added(
    store: Store, project_id: str, path: Path, before: tuple[Path, ...]
) -> tuple[Path, ...]:
    """Make a folder the project's, beside those that it names, or has by the settings."""

    def change(project: Project) -> Project:
        known = [expanded(each) for each in project.code_paths] or before
        return replace(project, code_paths=tuple(map(str, outermost((*known, path)))))

    changed = await store.projects.change(LOCAL_USER, project_id, change)
    return tuple(map(Path, changed.code_paths))


def _is_in(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder)


def _is_notes(folder: Path, vault: Path) -> bool:
    """Is it in the vault, or is most of it Markdown?"""
    if _is_in(folder, vault):
        return True
    names = list(islice(_names(folder), MOST_LOOKED_AT))
    return 2 * sum(name.lower().endswith(".md") for name in names) > len(names)


def _names(folder: Path) -> Iterator[str]:
    with suppress(OSError):
        for _, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            yield from (name for name in files if not name.startswith("."))


def _lines(told: dict[str, Any]) -> Iterator[str]:
    yield f"Project {told['project']}"
    notes, code = told.get("notes"), told.get("code")
    if notes:
        yield f"  notes  {notes['files']:,} in {notes['folder']}"
        if not notes["is_vault"]:
            yield f"         To ask about them, make it a project: dodona init {notes['folder']}"
    if code:
        yield from _code_lines(code)
    elif "code" in told:
        yield "  code   none; add some: dodona index PATH"


def _code_lines(code: dict[str, Any]) -> Iterator[str]:
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
