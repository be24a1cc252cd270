"""The web page. It consists of static files, without a build step or inline scripts."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from starlette.responses import Response

from dodona.core.errors import NotFound
from dodona.gateway.http.operation import ResponseSpec, Routes
from dodona.gateway.http.parameter import text
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

# Public: the files contain no data, and the page must load before it can ask for a token.
routes = Routes()


@routes.get("/", responses={200: ResponseSpec("The page.", str, "text/html")}, is_public=True)
async def open_page(_request: ApiRequest) -> Response:
    """Retrieve the web page."""
    return await _file_response("index.html")


@routes.get(
    "/page/{file}",
    responses={200: ResponseSpec("The file.", str, "text/javascript")},
    errors=(404,),
    is_public=True,
)
async def load_page_file(
    _request: ApiRequest, file: Annotated[str, text("The file name.")]
) -> Response:
    """Retrieve a file of the web page."""
    return await _file_response(file)


async def _file_response(name: str) -> Response:
    if name not in _MEDIA_TYPES:
        raise NotFound(f"the page has no file {name!r:.80}.")
    content = await asyncio.to_thread(_read_file, name)
    return Response(content, media_type=_MEDIA_TYPES[name], headers={"cache-control": "no-cache"})


@cache
def _read_file(name: str) -> bytes:
    return (PAGE_FOLDER / name).read_bytes()
