"""The client's tools in a request, and `tool_choice`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from dodona.core.messages import ToolSpec
from dodona.core.ports.model import ToolChoice
from dodona.gateway.http.openai_errors import InvalidParameter

MAX_TOOLS: Final = 128
_NO_PARAMETERS: Final[dict[str, Any]] = {"type": "object", "properties": {}}
TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def read_tools(value: Any) -> tuple[ToolSpec, ...]:
    """Parse `tools`."""
    if not isinstance(value, list) or len(cast("list[object]", value)) > MAX_TOOLS:
        raise InvalidParameter(f"tools must be a list of at most {MAX_TOOLS} tools.", param="tools")
    tools = [_read_tool(each, f"tools[{n}]") for n, each in enumerate(cast("list[object]", value))]
    names = [tool.name for tool in tools]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InvalidParameter(f"two tools are named {name!r}.", param=f"tools[{index}]")
    return tuple(tools)


def _read_tool(value: object, param: str) -> ToolSpec:
    match value:
        case {"type": "function", "function": dict()}:
            tool = cast("dict[str, dict[str, Any]]", value)
            return _read_function(tool["function"], f"{param}.function")
        case {"type": str() as kind} if kind != "function":
            raise InvalidParameter(f"tools of type {kind!r:.40} are not supported.", param=param)
        case _:
            raise InvalidParameter(
                'a tool must look like {"type": "function", "function": {"name": …}}.', param=param
            )


def _read_function(function: Mapping[str, Any], param: str) -> ToolSpec:
    name, description = function.get("name"), function.get("description") or ""
    parameters, strict = function.get("parameters") or _NO_PARAMETERS, function.get("strict")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise InvalidParameter(
            f"a tool name must consist of 1 to 64 of the characters a-z, A-Z, 0-9, _ and - "
            f"(got {name!r:.80}).",
            param=f"{param}.name",
        )
    if not isinstance(description, str):
        raise InvalidParameter("a tool description must be a string.", param=f"{param}.description")
    if not isinstance(parameters, dict):
        raise InvalidParameter(
            "tool parameters must be the JSON Schema of an object.", param=f"{param}.parameters"
        )
    if not isinstance(strict, bool | None):
        raise InvalidParameter("strict must be true or false.", param=f"{param}.strict")
    return ToolSpec(name, description, cast("dict[str, Any]", parameters), strict=strict)


def read_tool_choice(value: Any) -> ToolChoice:
    """Parse `tool_choice`."""
    match value:
        case "none" | "auto" | "required":
            return ToolChoice(value)
        case {"type": "function", "function": {"name": str() as name}}:
            return ToolChoice("named", name)
        case _:
            raise InvalidParameter(
                'tool_choice must be "none", "auto", "required" or '
                '{"type": "function", "function": {"name": …}}.',
                param="tool_choice",
            )
