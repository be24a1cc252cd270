"""How tools describe their parameters, and how they show text to the model.

A block has a head such as `path:first-last  title`. Its text is indented, so no line of it can
imitate the head of another block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from dodona.core.errors import did_you_mean
from dodona.core.messages import ToolSpec

INDENT: Final = "    "
MAX_EXCERPT_CHARS: Final = 300  # of a source
MAX_SUGGESTION_CANDIDATES: Final = 2_000  # paths considered as suggestions


def tool_spec(
    name: str,
    description: str,
    /,
    *,
    required: tuple[str, ...] = (),
    **properties: Mapping[str, Any],
) -> ToolSpec:
    """Return the spec of a tool with these parameters."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return ToolSpec(name, description, {**schema, "additionalProperties": False})


def string(description: str, **limits: Any) -> dict[str, Any]:
    """Return the schema of a text parameter."""
    return {"type": "string", "description": description, **limits}


def integer(description: str, **limits: Any) -> dict[str, Any]:
    """Return the schema of a number parameter."""
    return {"type": "integer", "description": description, **limits}


def format_block(head: str, text: str) -> str:
    """Format a head and a text, indented."""
    lines = [" ".join(line.splitlines()) for line in text.split("\n")]
    return "\n".join([head.rstrip(), *((INDENT + line).rstrip() for line in lines)])


def suggest_path(path: str, paths: Sequence[str], *, otherwise: str) -> str:
    """Return the hint for a missing file: one with the same name, or a similar path."""
    name = PurePosixPath(path).name.casefold()
    same_name = next((each for each in paths if PurePosixPath(each).name.casefold() == name), None)
    if same_name is not None:
        return f"Did you mean '{same_name}'?"
    return did_you_mean(path, paths[:MAX_SUGGESTION_CANDIDATES]) or otherwise


def cut_text(text: str, max_chars: int) -> str:
    """Return a text, with an ellipsis at its end if it is too long."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"
