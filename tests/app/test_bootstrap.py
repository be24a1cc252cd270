"""Dodona put together, in this process, on nothing but a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from dodona.agent.question import Question
from dodona.agent.turn_control.decision import (
    DefaultDecisionTree,
    decision_tree,
)
from dodona.agent.turn_control.state import AgentState
from dodona.app.bootstrap import open_runtime
from dodona.app.config.config import load_config
from dodona.app.extensions.loading import ExtensionLoader
from dodona.app.models.credentials import Credentials
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import ConfigError, LoadError
from dodona.net.redactor import Redactor


def environment(folder: Path, **more: str) -> dict[str, str]:
    home = str(folder / "home")
    return {"DODONA_HOME": home, "DODONA_AGENT__PROVIDER": "extractive", **more}


async def answered(
    folder: Path, *, serve: bool, extensions: Sequence[object] = (), **more: str
) -> str:
    redactor = Redactor()
    config = await asyncio.to_thread(
        partial(load_config, environment(folder, **more), has_extensions=bool(extensions))
    )
    credentials = Credentials(config, environment(folder, **more), redactor)
    loader = ExtensionLoader(objects=extensions)
    async with open_runtime(config, credentials, redactor, serve=serve, loader=loader) as runtime:
        oracle = runtime.api.oracle
        run_id = await oracle.submit(Question(question="What do oaks bear?").to_request(LOCAL_USER))
        return (await oracle.answer(LOCAL_USER, run_id)).answer


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "oak.md").write_text("# Oaks\n\nOaks bear acorns.\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("serve", [True, False])
async def test_a_question_is_answered_and_the_loop_never_blocks(
    tmp_path: Path, vault: Path, *, serve: bool
) -> None:
    """From an empty home to an answer out of a note; files and disks are for threads."""
    said = await answered(tmp_path, serve=serve, DODONA_VAULT__PATH=str(vault))
    assert "acorns" in said
    assert (tmp_path / "home" / "dodona.db").is_file()


async def test_a_tree_that_does_not_load_ends_the_start(tmp_path: Path, vault: Path) -> None:
    """Whoever names a tree is told what is wrong with it, before anything is asked."""
    tree = tmp_path / "mine.lisp"
    tree.write_text('(tree "mine" (actoin say))', encoding="utf-8")
    with pytest.raises(LoadError, match="actoin"):
        await answered(
            tmp_path, serve=True, DODONA_VAULT__PATH=str(vault), DODONA_AGENT__TREE=str(tree)
        )


async def test_a_vault_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    """It is named by hand, so it is not made."""
    with pytest.raises(ConfigError, match="not a folder"):
        await answered(tmp_path, serve=False, DODONA_VAULT__PATH=str(tmp_path / "nowhere"))


@decision_tree("one-turn")
class OneTurn(DefaultDecisionTree):
    """Allows one turn."""

    def should_continue(self, state: AgentState) -> tuple[bool, str]:
        return (False, "enough") if state.turn else super().should_continue(state)


async def test_another_decision_tree_decides(tmp_path: Path, vault: Path) -> None:
    """An agent's section names one that an extension declares; it ends the run for its reason."""
    where = {"DODONA_VAULT__PATH": str(vault), "DODONA_AGENT__DECISION_TREE": "one-turn"}
    said = await answered(tmp_path, serve=False, extensions=[OneTurn], **where)
    assert said == "Stopped: enough."


async def test_a_decision_tree_that_no_extension_declares(tmp_path: Path, vault: Path) -> None:
    """The start ends with an error that lists those there are."""
    where = {"DODONA_VAULT__PATH": str(vault), "DODONA_AGENT__DECISION_TREE": "one-trun"}
    with pytest.raises(ConfigError) as caught:
        await answered(tmp_path, serve=False, extensions=[OneTurn], **where)
    assert str(caught.value) == (
        "DODONA_AGENT__DECISION_TREE: agent.decision_tree must be a known decision tree (got "
        "\"one-trun\"). Did you mean 'one-turn'?"
    )
