"""`dodona extensions`: list and check extensions in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from dodona.app.extensions.kinds import kind_of, name_of, where_declared
from dodona.app.extensions.loading import ExtensionLoader, LoadedExtension
from dodona.app.extensions.registry import build_registry
from dodona.cli.options import DEFAULTS, Options
from dodona.core.extensions import Extension
from dodona.tools.functions import ToolDeclaration
from dodona.tools.registry import FunctionTool

app = App(name="extensions", help="List and check extensions in Python.")


@app.command(name="list")
def list_extensions(*, options: Options = DEFAULTS) -> None:
    """List the extensions of the config and of installed packages.

    Their code is trusted: it can do whatever Dodona can do. The column "may" shows what a tool
    declares.
    """
    registry = build_registry(ExtensionLoader().load(options.load_config()))
    rows = [_describe(each) for each in registry.extensions.items]
    options.print_table(
        {"extensions": rows},
        ("kind", "name", "may", "from"),
        [
            (each["kind"], each["name"], ", ".join(each["may"]) or "-", each["from"])
            for each in rows
        ],
        empty="No extensions. Name a Python file in extend.python, or install a package.",
    )


@app.command
def check(
    *files: Annotated[Path, Parameter(name="FILE", help="Python files to check too.")],
    options: Options = DEFAULTS,
) -> None:
    """Load all extensions and check them. Runs their code."""
    config = options.load_config()
    registry = build_registry(ExtensionLoader(files=files).load(config))
    config.check_names(registry.names())
    items = registry.extensions.items
    result = {"ok": True, "extensions": [_describe(each) for each in items]}
    options.print_result(result, f"ok: {len(items)} extension{'s' * (len(items) != 1)}")


def _describe(loaded: LoadedExtension) -> dict[str, Any]:
    extension = loaded.extension
    where = where_declared(extension)
    return {
        "kind": kind_of(extension),
        "name": name_of(extension),
        "may": _effects(extension),
        "from": loaded.source,
        "where": str(where) if where else None,
    }


def _effects(extension: Extension) -> list[str]:
    """Return what a tool declares that it may do."""
    tool = extension.build() if isinstance(extension, ToolDeclaration) else extension
    if not isinstance(tool, FunctionTool):
        return []
    declared = {"write": tool.writes, "send": tool.sends, "read private text": tool.reads_private}
    return [name for name, applies in declared.items() if applies]
