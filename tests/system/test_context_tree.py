"""The tree of a conversation over HTTP: branch, checkout, label, list, prune, also after -9."""

from __future__ import annotations

from typing import Any

from tests.system.client import Client
from tests.system.wire_model import Script, says


async def tree(client: Client, **more: Any) -> dict[str, Any]:
    return await client.get("/api/oracle/tree", params={"project_id": client.project, **more})


async def change(client: Client, what: str, **body: Any) -> dict[str, Any]:
    answered = await client.send("POST", f"/api/oracle/tree/{what}", body)
    assert answered.status == 200, answered.text
    return answered.json


def asked(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["question"].split("?")[0] for node in nodes}


def heard(script: Script) -> list[str]:
    """The questions that the model was sent last, without the newest."""
    said = [each["content"] for each in script.asked[-1].said if each["role"] == "user"]
    return [text.split("?")[0] for text in said[:-1]]


async def test_a_conversation_is_a_tree(client: Client, script: Script) -> None:
    """Branched from any message, gone on with by its label, listed whole, and pruned."""
    script.will(says("Answered."))
    for text in ("One?", "Two?", "Three?"):
        await client.ask(text)
    three, two, _ = (await tree(client))["nodes"]
    project = {"project_id": client.project}

    await change(client, "branch", message_id=two["question_id"], label="otherwise", **project)
    await client.ask("Two, otherwise?")
    assert heard(script) == ["One"], "a user's message is asked anew, in its place"
    await change(client, "branch", message_id=two["answer_id"], **project)
    await client.ask("Three, otherwise?")
    assert heard(script) == ["One", "Two"], "from an answer it goes on"

    await change(client, "checkout", context_id=three["context_id"], **project)
    await change(client, "label", context_id=three["context_id"], label="main")
    await client.up.begin_again()
    shown = await tree(client)
    assert shown["head"] == three["context_id"]
    assert asked(shown["nodes"]) == {"One", "Two", "Three", "Two, otherwise", "Three, otherwise"}
    assert "main" in {node["label"] for node in shown["nodes"]}
    path = [node for node in (await tree(client, view="path"))["nodes"] if node["on_path"]]
    assert asked(path) == {"One", "Two", "Three"}

    (other,) = [node for node in shown["nodes"] if node["question"].startswith("Two, otherwise")]
    pruned = await client.send("DELETE", f"/api/oracle/tree/{other['context_id']}")
    assert pruned.status == 200, pruned.text
    assert pruned.json["pruned"] == 1
    assert "Two, otherwise" not in asked((await tree(client))["nodes"])
    await client.ask("Four?", context_id=three["context_id"])
    assert heard(script) == ["One", "Two", "Three"]
