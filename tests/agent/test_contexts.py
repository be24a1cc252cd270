"""The context of a user in a project: what it holds, and how it goes on, ends and begins anew."""

from __future__ import annotations

from pathlib import Path
from time import time

import pytest

from dodona.agent.views.projects import NewProject
from dodona.core.domain.conversations.contexts import ContextStatus
from dodona.core.errors import ContextFull, NotFound, ProviderError, ProviderErrorKind
from dodona.core.events import CONTEXT_APPROACHING_LIMIT, CONTEXT_COMPRESSED, SESSION_RESUMED
from dodona.core.messages import UserText
from dodona.core.ports.model import ModelRequest
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import SIZE, USER, Opened, Shelf, Tools, bodies, calls, opened, until


def remembers(request: ModelRequest) -> str:
    """The questions that the model was shown."""
    return " ".join(each.text for each in request.messages if isinstance(each, UserText))


async def context_of(here: Opened, project: str = "default") -> ContextStatus:
    return (await here.store.contexts.get(USER, project)).status


async def test_the_numbers_of_a_context_add_up(file: Path) -> None:
    """The done chunk, the answer and the context itself tell the same, and it grows."""
    model = ScriptedModel([calls(("echo", "1")), "The oak is old.", "The oak is tall."])
    async with opened(file, model, token_budget=8000) as here:
        before = 0
        for question in ("How old?", "How tall?"):
            run_id = await here.ask(question)
            (done,) = bodies(await here.chunks(run_id), "done")
            answer = await here.answer(run_id)
            context = await here.store.contexts.get(USER, "default")

            assert before < context.tokens_used < 8000
            assert done["context_tokens_remaining"] == 8000 - context.tokens_used
            assert answer.context_tokens_remaining == done["context_tokens_remaining"]
            assert answer.tokens_used == done["tokens_used"] > 0
            assert answer.context_id == done["context_id"]
            assert context.last_model == model.name
            before = context.tokens_used


async def test_every_turn_tells_how_full_the_model_is(file: Path) -> None:
    """context_update: what is sent, of what the model holds; it grows with what was said."""
    long = "word " * 100
    model = ScriptedModel([calls(("echo", "1"), text=long), calls(("echo", "2")), long])
    async with opened(file, model) as here:
        updates = bodies(await here.chunks(await here.ask()), "context_update")

        assert {update["max_context_tokens"] for update in updates} == {SIZE}
        sizes = [update["context_tokens"] for update in updates]
        assert len(sizes) == 4  # one for each turn, one at the end
        assert sizes == sorted(set(sizes))
        assert sizes[1] - sizes[0] > 100
        assert sizes[-1] - sizes[-2] > 100


async def test_a_change_of_models_suspends_and_resumes(file: Path) -> None:
    """Another model goes on with what was known; the event says which one it was before."""
    first, other = ScriptedModel(["One."], name="first"), ScriptedModel([remembers], name="other")
    async with opened(file, first, other) as here:
        await here.answered("Q1")
        assert await context_of(here) is ContextStatus.ACTIVE
        run_id = await here.ask("Q2", model="other")
        answer = await here.answer(run_id)

        assert await context_of(here) is ContextStatus.ACTIVE

        assert answer.answer == "Q1 Q2"
        assert answer.model_used == "other"
        (event,) = here.told(SESSION_RESUMED)
        assert event.payload["previous_model"] == "first"
        assert event.payload["model"] == "other"
        assert (await here.store.contexts.get(USER, "default")).last_model == "other"


async def test_a_context_is_suspended_until_the_other_model_has_answered(file: Path) -> None:
    """While it is changed over, and when the other one fails; the next question resumes it."""
    broken = ProviderError("no.", kind=ProviderErrorKind.REJECTED, provider="scripted")
    first = ScriptedModel(["One.", remembers], name="first")
    other = ScriptedModel([calls(("echo", "wait")), broken], name="other")
    async with opened(file, first, other) as here:
        await here.answered("Q1")
        run_id = await here.ask("Q2", model="other")
        await here.seen(run_id, "tool_call")
        assert await context_of(here) is ContextStatus.SUSPENDED
        here.tools.gate.set()
        with pytest.raises(ProviderError):
            await here.answer(run_id)

        answer = await here.answered("Q3")
        assert answer.answer == "Q1 Q2 Q3"
        assert await context_of(here) is ContextStatus.ACTIVE


async def test_an_idle_context_closes_and_the_next_question_begins_anew(file: Path) -> None:
    """After the idle time it is closed; then a question finds nothing before it."""
    model = ScriptedModel(["One.", remembers])
    async with opened(file, model) as here:
        await here.answered("Q1")
        assert await here.store.contexts.close_idle(time() - 3600) == 0
        assert await here.store.contexts.close_idle(time() + 1) == 1
        assert await context_of(here) is ContextStatus.CLOSED

        assert (await here.answered("Q2")).answer == "Q2"
        assert await context_of(here) is ContextStatus.ACTIVE


async def test_a_context_closed_by_hand_begins_anew(file: Path) -> None:
    """DELETE closes it, and what this process remembers of it is not used."""
    model = ScriptedModel(["One.", remembers, remembers])
    async with opened(file, model) as here:
        await here.answered("Q1")
        await here.agency.contexts.close(USER, "default")

        assert (await here.answered("Q2")).answer == "Q2"
        assert (await here.answered("Q3")).answer == "Q2 Q3"


async def test_a_question_may_begin_another_conversation(file: Path) -> None:
    """`new`: nothing before it; the next one goes on from it."""
    model = ScriptedModel(["One.", remembers, remembers])
    async with opened(file, model) as here:
        await here.answered("Q1")

        assert (await here.answered("Q2", new=True)).answer == "Q2"
        assert (await here.answered("Q3")).answer == "Q2 Q3"


async def test_a_question_may_go_on_from_an_earlier_node(file: Path) -> None:
    """A branch sees what led to its node, and nothing that came after it."""
    model = ScriptedModel([*["Yes."] * 3, remembers, remembers, remembers])
    async with opened(file, model) as here:
        first = await here.answered("Q1")
        await here.answered("Q2")
        third = await here.answered("Q3")

        branch = await here.answered("B1", context_id=first.context_id)
        assert branch.answer == "Q1 B1"
        assert branch.context_id not in (first.context_id, third.context_id)
        assert (await here.answered("B2", context_id=branch.context_id)).answer == "Q1 B1 B2"
        # The head stays where it was: a branch is a side path.
        assert (await here.answered("Q4")).answer == "Q1 Q2 Q3 Q4"


async def test_what_does_not_exist_is_not_found(file: Path) -> None:
    """An unknown project, node or model; another user's node; nothing is asked of a model."""
    model = ScriptedModel(["One."])
    async with opened(file, model) as here:
        mine = await here.answered("Q1")
        for wrong in (
            {"project_id": "nowhere"},
            {"context_id": "node-999999"},
            {"context_id": "somewhere"},
        ):
            with pytest.raises(NotFound):
                await here.ask("Q2", **wrong)
        with pytest.raises(NotFound):
            await here.ask("Q2", user="bob", context_id=mine.context_id)
        with pytest.raises(NotFound):
            await here.answered("Q2", model="nobody")
        assert len(model.requests) == 1


async def test_projects_do_not_mix(file: Path) -> None:
    """Each project has its own context, and tools are told which it is."""
    model = ScriptedModel([calls(("echo", "1")), "One.", calls(("echo", "2")), remembers])
    async with opened(file, model) as here:
        await here.agency.projects.create(USER, NewProject(id="other"))
        await here.answered("Q1")
        answer = await here.answered("Q2", project_id="other")

        assert answer.answer == "Q2"
        assert [made.context.project_id for made in here.tools.made] == ["default", "other"]
        assert {made.context.user_id for made in here.tools.made} == {USER}


async def test_a_model_that_is_nearly_full_says_so_once(file: Path) -> None:
    """At 70 % of the model's window: a system chunk and an event, once in a run."""
    rounds = [calls(("echo", f"{n}"), text="word " * 400) for n in range(3)]
    model = ScriptedModel([*rounds, "Done."])
    async with opened(file, shelf=Shelf([model], size=1500)) as here:
        chunks = await here.chunks(await here.ask())

        told = [
            b for b in bodies(chunks, "system") if b["system_type"] == "context_approaching_limit"
        ]
        assert len(told) == 1
        assert told[0]["metadata"]["limit_value"] == 1500
        assert told[0]["metadata"]["current_value"] >= 1050
        assert len(here.told(CONTEXT_APPROACHING_LIMIT)) == 1


async def test_a_model_that_is_nearly_full_says_so_once_also_over_a_crash(file: Path) -> None:
    """The process that resumes knows that it was told."""
    tools = Tools()
    long = "word " * 1200
    first = ScriptedModel([calls(("echo", "1"), text=long), calls(("once", "wait"))])
    async with opened(file, shelf=Shelf([first], size=1500), tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        assert len(here.told(CONTEXT_APPROACHING_LIMIT)) == 1
        await here.agency.engine.shutdown(0)
    then = ScriptedModel([calls(("echo", "1")), "Done."])
    async with opened(file, shelf=Shelf([then], size=1500), tools=tools) as here:
        chunks = await here.chunks(run_id)

        told = [body["system_type"] for body in bodies(chunks, "system")]
        assert told == ["context_approaching_limit"]
        assert here.told(CONTEXT_APPROACHING_LIMIT) == []


def filled(tokens: int) -> str:
    """A text of so many tokens, or a few more."""
    return "x " * round(tokens / 1.2 + 1)


async def test_a_question_over_the_context_budget_is_an_error(file: Path) -> None:
    """Over 110 % it is refused before it is stored; up to that, a model is called."""
    model = ScriptedModel(["Yes.", "Yes."])
    async with opened(file, model, token_budget=4000) as here:
        with pytest.raises(ContextFull) as caught:
            await here.ask(filled(4400))
        tokens = caught.value.details["tokens"]
        assert 4400 < tokens < 4410
        assert str(caught.value) == (
            f"the context of project default would have {tokens:,} tokens: 0 of earlier exchanges "
            f"and {tokens:,} of the question. It may have 4,400, 110 % of its budget of 4,000. Ask "
            "a shorter question, or start a new conversation: dodona context close. "
            "context.token_budget sets the budget of new ones."
        )
        assert not model.requests
        assert await here.store.runs.list(USER, limit=1) == []
        assert (await here.answered(filled(4390))).answer == "Yes."


async def test_a_question_over_the_budget_with_its_history_is_an_error(file: Path) -> None:
    """No model is called, the error is stored, and the conversation can continue."""
    model = ScriptedModel(["Yes.", "Yes.", "Yes."])
    async with opened(file, model, token_budget=4000, compress_context=False) as here:
        await here.answered(filled(3000))
        with pytest.raises(ContextFull) as caught:
            await here.answered(filled(1500))
        assert caught.value.details["tokens"] > 4400
        assert "3,0" in caught.value.message
        assert len(model.requests) == 1
        assert (await here.answered("And?")).answer == "Yes."


async def test_a_long_exchange_does_not_fill_the_context(file: Path) -> None:
    """An exchange over the budget is summarised, so the next question fits."""
    long = [calls(("echo", filled(2500))), calls(("echo", filled(2600))), "Oaks."]
    model = ScriptedModel([*long, "A summary.", *["Yes."] * 4])
    async with opened(file, model, token_budget=4000, summarise_results=False) as here:
        await here.answered("What grows there?")
        assert await until(lambda: here.told(CONTEXT_COMPRESSED), "a summary")
        assert (await here.answered("And?")).answer == "Yes."
        texts = " ".join(message.text for message in model.requests[-1].messages)
        assert "x x x x" not in texts
        assert "What grows there?" in texts


async def test_the_question_after_a_long_exchange_is_answered(file: Path) -> None:
    """Before there is a summary, the tool calls of the exchange are left out."""
    long = [calls(("echo", filled(2500))), calls(("echo", filled(2600))), "Oaks."]
    model = ScriptedModel([*long, "Yes."])
    policy = {"summarise_results": False, "compress_context": False}
    async with opened(file, model, token_budget=4000, **policy) as here:
        await here.answered("What grows there?")
        assert (await here.answered("And?")).answer == "Yes."
        texts = [message.text for message in model.requests[-1].messages]
        assert not any("x x x x" in text for text in texts)
        assert {"What grows there?", "Oaks.", "And?"} <= set(texts)


async def test_old_exchanges_make_room_for_a_question(file: Path) -> None:
    """A long question is answered, with as much of the conversation as fits."""
    model = ScriptedModel(["Yes.", "Yes.", "Yes."])
    async with opened(file, model, token_budget=4000, compress_context=False) as here:
        await here.answered(filled(2000))
        await here.answered(filled(1500))
        assert (await here.answered(filled(1900))).answer == "Yes."
        assert len(model.requests[-1].messages) == len(model.requests[0].messages) + 2
