"""Threads over HTTP, with a real store behind them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from dodona.core.domain.knowledge.threads import NewEntry
from dodona.core.domain.projects import Project
from dodona.gateway.openapi import build_openapi
from dodona.store import Store
from tests.gateway.plain_agency import PlainAgency
from tests.gateway.talking import Gateway, gateway_up

DOCUMENT = build_openapi()


class Stand:
    """A gateway and the store that its threads are in."""

    def __init__(self, gateway: Gateway, store: Store) -> None:
        self.gateway = gateway
        self.store = store

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, found, _ = await self.gateway.call(method, path, body)
        return status, found

    async def push(self, content: str, title: str = "Oaks", **more: Any) -> Any:
        body = {"title": title, "content": content, **more}
        status, found = await self.call("POST", "/api/threads", body)
        assert status == 201, found
        return found

    async def error(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        status, found = await self.call(method, path, body)
        return status, found["error"]["message"]


@pytest.fixture
async def stand(migrated_file: Path, tmp_path: Path) -> AsyncIterator[Stand]:
    agency: Any = PlainAgency()
    file = await asyncio.to_thread(shutil.copy, migrated_file, tmp_path)
    async with await Store.open(str(file), redact=str) as store:
        agency.threads = store.threads
        async with gateway_up(agency) as up:
            yield Stand(up, store)


def check(name: str, value: Any) -> None:
    """It is what the OpenAPI document promises."""
    whole = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    jsonschema_rs.Draft202012Validator(whole).validate(value)


async def test_a_thread_is_begun_added_to_and_read(stand: Stand) -> None:
    """By its user, whoever that says to be; each answer has its schema."""
    status, first, headers = await stand.gateway.call(
        "POST", "/api/threads", {"title": "Oaks", "content": "They speak."}
    )
    assert (status, headers["location"]) == (201, "/api/threads/1")
    assert (first["author"], first["entry_type"], first["thread_id"]) == ("user", "thought", 1)
    body = {"content": "We ask them.", "entry_type": "decision"}
    status, second = await stand.call("POST", "/api/threads/1", body)
    assert (status, second["entry_type"]) == (201, "decision")
    again = await stand.push("Again", title=" OAKS ")
    assert again["thread_id"] == 1

    status, page = await stand.call("GET", "/api/threads/1")
    assert (status, page["entries"], page["total"]) == (200, [first, second, again], 3)
    assert page["next"] is None
    status, threads = await stand.call("GET", "/api/threads")
    assert (status, threads) == (200, {"threads": [page["thread"]]})
    status, hits = await stand.call("GET", "/api/threads/search?query=speaking")
    assert (status, [(hit["id"], hit["title"]) for hit in hits["hits"]]) == (200, [(1, "Oaks")])
    for name, value in (
        ("ThreadEntry", first),
        ("ThreadEntries", page),
        ("ThreadList", threads),
        ("EntryHits", hits),
    ):
        check(name, value)


async def test_a_thread_is_read_page_by_page(stand: Stand) -> None:
    """`next` leads to the end; the newest can be had at once."""
    ids = [(await stand.push(str(number)))["id"] for number in range(5)]
    _, first = await stand.call("GET", "/api/threads/1?limit=3")
    assert ([entry["id"] for entry in first["entries"]], first["next"]) == (ids[:3], ids[2])
    _, rest = await stand.call("GET", f"/api/threads/1?limit=3&after={first['next']}")
    assert ([entry["id"] for entry in rest["entries"]], rest["next"]) == (ids[3:], None)
    _, newest = await stand.call("GET", "/api/threads/1?limit=2&newest=1")
    assert ([entry["id"] for entry in newest["entries"]], newest["next"]) == (ids[3:], None)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("", {"title": "Oaks"}, "content is required."),
        ("", {"content": "x"}, "title is required."),
        ("/1", {}, "content is required."),
        ("/1", {"content": 5}, "content must be a string of 1 to 20,000 characters (got 5)."),
        ("/1", {"content": None}, "content must be a string of 1 to 20,000"),
        ("/1", {"content": ""}, "content must be a string of 1 to 20,000 characters (got '')."),
        ("/1", {"content": "x", "title": "Elms"}, "there is no field 'title'."),
        ("/1", {"content": "x", "author": "oracle"}, "there is no field 'author'."),
        ("", {"title": "x" * 201, "content": "x"}, "title must be a string of 1 to 200 characters"),
        ("/1", {"content": "x" * 20_001}, "content must be a string of 1 to 20,000 characters"),
        (
            "/1",
            {"content": "x", "entry_type": "rumour"},
            "entry_type must be decision, insight",
        ),
        ("", {"contents": "x"}, "3 problems."),
    ],
    ids=str,
)
async def test_what_is_wrong_is_told(
    stand: Stand, path: str, body: dict[str, Any], said: str
) -> None:
    """Nobody writes in another's name, and nothing is written."""
    await stand.push("first")
    status, message = await stand.error("POST", f"/api/threads{path}", body)
    assert (status, message[: len(said)]) == (400, said)
    _, page = await stand.call("GET", "/api/threads/1")
    assert page["total"] == 1


async def test_what_is_not_there_or_anothers_is_404(stand: Stand) -> None:
    """In the same words, also a project and what is no number."""
    await stand.store.projects.create(Project("local", "wald"))
    for user_id, project_id in (("bob", "default"), ("local", "wald")):
        await stand.store.threads.push(
            NewEntry(
                user_id=user_id,
                project_id=project_id,
                author="user",
                entry_type="thought",
                content="a secret",
                title="Secrets",
            )
        )
    for number in (1, 2, 3, 0, 10**17):
        said = (404, f"there is no thread {number}.")
        assert await stand.error("GET", f"/api/threads/{number}") == said
        assert await stand.error("POST", f"/api/threads/{number}", {"content": "x"}) == said
    for name in ("x", "-1", str(10**18), "1%2F"):
        assert (await stand.error("GET", f"/api/threads/{name}"))[0] == 404
    assert await stand.call("GET", "/api/threads") == (200, {"threads": []})
    assert await stand.call("GET", "/api/threads/search?query=secret") == (200, {"hits": []})

    status, found = await stand.call("GET", "/api/threads/2?project_id=wald")
    assert (status, found["total"]) == (200, 1)
    pushed = await stand.push("more", title="secrets", project_id="wald")
    assert pushed["thread_id"] == 2
    for path in ("?project_id=no", "/search?query=x&project_id=no", "/2?project_id=no"):
        assert (await stand.error("GET", f"/api/threads{path}"))[0] == 404
    body = {"title": "x", "content": "x", "project_id": "no"}
    assert (await stand.error("POST", "/api/threads", body))[0] == 404


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/search", "query is required."),
        ("/search?query=", "query must be a string of 1 to 200 characters (got '')."),
        ("/search?query=x&limit=0", "limit must be a whole number from 1 to 100 (got 0)."),
        ("?limit=-1", "limit must be a whole number from 1 to 200 (got '-1')."),
        ("/1?after=-1", "after must be a whole number of at least 0 (got '-1')."),
        ("/1?before=5", "there is no parameter 'before'."),
    ],
)
async def test_parameters_are_checked(stand: Stand, path: str, said: str) -> None:
    """Before anything is looked for."""
    assert await stand.error("GET", f"/api/threads{path}") == (400, said)


@pytest.mark.parametrize("query", ['"', "oak%20AND", "NEAR(", "*", "a:b", "%00", "'%20OR%201=1"])
async def test_any_query_is_answered(stand: Stand, query: str) -> None:
    """It is words, and nothing else."""
    await stand.push("silence", title="Silence")
    assert await stand.call("GET", f"/api/threads/search?query={query}") == (200, {"hits": []})
