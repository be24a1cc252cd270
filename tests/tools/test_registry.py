from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dodona.core.errors import ConfigError
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import Toolbox, ToolCategory, ToolContext, ToolOutput
from dodona.tools.registry import FunctionTool, ToolRegistry


async def nothing(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    return ToolOutput("")


def made(name: str, description: str = "Does nothing.", **more: Any) -> FunctionTool:
    spec = ToolSpec(name, description, more.pop("parameters", {"type": "object"}))
    category = more.pop("category", ToolCategory.META)
    return FunctionTool(spec=spec, function=nothing, category=category, **more)


def names(tools: Toolbox, agent: str) -> list[str]:
    return [spec.name for spec in tools.specs_for(agent)]


def test_what_an_agent_is_offered_does_not_depend_on_who_came_first() -> None:
    """In the order of names, and the same objects each time, so that prompts begin alike."""
    one, other = ToolRegistry(), ToolRegistry()
    for name in ("b_tool", "a_tool", "c_tool"):
        one.add(made(name))
    for name in ("c_tool", "b_tool", "a_tool"):
        other.add(made(name))
    assert names(one, "oracle") == names(other, "oracle") == ["a_tool", "b_tool", "c_tool"]
    assert one.specs_for("oracle") is one.specs_for("oracle")


def test_an_agent_is_offered_its_own_tools() -> None:
    """By scope; a tool that is added later is offered too."""
    tools = ToolRegistry()
    tools.add(made("read", agent_scope=("oracle", "librarian")))
    assert names(tools, "librarian") == ["read"]
    tools.add(made("move", agent_scope=("librarian",)))
    assert names(tools, "librarian") == ["move", "read"]
    assert names(tools, "oracle") == ["read"]
    assert names(tools, "stranger") == []
    assert tools.find_for_agent("move", "oracle") is None
    assert tools.find("move") is not None
    assert tools.find("nothing") is None


def test_a_tool_may_have_a_category_of_its_own() -> None:
    """Beside those of the built-in tools."""
    tools = ToolRegistry()
    tools.add(made("read"))
    tools.add(made("ring", category="house"))
    assert tools.categories() == {"meta", "house"}


def test_a_function_becomes_a_tool_by_decoration() -> None:
    """What it does not say: for the oracle, and not to be repeated."""
    tools = ToolRegistry()
    spec = ToolSpec("clock_read", "The time.", {"type": "object"})
    assert tools.tool(spec, category=ToolCategory.META)(nothing) is nothing
    found = tools.find("clock_read")
    assert found is not None
    assert (found.spec, found.category) == (spec, ToolCategory.META)
    assert (found.agent_scope, found.effect) == (("oracle",), Effect.ONCE)


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        (
            made("read note"),
            "'read note' is not a valid tool name. Use up to 64 letters, digits, '_' and '-'.",
        ),
        (
            made("read", " "),
            "tool 'read' has no description. The model chooses a tool by its description.",
        ),
        (
            made("read", category="a b"),
            "tool 'read' has the invalid category 'a b'. "
            "Use up to 40 letters, digits, '_' and '-'.",
        ),
        (
            made("read", agent_scope="oracle"),
            "tool 'read' has a string as its agent scope. Write (\"oracle\",).",
        ),
        (
            made("read", timeout_seconds=0),
            "the timeout of tool 'read' must be > 0 seconds (got 0).",
        ),
        (
            made("read", timeout_seconds=float("inf")),
            "the timeout of tool 'read' must be > 0 seconds (got inf).",
        ),
        (made("known"), "tool 'known' is registered twice. Give one of them another name."),
        (
            made("read", parameters={"type": "array"}),
            "the parameters of tool 'read' are not an object. "
            'Its JSON Schema must have {"type": "object"}.',
        ),
    ],
)
def test_a_tool_that_cannot_be_used_is_not_taken_in(tool: FunctionTool, message: str) -> None:
    """The error says why, and the registry is as before."""
    tools = ToolRegistry()
    tools.add(made("known"))
    with pytest.raises(ConfigError) as caught:
        tools.add(tool)
    assert str(caught.value) == message
    assert names(tools, "oracle") == ["known"]
