"""A vault as a whole: what people put into one, and others who write to it at the same time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dodona.core.errors import AccessDenied, Conflict
from dodona.tools.vault import Vault
from dodona.tools.vault.notes.files import MAX_NOTE_BYTES

LIMIT = 50.0  # seconds


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    (tmp_path / "vault").mkdir()
    return Vault(tmp_path / "vault", tmp_path / "indexes" / "i.db")


async def found(vault: Vault, words: str) -> list[str]:
    return [hit.path for hit in await vault.search(words, 9)]


async def test_a_file_of_50_megabytes(vault: Vault) -> None:
    """It is found and read by its first megabyte, never replaced; a link at its end is kept up."""
    line = b"An oak stands here, and says nothing of interest to anybody.\n"
    end = b"the last word: zebra [[hub]]\n"
    huge = line * (50_000_000 // len(line)) + end
    (vault.root / "huge.md").write_bytes(huge)
    (vault.root / "hub.md").write_text("the hub, see [[huge]]")
    assert set(await found(vault, "oak")) == {"huge.md"}
    assert await found(vault, "zebra") == []
    note = await vault.read("huge.md")
    assert (note.is_cut, len(note.text)) == (True, MAX_NOTE_BYTES)
    with pytest.raises(AccessDenied, match="too long to be read in full"):
        await vault.write("huge.md", "mine", version=note.version)
    await vault.move("huge.md", "large.md")
    assert (vault.root / "hub.md").read_text() == "the hub, see [[large]]"
    assert (vault.root / "large.md").stat().st_size == len(huge)
    assert (await vault.list())[1].size == len(huge)


async def test_files_that_are_no_text(vault: Vault) -> None:
    """A picture among the notes is none; one with a note's name is a note that says little."""
    picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 100
    (vault.root / "oak.png").write_bytes(picture)
    (vault.root / "odd.md").write_bytes(picture + b" a walnut [[a]] " + picture)
    (vault.root / "a.md").write_text("An oak, as in ![[oak.png]].")
    assert [note.path for note in await vault.list()] == ["a.md", "odd.md"]
    assert await found(vault, "oak") == ["a.md"]
    assert await found(vault, "walnut") == ["odd.md"]
    note = await vault.read("odd.md")
    with pytest.raises(AccessDenied) as caught:
        await vault.write("odd.md", "mine", version=note.version)
    assert str(caught.value) == "'odd.md' is not UTF-8, so it cannot be replaced."
    await vault.move("a.md", "b.md")
    assert (vault.root / "odd.md").read_bytes() == picture + b" a walnut [[b]] " + picture
    assert (vault.root / "oak.png").read_bytes() == picture


async def test_notes_in_other_encodings(vault: Vault) -> None:
    """What can be read of them is found."""
    (vault.root / "latin.md").write_bytes("# Größe\n\nDie Eiche".encode("latin-1"))
    (vault.root / "utf16.md").write_text("# Eiche", encoding="utf-16")
    (vault.root / "mark.md").write_bytes(b"\xef\xbb\xbf---\ntitle: Eiche\n---\nx")
    assert set(await found(vault, "eiche")) == {"latin.md", "mark.md"}
    assert {note.title for note in await vault.list()} >= {"Gr��e", "Eiche"}


async def test_an_edit_between_reading_and_writing_is_not_lost(vault: Vault) -> None:
    """Whoever makes it, and whatever the clock says."""
    first = await vault.write("a.md", "one")
    read = await vault.read("a.md")
    (vault.root / "a.md").write_text("two")
    os.utime(vault.root / "a.md", (1, 1))
    with pytest.raises(Conflict, match=r"the note 'a\.md' has changed"):
        await vault.write("a.md", "three", version=read.version)
    with pytest.raises(Conflict, match=r"the note 'a\.md' already exists"):
        await vault.write("a.md", "three")
    assert (vault.root / "a.md").read_text() == "two"
    (vault.root / "a.md").unlink()
    with pytest.raises(Conflict, match=r"the note 'a\.md' is gone"):
        await vault.write("a.md", "three", version=first.version)


ADDING = """
import asyncio, sys
from pathlib import Path
from dodona.core.errors import Conflict
from dodona.tools.vault import Vault

folder, who = Path(sys.argv[1]), sys.argv[2]

async def main():
    vault = Vault(folder / "vault", folder / "indexes" / "i.db")
    refused = 0
    for number in range(10):
        while True:
            note = await vault.read("log.md")
            try:
                await vault.write(
                    "log.md", f"{note.text}{who}{number} [[hub]]\\n", version=note.version
                )
                break
            except Conflict:
                refused += 1
    print(refused)

asyncio.run(main())
"""


async def test_two_processes_that_write_one_note(vault: Vault) -> None:
    """While a third moves what it links to: every line is there, in order, with its link right."""
    await vault.write("log.md", "")
    await vault.write("hub.md", "the hub")
    script = [sys.executable, "-c", ADDING, str(vault.root.parent)]
    writers = [
        await asyncio.create_subprocess_exec(*script, who, stdout=subprocess.PIPE) for who in "ab"
    ]
    moves = 0
    async with asyncio.timeout(LIMIT):
        while None in {writer.returncode for writer in writers}:
            await vault.move("hub.md", "centre/core.md")
            await vault.move("centre/core.md", "hub.md")
            moves += 2
        told = [(await writer.communicate())[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], told
    lines = (vault.root / "log.md").read_text().splitlines()
    for who in "ab":
        mine = [line for line in lines if line.startswith(who)]
        assert mine == [f"{who}{number} [[hub]]" for number in range(10)], told
    assert len(lines) == 20
    assert moves >= 2
    assert len(await vault.backlinks("hub.md")) == 20


async def test_side_by_side_in_one_process(vault: Vault) -> None:
    """Of two who read the same note, one writes and the other is told."""
    await vault.write("a.md", "start")
    version = (await vault.read("a.md")).version
    outcomes = await asyncio.gather(
        *(vault.write("a.md", f"mine {n}", version=version) for n in range(10)),
        return_exceptions=True,
    )
    written = [each for each in outcomes if not isinstance(each, BaseException)]
    assert len(written) == 1
    assert all(isinstance(each, Conflict) for each in outcomes if each not in written)
    assert (await vault.read("a.md")).version == written[0].version
