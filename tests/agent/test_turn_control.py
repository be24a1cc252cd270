"""Turn control: how far a run may go, what it is told before that, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dodona.agent.conversation.exchange import ExchangeRecord
from dodona.core.chunks import StreamChunk
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.events import (
    AGENT_ERROR_LIMIT,
    AGENT_NO_PROGRESS,
    BUDGET_ITERATION_EXCEEDED,
    BUDGET_ITERATION_WARNING,
    BUDGET_TIMEOUT_EXCEEDED,
    BUDGET_TOKEN_EXCEEDED,
    BUDGET_TOKEN_WARNING,
)
from dodona.core.messages import ContextText
from dodona.core.ports.model import ModelRequest
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import (
    USER,
    bodies,
    calls,
    edited,
    kinds,
    opened,
    plain_prompts,
    text_of,
    until,
)
from tests.clock import Clock

DENY_ONCE = """
[rule]
id = "deny"
trigger = "on_tool_call"
condition = 'context.event.payload.tool == "once"'
[action]
kind = "deny"
reason = "never."
"""


def rounds(count: int) -> list[Any]:
    """Answers that get on: each calls another thing."""
    return [calls(("echo", f"{number}")) for number in range(count)]


def told(chunks: Sequence[StreamChunk]) -> list[tuple[str, str]]:
    """What the user was told: its type, and the limit that it is about."""
    said = bodies(chunks, "system")
    return [(body["system_type"], body["metadata"].get("limit", "")) for body in said]


def hints(request: ModelRequest) -> list[str]:
    """What the model was told, after its prompt."""
    return [each.text for each in request.messages[1:] if isinstance(each, ContextText)]


async def test_the_last_turn_is_the_last(file: Path) -> None:
    """max_iterations ends a run: told to the user, an event, an answer; no further request."""
    model = ScriptedModel(rounds(9))
    async with opened(file, model) as here:
        await here.set(max_iterations=3)
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert len(model.requests) == 3
        assert told(chunks)[-1] == ("limit_reached", "turns")
        reached = bodies(chunks, "system")[-1]["metadata"]
        assert (reached["current_value"], reached["limit_value"]) == (3, 3)
        assert reached["advice"]
        assert chunks[-1].as_json()["type"] == "done"
        assert "limit of 3 turns" in text_of(chunks)
        assert len(here.told(BUDGET_ITERATION_EXCEEDED)) == 1
        assert (await here.run(run_id)).status is RunStatus.SUCCEEDED
        assert "limit of 3 turns" in (await here.answer(run_id)).answer


async def test_the_user_and_the_model_are_warned_of_the_last_turns(file: Path) -> None:
    """At 70 % of the turns, once: the value, the limit and advice; the model reads the same."""
    model = ScriptedModel([*rounds(9), "Done."])
    async with opened(file, model) as here:
        await here.set(max_iterations=10)
        chunks = await here.chunks(await here.ask())

        (warning,) = bodies(chunks, "system")
        facts: Mapping[str, Any] = warning["metadata"]
        assert warning["system_type"] == "limit_warning"
        assert (facts["current_value"], facts["limit_value"]) == (7, 10)
        assert facts["advice"] in warning["system_message"]
        assert [hints(request) for request in model.requests[:6]] == [[]] * 6
        assert all(hints(each) == [warning["system_message"]] for each in model.requests[6:])
        assert len(here.told(BUDGET_ITERATION_WARNING)) == 1


async def test_the_user_and_the_model_are_warned_of_the_last_tokens(
    file: Path, tmp_path: Path
) -> None:
    """At 80 % of the tokens, once; then the token budget ends the run."""
    first = calls(("echo", "1"), text="word " * 850)
    model = ScriptedModel([first, calls(("echo", "2")), "Never said."])
    async with opened(file, model, prompts=plain_prompts(tmp_path / "prompts")) as here:
        await here.set(token_budget=1000)
        chunks = await here.chunks(await here.ask())

        assert told(chunks) == [("limit_warning", "tokens"), ("limit_reached", "tokens")]
        warned, reached = (body["metadata"] for body in bodies(chunks, "system"))
        assert 800 <= warned["current_value"] < 1000 <= reached["current_value"]
        assert warned["limit_value"] == reached["limit_value"] == 1000
        assert warned["advice"]
        assert [len(hints(request)) for request in model.requests] == [0, 1]
        assert len(here.told(BUDGET_TOKEN_WARNING)) == len(here.told(BUDGET_TOKEN_EXCEEDED)) == 1
        assert chunks[-1].as_json()["type"] == "done"


async def test_calls_beyond_those_of_a_turn_have_results_too(file: Path) -> None:
    """max_tool_calls_per_turn: the rest is answered with an error each, and the run goes on.

    Clients see all calls before the first result, and a result of each.
    """
    wanted = [("echo", f"{number}") for number in range(7)]
    model = ScriptedModel([calls(*wanted), "Done."])
    async with opened(file, model) as here:
        await here.set(max_tool_calls_per_turn=4)
        chunks = await here.chunks(await here.ask())

        assert [made.arguments["query"] for made in here.tools.made] == ["0", "1", "2", "3"]
        results = model.requests[1].messages[-7:]
        assert [each.call_id for each in results] == [f"call-{n}" for n in range(1, 8)]
        assert [each.failed for each in results] == [False] * 4 + [True] * 3
        assert all("at most 4" in each.text for each in results[4:])
        ids = [each.call_id for each in results]
        assert kinds(chunks) == ["tool_call", "tool_result", "content", "done"]
        assert [(each["id"], each["status"]) for each in bodies(chunks, "tool_call")] == [
            (id_, "pending") for id_ in ids
        ]
        shown = {each["id"]: each["result"] for each in bodies(chunks, "tool_result")}
        assert shown == {each.call_id: each.text for each in results}
        assert text_of(chunks) == "Done."


@pytest.mark.parametrize("most", [1, 3])
async def test_tools_run_at_once_as_far_as_they_may(file: Path, most: int) -> None:
    """max_parallel_tools are at work at a time, no more and no fewer; results keep their order."""
    wanted = [("echo", f"wait {number}") for number in range(5)]
    model = ScriptedModel([calls(*wanted), "Done."])
    async with opened(file, model) as here:
        await here.set(max_parallel_tools=most)
        run_id = await here.ask()
        await until(lambda: here.tools.at_once == most, "as many tools as may run")
        here.tools.gate.set()
        await here.answer(run_id)

        assert here.tools.most_at_once == most
        results = [each.text for each in model.requests[1].messages[-5:]]
        assert results == [f"echo says wait {number}" for number in range(5)]


async def test_no_progress_ends_a_run_after_the_model_was_told(file: Path) -> None:
    """The same call with the same result, three times: one more request, with the notice."""
    model = ScriptedModel([calls(("echo", "same"))] * 9)
    tree = edited(('(action detect-loop :fn "oracle.detect_loop")', ""))
    async with opened(file, model, tree=tree) as here:
        chunks = await here.chunks(await here.ask())

        assert len(model.requests) == 4
        assert hints(model.requests[2]) == []
        (hint,) = hints(model.requests[3])
        assert "No progress" in hint
        assert told(chunks) == [("no_progress", "repeated results")] * 2
        metadata = [each["metadata"] for each in bodies(chunks, "system")]
        assert [(each["current_value"], each["limit_value"]) for each in metadata] == [(3, 3)] * 2
        assert len(here.told(AGENT_NO_PROGRESS)) == 1
        assert chunks[-1].as_json()["type"] == "done"


async def test_a_model_that_heeds_the_notice_goes_on(file: Path) -> None:
    """Something else after the notice: there is progress again."""
    same = calls(("echo", "same"))
    model = ScriptedModel([same, same, same, calls(("echo", "other")), same, "Done."])
    async with opened(file, model) as here:
        chunks = await here.chunks(await here.ask())

        assert text_of(chunks) == "Done."


async def test_three_turns_of_failures_end_a_run(file: Path) -> None:
    """The error limit: three turns in a row in which every call failed, however many calls."""
    many = calls(("fail", "a"), ("fail", "b"), ("fail", "c"))
    fine = calls(("fail", "d"), ("echo", "fine"))
    model = ScriptedModel([many, many, fine, many, calls(("fail", "e")), many, "Never said."])
    async with opened(file, model) as here:
        chunks = await here.chunks(await here.ask())

        assert len(model.requests) == 6
        assert told(chunks)[-1] == ("error_limit", "failed turns")
        metadata = bodies(chunks, "system")[-1]["metadata"]
        assert (metadata["current_value"], metadata["limit_value"]) == (3, 3)
        (event,) = here.told(AGENT_ERROR_LIMIT)
        assert event.payload["limit_value"] == 3
        assert chunks[-1].as_json()["type"] == "done"


async def test_refused_calls_go_back_to_the_model(file: Path, tmp_path: Path) -> None:
    """A denied call is no failure of a tool: turns of refusals never reach the error limit."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "deny.toml").write_text(DENY_ONCE)
    refused = [calls(*(("once", f"{turn}{call}") for call in "abc")) for turn in range(3)]
    model = ScriptedModel([*refused, "I may not."])
    async with opened(file, model, rules=tmp_path / "rules") as here:
        chunks = await here.chunks(await here.ask())

        assert text_of(chunks) == "I may not."
        assert "error_limit" not in [kind for kind, _ in told(chunks)]
        assert not here.tools.of("once")


async def test_limits_are_looked_at_in_their_order(file: Path) -> None:
    """When several have come at once, the first in the order is told: turns before errors."""
    model = ScriptedModel([calls(("fail", f"{number}")) for number in range(9)])
    async with opened(file, model) as here:
        await here.set(max_iterations=3)
        chunks = await here.chunks(await here.ask())

        assert told(chunks)[-1] == ("limit_reached", "turns")


async def test_bad_calls_go_back_to_the_model(file: Path) -> None:
    """Malformed arguments, unknown tools and wrong types are results that a model can use."""
    bad = calls(("echo", "1"), ("nothing", "2"))
    first = bad.calls[0]
    broken = type(bad)("", (type(first)("call-1", "echo", '{"text": '), bad.calls[1]))
    model = ScriptedModel([broken, "I see."])
    async with opened(file, model) as here:
        answer = await here.answered()

        assert answer.answer == "I see."
        assert [call.status for call in answer.tool_calls] == ["error", "error"]
        assert not here.tools.made
        malformed, unknown = (each.text for each in model.requests[1].messages[-2:])
        assert "JSON" in malformed
        assert "nothing" in unknown


async def test_time_ends_a_run_wherever_it_is(file: Path, clock: Clock) -> None:
    """timeout_seconds ends it in a tool: told, saved with what there is, with an answer."""
    model = ScriptedModel([calls(("echo", "quick"), ("echo", "wait"), text="Let me see.")])
    async with opened(file, model) as here:
        await here.set(timeout_seconds=10)
        run_id = await here.ask()
        await until(lambda: here.tools.of("echo")[1:], "the second call")
        clock.advance(10)
        chunks = await here.chunks(run_id)

        assert told(chunks) == [("limit_reached", "seconds")]
        assert bodies(chunks, "system")[0]["metadata"]["limit_value"] == 10
        assert chunks[-1].as_json()["type"] == "done"
        assert len(here.told(BUDGET_TIMEOUT_EXCEEDED)) == 1
        assert here.tools.at_once == 0
        (_, said) = await here.store.runs.messages(USER, run_id)
        record = ExchangeRecord.read(said)
        assert record.partial
        (turn,) = record.turns
        assert [call.failed for call in turn.calls] == [False, True]
        assert turn.calls[0].result == "echo says quick"
        assert "limit of 10 seconds" in said.content
