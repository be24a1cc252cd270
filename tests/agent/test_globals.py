"""Global keys of a tree outlive its runs, and belong to a user, a project and an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from dodona.core.domain.conversations.conversation import (
    ClaimedRun,
    RunEnd,
    RunRequest,
    RunStatus,
    StepOutput,
)
from dodona.models.scripted.model import ScriptedModel
from dodona.store import Project
from dodona.store.key_values import GlobalsScope
from dodona.trees import Tree
from tests.agent.opening import USER, Opened, Tools, calls, edited, opened, until

BEGIN = '(action begin :fn "oracle.begin")'


def counting(default: str = "0") -> Tree:
    """The Oracle's tree, which counts the questions that it is asked."""
    return edited(
        (":saved false", f":saved false :asked {{:default {default} :scope :global}}"),
        (BEGIN, f"{BEGIN} (set :asked (+ (blackboard :asked) 1))"),
    )


async def asked(here: Opened, user: str = USER, project: str = "default") -> int:
    """How many questions are counted in the store."""
    scope = GlobalsScope(user, project, "oracle")
    found = (await here.store.tree_globals.get(scope, ["asked"])).get("asked")
    return 0 if found is None else found.value


async def test_questions_are_counted_across_runs_and_processes(file: Path) -> None:
    """Each user counts from the default, in each project; a new conversation counts on."""
    async with opened(file, ScriptedModel(["Yes."] * 5), tree=counting()) as here:
        await here.store.projects.create(Project(USER, "garden"))
        await here.answered()
        await here.answered(new=True)
        await here.answered(user="bob")
        await here.answered(project_id="garden")
        assert [await asked(here), await asked(here, "bob")] == [2, 1]
    async with opened(file, ScriptedModel(["Yes."] * 2), tree=counting()) as here:
        await here.answered()
        await here.answered(project_id="garden")
        assert [await asked(here), await asked(here, "bob")] == [3, 1]
        assert await asked(here, project="garden") == 2


async def test_a_killed_run_counts_once(file: Path) -> None:
    """It writes nothing before it ends, and after a resume it has the values of its start."""
    tools = Tools()
    model = ScriptedModel(["Yes.", calls(("keyed", "wait"))])
    async with opened(file, model, tools=tools, tree=counting()) as here:
        await here.answered()
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        assert await asked(here) == 1
        await here.agency.engine.shutdown(0)
        await here.store.commit(
            here.store.tree_globals.put_operation(
                GlobalsScope(USER, "default", "oracle"), {"asked": 10}
            )
        )
    tools.gate.set()
    async with opened(file, ScriptedModel(["Done."]), tools=tools, tree=counting()) as here:
        assert (await here.answer(run_id)).answer == "Done."
        assert await asked(here) == 2
        steps = await here.store.journals.list_steps(USER, run_id)
        assert [(step.key, step.attempt, step.output) for step in steps[:1]] == [
            (":globals", 1, StepOutput({"asked": 1}))
        ]


async def test_a_killed_run_that_had_no_value_starts_with_the_default_again(file: Path) -> None:
    tools = Tools()
    async with opened(
        file, ScriptedModel([calls(("keyed", "wait"))]), tools=tools, tree=counting()
    ) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
        await here.store.commit(
            here.store.tree_globals.put_operation(
                GlobalsScope(USER, "default", "oracle"), {"asked": 10}
            )
        )
    tools.gate.set()
    async with opened(file, ScriptedModel(["Done."]), tools=tools, tree=counting()) as here:
        await here.answer(run_id)
        assert await asked(here) == 1


async def test_a_stored_value_that_no_longer_fits_is_replaced_by_the_default(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A tree that declares another type must not fail for every user who has a value."""
    scope = GlobalsScope(USER, "default", "oracle")
    async with opened(file, ScriptedModel(["Yes."]), tree=counting()) as here:
        await here.store.commit(here.store.tree_globals.put_operation(scope, {"asked": "many"}))
        assert (await here.answered()).answer == "Yes."
        assert await asked(here) == 1
    assert "the stored global key asked is ignored" in caplog.text


async def test_values_are_written_by_the_transaction_that_ends_the_run(file: Path) -> None:
    """A flush in between does not write them: a resumed run would count twice."""
    async with opened(file, ScriptedModel(["Yes."]), tree=counting()) as here:
        claimed = await here.store.runs.submit(
            RunRequest(user_id=USER, question="?", token_count=1)
        )
        assert isinstance(claimed, ClaimedRun)
        journal = await here.store.journals.open(claimed)
        scope = GlobalsScope(USER, "default", "oracle")
        journal.add_to_end(here.store.tree_globals.put_operation(scope, {"asked": 5}))
        await journal.commit(lambda _: None)
        assert await asked(here) == 0
        await journal.end(RunEnd(status=RunStatus.SUCCEEDED, messages=(), model="m"))
        assert await asked(here) == 5
