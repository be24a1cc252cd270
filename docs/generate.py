"""Generates the reference pages, and parts of others, from the registries and schemas in the code.

    python docs/generate.py

The pages are committed; a test fails if one is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from generating.attacks import attacks_section
from generating.chunks import chunks_page
from generating.commands import cli_page
from generating.config import config_page
from generating.errors import errors_page
from generating.events import events_page
from generating.expressions import expressions_page
from generating.http import http_page
from generating.leaves import leaves_page
from generating.metrics import metrics_page
from generating.models import models_page
from generating.nodes import nodes_page
from generating.preferences import settings_page
from generating.python_api import python_page
from generating.rules import rules_page
from generating.store import store_page
from generating.subscribers import subscribers_page
from generating.tools import tools_page
from generating.websocket import websocket_page

DOCS = Path(__file__).resolve().parent
HERE = DOCS / "reference"

PAGES: Mapping[str, Callable[[], str]] = {
    "nodes.md": nodes_page,
    "expressions.md": expressions_page,
    "leaves.md": leaves_page,
    "tools.md": tools_page,
    "python.md": python_page,
    "errors.md": errors_page,
    "cli.md": cli_page,
    "config.md": config_page,
    "settings.md": settings_page,
    "http.md": http_page,
    "websocket.md": websocket_page,
    "chunks.md": chunks_page,
    "events.md": events_page,
    "subscribers.md": subscribers_page,
    "rules.md": rules_page,
    "store.md": store_page,
    "models.md": models_page,
    "metrics.md": metrics_page,
}

# Parts of other pages, between `<!-- NAME -->` and `<!-- end of NAME -->`.
SECTIONS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "generated: attacks": ("explanation/security.md", attacks_section),
}


def with_section(page: str, name: str, text: str) -> str:
    """Replace the generated part of a page."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"the page has no part between {begin} and {end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def main() -> None:
    for name, make in PAGES.items():
        (HERE / name).write_text(make(), encoding="utf-8")
        sys.stdout.write(f"docs/reference/{name}\n")
    for name, (page, make) in SECTIONS.items():
        file = DOCS / page
        file.write_text(with_section(file.read_text("utf-8"), name, make()), encoding="utf-8")
        sys.stdout.write(f"docs/{page}\n")


if __name__ == "__main__":
    main()
