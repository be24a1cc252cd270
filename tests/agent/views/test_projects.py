"""Projects: named by their users, checked before they are kept."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dodona.agent.views import ProjectViews
from dodona.core.errors import BadRequest, NotFound
from dodona.store import Store
from tests.agent.views.as_json import AsJson


@pytest.fixture
def projects(storage: Store) -> ProjectViews:
    return AsJson(ProjectViews(storage))


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def without_time(project: dict[str, Any]) -> dict[str, Any]:
    assert project["created_at"].endswith("Z")
    return {name: value for name, value in project.items() if name != "created_at"}


DEFAULT = {"id": "default", "vault_path": None, "code_paths": [], "settings": {}}


async def test_everybody_has_a_default_project(projects: ProjectViews) -> None:
    """It need not be made."""
    assert [without_time(each) for each in await projects.list("ada")] == [DEFAULT]
    assert without_time(await projects.get("ada", "default")) == DEFAULT


async def test_a_project_is_made_listed_and_got(projects: ProjectViews, notes: Path) -> None:
    """By the one who made it; to others it does not exist."""
    values = {
        "id": "garden",
        "vault_path": str(notes),
        "code_paths": [str(notes), str(notes.parent)],
        "settings": {"colour": "green"},
    }
    made = await projects.create("ada", values)
    assert without_time(made) == values
    assert await projects.get("ada", "garden") == made
    assert {each["id"] for each in await projects.list("ada")} == {"default", "garden"}
    assert [each["id"] for each in await projects.list("ben")] == ["default"]
    for call in (projects.get("ben", "garden"), projects.change("ben", "garden", {})):
        with pytest.raises(NotFound, match="there is no project 'garden'"):
            await call


async def test_a_path_may_begin_at_home(
    projects: ProjectViews, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept whole and tidy: whose home it was is known only now."""
    monkeypatch.setenv("HOME", str(notes.parent))
    made = await projects.create("ada", {"id": "garden", "vault_path": "~/notes/../notes/"})
    assert made["vault_path"] == str(notes)


async def test_all_problems_are_reported_together(projects: ProjectViews, notes: Path) -> None:
    """First those of the fields, then those of the folders; nothing is created."""
    (notes / "file").touch()
    fields = {"id": 4, "vault_pth": str(notes), "code_paths": [], "settings": []}
    with pytest.raises(BadRequest) as refused:
        await projects.create("ada", fields)
    assert [str(each) for each in refused.value.problems()] == [
        "there is no field 'vault_pth'. Did you mean 'vault_path'?",
        "id must be a non-empty string (got 4).",
        "settings must be an object.",
    ]
    folders = {"vault_path": "notes", "code_paths": [str(notes), str(notes / "file")]}
    with pytest.raises(BadRequest) as refused:
        await projects.create("ada", {"id": "garden", **folders})
    assert [str(each) for each in refused.value.problems()] == [
        "vault_path must be an absolute path (got 'notes'). "
        "Start it with / or, for your home directory, with ~.",
        f"code_paths[1] is not a folder: {str(notes / 'file')!r}. Create it first.",
    ]
    assert len(await projects.list("ada")) == 1


@pytest.mark.parametrize(
    "path",
    ["/no/such/folder", "/\0", "/" + "x" * 5000, "/\udfff", "", 4, ["/"], "~nobody-here/notes"],
)
async def test_a_vault_that_is_no_folder_is_refused(projects: ProjectViews, path: Any) -> None:
    """Whatever is in its name."""
    with pytest.raises(BadRequest, match=r"^vault_path "):
        await projects.create("ada", {"id": "garden", "vault_path": path})


@pytest.mark.parametrize("paths", ["/", {"a": "/"}, ["/"] * 101, 4])
async def test_code_paths_are_a_list_of_folders(projects: ProjectViews, paths: Any) -> None:
    """Not one path, and not too many."""
    with pytest.raises(BadRequest, match=r"^code_paths must be a list of at most 100 strings"):
        await projects.create("ada", {"id": "garden", "code_paths": paths})


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "id is required."),
        ({"id": ""}, "id must be a non-empty string"),
        ({"id": None}, "id must be a non-empty string"),
        ({"id": "../x"}, "'../x' is not a valid project name."),
        ({"id": "default"}, "the project default already exists."),
        ({"id": "garden", "user_id": "ben"}, "there is no field 'user_id'."),
    ],
)
async def test_a_project_needs_a_name_of_its_own(
    projects: ProjectViews, values: dict[str, Any], told: str
) -> None:
    """And belongs to whoever makes it."""
    await projects.get("ada", "default")
    with pytest.raises(BadRequest) as refused:
        await projects.create("ada", values)
    assert str(refused.value).startswith(told)


async def test_some_fields_change_and_the_rest_stay(projects: ProjectViews, notes: Path) -> None:
    """Null takes the vault away; the id may be said again, but not changed."""
    made = await projects.create("ada", {"id": "garden", "vault_path": str(notes)})
    changed = await projects.change("ada", "garden", {"id": "garden", "settings": {"a": 1}})
    assert changed == {**made, "settings": {"a": 1}}
    changed = await projects.change("ada", "garden", {"vault_path": None})
    assert changed == {**made, "settings": {"a": 1}, "vault_path": None}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"id": "park"}, "the id of a project cannot change. Create another project."),
        ({"setings": {}}, "there is no field 'setings'. Did you mean 'settings'?"),
        ({"code_paths": ["/x y"]}, "code_paths[0] is not a folder: '/x y'. Create it first."),
    ]
    for values, problem in wrong:
        with pytest.raises(BadRequest) as refused:
            await projects.change("ada", "garden", values)
        assert str(refused.value) == problem
    assert await projects.get("ada", "garden") == changed


async def test_changes_at_the_same_time_do_not_undo_each_other(
    projects: ProjectViews, notes: Path
) -> None:
    """Each changes its own fields."""
    wanted: dict[str, Any] = {
        "vault_path": str(notes),
        "code_paths": [str(notes)],
        "settings": {"a": 1},
    }
    await asyncio.gather(
        *(projects.change("ada", "default", {name: value}) for name, value in wanted.items())
    )
    assert without_time(await projects.get("ada", "default")) == {"id": "default", **wanted}
