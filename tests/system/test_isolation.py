"""What one user has, no other sees, finds or changes: every operation is tried, none is left out.

A has one of everything, each with a word in it that B must never read. An operation that is new has
no entry in TRIES, and fails here until it is said how to try it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from dodona.gateway.http.operation import Operation
from dodona.gateway.routes import OPERATIONS
from dodona.tools.vault.notes.blocks import name_key
from dodona.tools.vault.notes.files import version_of
from tests.system.client import Chunks, Client
from tests.system.test_approvals import ASK, write_rule
from tests.system.tokens import User, dodona
from tests.system.waiting import until_found
from tests.system.wire_model import Call, Script, calls, says

SECRET: Final = "zanzibar"
PROJECT: Final = "garden"
NOTE: Final = "plans.md"
CONTENT: Final = f"# {SECRET}\n\n#{SECRET} [[old]]\n"
VERSION: Final = version_of(CONTENT.replace("[[old]]", "[[plans]]").encode())  # when it is moved
CHAT: Final = {
    "model": "oracle",
    "messages": [{"role": "user", "content": "What did I say before?"}],
    "user": "main",
}
SESSION: Final = "oracle:web:ada:main"


@dataclass(frozen=True)
class Things:
    """What A has, by the names that B might guess."""

    run: int
    waiting: int
    call: str
    node: str
    question: str
    thread: int
    notice: int
    move: int


@dataclass(frozen=True)
class Try:
    """A request of B, and how it must end: 404 by default."""

    path: Mapping[str, Any] = field(default_factory=dict[str, Any])
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Any = None
    status: int = 404


Tries: TypeAlias = Callable[[Things], Sequence[Try]]


def in_project(**query: Any) -> Tries:
    """In A's project, which B has not; in B's own of the usual name there is nothing of A's."""
    own = Try(query=query, status=200)
    return lambda _: [Try(query={"project_id": PROJECT, **query}), own]


def nothing(_: Things) -> Sequence[Try]:
    """It works, and shows nothing of A's."""
    return [Try(status=200)]


def of_others(**query: Any) -> Sequence[Try]:
    """One's own; another's, and everybody's, are an admin's to see."""
    refused = [Try(query={"user": user, **query}, status=403) for user in ("ada", "*")]
    return [Try(query=query, status=200), *refused]


def not_theirs(**body: Any) -> Tries:
    return lambda _: [Try(body={"project_id": PROJECT, **body})]


TRIES: Final[dict[str, Tries]] = {
    "ask": lambda a: [
        Try(body={"question": "What is here?", "project_id": PROJECT}),
        Try(body={"question": "What is here?", "context_id": a.node}),
    ],
    "askAndStream": lambda a: [
        Try(body={"question": "What is here?", "project_id": PROJECT}),
        Try(body={"question": "What is here?", "context_id": a.node}),
    ],
    "cancel": lambda a: [
        Try(body={"run_id": a.waiting}),
        Try(body={"project_id": PROJECT}),
        Try(body={}, status=200),
    ],
    "showContext": lambda _: [Try(query={"project_id": PROJECT}), Try()],
    "closeContext": lambda _: [Try(query={"project_id": PROJECT}), Try()],
    "reviewContext": lambda a: [
        Try(body={"context_id": a.node, "project_id": PROJECT}),
        Try(body={"context_id": a.node}),
    ],
    "showTree": lambda _: [Try(query={"project_id": PROJECT}), Try()],
    "checkout": lambda a: [
        Try(body={"context_id": a.node}),
        Try(body={"context_id": a.node, "project_id": PROJECT}),
    ],
    "branch": lambda a: [
        Try(body={"message_id": a.question}),
        Try(body={"context_id": a.node, "project_id": PROJECT}),
    ],
    "labelNode": lambda a: [Try(body={"context_id": a.node, "label": "mine"})],
    "pruneTree": lambda a: [Try(path={"context_id": a.node})],
    "showUsage": lambda _: of_others(by="session"),
    "showBudgets": lambda _: of_others(),
    "listRuns": in_project(),
    "showRun": lambda a: [Try(path={"run_id": run}) for run in (a.run, a.waiting)],
    "followRun": lambda a: [Try(path={"run_id": run}) for run in (a.run, a.waiting)],
    "listApprovals": nothing,
    "decideApproval": lambda a: [
        Try(path={"run_id": a.waiting, "call": a.call}, body={"approved": True})
    ],
    "getSettings": nothing,
    "changeSettings": lambda _: [Try(body={"max_context_nodes": 5}, status=200)],
    "replaceSettings": lambda _: [Try(body={"max_context_nodes": 6}, status=200)],
    "listProjects": nothing,
    "createProject": lambda _: [
        Try(body={"id": "b", "vault_path": "/"}, status=403),
        Try(body={"id": "b", "code_paths": ["/"]}, status=403),
        Try(body={"id": "b"}, status=201),
    ],
    "showProject": lambda _: [Try(path={"project_id": PROJECT})],
    "changeProject": lambda _: [
        Try(path={"project_id": PROJECT}, body={"settings": {}}),
        Try(path={"project_id": "default"}, body={"vault_path": "/"}, status=403),
        Try(path={"project_id": "default"}, body={"code_paths": ["/"]}, status=403),
    ],
    "listNotes": in_project(),
    "readNote": lambda _: [
        Try(query={"path": NOTE, "project_id": PROJECT}),
        Try(query={"path": NOTE}),
        Try(query={"path": f"../../../u-ada/default/vault/{NOTE}"}, status=403),
    ],
    "writeNote": not_theirs(path="new.md", content="mine"),
    "searchNotes": in_project(query=SECRET),
    "moveNote": not_theirs(path=NOTE, to="stolen.md"),
    "listMoves": in_project(),
    "undoChange": lambda a: [
        Try(body={"project_id": PROJECT, "change": a.move}),
        Try(body={"change": a.move}),
    ],
    "reviewNote": lambda _: [
        Try(body={"path": NOTE, "version": VERSION, "project_id": PROJECT}),
        Try(body={"path": NOTE, "version": VERSION}),
    ],
    "listHistory": in_project(path=NOTE),
    "readVersion": lambda a: [
        Try(path={"change": str(a.move - 1)}, query={"project_id": PROJECT}),
        Try(path={"change": str(a.move - 1)}),
    ],
    "createIndex": not_theirs(),
    "listBacklinks": lambda _: [
        Try(query={"path": NOTE, "project_id": PROJECT}),
        Try(query={"path": NOTE}),
    ],
    "listTags": in_project(),
    "listThreads": in_project(),
    "beginThread": not_theirs(title="mine", content="mine"),
    "searchThreads": in_project(query=SECRET),
    "readThread": lambda a: [
        Try(path={"thread_id": a.thread}, query={"project_id": PROJECT}),
        Try(path={"thread_id": a.thread}),
    ],
    "pushEntry": lambda a: [
        Try(path={"thread_id": a.thread}, body={"content": "mine", "project_id": PROJECT}),
        Try(path={"thread_id": a.thread}, body={"content": "mine"}),
    ],
    "getCodeState": in_project(),
    "searchCode": in_project(query=SECRET),
    "findDefinitions": in_project(name=SECRET),
    "findReferences": in_project(name=SECRET),
    "getRepoMap": in_project(),
    "readCode": lambda _: [
        Try(query={"path": "a.py", "project_id": PROJECT}),
        Try(query={"path": "a.py"}, status=422),
    ],
    "indexCode": in_project(),
    "listNotices": lambda _: [Try(query={"project_id": PROJECT}, status=200), Try(status=200)],
    "dismissNotice": lambda a: [Try(path={"notice_id": a.notice})],
    "listSubscribers": nothing,
    "switchSubscriber": lambda _: [
        Try(path={"subscriber_id": "tool_failure"}, body={"enabled": True}, status=200)
    ],
    "listRules": nothing,
    "changeRule": lambda _: [
        Try(path={"rule_id": "large_result"}, body={"enabled": True}, status=200)
    ],
    "testRule": lambda _: [Try(path={"rule_id": "large_result"}, body={}, status=200)],
    "listSessions": nothing,
    "readSession": lambda _: [Try(query={"key": SESSION})],
    "clearSession": lambda _: [Try(body={"key": SESSION})],
    "followEvents": lambda _: [],  # tried below: it does not end
    "readAudit": lambda _: [Try(status=403)],
    "readMetrics": lambda _: [Try(status=403)],
    "readStatus": lambda _: [Try(status=403)],
    # A session of B's own by the name of one of A's: the model has not heard of it.
    "createChatCompletion": lambda _: [Try(body=CHAT, status=502)],
    "listModels": nothing,
    "retrieveModel": lambda _: [Try(path={"model": "oracle"}, status=200)],
    "isAlive": nothing,
    "isReady": nothing,
    "describe": nothing,
    "openPage": nothing,
    "loadPageFile": lambda _: [Try(path={"file": "app.js"}, status=200)],
}


@dataclass(frozen=True)
class Two:
    """Two users of one gateway."""

    a: User
    b: User
    things: Things


@pytest.fixture
async def two(own: Client, script: Script, tmp_path: Path) -> AsyncIterator[Two]:
    write_rule(own.up.home, "ask", ASK)
    await own.up.begin()
    a, b, admin = await asyncio.gather(
        User.made(own, "ada", "chat"),
        User.made(own, "bob", "chat"),
        User.made(own, "ada", "chat,admin"),
    )
    yield Two(a, b, await one_of_everything(a, admin, script, tmp_path))
    script.release()


async def one_of_everything(a: User, admin: User, script: Script, folder: Path) -> Things:
    notes, code = folder / f"{SECRET}-notes", folder / f"{SECRET}-code"
    notes.mkdir()
    code.mkdir()
    await asyncio.to_thread((code / "a.py").write_text, f"def {SECRET}(): pass\n")
    await admin.does(
        "POST",
        "/api/projects",
        {"id": PROJECT, "vault_path": str(notes), "code_paths": [str(code)]},
    )
    for project in ({}, {"project_id": PROJECT}):
        note = {"path": "old.md", "content": CONTENT, **project}
        await a.does("PUT", "/api/vault/note", note)
        move = await a.does("POST", "/api/vault/move", {"path": "old.md", "to": NOTE, **project})
    thread = await a.does(
        "POST", "/api/threads", {"title": SECRET, "content": SECRET, "project_id": PROJECT}
    )
    with a.client.up.home.changing() as store:  # a mark that a review would take away
        store.execute(
            "INSERT INTO note_marks (user_id, folder, block, marks_json, created_at)"
            " VALUES ('ada', ?, ?, ?, 1)",
            (str(notes.resolve()), name_key(NOTE), '[{"origin": "web"}]'),
        )
    await a.does("POST", "/api/threads", {"title": SECRET, "content": SECRET})
    await a.does("PATCH", "/api/settings", {"max_context_nodes": 17, "oracle_model": SECRET})
    await a.does("PATCH", "/api/rules/large_result", {"enabled": False})
    await a.does("PUT", "/api/subscribers/tool_failure", {"enabled": False})
    await a.does("POST", "/api/code/index", project_id=PROJECT)
    return await asked(a, script, int(move["id"]), int(thread["thread_id"]))


async def asked(a: User, script: Script, move: int, thread: int) -> Things:
    """Runs of A's: one that has ended, with a notice for later, and one that waits for A."""
    later = Call("notify_self", {"message": SECRET, "priority": "normal", "deliver_at": "+9d"})
    write = Call("vault_write", {"path": f"{SECRET}.md", "content": SECRET}, id="write-1")
    script.will_in_turn(calls(later), says(f"It is in {SECRET}."), calls(write), says(SECRET))
    question = a.client.question(f"Where is {SECRET}?") | {"project_id": PROJECT}
    answer = await a.does("POST", "/api/oracle", question)
    url = f"{a.client.url}/api/oracle/stream"
    async with a.client.session.post(url, json=question, headers=a.headers) as response:
        waiting = int(response.headers["Dodona-Run"])
        await Chunks(response).until("approval")
    tree = await a.does("GET", "/api/oracle/tree", project_id=PROJECT)
    node = next(each for each in tree["nodes"] if each["id"] == answer["run_id"])
    label = {"context_id": node["context_id"], "label": SECRET}
    await a.does("POST", "/api/oracle/tree/label", label)
    with a.client.up.home.changing() as store:
        store.execute(
            "INSERT INTO sessions (key, user_id, agent_id, conversation_id, created_at, updated_at)"
            " SELECT ?, 'ada', 'oracle', conversation_id, 1, 1 FROM runs WHERE id = ?",
            (SESSION, answer["run_id"]),
        )
        # A mark that a review would take away.
        marked = store.execute(
            "UPDATE oracle_contexts SET marks_json = ? WHERE user_id = 'ada' AND project_id = ?",
            (json.dumps([{"origin": "web", "source": f"https://{SECRET}.test/"}]), PROJECT),
        )
        assert marked.rowcount == 1
    notices = await a.does("GET", "/api/notifications")
    (approval,) = (await a.does("GET", "/api/approvals"))["approvals"]
    return Things(
        run=answer["run_id"],
        waiting=waiting,
        call=approval["call"],
        node=node["context_id"],
        question=node["question_id"],
        thread=thread,
        notice=notices["notices"][0]["id"],
        move=move,
    )


LOOKS: Final = (
    ("/api/runs", {}),
    ("/api/projects", {}),
    ("/api/settings", {}),
    ("/api/approvals", {}),
    ("/api/notifications", {}),
    ("/api/subscribers", {}),
    ("/api/rules", {}),
    ("/api/sessions", {}),
    ("/api/sessions/history", {"key": SESSION}),
    *(
        (path, {"project_id": PROJECT})
        for path in (
            *("/api/oracle/context", "/api/oracle/tree", "/api/vault", "/api/vault/moves"),
            *("/api/vault/history", "/api/vault/tags", "/api/threads"),
        )
    ),
    ("/api/vault", {}),
    ("/api/threads", {}),
)


async def seen(user: User) -> list[Any]:
    """All that a user can look at."""
    return [await user.does("GET", path, **query) for path, query in LOOKS]


async def test_nobody_sees_finds_or_changes_what_is_anothers(two: Two) -> None:
    """By any operation, with any id of A's; and A has all of it afterwards as it was."""
    assert set(TRIES) == {operation.operation_id for operation in OPERATIONS}, "say how to try it"
    before = await seen(two.a)
    assert SECRET in json.dumps(before)
    found: list[str] = []
    for operation in OPERATIONS:
        for attempt in TRIES[operation.operation_id](two.things):
            found += await leaks(two.b, operation, attempt)
    assert not found, "\n".join(found)
    assert await seen(two.a) == before
    assert SECRET not in json.dumps(await seen_by_stranger(two.b))


async def leaks(user: User, operation: Operation, attempt: Try) -> list[str]:
    """What is wrong with the answer to a request."""
    path = operation.path.format(**attempt.path)
    answered = await user.send(operation.method, path, attempt.body, **attempt.query)
    told = f"{operation.operation_id} {attempt}: {answered.status} {answered.text[:300]}"
    # What was asked for may be quoted back.
    quoted = json.dumps([attempt.body, dict(attempt.query)])
    is_leak = SECRET in answered.text and SECRET not in quoted
    return [told] if is_leak or answered.status != attempt.status else []


async def seen_by_stranger(user: User) -> list[str]:
    return [(await user.send("GET", path, **query)).text for path, query in LOOKS]


async def test_nobody_hears_or_meets_another(two: Two, script: Script) -> None:
    """Streams of events have one's own; things of the same name are each one's own."""
    url = f"{two.b.client.url}/api/events"
    async with two.b.client.session.get(url, headers=two.b.headers) as response:
        assert response.status == 200
        heard = Chunks(response)
        script.will(says("Here."))
        await two.a.does("POST", "/api/oracle", two.a.client.question(f"Where is {SECRET}?"))
        await two.b.does("POST", "/api/oracle", two.b.client.question("Where am I?"))
        await heard.until("session.end")
    assert SECRET not in json.dumps(heard.seen)
    assert {event["payload"].get("user_id") for event in heard.seen} == {"bob"}
    await _have_notes_of_their_own(two)
    await _ends_when_it_is_revoked(two.b)


async def _have_notes_of_their_own(two: Two) -> None:
    """Each in a project `default`; so has the operator."""
    await two.b.does("PUT", "/api/vault/note", {"path": NOTE, "content": "# Bob's\n"})
    mine = await two.b.does("GET", "/api/vault/note", path=NOTE)
    theirs = await two.a.does("GET", "/api/vault/note", path=NOTE)
    assert (mine["text"], SECRET in theirs["text"]) == ("# Bob's\n", True)
    operators = json.dumps(await two.b.client.get("/api/vault"))
    assert NOTE not in operators
    assert "budgets.md" in operators
    assert "budgets.md" not in json.dumps(await two.b.does("GET", "/api/vault"))


async def _ends_when_it_is_revoked(user: User) -> None:
    """By the command, beside the gateway that runs."""
    await user.does("GET", "/api/runs")
    await asyncio.to_thread(dodona, user.client.up.home, "token", "revoke", str(user.number))

    async def refused() -> bool:
        return (await user.send("GET", "/api/runs")).status == 401

    await until_found(refused, "the end of a token")
