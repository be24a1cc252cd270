"""Maintenance of the store: versions of notes are deleted by age and size."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from dodona.app.config.config import Config, load_config
from dodona.app.maintenance import Maintenance
from dodona.store import Store
from dodona.store.projects.note_versions import NO_CONTENT, NoteReplacement, StoredContent

MEGABYTE = 1_000_000


async def config(folder: Path, text: str) -> Config:
    file = folder / "dodona.toml"
    file.write_text(text)
    environment = {"HOME": str(folder), "DODONA_HOME": str(folder / "home")}
    return await asyncio.to_thread(load_config, environment, file)


async def test_versions_of_notes_are_bounded(tmp_path: Path) -> None:
    """By `vault.versions_mb`, also after a reload."""
    async with await Store.open(str(tmp_path / "store.db"), redact=str) as store:
        maintenance = Maintenance(store, await config(tmp_path, "[vault]\nversions_mb = 3\n"))
        for number in range(4):
            new = StoredContent.of(str(number), secrets.token_bytes(MEGABYTE - 1_000))
            change = NoteReplacement(
                path=f"{number}.md", old=NO_CONTENT, new=new, action="write", author="oracle"
            )
            await store.note_versions.add("ada", "p", change)
        for limit, kept in ((3, ["3.md", "2.md", "1.md"]), (1, ["3.md"])):
            maintenance.apply(await config(tmp_path, f"[vault]\nversions_mb = {limit}\n"))
            await maintenance.run_once()
            found = await store.note_versions.list("ada", "p", limit=9)
            assert [each.path for each in found] == kept
