"""`dodona vault`: the notes of a project, looked at and put in order, with a gateway or without."""

from __future__ import annotations

import asyncio
import json
import os
import re
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dodona.core.domain.knowledge.notes import NoteAuthor
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.domain.trust import Mark
from dodona.core.messages import Origin
from dodona.store import Store
from dodona.tools.vault import MarkedBlocks, NoteHistory, ProjectNotes, Vault
from tests.cli.fake_terminal import at_terminal
from tests.cli.running import Started, Up, dodona, until

PLAN = (
    "---\ntitle: The year\ntags: [garden, planning]\n---\n"
    "In March: [[Roses]], [[Roses#When|then]].\n"
)
ROSES = "# Roses\n\nThey stand by the gate. #garden\n\n## When\n\nWhen the forsythia blooms.\n"
OAK = "# The oak\n\nIt is older than the house. #trees\n"


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """A folder with three notes, which is a project."""
    folder = tmp_path / "garden"
    (folder / "trees").mkdir(parents=True)
    for path, text in (("plan.md", PLAN), ("Roses.md", ROSES), ("trees/Oak.md", OAK)):
        (folder / path).write_text(text, encoding="utf-8")
    done = dodona(tmp_path, "init", str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def ran(vault: Path, *words: str) -> str:
    done = dodona(vault, "vault", *words, HOME=str(vault.parent))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def told(vault: Path, *words: str) -> Any:
    return json.loads(ran(vault, *words, "--json"))


def refused(vault: Path, *words: str) -> tuple[int, str]:
    done = dodona(vault, "vault", *words, HOME=str(vault.parent))
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_notes_are_listed(vault: Path) -> None:
    """With their titles and tags, all of them or those of a folder; also where there are none."""
    lines = [
        re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "…", line) for line in ran(vault, "list").split("\n")
    ]
    assert lines == [
        "note          modified          title",
        "Roses.md      …  Roses #garden",
        "plan.md       …  The year #garden #planning",
        "trees/Oak.md  …  The oak #trees",
        "",
    ]
    assert [note["path"] for note in told(vault, "list", "trees")["notes"]] == ["trees/Oak.md"]
    assert ran(vault, "list", "--project", "default") == "No notes yet.\n"


def test_the_notes_of_others_are_named(vault: Path) -> None:
    """In the list, and with their sources in --json."""
    (vault / "dodona.toml").write_text('[vault]\nuntrusted = ["trees/**"]\n', encoding="utf-8")
    assert ran(vault, "list", "trees").splitlines()[-1].endswith("  The oak #trees [untrusted]")
    (note,) = told(vault, "list", "trees")["notes"]
    assert note["marks"] == [{"origin": "peer", "source": "trees/Oak.md"}]
    assert told(vault, "show", "trees/Oak.md")["marks"] == note["marks"]


def test_notes_are_searched(vault: Path) -> None:
    """The best section first, with the lines it stands on."""
    assert ran(vault, "search", "forsythia") == (
        "Roses.md:5-7  Roses > When\n    ## When\n\n    When the forsythia blooms.\n"
    )
    assert ran(vault, "search", "zebra") == "No matches.\n"
    assert len(told(vault, "search", "gate forsythia", "--limit", "1")["hits"]) == 1


def test_a_long_section_is_shown_in_part(vault: Path) -> None:
    """A terminal is for the beginning; --json has all of it."""
    lines = "\n".join(f"line {number}" for number in range(40))
    (vault / "long.md").write_text(f"# Zebras\n\n{lines}\n", encoding="utf-8")
    shown = ran(vault, "search", "zebras").splitlines()
    assert (len(shown), shown[-1]) == (14, "    …")
    assert "line 39" in told(vault, "search", "zebras")["hits"][0]["text"]


def test_a_note_is_shown_as_it_is(vault: Path) -> None:
    """Byte for byte, but for what would move the cursor."""
    assert ran(vault, "show", "Roses.md") == ROSES
    (vault / "bare.md").write_bytes(b"no end \x1b[31mof line")
    assert ran(vault, "show", "bare.md") == "no end [31mof line\n"
    shown = told(vault, "show", "plan.md")
    assert (shown["title"], shown["tags"], shown["text"]) == (
        "The year",
        ["garden", "planning"],
        PLAN,
    )


def test_links_and_tags(vault: Path) -> None:
    """Who links to a note, and how often a tag is used."""
    assert ran(vault, "backlinks", "Roses.md") == (
        "plan.md:5: In March: [[Roses]], [[Roses#When|then]].\n"
    )
    assert ran(vault, "backlinks", "plan.md") == "No notes link to it.\n"
    assert ran(vault, "tags") == "tag        notes\n#garden    2\n#planning  1\n#trees     1\n"
    assert told(vault, "tags")["tags"][0] == {"tag": "garden", "notes": 2, "marks": []}


def test_a_move_changes_links_and_can_be_undone(vault: Path) -> None:
    """Everything is as it was, byte for byte. Undoing goes back; what was undone can be redone."""
    assert ran(vault, "moves") == "No moves to undo.\n"
    assert ran(vault, "move", "Roses.md", "beds/Old roses.md") == (
        "Roses.md → beds/Old roses.md: links updated in 1 note.\nTo undo: dodona vault undo 1\n"
    )
    moved = PLAN.replace("[[Roses]]", "[[Old roses]]").replace("[[Roses#", "[[Old roses#")
    assert (vault / "plan.md").read_text(encoding="utf-8") == moved
    assert (vault / "beds" / "Old roses.md").read_text(encoding="utf-8") == ROSES
    assert re.fullmatch(
        r"move  time              links  note\n"
        r"1     \d{4}-\d\d-\d\d \d\d:\d\d  1      Roses.md → beds/Old roses.md\n",
        ran(vault, "moves"),
    )
    undone = told(vault, "undo", "1")
    assert (undone["path"], undone["to"]) == ("beds/Old roses.md", "Roses.md")
    assert (vault / "plan.md").read_text(encoding="utf-8") == PLAN
    assert (vault / "Roses.md").read_text(encoding="utf-8") == ROSES
    assert not (vault / "beds" / "Old roses.md").exists()
    assert refused(vault, "undo") == (2, "there is nothing to undo.\n")
    assert ran(vault, "undo", "2") == (
        "Roses.md → beds/Old roses.md: links updated in 1 note.\nTo undo: dodona vault undo 3\n"
    )
    assert (vault / "plan.md").read_text(encoding="utf-8") == moved


def test_changes_are_listed_compared_and_undone(vault: Path) -> None:
    """Writes, and what they replaced; without the control characters in a text."""
    assert ran(vault, "history") == "No changes yet.\n"
    assert refused(vault, "diff", "plan.md") == (2, "there are no versions of 'plan.md'.\n")
    page = vault / "trees" / "index.md"
    page.write_text("# Mine \x1b[31m\n", encoding="utf-8")
    ran(vault, "index", "trees")
    history = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "…", ran(vault, "history"))
    size = len(page.read_bytes())
    assert history.splitlines() == [
        "id  time              action    author  size  note",
        f"2   …  index     user    {size:<4}  trees/index.md [current]",
        "1   …  external  -       13    trees/index.md",
    ]
    diff = ran(vault, "diff", "trees/index.md")
    assert diff.startswith("--- trees/index.md (before)\n+++ trees/index.md (change 2)\n@@ ")
    assert "\n # Mine [31m\n" in diff
    assert "\n+- [[Oak|The oak]]: It is older than the house." in diff
    assert told(vault, "diff", "trees/index.md", "1", "2")["diff"].count("\n+") > 2
    assert ran(vault, "diff", "trees/index.md", "2") == "No differences.\n"
    assert ran(vault, "undo") == "trees/index.md: restored.\nTo undo: dodona vault undo 3\n"
    assert page.read_text(encoding="utf-8") == "# Mine \x1b[31m\n"
    assert [each["action"] for each in told(vault, "history", "--limit", "2")["history"]] == [
        "undo",
        "index",
    ]
    page.write_text("Mine.", encoding="utf-8")
    assert refused(vault, "undo", "3") == (
        1,
        "'trees/index.md' has changed since change 3. Undo the later changes first, or copy the "
        "text of an earlier version.\n",
    )


def test_an_index_page_is_written_and_kept_up_to_date(vault: Path) -> None:
    """What people wrote around it stays."""
    assert ran(vault, "index", "--title", "Garden") == "index.md: created, 10 lines.\n"
    page = vault / "index.md"
    page.write_text(f"{page.read_text(encoding='utf-8')}\nMy own words.\n", encoding="utf-8")
    (vault / "elm.md").write_text("# Elms\n\nThere are none.\n", encoding="utf-8")
    assert told(vault, "index")["outcome"] == "replaced"
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Garden\n")
    assert "[[elm|Elms]]: There are none." in text
    assert text.endswith("\nMy own words.\n")
    assert told(vault, "index")["outcome"] == "unchanged"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ("show", "nothing.md"),
            2,
            "there is no note 'nothing.md'. Search for it, or list the folder.\n",
        ),
        (
            ("move", "plan.md", "../out.md"),
            7,
            "'../out.md' leads out of the vault. Give a path relative to the vault, such as "
            "'notes/plan.md'.\n",
        ),
        (("undo", "7"), 2, "there is no change 7.\n"),
        (("list", "--project", "nobody"), 2, "there is no project 'nobody'.\n"),
    ],
)
def test_what_cannot_be_done(vault: Path, words: tuple[str, ...], code: int, said: str) -> None:
    """The same words as everywhere, and their exit code; as JSON when that was asked for."""
    assert refused(vault, *words) == (code, said)
    done = dodona(vault, "vault", *words, "--json", HOME=str(vault.parent))
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, f"{error['message']} {error['hint']}".strip()) == (code, said.strip())


def same(found: dict[str, Any]) -> dict[str, Any]:
    """Without scores, which change with time: what is recent counts more."""
    for hit in found.get("hits", ()):
        assert hit.pop("score") > 0
    return found


def test_beside_a_gateway(vault: Path) -> None:
    """Both see what the other does, at once, and say it in the same documents."""
    with Up(vault, HOME=str(vault.parent), DODONA_HOME=str(vault.parent / ".dodona")) as up:

        def got(route: str, **body: Any) -> Any:
            data = json.dumps({**body, "project_id": "garden"}).encode() if body else None
            asked = urllib.request.Request(  # noqa: S310 - our own gateway
                f"{up.url}/api/vault{route}", data, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(asked, timeout=50) as answer:  # noqa: S310
                return json.load(answer)

        assert told(vault, "list") == got("?project_id=garden")
        for words, path in (
            (("show", "plan.md"), "/note?path=plan.md&"),
            (("search", "forsythia"), "/search?query=forsythia&limit=5&"),
            (("backlinks", "Roses.md"), "/backlinks?path=Roses.md&"),
            (("tags",), "/tags?"),
        ):
            assert same(told(vault, *words)) == same(got(f"{path}project_id=garden")), words
        ran(vault, "move", "Roses.md", "beds/Old roses.md")
        place = f"/backlinks?path={quote('beds/Old roses.md')}&project_id=garden"
        until(lambda: got(place)["backlinks"])
        assert told(vault, "moves") == got("/moves?project_id=garden")
        moved = got("/move", path="trees/Oak.md", to="Oak.md")
        assert told(vault, "moves")["moves"][0] == moved
        assert told(vault, "undo")["to"] == "trees/Oak.md"
        assert told(vault, "undo", "1")["to"] == "Roses.md"
    assert (vault / "plan.md").read_text(encoding="utf-8") == PLAN


def test_beside_a_gateway_that_was_told_where_the_notes_are(tmp_path: Path) -> None:
    """A command means the same notes and code; what it adds to the code leaves the rest there."""
    for folder, file, text in (
        ("notes", "Oak.md", OAK),
        ("src", "a.py", "def alpha(): ...\n"),
        ("more", "b.py", "def beta(): ...\n"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text(text, encoding="utf-8")
    notes, code = str(tmp_path / "notes"), str(tmp_path / "src")
    with Up(tmp_path, DODONA_VAULT__PATH=notes, DODONA_CODE__PATHS=code):
        listed = dodona(tmp_path, "vault", "list", "--json")
        assert [note["path"] for note in json.loads(listed.stdout)["notes"]] == ["Oak.md"]
        elsewhere = dodona(tmp_path, "vault", "list", DODONA_VAULT__PATH=str(tmp_path / "more"))
        assert elsewhere.stdout == "No notes yet.\n"
        looked = json.loads(dodona(tmp_path, "index", "--json").stdout)
        assert (looked["notes"]["folder"], looked["code"]["folders"]) == (notes, [code])
        added = json.loads(dodona(tmp_path, "index", "more", "--json").stdout)
        assert added["code"]["folders"] == [code, str(tmp_path / "more")]
    assert dodona(tmp_path, "vault", "list").stdout == "No notes yet.\n"


def test_a_name_that_is_not_utf8_is_named_once(vault: Path) -> None:
    """`vault list`, `index` and `doctor` skip the file and go on."""
    with open(os.fsencode(vault) + b"/caf\xe9.md", "w") as file:
        file.write("oak")
    for words in (("vault", "list"), ("index", str(vault)), ("doctor",)):
        config = {"DODONA_VAULT__PATH": str(vault)}
        process = Started(vault, *words, HOME=str(vault.parent), **config)
        with process:
            process.ended()
        text = process.out + process.err
        assert "Traceback" not in text
        assert text.count("not UTF-8") == text.count("xe9.") == 1


def test_a_review_clears_the_marks_of_a_note(vault: Path) -> None:
    """It shows the marked paragraphs and asks; without a terminal it needs `--yes`."""
    text = "A paragraph of another site, long enough to be known anywhere."
    asyncio.run(_write_marked(vault.resolve(), "a.md", f"# Page\n\nMine.\n\n{text}\n"))
    listed = "a.md contains untrusted text (web: https://example.org/)."
    assert refused(vault, "review", "a.md") == (
        2,
        f"{listed} Look at it, then confirm with --yes.\n",
    )
    words = ("vault", "review", "a.md", "--project", "garden")
    with at_terminal(vault.parent, *words) as terminal:
        shown = terminal.until("[y/N]")
        assert f"web: https://example.org/\r\n    {text}" in shown
        terminal.type("n\n")
        assert terminal.ended() == 8
    document = told(vault, "review", "a.md", "--yes")
    assert document["parts"][-1] == {
        "text": text,
        "marks": [{"origin": "web", "source": "https://example.org/"}],
    }
    assert ran(vault, "review", "a.md") == "a.md contains no untrusted text.\n"
    assert "[untrusted]" not in ran(vault, "list")


async def _write_marked(vault: Path, path: str, text: str) -> None:
    """Write a note as an agent that has read a page."""
    data = vault.parent / ".dodona"
    async with await Store.open(str(data / "dodona.db"), redact=str) as store:
        marked = MarkedBlocks(store.note_marks, LOCAL_USER, str(vault))
        history = NoteHistory(store.note_versions, LOCAL_USER, "garden")
        notes = ProjectNotes(Vault(vault, data / "other.db"), marked, history)
        marks = frozenset({Mark(Origin.WEB, "https://example.org/")})
        await notes.write(path, text, author=NoteAuthor("oracle", marks))
