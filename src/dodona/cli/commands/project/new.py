"""`dodona new`: write a tool, a tree or an agent to start from."""

from __future__ import annotations

import keyword
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Annotated, Final

from cyclopts import App, Parameter

from dodona.app.config.config import LOCAL_FILE, find_file, home_folder
from dodona.cli.arguments import AsJson
from dodona.cli.options import CommonOptions
from dodona.core.errors import BadRequest

app = App(name="new", help="Write a tool, a tree or an agent to start from.")

_TEMPLATES: Final = Path(__file__).parent / "templates"
_NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_MAX_NAME_LENGTH: Final = 40
_MODULES_IN_USE: Final = sys.stdlib_module_names | {"dodona", "pytest"}
_PLAN_ACTION: Final = """
    ;; A leaf of {module}.py.
    (action plan :fn "{agent}.plan")"""

NewName = Annotated[
    str, Parameter(name="NAME", help="Name: small letters, digits, - and _, such as book_room.")
]


@app.command
def tool(name: NewName, /, *, json: AsJson = False) -> None:
    """Write a tool and its test into the current folder."""
    module = _module_name(name)
    _write(
        {
            f"{module}.py": _fill("tool.py", module),
            f"test_{module}.py": _fill("test_tool.py", module),
        },
        (f"python -m pytest test_{module}.py", f"dodona up --load {module}.py"),
        as_json=json,
    )


@app.command
def tree(name: NewName, /, *, json: AsJson = False) -> None:
    """Write a tree of an agent and its tests into the current folder."""
    module = _module_name(name)
    _write(
        _tree_files(module),
        (f"dodona tree test {module}.lisp", f"dodona tree show {module}.lisp"),
        as_json=json,
    )


@app.command
def agent(name: NewName, /, *, json: AsJson = False) -> None:
    """Write an agent into the current folder: a tree, a leaf, a tool and tests.

    The section of the agent is written to dodona.toml if no config file exists, and
    printed otherwise.
    """
    module = _module_name(name)
    section = _fill("dodona.toml", module)
    files = {
        **_tree_files(module, plan=_PLAN_ACTION),
        f"{module}.py": _fill("agent.py", module),
        f"test_{module}.py": _fill("test_agent.py", module),
    }
    config = find_file(os.environ, home_folder(os.environ), None)
    if config is None:
        files[str(LOCAL_FILE)] = section
    note = "" if config is None else f"Add this to {config}:\n\n{section}"
    _write(
        files,
        (f"python -m pytest test_{module}.py", "dodona trust && dodona up"),
        note=note,
        as_json=json,
    )


def _module_name(name: str) -> str:
    """Return the name of a new Python module. Tests import it, so it must not hide another one."""
    if len(name) > _MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise BadRequest(
            f"{name!r:.80} is not a valid name.",
            hint="Use up to 40 small letters, digits, - and _, such as book_room.",
        )
    module = name.replace("-", "_")
    if keyword.iskeyword(module) or module in _MODULES_IN_USE:
        raise BadRequest(f"{module} is a name of Python itself.", hint="Choose another name.")
    return module


def _agent_name(module: str) -> str:
    return module.replace("_", "-")


def _tree_files(module: str, *, plan: str = "") -> dict[str, str]:
    start = plan.format(module=module, agent=_agent_name(module))
    return {
        f"{module}.lisp": _fill("tree.lisp", module, plan=start),
        f"{module}.test.lisp": _fill("tree.test.lisp", module),
    }


def _fill(template: str, module: str, **values: str) -> str:
    text = (_TEMPLATES / f"{template}.txt").read_text("utf-8")
    return Template(text).substitute(values, module=module, agent=_agent_name(module))


def _write(
    files: Mapping[str, str], commands: tuple[str, ...], *, note: str = "", as_json: bool
) -> None:
    """Write all files or none, then show them and the next commands."""
    for name in files:
        if os.path.lexists(name):
            raise BadRequest(
                f"{name} already exists, so nothing was written.", hint="Choose another name."
            )
    for name, text in files.items():
        try:
            with Path(name).open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise BadRequest(f"cannot write {name}: {error.strerror}.") from error
    lines = [*(f"Created {name}" for name in files), *([note.rstrip()] if note else []), "Next:"]
    CommonOptions(json=as_json).print_result(
        {"files": [*files], "note": note, "next": [*commands]},
        "\n".join([*lines, *(f"  {command}" for command in commands)]),
    )
