"""Code over HTTP, with a real index behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from dodona.core.errors import NotFound
from dodona.gateway.openapi import build_openapi
from dodona.tools.code import IndexedCode, NoCode
from tests.gateway.plain_agency import PlainAgency
from tests.gateway.talking import Gateway, gateway_up

DOCUMENT = build_openapi()


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Gateway]:
    """Project `default` has code, `empty` has none; there are no others."""
    root = tmp_path / "code"
    root.mkdir()
    (root / "meter.py").write_text("class Meter:\n    def reserve(self):\n        pass\n", "utf-8")
    (root / "main.py").write_text("from meter import Meter\n\nMeter().reserve()\n", "utf-8")
    code = IndexedCode([root], tmp_path / "code.db")

    async def code_of(_user_id: str, project_id: str) -> IndexedCode | NoCode:
        if project_id not in {"default", "empty"}:
            raise NotFound(f"there is no project '{project_id}'.")
        return code if project_id == "default" else NoCode()

    agency: Any = PlainAgency()
    agency.code = code_of
    async with gateway_up(agency) as up:
        yield up
    await code.close()


async def get(gateway: Gateway, path: str, schema: str) -> Any:
    """What is answered, which must be what the OpenAPI document promises."""
    status, found, _ = await gateway.call("GET", f"/api/code{path}")
    return promised(status, found, schema)


def promised(status: int, found: Any, schema: str) -> Any:
    assert status == 200, found
    whole = {"$ref": f"#/components/schemas/{schema}", "components": DOCUMENT["components"]}
    jsonschema_rs.Draft202012Validator(whole).validate(found)
    return found


async def test_the_index_is_made_and_told(stand: Gateway) -> None:
    """Indexing waits until it is done; the state says what there is."""
    status, found, _ = await stand.call("POST", "/api/code/index", {})
    made = promised(status, found, "IndexState")
    assert (made["files"], made["indexed"], made["is_complete"]) == (2, 2, True)
    assert await get(stand, "", "IndexState") == made


async def test_code_is_found(stand: Gateway) -> None:
    """By words, by where a name is defined and where it is used; the index is made on the way."""
    found = await get(stand, "/search?query=class+Meter&limit=1", "CodeHits")
    assert [(hit["path"], hit["first"]) for hit in found["hits"]] == [("meter.py", 1)]
    (definition,) = (await get(stand, "/definitions?name=Meter.reserve", "CodeDefinitions"))[
        "definitions"
    ]
    assert definition == {
        "name": "reserve",
        "kind": "method",
        "path": "meter.py",
        "first": 2,
        "last": 3,
        "signature": "def reserve(self)",
        "container": "Meter",
    }
    found = await get(stand, "/references?name=reserve", "CodeReferences")
    assert found["references"] == [
        {
            "name": "reserve",
            "path": "main.py",
            "line": 3,
            "column": 8,
            "text": "Meter().reserve()",
            "container": "",
        }
    ]
    found = await get(stand, "/map?tokens=100", "CodeMap")
    assert found["map"].startswith("meter.py\n     1  class Meter\n")


async def test_a_file_is_read(stand: Gateway) -> None:
    """All of it, or some lines."""
    whole = await get(stand, "/file?path=main.py", "CodeText")
    assert (whole["first"], whole["last"], whole["lines"]) == (1, 3, 3)
    some = await get(stand, "/file?path=main.py&first=3&last=3", "CodeText")
    assert (some["text"], some["version"]) == ("Meter().reserve()", whole["version"])


async def test_a_project_without_code(stand: Gateway) -> None:
    """It is empty, and that is no mistake."""
    assert (await get(stand, "?project_id=empty", "IndexState"))["files"] == 0
    assert (await get(stand, "/search?query=x&project_id=empty", "CodeHits"))["hits"] == []
    assert (await get(stand, "/map?project_id=empty", "CodeMap"))["map"] == ""


EXAMPLE = "Give a path as search_code returns it, such as 'src/main.py'."
WRONG = [
    ("/search", 400, "query is required.", "Add ?query=… to the URL."),
    ("/definitions", 400, "name is required.", "Add ?name=… to the URL."),
    ("/file", 400, "path is required.", "Add ?path=… to the URL."),
    ("/file?path=../x", 403, "'../x' leads out of the code folder.", EXAMPLE),
    ("/file?path=%2Fetc%2Fpasswd", 403, "'/etc/passwd' is an absolute path.", EXAMPLE),
    ("/file?path=mian.py", 422, "there is no file 'mian.py'.", "Did you mean 'main.py'?"),
    ("?project_id=gone", 404, "there is no project 'gone'.", ""),
]


@pytest.mark.parametrize(("path", "status", "message", "hint"), WRONG)
async def test_a_wrong_request(
    stand: Gateway, path: str, status: int, message: str, hint: str
) -> None:
    """It is told what is wrong, and what to do."""
    await stand.call("POST", "/api/code/index", {})
    found, body, _ = await stand.call("GET", f"/api/code{path}")
    assert (found, body["error"]["message"]) == (status, message)
    assert (body["error"].get("hint") or "") == hint
