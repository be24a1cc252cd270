"""The gateway as a whole: who is let in, what it says of itself, and its lists."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.system.client import Client, of_type, text_of
from tests.system.wire_model import Call, Script, calls, says


async def test_health(client: Client) -> None:
    """Both answer while it works; what it stands on is named."""
    assert (await client.send("GET", "/healthz")).status == 200
    assert (await client.send("GET", "/readyz")).status == 200


async def test_the_page(client: Client) -> None:
    """A person with a browser finds a page, and nothing on it is inline."""
    page = await client.send("GET", "/")
    assert page.status == 200
    assert page.headers["Content-Type"].startswith("text/html")
    policy = page.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


async def test_openapi(client: Client) -> None:
    """The document names every route that the issue asks for."""
    document = await client.get("/api/openapi.json")
    assert document["openapi"].startswith("3.1")
    named = {(path, method) for path, at in document["paths"].items() for method in at}
    assert {
        ("/api/oracle", "post"),
        ("/api/oracle/stream", "post"),
        ("/api/oracle/cancel", "post"),
        ("/api/oracle/context", "get"),
        ("/api/oracle/context", "delete"),
        ("/api/runs", "get"),
        ("/api/runs/{run_id}", "get"),
        ("/api/runs/{run_id}/events", "get"),
        ("/api/settings", "get"),
        ("/api/settings", "patch"),
        ("/api/projects", "get"),
        ("/api/projects", "post"),
        ("/api/events", "get"),
        ("/healthz", "get"),
        ("/readyz", "get"),
    } <= named


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:7200"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_strangers(
    client: Client, script: Script, headers: dict[str, str], method: str
) -> None:
    """Another site's page, or another name for this address, reaches nothing by any method."""
    path = "/api/oracle" if method == "POST" else "/api/oracle/context"
    body = client.question("Who?") if method == "POST" else None
    answered = await client.send(method, path, body, headers=headers)
    assert answered.status == 403
    assert answered.error["code"] == "access_denied"
    assert script.asked == []


async def test_our_own_page(client: Client, script: Script) -> None:
    """What our page sends is let in, under each of our names."""
    script.will(says("Here."))
    port = urlsplit(client.url).port
    for name in ("127.0.0.1", "localhost"):
        host = f"{name}:{port}"
        headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        answered = await client.send(
            "POST", "/api/oracle", client.question("Who?"), headers=headers
        )
        assert answered.status == 200, answered.text


async def test_only_json(client: Client, script: Script) -> None:
    """A form of another site could send text/plain: it is not taken."""
    for content_type in ("text/plain", "application/x-www-form-urlencoded"):
        answered = await client.send(
            "POST",
            "/api/oracle",
            data='{"question": "Who?"}',
            headers={"Content-Type": content_type},
        )
        assert answered.status == 415
    answered = await client.send(
        "POST",
        "/api/oracle",
        data='{"question": ',
        headers={"Content-Type": "application/json"},
    )
    assert answered.status == 400
    assert script.asked == []


async def test_a_body_too_large(client: Client) -> None:
    """More than a megabyte is no question."""
    body = io.BytesIO(b'{"question": "' + b"x" * (1 << 21) + b'"}')
    answered = await client.send(
        "POST", "/api/oracle", data=body, headers={"Content-Type": "application/json"}
    )
    assert answered.status == 413


async def test_what_is_not_there(client: Client) -> None:
    """Errors have one shape, whatever is wrong."""
    for method, path, status in (
        ("GET", "/api/nothing", 404),
        ("DELETE", "/api/oracle", 405),
        ("GET", "/api/projects/no-such-project", 404),
        ("GET", "/api/runs/nonsense", 400),
    ):
        answered = await client.send(method, path)
        assert answered.status in (status, 404), f"{method} {path}"
        assert {"code", "message", "hint"} <= answered.error.keys()


async def test_runs(client: Client, script: Script) -> None:
    """They are listed the newest first, page by page, and shown with their steps."""
    script.will(calls(Call("vault_list")), says("Three notes."))
    ids = [(await client.ask(f"Question {n}?"))["run_id"] for n in range(3)]
    params = {"project_id": client.project, "limit": "2"}
    page = await client.get("/api/runs", params=params)
    assert [run["id"] for run in page["runs"]] == [ids[2], ids[1]]
    rest = await client.get("/api/runs", params={**params, "before": str(page["next"])})
    assert [run["id"] for run in rest["runs"]] == [ids[0]]
    run = await client.run(ids[0])
    assert run["project_id"] == client.project
    assert run["duration_ms"] >= 0
    leaves = [step["leaf"] for step in run["steps"]]
    assert sum("llm" in leaf for leaf in leaves) == 2
    assert sum("tools.execute" in leaf for leaf in leaves) == 1
    assert {step["status"] for step in run["steps"]} == {"succeeded"}


async def test_replays(client: Client, script: Script) -> None:
    """The events of a run can be read again, from any place, by header or parameter."""
    script.will(calls(Call("vault_list")), says("Three ", "notes."))
    await client.streamed("Which?")
    (run,) = await client.runs()
    whole = await client.followed(run["id"])
    assert text_of(whole) == "Three notes."
    for place, chunk in enumerate(whole[:-1]):
        assert await client.followed(run["id"], chunk["seq"]) == whole[place + 1 :]
    path = f"/api/runs/{run['id']}/events"
    by_parameter = await client.send("GET", path, params={"after": str(whole[-2]["seq"])})
    assert by_parameter.text.count("data: ") == 1
    after = {"Last-Event-ID": str(whole[-1]["seq"])}
    assert (await client.send("GET", path, headers=after)).status == 204


async def test_a_run_that_goes_on(client: Client, script: Script) -> None:
    """Whoever comes while it goes on, first or again, sees the same chunks to the end."""
    script.will(calls(Call("vault_list")), says("Three ", "notes.", hold=1))
    async with client.stream("Which?") as first:
        await first.until("content")
        async with client.follow(first.run_id, first.seen[-1]["seq"]) as again:
            whole = asyncio.create_task(client.followed(first.run_id))
            script.release()
            rest = await again.rest()
        seen = list(await first.rest())
    assert text_of(seen) == "Three notes."
    assert await whole == seen
    assert rest == seen[-len(rest) :]
    assert text_of(rest) == "notes."


async def test_projects(client: Client, tmp_path: Path) -> None:
    """They are made, shown, changed; a folder that is not there is refused."""
    name = f"{client.project}-more"
    folder = tmp_path / "more"
    made = await client.send("POST", "/api/projects", {"id": name, "vault_path": str(folder)})
    assert made.status == 400
    folder.mkdir()
    made = await client.send("POST", "/api/projects", {"id": name, "vault_path": str(folder)})
    assert made.status == 201
    again = await client.send("POST", "/api/projects", {"id": name})
    assert again.status in (400, 409)
    listed = [project["id"] for project in (await client.get("/api/projects"))["projects"]]
    assert {"default", name, client.project} <= set(listed)
    changed = await client.send("PATCH", f"/api/projects/{name}", {"vault_path": None})
    assert changed.status == 200
    assert (await client.get(f"/api/projects/{name}"))["vault_path"] is None


async def test_a_projects_notes_are_its_own(client: Client, script: Script, tmp_path: Path) -> None:
    """Tools reach the notes of the question's project, and of no other."""
    folder = tmp_path / "others"
    folder.mkdir()
    (folder / "theirs.md").write_text("# Theirs\n\nA note of the other project.\n")
    other = client.in_project(f"{client.project}-other")
    await other.make_project(folder)
    script.will(calls(Call("vault_list")), says("Listed."))
    (ours,) = of_type(await client.streamed("Which?"), "tool_result")
    (theirs,) = of_type(await other.streamed("Which?"), "tool_result")
    assert "oak.md" in ours["result"]
    assert "theirs.md" not in ours["result"]
    assert "theirs.md" in theirs["result"]
    assert "oak.md" not in theirs["result"]
