"""Projects: where a user's notes and code are."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import Response

from dodona.gateway.answers import answer
from dodona.gateway.operation import Operation, Says
from dodona.gateway.parameter import Parameter
from dodona.gateway.visit import Visit


async def listed(visit: Visit) -> Response:
    return answer({"projects": await visit.agency.projects.list(visit.user_id)})


async def create(visit: Visit) -> Response:
    made = await visit.agency.projects.create(visit.user_id, await visit.document())
    place = f"/api/projects/{quote(made['id'], safe='')}"
    return answer(made, status=201, headers={"location": place})


async def shown(visit: Visit) -> Response:
    return answer(await visit.agency.projects.get(visit.user_id, visit.values["project_id"]))


async def change(visit: Visit) -> Response:
    project_id, values = visit.values["project_id"], await visit.document()
    return answer(await visit.agency.projects.change(visit.user_id, project_id, values))


_PROJECT = Parameter(name="project_id", about="Which project.", place="path")
_CHANGING = (400, 404, 408, 413, 415, 503)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/projects",
        name="listProjects",
        about="Your projects.",
        handle=listed,
        answers={200: Says("All of them.", "ProjectList")},
        errors=(400, 503),
    ),
    Operation(
        method="POST",
        path="/api/projects",
        name="createProject",
        about="Make a project.",
        handle=create,
        body="NewProject",
        answers={201: Says("The project.", "Project")},
        errors=_CHANGING,
    ),
    Operation(
        method="GET",
        path="/api/projects/{project_id}",
        name="showProject",
        about="One project.",
        handle=shown,
        parameters=(_PROJECT,),
        answers={200: Says("The project.", "Project")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="PATCH",
        path="/api/projects/{project_id}",
        name="changeProject",
        about="Change a project.",
        handle=change,
        parameters=(_PROJECT,),
        body="ProjectChange",
        answers={200: Says("The project.", "Project")},
        errors=_CHANGING,
    ),
)
