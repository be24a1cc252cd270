from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from time import time

import pytest

from dodona.core.errors import ToolFailed
from dodona.tools.vault.index import index
from dodona.tools.vault.index.index import VaultIndex


class Notes:
    """A vault on disk and its index."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "vault"
        self.root.mkdir()
        self.file = folder / "cache" / "index.db"
        self.index = VaultIndex(self.root, self.file)

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def found(self, query: str, limit: int = 5) -> list[str]:
        return [hit.path for hit in self.index.search(query, limit)]


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


def test_titles_weigh_more_than_headings_and_headings_more_than_text(notes: Notes) -> None:
    """The note about a thing comes before one that mentions it."""
    filler = "Something else entirely. " * 3
    notes.write("body.md", f"# One\n\n{filler}An oak.")
    notes.write("heading.md", f"# Two\n\n{filler}\n\n## Oak\n\n{filler}")
    notes.write("title.md", f"# Oak\n\n{filler}")
    assert notes.found("oak") == ["title.md", "heading.md", "body.md"]


@pytest.mark.parametrize(
    ("query", "is_found"),
    [
        ("rechnung", True),
        ("RECHNUNGEN", True),
        ("größe", True),
        ("grosse", False),
        ("Grosse", False),
        ("GROßE", True),
        ("cafe", True),
        ("concurr", True),
        ("jahresrech", True),
        ("abschluss", True),
        ("max_iterations", True),
        ("snake_case_name", False),
        ('"alte Rechnung"', True),
        ('"Rechnung alte"', False),
        ("日本語", True),
        ("日本", True),
        ("語日", False),
        ("hnung", True),
        ("GROSS", False),
        ("zebra", False),
    ],
)
def test_words_are_found_by_their_parts(notes: Notes, query: str, is_found: bool) -> None:  # noqa: FBT001
    """Inflected, without accents, by their beginning, and by what is within them."""
    notes.write(
        "a.md",
        "Die alte Rechnung im Café: Größe, Jahresrechnungsabschluss, concurrently, "
        "`max_iterations`, これは日本語です。",
    )
    assert notes.found(query) == (["a.md"] if is_found else [])


@pytest.mark.parametrize(
    "query",
    ['"', '""', '"a', "a*", "a AND", "NOT", "NEAR(a b)", "title: a", "-a", "a OR", "(a", "a)", "^a",
     "{a}", "a + b", "'", "%", "_", "*", "\0a", "a\0", ";DROP TABLE notes", "\\", "ﬁ", "a" * 5_000,
     "a " * 5_000, "“a", '" * "', "🌳", "", " "],
)  # fmt: skip
def test_nothing_in_a_query_is_syntax(notes: Notes, query: str) -> None:
    """Every query is only words."""
    notes.write("a.md", "a b drop table and near or not title")
    assert notes.found(query) in ([], ["a.md"])
    assert notes.found("drop") == ["a.md"]


def test_the_index_follows_the_files(notes: Notes) -> None:
    """Changed, deleted, renamed, added: each search sees the vault as it is."""
    file = notes.write("a.md", "an oak")
    notes.write("b.md", "a birch")
    assert (notes.found("oak"), notes.found("birch")) == (["a.md"], ["b.md"])
    file.write_text("an elm now")
    assert (notes.found("oak"), notes.found("elm")) == ([], ["a.md"])
    file.rename(notes.root / "c.md")
    assert notes.found("elm") == ["c.md"]
    (notes.root / "b.md").unlink()
    assert notes.found("birch") == []
    notes.write("deep/d.md", "a birch again")
    assert notes.found("birch") == ["deep/d.md"]
    assert [note.path for note in notes.index.notes()] == ["c.md", "deep/d.md"]


def test_an_unchanged_vault_is_not_read_again(notes: Notes) -> None:
    """Only stamps are compared; a text that changed behind them is not noticed."""
    file = notes.write("a.md", "an oak")
    os.utime(file, ns=(1, 1))
    assert notes.found("oak") == ["a.md"]
    file.write_text("an elm")
    os.utime(file, ns=(1, 1))
    assert notes.found("oak") == ["a.md"]


def test_a_note_that_was_just_written_is_read_again(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be written once more before the clock of its file system moves on."""
    monkeypatch.setattr(index, "MTIME_SETTLE_NS", 10**12)  # a test may be slow
    for oak, elm in (("oak1", "elm1"), ("oak2", "elm2")):
        file = notes.write("a.md", oak)
        stamp = file.stat().st_mtime_ns
        assert notes.found(oak) == ["a.md"]
        file.write_text(elm)
        os.utime(file, ns=(stamp, stamp))
        assert notes.found(elm) == ["a.md"]


def test_what_is_remembered_of_a_term_is_of_the_index_as_it_is(notes: Notes) -> None:
    """A word that was only a part of others, or nowhere, is found once a note says it."""
    notes.write("a.md", "a concordance")
    assert (notes.found("cord"), notes.found("elm")) == (["a.md"], [])
    notes.write("b.md", "a cord")
    assert (notes.found("cord"), notes.found("elm")) == (["b.md"], [])
    notes.write("b.md", "an elm")
    assert (notes.found("cord"), notes.found("elm")) == (["a.md"], ["b.md"])
    (notes.root / "a.md").unlink()
    assert (notes.found("cord"), notes.found("elm")) == ([], ["b.md"])


@pytest.mark.parametrize("mark", ["```", "~~~"])
def test_a_section_is_put_together_from_its_parts(notes: Notes, mark: str) -> None:
    """A long one is divided again, but not inside a fence; other notes are left out."""
    lines = "\n\n".join(f"value_{n} = {n}  # fenced" for n in range(200))
    fence = f"{mark}\n{lines}\n{mark}"
    short = "\n\n".join("Oaks speak through their leaves, and priests listen." for _ in range(30))
    notes.write("a.md", f"# Oaks\n\n{short}\n\n## Code\n\n{fence}\n")
    notes.write("b.md", "# Beeches\n\nNo match.\n")
    lines = (notes.root / "a.md").read_text().split("\n")
    found = notes.index.search_sections(["oaks", "fenced"], 10)
    for hit in found:
        assert hit.text == "\n".join(lines[hit.first - 1 : hit.last])
    assert {hit.headings for hit in found} == {"", "Code"}
    assert [hit.text for hit in found if hit.headings == "" and len(hit.text) > 1_500] != []
    code = [hit.text for hit in found if hit.headings == "Code"]
    assert all(text.count(mark) % 2 == 0 for text in code)


def test_a_table_is_not_divided(notes: Notes) -> None:
    """It would lose its head."""
    rows = "\n".join(f"| oak{n} | {'a tree by the wall ' * 3}|" for n in range(40))
    notes.write("a.md", f"# Trees\n\n| name | place |\n|---|---|\n{rows}\n")
    (hit,) = notes.index.search_sections(["wall"], 10)
    assert "| name | place |" in hit.text
    assert "| oak39 |" in hit.text


def test_words_are_counted_in_any_form(notes: Notes) -> None:
    """In how many sections they occur; words that are nowhere count zero."""
    notes.write("a.md", "# One\n\nTwo budgets.\n\n## More\n\nA größe budget.")
    words = ("budget", "budgets", "größe", "zebra")
    assert notes.index.count_words(words) == (
        2,
        {"budget": 2, "budgets": 2, "größe": 1, "zebra": 0},
    )


def test_relevant_notes_are_those_that_fit_and_then_the_newest(notes: Notes) -> None:
    """Each once, and no more than asked for."""
    for number, name in enumerate(("old", "older", "oldest")):
        file = notes.write(f"{name}.md", "# Elms\n\nelm\n\n## More\n\nelm")
        os.utime(file, (1_000 - number, 1_000 - number))
    file = notes.write("oak.md", "# Oaks\n\nAn oak.\n\n## Acorns\n\nOf the oak.")
    os.utime(file, (1, 1))
    found = [
        [note.path for note in notes.index.find_relevant("an oak?", most)] for most in (3, 9, 1)
    ]
    assert found == [
        ["oak.md", "old.md", "older.md"],
        ["oak.md", "old.md", "older.md", "oldest.md"],
        ["oak.md"],
    ]
    assert notes.index.find_relevant("oak", 1)[0].title == "Oaks"


def test_recent_notes_come_first_among_those_that_fit_alike(notes: Notes) -> None:
    """But not before one that fits better."""
    day = 86_400
    for name, age in (("a", 400), ("b", 1), ("c", 60)):
        file = notes.write(f"{name}.md", "Some oak somewhere.")
        os.utime(file, (time() - age * day, time() - age * day))
    file = notes.write("z.md", "# Oak")
    os.utime(file, (1, 1))
    assert notes.found("oak") == ["z.md", "b.md", "c.md", "a.md"]


def test_hits_say_their_lines_and_spread_over_notes(notes: Notes) -> None:
    """Two sections of a note at most while others have something; the rest fills up."""
    notes.write("a.md", "# Oaks\n\n" + "\n\n".join(f"## Oak {n}\n\nAn oak." for n in range(9)))
    notes.write("b.md", "# Birches\n\nNo text.\n\n## Others\n\nSome stand beside an oak.\n")
    hits = notes.index.search("oak", 4)
    assert [hit.path for hit in hits] == ["a.md", "a.md", "b.md", "a.md"]
    other = hits[2]
    assert (other.first, other.last) == (5, 7)
    assert (other.title, other.headings) == ("Birches", "Others")
    assert other.text == "## Others\n\nSome stand beside an oak."


@pytest.mark.parametrize("where", ["all", "header", "middle"])
def test_a_damaged_index_is_made_anew(notes: Notes, where: str) -> None:
    """It holds nothing that the notes do not."""
    for n in range(60):
        notes.write(f"{n}.md", f"# Oak {n}\n\n" + f"text{n} " * 300)
    assert len(notes.found("oak")) == 5
    data = bytearray(notes.file.read_bytes())
    span = {"all": (0, len(data)), "header": (0, 100), "middle": (4096, len(data))}[where]
    data[span[0] : span[1]] = b"\x5a" * (span[1] - span[0])
    notes.file.write_bytes(data)
    notes.write("new.md", "# Oak anew")
    assert len(notes.found("oak")) == 5
    assert notes.found("anew") == ["new.md"]


def test_an_index_of_another_version_is_made_anew(notes: Notes) -> None:
    """Whatever it looks like."""
    notes.write("a.md", "an oak")
    assert notes.found("oak") == ["a.md"]
    notes.index.close()
    with sqlite3.connect(notes.file) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute("DROP TABLE notes")
    db.close()
    assert notes.found("oak") == ["a.md"]


def test_the_database_of_another_program_is_left_alone(notes: Notes) -> None:
    """A wrong path in the config must not cost anybody a database."""
    notes.file.parent.mkdir()
    with sqlite3.connect(notes.file) as db:
        db.execute("CREATE TABLE diary (text)")
    db.close()
    before = notes.file.read_bytes()
    with pytest.raises(ToolFailed, match="a database of another program"):
        notes.found("oak")
    assert notes.file.read_bytes() == before


def test_an_index_that_cannot_be_written_is_told(notes: Notes) -> None:
    """A folder in its place, for instance."""
    notes.write("a.md", "an oak")
    notes.file.mkdir(parents=True)
    with pytest.raises(ToolFailed, match="the vault index is unavailable at the moment"):
        notes.found("oak")


def test_the_index_is_its_owners_alone(notes: Notes) -> None:
    """It has the text of all notes in it."""
    notes.write("a.md", "an oak")
    notes.found("oak")
    assert notes.file.stat().st_mode & 0o777 == 0o600


def test_many_threads_and_two_indexes_share_a_file(notes: Notes) -> None:
    """As two processes would: nobody sees an error, and nothing is there twice."""
    for n in range(30):
        notes.write(f"{n}.md", f"# Note {n}\n\nAn oak, number{n}.")
    others = [notes.index, VaultIndex(notes.root, notes.file)]
    failures: list[Exception] = []

    def search(index: VaultIndex, n: int) -> None:
        try:
            notes.write(f"{n}.md", f"# Note {n}\n\nAn elm, number{n}.")
            assert [hit.path for hit in index.search(f"number{n}", 3)] == [f"{n}.md"]
        except Exception as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=search, args=(others[n % 2], n)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(notes.index.search("oak elm", 100)) == 30


def test_text_with_anything_in_it_is_indexed(notes: Notes) -> None:
    """NUL, no line ends, nothing at all."""
    (notes.root / "nul.md").write_bytes(b"an oak\0 and \xff an elm")
    notes.write("long.md", "birch " * 100_000)
    notes.write("empty.md", "")
    assert notes.found("oak") == ["nul.md"]
    assert notes.found("birch") == ["long.md"]
    assert [note.path for note in notes.index.notes()] == ["empty.md", "long.md", "nul.md"]
