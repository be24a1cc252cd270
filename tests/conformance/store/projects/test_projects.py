"""Projects belong to users; everybody has a default one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dodona.core.errors import BadRequest, NotFound
from dodona.store import Store
from dodona.store.projects.projects import Project, Projects
from dodona.store.schema import projects as table
from tests.conformance.store.saying import rows_of


@pytest.fixture
def projects(store: Store) -> Projects:
    return Projects(store.database)


async def test_all_of_a_project_comes_back(projects: Projects) -> None:
    given = Project(
        "ada",
        "wald-2.b_c",
        vault_path="/home/ada/wald 🌳",
        code_paths=("/src/a", "/src/b"),
        settings={"vault": {"watch": True}},
        created_at=12.5,
    )
    assert await projects.create(given) == given
    assert await projects.get("ada", "wald-2.b_c") == given


async def test_everybody_has_a_default_project(store: Store, projects: Projects) -> None:
    """It is made when it is first asked for, and only once."""
    first = await projects.get("ada", "default")
    assert (first.vault_path, first.code_paths, first.settings) == (None, (), {})
    assert await projects.get("ada", "default") == first
    assert [each.id for each in await projects.list("bob")] == ["default"]
    assert len(await rows_of(store, table)) == 2


async def test_the_default_is_made_once_by_many_at_once(store: Store, second: Store) -> None:
    both = [Projects(store.database), Projects(second.database)]
    found = await asyncio.gather(*(both[n % 2].get("ada", "default") for n in range(16)))
    assert len({each.created_at for each in found}) == 1
    assert len(await rows_of(store, table)) == 1


async def test_anothers_is_not_found(projects: Projects) -> None:
    """As one that does not exist: the same words for both."""
    await projects.create(Project("bob", "secret"))
    for user, id_ in (("ada", "secret"), ("bob", "nothing"), ("ada", "../x")):
        with pytest.raises(NotFound) as refused:
            await projects.get(user, id_)
        assert str(refused.value) == f"there is no project {id_!r}."
        with pytest.raises(NotFound):
            await projects.update(user, id_, lambda project: project)


async def test_projects_are_listed_by_age(projects: Projects) -> None:
    for at, id_ in enumerate(("zoo", "ant", "default")):
        await projects.create(Project("ada", id_, created_at=float(at)))
    await projects.create(Project("bob", "his"))
    assert [each.id for each in await projects.list("ada")] == ["zoo", "ant", "default"]


async def test_names_are_unique_to_a_user(projects: Projects) -> None:
    first = await projects.create(Project("ada", "wald", vault_path="/a"))
    await projects.create(Project("bob", "wald"))
    with pytest.raises(BadRequest, match="the project wald already exists"):
        await projects.create(Project("ada", "wald", vault_path="/b"))
    assert await projects.get("ada", "wald") == first


@pytest.mark.parametrize("id_", ["", "..", ".hidden", "a/b", "a b", "a\0", "ä", "x" * 65, "a\n"])
async def test_what_is_no_name(projects: Projects, id_: str) -> None:
    """Names are seen in addresses, and become names of folders."""
    with pytest.raises(BadRequest, match="is not a valid project name"):
        await projects.create(Project("ada", id_))


async def test_a_change_keeps_what_it_does_not_name(projects: Projects) -> None:
    """Name, owner and age are not for changing."""
    made = await projects.create(Project("ada", "wald", vault_path="/a", settings={"x": 1}))
    changed = await projects.update(
        "ada",
        "wald",
        lambda old: replace(old, id="z", user_id="bob", code_paths=("/c",), created_at=0.0),
    )
    assert changed == replace(made, code_paths=("/c",))
    assert await projects.get("ada", "wald") == changed
    assert (await projects.update("ada", "default", lambda p: replace(p, vault_path="/v"))) == (
        await projects.get("ada", "default")
    )


async def test_changes_at_once_lose_nothing(store: Store, second: Store) -> None:
    both = [Projects(store.database), Projects(second.database)]
    await both[0].create(Project("ada", "wald"))

    async def add(number: int) -> None:
        path = f"/src/{number}"
        await both[number % 2].update(
            "ada", "wald", lambda old: replace(old, code_paths=(*old.code_paths, path))
        )

    await asyncio.gather(*(add(number) for number in range(12)))
    found = await both[0].get("ada", "wald")
    assert sorted(found.code_paths) == sorted(f"/src/{number}" for number in range(12))


async def test_a_project_needs_a_user(projects: Projects) -> None:
    for asked in (projects.get("", "default"), projects.create(Project("", "wald"))):
        with pytest.raises(BadRequest, match=r"a project needs a user\."):
            await asked
