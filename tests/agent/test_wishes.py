"""What a question asks for, and what a user has set: each of them has an effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from dodona.agent.run_context.registry import LIBRARIAN
from dodona.core.errors import BadRequest, InvalidField, NotFound
from dodona.core.messages import AssistantText
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import MOST_TOKENS, bodies, calls, opened
from tests.agent.wire import says, wired


async def test_a_question_may_name_its_model(file: Path) -> None:
    """For this one question; the next is answered by the usual model."""
    usual, other = ScriptedModel(["Usual."], name="usual"), ScriptedModel(["Other."], name="other")
    async with opened(file, usual, other) as here:
        named, plain = await here.answered(model="other"), await here.answered()

        assert (named.answer, named.model_used) == ("Other.", "other")
        assert (plain.answer, plain.model_used) == ("Usual.", "usual")


async def test_a_user_may_choose_a_model(file: Path) -> None:
    """oracle_model: a question that names another one comes first."""
    usual, other = ScriptedModel(["Usual."], name="usual"), ScriptedModel(["Other."], name="other")
    async with opened(file, usual, other) as here:
        await here.set(oracle_model="other")
        assert (await here.answered()).model_used == "other"
        assert (await here.answered(model="usual")).model_used == "usual"


async def test_an_unknown_model_is_an_error_of_the_run(file: Path) -> None:
    """It is told as the run's last chunk, with what to do; the lane is free again."""
    async with opened(file, ScriptedModel(["Yes."])) as here:
        run_id = await here.ask(model="nobody")
        chunks = await here.chunks(run_id)

        assert chunks[-1].as_json()["error"]["code"] == "not_found"
        assert chunks[-1].as_json()["error"]["hint"]
        with pytest.raises(NotFound):
            await here.answer(run_id)
        assert (await here.answered()).answer == "Yes."


async def test_max_tokens_caps_the_whole_run(file: Path) -> None:
    """What earlier turns have said is taken from it; when nothing is left the run ends."""
    # 5 words of text and 2 of arguments a turn.
    spoken = [calls(("echo", f"{n}"), text="one two three four five ") for n in range(9)]
    model = ScriptedModel(spoken)
    async with opened(file, model) as here:
        chunks = await here.chunks(await here.ask(max_tokens=20))

        asked = [request.max_tokens for request in model.requests]
        assert asked == [20, 13, 6]
        (told,) = bodies(chunks, "system")
        assert told["system_type"] == "limit_reached"
        assert told["metadata"]["limit_value"] == 20
        assert chunks[-1].as_json()["type"] == "done"


async def test_max_tokens_does_not_raise_what_a_model_may_say(file: Path) -> None:
    """The configured limit of an answer stays."""
    model = ScriptedModel(["Yes.", "Yes."])
    async with opened(file, model) as here:
        await here.answered(max_tokens=MOST_TOKENS * 2)
        await here.answered()

        assert [request.max_tokens for request in model.requests] == [MOST_TOKENS] * 2


@pytest.mark.parametrize(
    ("sources", "offered"),
    [
        (None, {"echo", "once", "keyed", "fail", "cite", "count", "surf", "plan"}),
        (["web"], {"surf", "plan"}),
        (["vault", "web"], {"echo", "once", "keyed", "fail", "cite", "count", "surf", "plan"}),
        ([], {"plan"}),
    ],
)
async def test_sources_choose_the_tools(
    file: Path, sources: list[str] | None, offered: set[str]
) -> None:
    """Only tools of these kinds are offered, and those that look at nothing."""
    model = ScriptedModel(["Yes."])
    async with opened(file, model) as here:
        await here.answered(sources=sources)

        (request,) = model.requests
        assert {tool.name for tool in request.tools} - {LIBRARIAN.delegation_tool.name} == offered


async def test_a_category_of_its_own_is_a_source(file: Path) -> None:
    """If a tool has it; the error lists the categories that exist."""
    model = ScriptedModel(["Yes."])
    async with opened(file, model) as here:
        with pytest.raises(InvalidField) as caught:
            await here.ask(sources=["house"])
        here.tools.add("ring", "house")
        await here.answered(sources=["house"])
        with pytest.raises(InvalidField) as later:
            await here.ask(sources=["web", "hose"])
        with pytest.raises(InvalidField):
            await here.ask(sources=["meta"])

        (request,) = model.requests
        offered = {tool.name for tool in request.tools}
        assert offered - {LIBRARIAN.delegation_tool.name} == {"ring", "plan"}
        assert str(caught.value) == (
            "sources must be a list with any of code, thread, vault, web, or null (got 'house')."
        )
        assert str(later.value) == (
            "sources must be a list with any of code, house, thread, vault, web, or null "
            "(got 'hose'). Did you mean 'house'?"
        )


async def test_a_tool_that_was_not_offered_is_not_called(file: Path) -> None:
    """A model that calls it all the same is told so."""
    model = ScriptedModel([calls(("echo", "1")), "I see."])
    async with opened(file, model) as here:
        answer = await here.answered(sources=["web"])

        assert not here.tools.made
        assert [call.status for call in answer.tool_calls] == ["error"]


@pytest.mark.parametrize(
    ("setting", "wish", "asked"),
    [(True, None, True), (False, None, False), (True, False, False), (False, True, True)],
)
async def test_thinking_is_as_wished_else_as_set(
    file: Path, *, setting: bool, wish: bool | None, asked: bool
) -> None:
    """thinking_enabled, unless the question says otherwise."""
    model = ScriptedModel(["Yes."])
    async with opened(file, model) as here:
        await here.set(thinking_enabled=setting)
        await here.answered(thinking=wish)

        assert model.requests[0].thinking is asked
        assert model.requests[0].is_thinking_requested is (wish is True)


async def test_thinking_is_shown_and_not_part_of_the_answer(file: Path) -> None:
    """It has chunks of its own."""
    async with opened(file, ScriptedModel([AssistantText("Yes.", thinking="Hm, hm.")])) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert "".join(body["content"] for body in bodies(chunks, "thinking")) == "Hm, hm."
        assert (await here.answer(run_id)).answer == "Yes."


@pytest.mark.parametrize(
    ("name", "value", "bounds"),
    [
        ("max_iterations", 51, "1 to 50"),
        ("timeout_seconds", 9, "10 to 600"),
        ("token_budget", 999, "1,000 to 200,000"),
        ("max_context_nodes", 0, "1 to 1,000"),
        ("librarian_timeout", 7201, "10 to 7,200"),
    ],
)
async def test_settings_out_of_bounds_are_refused(
    file: Path, name: str, value: int, bounds: str
) -> None:
    """With the bounds in the message; what was set stays."""
    async with opened(file, ScriptedModel([])) as here:
        before = await here.agency.settings.get("ada")
        with pytest.raises(BadRequest, match=bounds):
            await here.set(**{name: value})
        assert await here.agency.settings.get("ada") == before


async def test_settings_are_the_users_own(file: Path) -> None:
    """And they are those of the run that begins, not of one that goes on."""
    model = ScriptedModel([calls(("echo", f"{n}")) for n in range(9)])
    async with opened(file, model) as here:
        await here.set(max_iterations=1, user="bob")
        await here.chunks(await here.ask(user="bob"), user="bob")
        assert len(model.requests) == 1
        await here.set(max_iterations=2)
        await here.chunks(await here.ask())
        assert len(model.requests) == 3


async def test_settings_reach_the_wire(file: Path) -> None:
    """max_tokens is what the provider reads."""
    async with wired(says("Yes.")) as (model, server), opened(file, model) as here:
        await here.answered(max_tokens=77)

        assert server.asked[0].json["max_tokens"] == 77
