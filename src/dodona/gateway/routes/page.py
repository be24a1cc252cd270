"""The web page. It consists of static files, without a build step or inline scripts."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Final

from starlette.responses import Response

from dodona.core.errors import NotFound
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest

PAGE_FOLDER: Final = Path(__file__).parent.parent / "page"

# Only these files are served, so that no path can escape the folder.
_MEDIA_TYPES: Final = {
    "index.html": "text/html",
    "app.js": "text/javascript",
    "answer.js": "text/javascript",
    "stream.js": "text/javascript",
    "style.css": "text/css",
    "icon.svg": "image/svg+xml",
}


async def get_index(_request: ApiRequest) -> Response:
    """Return the web page."""
    return await _file_response("index.html")


async def get_file(request: ApiRequest) -> Response:
    """Return a file of the web page."""
    return await _file_response(request.params["file"])


async def _file_response(name: str) -> Response:
    if name not in _MEDIA_TYPES:
        raise NotFound(f"the page has no file {name!r:.80}.")
    text = await asyncio.to_thread(_read_file, name)
    return Response(text, media_type=_MEDIA_TYPES[name], headers={"cache-control": "no-cache"})


@cache
def _read_file(name: str) -> bytes:
    return (PAGE_FOLDER / name).read_bytes()


OPERATIONS = (
    Operation(
        method="GET",
        path="/",
        operation_id="openPage",
        summary="Retrieve the web page.",
        handler=get_index,
        responses={200: ResponseSpec("The page.", "Text", "text/html")},
        error_statuses=(400,),
        scope="",
    ),
    Operation(
        method="GET",
        path="/page/{file}",
        operation_id="loadPageFile",
        summary="Retrieve a file of the web page.",
        handler=get_file,
        parameters=(RequestParameter(name="file", description="The file name.", location="path"),),
        responses={200: ResponseSpec("The file.", "Text", "text/javascript")},
        error_statuses=(400, 404),
        scope="",
    ),
)
