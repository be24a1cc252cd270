"""Rules of one's own in a gateway that runs: every hook, files that come and go, hostile ones."""

from __future__ import annotations

from typing import Any

import pytest

from dodona.core.domain.rules import HOOKS
from tests.system.client import Client, notices, of_type, text_of
from tests.system.test_approvals import write_rule
from tests.system.waiting import until_found
from tests.system.wire_model import Call, Script, calls, says

SEEN = {
    "turn": "context.turn.number",
    "tokens": "context.turn.tokens_used",
    "budget": "context.turn.token_budget",
    "tool_calls": "context.history.tool_calls",
    "failures": "context.history.failures",
    "user": "context.user.id",
    "project": "context.project.id",
    "type": "context.event.type",
    "heard": "context.event.payload",
    "result": "context.result",
}


def teller(trigger: str) -> str:
    """A rule that tells what it saw."""
    seen = "\n".join(f'{name} = {{ cel = "{path}" }}' for name, path in SEEN.items())
    return (
        f'[rule]\nid = "tell-{trigger}"\ntrigger = "{trigger}"\n[action]\nkind = "emit_event"\n'
        f'type = "plugin.user.{trigger}"\n[action.payload]\n{seen}\n'
    )


async def test_every_hook_sees_what_happened(own: Client, script: Script) -> None:
    """Each fires as often as its moment comes, in order, with the run as it is then."""
    for trigger in HOOKS:
        write_rule(own.up.home, trigger, teller(trigger))
    await own.up.begin()
    script.will(
        calls(Call("vault_read", {"path": "oak.md"}, id="one"), usage=(100, 10)),
        calls(Call("vault_read", {"path": "none.md"}, id="two"), usage=(200, 20)),
        says("Through its leaves.", usage=(300, 30)),
    )
    async with own.events("plugin.user.*") as events:
        chunks = await own.streamed("How did the oak speak?")
        await events.until("plugin.user.on_session_end")
    seen = [(each["type"].removeprefix("plugin.user."), each["payload"]) for each in events.seen]
    assert [(name, told["turn"], told["tokens"], told["tool_calls"]) for name, told in seen] == [
        ("on_query_start", 0, 0, 0),
        ("on_turn_start", 1, 0, 0),
        ("on_tool_call", 1, 110, 0),
        ("on_tool_complete", 1, 110, 1),
        ("on_turn_end", 1, 110, 1),
        ("on_turn_start", 2, 110, 1),
        ("on_tool_call", 2, 330, 1),
        ("on_tool_failure", 2, 330, 2),
        ("on_turn_end", 2, 330, 2),
        ("on_turn_start", 3, 330, 2),
        ("on_turn_end", 3, 660, 2),
        ("on_session_end", 3, 660, 2),
    ]
    run_id = chunks[0]["run_id"]
    for name, told in seen:
        assert (told["type"], told["user"], told["project"]) == (HOOKS[name], "local", "default")
        assert (told["budget"], told["run_id"]) == (50_000, run_id)
    by_hook: dict[str, list[dict[str, Any]]] = {}
    for name, told in seen:
        by_hook.setdefault(name, []).append(told)
    assert by_hook["on_query_start"][0]["heard"]["question"] == f"How did the oak speak? {own.tag}"
    assert [each["heard"]["arguments"] for each in by_hook["on_tool_call"]] == [
        {"path": "oak.md"},
        {"path": "none.md"},
    ]
    (complete,), (failure,) = by_hook["on_tool_complete"], by_hook["on_tool_failure"]
    read, failed = of_type(chunks, "tool_result")
    for told, result, call in ((complete, read, "one"), (failure, failed, "two")):
        assert told["result"]["text"] == result["result"]
        assert told["result"]["characters"] == len(result["result"])
        assert (told["result"]["tool"], told["result"]["call"]) == ("vault_read", call)
        assert told["result"]["failed"] is (call == "two")
    assert (complete["failures"], failure["failures"]) == ({}, {"vault_read": 1})
    (end,) = by_hook["on_session_end"]
    assert (end["heard"]["turns"], end["heard"]["ended"]) == (3, "success")


async def rules(client: Client) -> dict[str, Any]:
    return await client.get("/api/rules")


async def listed(client: Client, rule: str) -> Any:
    return await until_found(lambda: _found(client, rule), f"the rule {rule}")


async def _found(client: Client, rule: str) -> Any:
    found = await rules(client)
    return next((each for each in found["rules"] if each["id"] == rule), None)


NOTIFY = """
[rule]
id = "{id}"
trigger = "on_tool_complete"
{condition}
[action]
kind = "notify_self"
message = "{id}: {{{{ context.result.tool }}}}"
"""


def notify(id_: str, condition: str = "true") -> str:
    return NOTIFY.format(id=id_, condition=f"condition = '''{condition}'''")


async def test_files_that_come_and_go(own: Client, script: Script) -> None:
    """A rule works as soon as its file is there, and no longer when it is gone."""
    await own.up.begin()
    script.will(calls(Call("vault_list")), says("Done."))
    assert of_type(await own.streamed("List.", new=True), "system") == []
    file = write_rule(own.up.home, "later", notify("later"))
    await listed(own, "later")
    (told,) = notices(await own.streamed("List.", new=True), "self_notify")
    assert told["system_message"] == "later: vault_list"
    assert "later: vault_list" in script.asked[-1].notices

    # What is wrong now stays as it was: a slip must not turn a rule off.
    file.write_text(notify("later", "context.turn.numbr >"))

    async def problem() -> Any:
        return (await rules(own))["problems"]

    (said,) = await until_found(problem, "a word of the mistake")
    assert "later.toml:5: rule.condition is invalid" in said
    assert notices(await own.streamed("List.", new=True), "self_notify")
    file.unlink()

    async def is_gone() -> bool:
        return await _found(own, "later") is None

    await until_found(is_gone, "the end of the rule")
    assert of_type(await own.streamed("List.", new=True), "system") == []


HOSTILE = {
    "huge": "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, "
    "[1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, "
    "[1,2,3,4,5,6,7,8,9].all(g, [1,2,3,4,5,6,7,8,9].all(h, true))))))))",
    "pattern": '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!".matches("(a+)+$")',
    "deep": "(" * 5_000 + "true" + ")" * 5_000,
    "chained": "!" * 50_000 + "true",
    "error": "context.result.no.such.thing == 1",
    "number": "context.turn.number + 1",
}


async def test_hostile_conditions(own: Client, script: Script) -> None:
    """They neither hang nor kill the gateway; the others work."""
    for name, condition in HOSTILE.items():
        write_rule(own.up.home, name, notify(name, condition))
    write_rule(own.up.home, "mine", notify("mine"))
    await own.up.begin()
    pid = own.up.pid
    script.will(*[calls(Call("vault_list"))] * 2, says("Done."))
    chunks = await own.streamed("List.")
    assert text_of(chunks) == "Done."
    told = [each["system_message"] for each in notices(chunks, "self_notify")]
    assert "mine: vault_list" in told
    assert own.up.is_alive
    assert own.up.pid == pid
    found = await rules(own)
    taken = {each["id"] for each in found["rules"]}
    assert "mine" in taken
    for name in ("deep", "chained", "number"):
        assert name not in taken
        assert any(f"{name}.toml:" in problem for problem in found["problems"]), name


@pytest.mark.parametrize(
    ("rule", "change", "said"),
    [
        ("token_budget", {"enabled": False}, "token_budget is a core rule and cannot be disabled"),
        ("large_result", {"parameters": {"most_entries": 0}}, "large_result.most_entries must be"),
        ("large_resul", {"enabled": False}, "there is no rule 'large_resul'."),
    ],
)
async def test_changes_that_are_refused(
    client: Client, rule: str, change: dict[str, Any], said: str
) -> None:
    """With the reason, and nothing is changed."""
    refused = await client.send("PATCH", f"/api/rules/{rule}", change)
    assert refused.status in (400, 404)
    assert refused.error["message"].startswith(said)


async def test_a_parameter_counts_at_once(client: Client, script: Script) -> None:
    """Set, it decides; None is the default again; turned off, nothing is told."""
    script.will(calls(Call("vault_list")), says("Done."))

    async def told() -> int:
        # The model is told: what is of low priority is not the user's business.
        assert notices(await client.streamed("List.", new=True), "self_notify") == []
        return sum("vault_list returned" in each for each in script.asked[-1].notices)

    async def change(**values: Any) -> None:
        changed = await client.send("PATCH", "/api/rules/large_result", values)
        assert changed.status == 200, changed.text

    assert await told() == 0
    try:
        await change(parameters={"most_entries": 1})
        assert await told() == 1
        await change(enabled=False)
        assert await told() == 0
    finally:
        await change(enabled=True, parameters={"most_entries": None})
    assert await told() == 0


async def test_rules_that_set_off_each_other(own: Client, script: Script) -> None:
    """A chain of them has an end, and the run goes on."""
    for name, other in (("ping", "pong"), ("pong", "ping")):
        write_rule(
            own.up.home,
            name,
            f'[rule]\nid = "{name}"\ntrigger = "plugin.user.{name}"\n[action]\n'
            f'kind = "emit_event"\ntype = "plugin.user.{other}"\n',
        )
    write_rule(
        own.up.home,
        "first",
        '[rule]\nid = "first"\ntrigger = "on_query_start"\n[action]\nkind = "emit_event"\n'
        'type = "plugin.user.ping"\n',
    )
    await own.up.begin()
    script.will(says("Done."))
    async with own.events("plugin.user.*", "session.end") as events:
        assert (await own.ask("Go."))["answer"] == "Done."
        await events.until("session.end")
    assert len(events.seen) - 1 == 5
