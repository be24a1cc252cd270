"""`/api/oracle/tree`: asked of the real application, with an agency on a real store behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from yarl import URL

from dodona.core.messages import UserText
from dodona.core.ports.model import ModelRequest
from dodona.gateway.openapi import build_openapi
from dodona.models.scripted.model import ScriptedModel
from dodona.models.token_counter import OfflineTokenCounter
from tests.agent.opening import Tools, calls, opened, until
from tests.gateway.talking import Gateway, gateway_up

DOCUMENT = build_openapi()
TREE = "/api/oracle/tree"


def recalled(request: ModelRequest) -> str:
    """The questions that the model was shown."""
    return " ".join(each.text for each in request.messages if isinstance(each, UserText))


def check(name: str, value: Any) -> None:
    """Is it what the OpenAPI document says?"""
    whole = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    jsonschema_rs.Draft202012Validator(whole).validate(value)


class Tree:
    """A gateway whose model recalls what was asked before."""

    def __init__(self, gateway: Gateway, tools: Tools) -> None:
        self.gateway = gateway
        self.tools = tools

    async def ask(self, text: str, **more: Any) -> dict[str, Any]:
        status, told, _ = await self.gateway.call("POST", "/api/oracle", {"question": text, **more})
        assert status == 200, told
        return told

    async def show(self, query: str = "") -> dict[str, Any]:
        status, told, _ = await self.gateway.call("GET", f"{TREE}{query}")
        assert status == 200, told
        check("ConversationTree", told)
        return told

    async def post(self, what: str, body: Any) -> tuple[int, Any]:
        status, told, _ = await self.gateway.call("POST", f"{TREE}/{what}", body)
        if status != 200:
            check("ErrorDocument", told)
        return status, told

    async def prune(self, name: str) -> tuple[int, Any]:
        status, told, _ = await self.gateway.call("DELETE", f"{TREE}/{name}")
        return status, told


@asynccontextmanager
async def growing(file: Path, *answers: Any) -> AsyncIterator[Tree]:
    tools = Tools()
    model = ScriptedModel(answers or (recalled,) * 20)
    async with opened(file, model, tools=tools) as here, gateway_up(here.agency) as gateway:
        yield Tree(gateway, tools)


@pytest.fixture
def file(migrated_file: Path, tmp_path: Path) -> Path:
    OfflineTokenCounter().count("warm", "scripted")  # reading a vocabulary blocks
    file = tmp_path / "dodona.db"
    file.write_bytes(migrated_file.read_bytes())
    return file


@pytest.fixture
async def tree(file: Path) -> AsyncIterator[Tree]:
    async with growing(file) as tree:
        yield tree


async def test_a_conversation_goes_on_from_where_it_was_checked_out(tree: Tree) -> None:
    """What the model is shown is what came before there, and never what was said elsewhere."""
    first = await tree.ask("one")
    second = await tree.ask("two")
    assert second["answer"] == "one two"
    status, told = await tree.post("checkout", {"context_id": first["context_id"]})
    check("TreeHead", told)
    assert (status, told["head"], told["open_runs"]) == (200, first["context_id"], [])
    assert (await tree.ask("three"))["answer"] == "one three"
    status, told = await tree.post("checkout", {"context_id": None, "project_id": "default"})
    assert (status, told["head"]) == (200, None)
    assert (await tree.ask("four"))["answer"] == "four"
    await tree.post("checkout", {"context_id": second["context_id"]})
    assert (await tree.ask("five"))["answer"] == "one two five"


async def test_a_question_is_asked_otherwise(tree: Tree) -> None:
    """From its message, as the context shows it; the branch is labelled and found by that."""
    await tree.ask("one")
    await tree.ask("two")
    _, context, _ = await tree.gateway.call("GET", "/api/oracle/context")
    question = next(e for e in context["recent_exchanges"] if e["content"] == "two")
    branching = {"message_id": question["id"], "label": "before two"}
    status, told = await tree.post("branch", branching)
    assert (status, told["head"]) == (200, "node-1")
    assert (await tree.ask("other"))["answer"] == "one other"
    assert (await tree.post("checkout", {"context_id": "before two"}))[1]["head"] == "node-1"
    shown = await tree.show()
    ids = {node["question"]: (node["question_id"], node["answer_id"]) for node in shown["nodes"]}
    assert ids["two"][0] == question["id"]
    status, told = await tree.post("branch", {"message_id": ids["other"][1]})
    assert told["head"] == "node-3"
    assert (await tree.ask("more"))["answer"] == "one other more"


async def test_the_tree_is_shown_page_by_page(tree: Tree) -> None:
    """All nodes or the path to the head; a page says what to ask for next."""
    for text in ("one", "two", "three"):
        await tree.ask(text)
    await tree.ask("aside", context_id="node-1")
    shown = await tree.show("?limit=3")
    assert [node["question"] for node in shown["nodes"]] == ["aside", "three", "two"]
    assert (shown["head"], shown["next"]) == ("node-3", 2)
    rest = await tree.show(f"?limit=3&before={shown['next']}")
    assert ([node["question"] for node in rest["nodes"]], rest["next"]) == (["one"], None)
    path = await tree.show("?view=path")
    assert [(node["question"], node["on_path"]) for node in path["nodes"]] == [
        ("three", True),
        ("two", True),
        ("one", True),
        ("aside", False),
    ]
    assert [node["children"] for node in path["nodes"]] == [0, 1, 2, 0]


async def test_checking_out_while_a_run_is_under_way(file: Path) -> None:
    """It goes on, and its answer is a branch; the next question follows what was checked out."""
    script = (recalled, recalled, calls(("echo", "wait")), "late", recalled)
    async with growing(file, *script) as tree:
        await tree.ask("one")
        await tree.ask("two")
        asking = asyncio.create_task(tree.ask("three"))
        await until(lambda: tree.tools.made, "the tool is called")
        status, told = await tree.post("checkout", {"context_id": "node-1"})
        assert (status, told["head"], told["open_runs"]) == (200, "node-1", [3])
        status, told = await tree.prune("node-2")
        assert (status, told["error"]["message"]) == (400, "run 3 is running.")
        tree.tools.gate.set()
        assert (await asking)["answer"] == "late"
        nodes = {node["context_id"]: node for node in (await tree.show())["nodes"]}
        assert (nodes["node-3"]["parent"], nodes["node-3"]["on_path"]) == ("node-2", False)
        assert (await tree.ask("four"))["answer"] == "one four"


async def test_of_two_who_check_out_at_once_one_is_told(tree: Tree) -> None:
    """409, when both say what they saw."""
    for text in ("one", "two", "three"):
        await tree.ask(text)
    results = await asyncio.gather(
        *(
            tree.post("checkout", {"context_id": f"node-{to}", "expected": "node-3"})
            for to in (1, 2)
        )
    )
    assert sorted(status for status, _ in results) == [200, 409]
    (refused,) = [told["error"] for status, told in results if status == 409]
    assert refused["code"] == "head_moved"
    (moved,) = [told["head"] for status, told in results if status == 200]
    assert (await tree.show())["head"] == moved
    assert (await tree.post("checkout", {"context_id": None, "expected": None}))[0] == 409


async def test_labels(tree: Tree) -> None:
    """One node's, given and taken away."""
    await tree.ask("one")
    await tree.ask("two")
    status, told = await tree.post("label", {"context_id": "node-1", "label": "start"})
    check("NodeLabel", told)
    assert (status, told) == (200, {"context_id": "node-1", "label": "start"})
    status, told = await tree.post("label", {"context_id": "node-2", "label": "start"})
    assert (status, told["error"]["message"]) == (400, "the label 'start' belongs to run 1.")
    assert (await tree.post("label", {"context_id": "node-1", "label": None}))[0] == 200
    assert (await tree.post("label", {"context_id": "node-2", "label": "start"}))[0] == 200


async def test_pruning(tree: Tree) -> None:
    """What follows goes too, and is not recalled; it is not found a second time."""
    for text in ("one", "two", "three"):
        await tree.ask(text)
    status, told = await tree.prune("node-2")
    check("PrunedTree", told)
    assert (status, told) == (200, {"pruned": 2, "head": "node-1"})
    assert (await tree.ask("four"))["answer"] == "one four"
    assert (await tree.prune("node-2"))[0] == 404


@pytest.mark.parametrize(
    ("what", "body", "status", "words"),
    [
        ("checkout", {}, 400, "context_id is required."),
        ("checkout", {"context_id": 1}, 400, "context_id must be a string of 1 to 200 characters"),
        ("checkout", {"context_id": ""}, 400, "context_id must be a string"),
        ("checkout", {"contextid": None}, 400, "2 problems."),
        ("checkout", {"context_id": "node-99"}, 404, "there is no run 99"),
        ("checkout", {"context_id": "\0\u202e"}, 404, "there is no context"),
        ("checkout", {"context_id": "x" * 201}, 400, "context_id must be a string"),
        ("checkout", {"context_id": None, "project_id": "p"}, 404, "there is no project 'p'."),
        ("checkout", {"context_id": None, "expected": 3}, 400, "expected must be a string"),
        ("branch", {}, 400, "specify either a message or a context"),
        ("branch", {"message_id": 1}, 400, "message_id must be a string"),
        ("branch", {"message_id": "1", "context_id": "node-1"}, 400, "specify either"),
        ("branch", {"message_id": "99"}, 404, "there is no message '99'"),
        ("branch", {"message_id": "1; DROP TABLE runs"}, 404, "there is no message"),
        (
            "branch",
            {"context_id": "node-1", "label": "x" * 81},
            400,
            "label must be a string",
        ),
        ("label", {"context_id": "node-1"}, 400, "label is required."),
        ("label", {"label": "x"}, 400, "context_id is required."),
        ("label", {"context_id": "node-1", "label": "node-2"}, 400, "is reserved"),
        ("label", {"context_id": "node-99", "label": "x"}, 404, "there is no run 99."),
        ("label", {"context_id": "some label", "label": "x"}, 404, "there is no context"),
    ],
)
async def test_what_is_refused(
    tree: Tree, what: str, body: dict[str, Any], status: int, words: str
) -> None:
    """With a 4xx and the reason; the tree is as it was."""
    await tree.ask("one")
    before = await tree.show()
    got, told = await tree.post(what, body)
    assert (got, words in told["error"]["message"]) == (status, True), told
    assert await tree.show() == before


@pytest.mark.parametrize(
    "name", ["node-99", "node-0", "node-1x", "node-%00", "..%2f..", "1", "node-" + "9" * 300, "%ff"]
)
async def test_what_is_not_there_is_not_pruned(tree: Tree, name: str) -> None:
    """Whatever the name is."""
    await tree.ask("one")
    url = URL(f"{tree.gateway.url}{TREE}/{name}", encoded=True)
    async with tree.gateway.client.delete(url) as response:
        assert response.status == 404
    assert len((await tree.show())["nodes"]) == 1


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?project_id=nowhere", 404),
        ("", 404),
        ("?view=tree", 400),
        ("?limit=0", 400),
        ("?limit=201", 400),
        ("?before=0", 400),
        ("?before=x", 400),
        ("?after=1", 400),
    ],
)
async def test_what_cannot_be_shown(tree: Tree, query: str, status: int) -> None:
    """Nothing was asked yet; or it is no question."""
    got, told, _ = await tree.gateway.call("GET", f"{TREE}{query}")
    assert got == status
    check("ErrorDocument", told)
