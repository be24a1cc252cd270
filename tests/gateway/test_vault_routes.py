"""Notes over HTTP, with a real vault behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema_rs
import pytest

from dodona.core.errors import NotFound
from dodona.gateway.openapi import build_openapi
from dodona.store import Store
from dodona.tools.vault import MarkedBlocks, NoteHistory, ProjectNotes, Vault
from dodona.tools.vault.notes.files import version_of
from tests.gateway.plain_agency import PlainAgency
from tests.gateway.talking import Gateway, gateway_up

DOCUMENT = build_openapi()


class Stand:
    """A gateway and the vaults of the local user's projects, `default` and `wald`."""

    def __init__(self, gateway: Gateway, folder: Path) -> None:
        self.gateway = gateway
        self.folder = folder
        self.root = folder / "default"

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, found, _ = await self.gateway.call(method, f"/api/vault{path}", body)
        operation = DOCUMENT["paths"][f"/api/vault{path.partition('?')[0]}"][method.lower()]
        assert str(status) in operation["responses"], "this answer is not documented"
        return status, found

    async def gateway_version(self, number: int) -> tuple[int, Any]:
        status, found, _ = await self.gateway.call("GET", f"/api/vault/versions/{number}")
        return status, found

    async def got(self, path: str, schema: str) -> Any:
        status, found = await self.call("GET", path)
        assert status == 200, found
        check(schema, found)
        return found

    async def put(self, path: str, content: str, **more: str) -> Any:
        body = {"path": path, "content": content, **more}
        status, found = await self.call("PUT", "/note", body)
        assert status in {200, 201}, found
        check("NoteWriteResult", found)
        assert (status == 201) == (found["outcome"] == "created")
        return found

    async def error(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        status, found = await self.call(method, path, body)
        return status, found["error"]["message"]


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    store = await Store.open(str(tmp_path / "store.db"), redact=str)
    marked = MarkedBlocks(store.note_marks, "local", "vault")
    vaults = {
        ("local", name): Vault(tmp_path / name, tmp_path / "indexes" / f"{name}.db")
        for name in ("default", "wald")
    }
    for vault in vaults.values():
        vault.root.mkdir()

    async def notes_of(user_id: str, project_id: str) -> ProjectNotes:
        if (user_id, project_id) not in vaults:
            raise NotFound(f"there is no project '{project_id}'.")
        history = NoteHistory(store.note_versions, user_id, project_id)
        return ProjectNotes(vaults[user_id, project_id], marked, history)

    agency: Any = PlainAgency()
    agency.notes = notes_of
    async with store, gateway_up(agency) as up:
        yield Stand(up, tmp_path)
    await asyncio.gather(*(vault.close() for vault in vaults.values()))


def check(name: str, value: Any) -> None:
    """It is what the OpenAPI document promises."""
    whole = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    jsonschema_rs.Draft202012Validator(whole).validate(value)


async def test_a_note_is_written_read_searched_and_listed(stand: Stand) -> None:
    """Each answer has its schema."""
    text = "---\ntags: [tree]\n---\n# Oak\n\nIt speaks.\n"
    made = await stand.put("trees/oak.md", text)
    assert made == {
        "path": "trees/oak.md",
        "title": "Oak",
        "lines": 6,
        "version": version_of(text.encode()),
        "outcome": "created",
    }
    assert (stand.root / "trees" / "oak.md").read_text() == text
    note = await stand.got("/note?path=trees/oak.md", "NoteText")
    assert (note["text"], note["version"], note["is_cut"]) == (text, made["version"], False)
    hits = await stand.got("/search?query=speaking", "NoteHits")
    assert [(hit["path"], hit["first"], hit["last"]) for hit in hits["hits"]] == [
        ("trees/oak.md", 4, 6)
    ]
    await stand.put("a.md", "first")
    for path, names, total in (
        ("", ["a.md", "trees/oak.md"], 2),
        ("?folder=trees", ["trees/oak.md"], 1),
        ("?limit=1", ["a.md"], 2),
    ):
        listed = await stand.got(path, "NoteList")
        assert ([note["path"] for note in listed["notes"]], listed["total"]) == (names, total)
    assert await stand.got("/tags", "NoteTags") == {
        "tags": [{"tag": "tree", "notes": 1, "marks": []}]
    }


async def test_nobody_s_edit_is_overwritten(stand: Stand) -> None:
    """Who has an older version, or none, is told with 409; the same again is harmless."""
    first = await stand.put("a.md", "one")
    second = await stand.put("a.md", "two", version=first["version"])
    assert second["outcome"] == "replaced"
    assert (await stand.put("a.md", "two", version=first["version"]))["outcome"] == "unchanged"
    now = second["version"]
    for given, said in (
        ({}, f"the note 'a.md' already exists: its version is {now}."),
        (
            {"version": first["version"]},
            f"the note 'a.md' has changed: its version is {now}.",
        ),
    ):
        body = {"path": "a.md", "content": "mine", **given}
        assert await stand.error("PUT", "/note", body) == (409, said)
    (stand.root / "a.md").unlink()
    body = {"path": "a.md", "content": "mine", "version": now}
    assert await stand.error("PUT", "/note", body) == (409, "the note 'a.md' is gone.")


async def test_a_note_is_moved_with_its_links_and_back(stand: Stand) -> None:
    """The moves are listed, and each is undone once."""
    await stand.put("oak.md", "# Oak")
    await stand.put("a.md", "see [[oak]]")
    links = await stand.got("/backlinks?path=oak.md", "Backlinks")
    assert links == {
        "backlinks": [{"path": "a.md", "title": "a", "line": 1, "text": "see [[oak]]", "marks": []}]
    }
    status, moved = await stand.call("POST", "/move", {"path": "oak.md", "to": "trees/elm.md"})
    check("NoteMove", moved)
    assert (status, moved["relinked"]) == (200, ["a.md"])
    assert (stand.root / "a.md").read_text() == "see [[elm]]"
    assert await stand.got("/moves", "NoteMoves") == {"moves": [moved]}
    again = {"path": "oak.md", "to": "trees/elm.md"}
    assert await stand.call("POST", "/move", again) == (200, moved)

    status, undone = await stand.call("POST", "/undo", {"change": moved["id"]})
    check("NoteUndo", undone)
    assert (status, undone["path"], undone["to"]) == (200, "trees/elm.md", "oak.md")
    assert (stand.root / "a.md").read_text() == "see [[oak]]"
    assert await stand.error("POST", "/undo", {"change": moved["id"]}) == (
        409,
        "the move of 'oak.md' to 'trees/elm.md' was already undone.",
    )
    assert await stand.error("POST", "/undo", {"change": 99}) == (404, "there is no change 99.")


async def test_versions_are_listed_read_and_undone(stand: Stand) -> None:
    """A write, the text it replaced, and the undo; a note that changed since is not touched."""
    assert await stand.error("POST", "/undo", {}) == (404, "there is nothing to undo.")
    (stand.root / "a.md").write_text("mine")
    await stand.put("a.md", "new", version=version_of(b"mine"))
    found = (await stand.got("/history?path=a.md", "NoteHistoryList"))["history"]
    assert [(each["action"], each["author"], each["is_current"]) for each in found] == [
        ("write", "user", True),
        ("external", "", False),
    ]
    write, external = (each["id"] for each in found)
    status, stored = await stand.gateway_version(write)
    assert (status, stored["text"], stored["previous_id"]) == (200, "new", external)
    check("NoteVersionText", stored)
    status, undone = await stand.call("POST", "/undo", {})
    check("NoteUndo", undone)
    assert (status, undone["outcome"], undone["version"]) == (200, "restored", version_of(b"mine"))
    assert (stand.root / "a.md").read_text() == "mine"
    (stand.root / "a.md").write_text("edited")
    assert await stand.error("POST", "/undo", {"change": undone["id"]}) == (
        409,
        f"'a.md' has changed since change {undone['id']}.",
    )
    assert (await stand.gateway_version(99))[0] == 404


async def test_an_index_is_made_and_made_again(stand: Stand) -> None:
    """What people wrote around it stays."""
    await stand.put("trees/oak.md", "# Oak\n\nIt speaks.")
    status, made = await stand.call("POST", "/index", {"folder": "trees", "title": "Trees"})
    check("NoteWriteResult", made)
    assert (status, made["path"], made["outcome"]) == (200, "trees/index.md", "created")
    file = stand.root / "trees" / "index.md"
    file.write_text(file.read_text() + "\nMine.\n")
    await stand.put("trees/elm.md", "# Elm\n\nIt does not.")
    status, made = await stand.call("POST", "/index", {"folder": "trees"})
    assert (status, made["outcome"]) == (200, "replaced")
    assert file.read_text() == (
        "# Trees\n\n<!-- index: begin -->\n- [[elm|Elm]]: It does not.\n- [[oak|Oak]]: It speaks.\n"
        "<!-- index: end -->\n\nMine.\n"
    )


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("../secret.md", 403),
        ("..%2fsecret.md", 403),
        ("a/../../secret.md", 403),
        ("/etc/passwd.md", 403),
        ("~/x.md", 403),
        ("C:/x.md", 403),
        (".obsidian/x.md", 403),
        ("\uff0e\uff0e/secret.md", 403),
        ("x\0.md", 422),
        ("x\u202e.md", 422),
        ("x.txt", 422),
        ("a" * 550 + ".md", 422),
        ("link.md", 403),
        ("folder/secret.md", 403),
    ],
)
async def test_no_path_leaves_the_vault(stand: Stand, path: str, status: int) -> None:
    """Whatever is asked of it, by whichever route."""
    (stand.folder / "secret.md").write_text("secret")
    (stand.root / "link.md").symlink_to(stand.folder / "secret.md")
    (stand.root / "folder").symlink_to(stand.folder)
    await stand.put("a.md", "mine")
    before = sorted(file for file in stand.folder.rglob("*") if file.parent.name != "indexes")
    named = quote(path, safe="")
    assert (await stand.error("GET", f"/note?path={named}"))[0] == status
    for method, where, body in (
        ("GET", f"/backlinks?path={named}", None),
        ("PUT", "/note", {"path": path, "content": "x"}),
        ("POST", "/move", {"path": "a.md", "to": path}),
        ("POST", "/move", {"path": path, "to": "b.md"}),
    ):
        refused, said = await stand.error(method, where, body)
        assert refused in {403, 422}, (where, refused, said)
    now = sorted(file for file in stand.folder.rglob("*") if file.parent.name != "indexes")
    assert now == before
    assert (stand.folder / "secret.md").read_text() == "secret"


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("PUT", "/note", {"path": "a.md"}, "content is required."),
        ("PUT", "/note", {"path": "a.md", "content": 5}, "content must be a string (got 5)."),
        ("PUT", "/note", {"path": "a.md", "content": None}, "content must be a string (got null)."),
        (
            "PUT",
            "/note",
            {"path": "a.md", "content": "x", "versoin": ""},
            "there is no field 'versoin'.",
        ),
        ("POST", "/move", {}, "2 problems."),
        ("POST", "/undo", {"change": "1"}, "change must be a whole number of at least 1"),
        (
            "POST",
            "/undo",
            {"change": True},
            "change must be a whole number of at least 1",
        ),
        (
            "POST",
            "/undo",
            {"change": 0},
            "change must be a whole number of at least 1",
        ),
        ("POST", "/undo", {"change": 10**30}, "change must be a whole number of at least 1"),
        ("POST", "/index", {"folder": 1}, "folder must be a string (got 1)."),
        ("GET", "/note", None, "path is required."),
        ("GET", "/backlinks", None, "path is required."),
        ("GET", "/search", None, "query is required."),
        ("GET", "/search?query=x&limit=0", None, "limit must be a whole number from 1 to 100"),
        ("GET", "?limit=-1", None, "limit must be a whole number from 1 to 20,000"),
        ("GET", "/moves?limit=x", None, "limit must be a whole number from 1 to 1,000"),
        ("GET", "/note?path=a.md&version=1", None, "there is no parameter 'version'."),
    ],
    ids=str,
)
async def test_what_is_wrong_is_told(
    stand: Stand, method: str, path: str, body: Any, said: str
) -> None:
    """And nothing is done."""
    status, message = await stand.error(method, path, body)
    assert (status, message[: len(said)]) == (400, said)
    assert [*stand.root.iterdir()] == []


async def test_what_is_not_there(stand: Stand) -> None:
    """With what may be meant; a project is told apart from a note."""
    await stand.put("trees/oak.md", "x")
    status, found = await stand.call("GET", "/note?path=oak.md")
    assert (status, found["error"]) == (
        404,
        {
            "code": "not_found",
            "message": "there is no note 'oak.md'.",
            "hint": "Did you mean 'trees/oak.md'?",
        },
    )
    for path in ("?folder=nothing", "/backlinks?path=b.md", "/note?path=b.md"):
        assert (await stand.error("GET", path))[0] == 404
    said = (404, "there is no project 'no'.")
    for path in ("", "/tags", "/moves", "/note?path=a.md", "/search?query=x"):
        mark = "&" if "?" in path else "?"
        assert await stand.error("GET", f"{path}{mark}project_id=no") == said
    body = {"path": "a.md", "content": "x", "project_id": "no"}
    assert await stand.error("PUT", "/note", body) == said


async def test_long_paths_and_queries(stand: Stand) -> None:
    """What can be written can be read: names of 200 bytes in folders of as many."""
    path = f"{'a' * 200}/{'b' * 190}.md"
    await stand.put(path, "a walnut")
    assert (await stand.got(f"/note?path={path}", "NoteText"))["text"] == "a walnut"
    query = "walnut%20" + "x" * 900
    assert len((await stand.got(f"/search?query={query}", "NoteHits"))["hits"]) == 1
    assert await stand.error("GET", f"/search?query={'x' * 1001}") == (
        400,
        "query must be a string of 1 to 1,000 characters (got 1,001 characters).",
    )


async def test_each_project_has_its_own_notes(stand: Stand) -> None:
    """By name; the default one when none is named."""
    await stand.put("a.md", "in the wood", project_id="wald")
    assert (stand.folder / "wald" / "a.md").read_text() == "in the wood"
    assert (await stand.got("", "NoteList"))["total"] == 0
    assert (await stand.got("?project_id=wald", "NoteList"))["total"] == 1
    assert await stand.got("/search?query=wood", "NoteHits") == {"hits": []}


@pytest.mark.parametrize("query", ['"', "oak%20AND", "NEAR(", "*", "a:b", "%00", "'%20OR%201=1"])
async def test_any_query_is_answered(stand: Stand, query: str) -> None:
    """It is words, and nothing else."""
    await stand.put("a.md", "silence")
    assert await stand.call("GET", f"/search?query={query}") == (200, {"hits": []})


async def test_a_note_that_is_too_long(stand: Stand) -> None:
    """Is told so, and not written."""
    body = {"path": "a.md", "content": "x" * 1_000_001}
    assert await stand.error("PUT", "/note", body) == (
        422,
        "the content has 1,000,001 bytes; a note can have at most 1,000,000.",
    )
    assert [*stand.root.iterdir()] == []


async def test_a_vault_that_is_gone(stand: Stand) -> None:
    """Whoever asks learns no path of the machine."""
    stand.root.rmdir()
    status, found = await stand.call("GET", "/note?path=a.md")
    assert (status, found["error"]["message"]) == (
        502,
        "the vault's folder cannot be opened: No such file or directory.",
    )
    assert str(stand.folder) not in str(found)
