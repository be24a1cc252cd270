"""tools.md, of what agents can do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dodona.agent.run_context.registries import SUBAGENTS, Subagent
from dodona.core.messages import ToolSpec
from dodona.core.ports.tools import Tool, ToolCategory
from dodona.net.egress_guard import FetchLimits, GuardedHttp
from dodona.tools import notify_self
from dodona.tools.code import add_code_tools
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads import add_thread_tools
from dodona.tools.vault import add_vault_tools
from dodona.tools.web import add_web_tools
from generating.schemas import about, takes
from generating.writing import page, prose, table

ABOUT: Final[Mapping[ToolCategory, str]] = {
    ToolCategory.VAULT: "Notes of the project. [Work with a vault](../how-to/work-with-a-vault.md).",
    ToolCategory.THREAD: "Logs of thoughts and decisions. [Keep threads](../how-to/keep-threads.md).",
    ToolCategory.CODE: "Folders of code. [Let the Oracle read your code](../how-to/read-code.md).",
    ToolCategory.WEB: "Pages of strangers. [Let it read the web](../how-to/read-the-web.md).",
    ToolCategory.META: "The agent's own work: notes to itself, and work for another agent, whose tools "
    "are those that name it in the list.",
}

# Whose notes, threads and code they are is asked when a tool is called, and none is called here.
_NOBODY: Final[Any] = None
_OUTSIDE: Final = "[text from outside](../explanation/security.md#text-from-outside)"


def tools_page() -> str:
    found = sorted(registered(), key=lambda tool: tool.spec.name)
    return page(
        "# Tools",
        prose("""What agents can do, by category: `sources` of a question, and `--sources` of
            `dodona ask`, allow some of them. A model sees names, descriptions and arguments as they
            are here; arguments are checked before a tool is called, and what does not fit goes back
            to the model with what would."""),
        prose(f"""The effect says what becomes of a call that a crash has cut: `none` and `keyed`
            are made again, `once` is not, for nobody knows whether it was made. After {_OUTSIDE}
            a person is asked before `once` is called."""),
        table(
            ("tool", "category", "agents", "effect", "at most"),
            [*map(_row, found), *(_delegation_row(each) for each in SUBAGENTS.values())],
        ),
        *(_section(category, found) for category in ToolCategory),
    )


def registered() -> Iterator[Tool]:
    """The tools that Dodona comes with, as it registers them itself."""
    registry = ToolRegistry()
    add_vault_tools(registry, _NOBODY)
    add_thread_tools(registry, _NOBODY)
    add_code_tools(registry, _NOBODY)
    notify_self.add(registry, _NOBODY)
    add_web_tools(registry, engine=None, http=GuardedHttp("docs"), limits=FetchLimits())
    agents = ("oracle", *SUBAGENTS)
    for name in {spec.name for agent in agents for spec in registry.specs_for(agent)}:
        tool = registry.find(name)
        assert tool is not None
        yield tool


def _row(tool: Tool) -> tuple[str, ...]:
    return (
        f"[`{tool.spec.name}`](#{tool.spec.name})",
        f"`{tool.category.value}`",
        ", ".join(agent for agent in tool.agent_scope if _may_use(agent, tool)),
        f"`{tool.effect.value}`",
        f"{tool.timeout_seconds:g} s",
    )


def _may_use(agent: str, tool: Tool) -> bool:
    return agent not in SUBAGENTS or tool.spec.name in SUBAGENTS[agent].allowed_tools


def _delegation_row(subagent: Subagent) -> tuple[str, ...]:
    name = subagent.delegation_tool.name
    return (
        f"[`{name}`](#{name})",
        f"`{ToolCategory.META.value}`",
        "oracle",
        "that of each call",
        "[`librarian_timeout`](settings.md)",
    )


def _section(category: ToolCategory, tools: list[Tool]) -> str:
    parts = [f"## {category.value}", ABOUT[category]]
    here = [tool for tool in tools if tool.category is category]
    parts += [_told(tool.spec, outside=tool.origin.is_untrusted) for tool in here]
    if category is ToolCategory.META:
        parts += [_told(each.delegation_tool, outside=False) for each in SUBAGENTS.values()]
    return "\n\n".join(parts)


def _told(spec: ToolSpec, *, outside: bool) -> str:
    origin = f" What it returns is {_OUTSIDE}." if outside else ""
    required = spec.parameters.get("required", ())
    arguments: Mapping[str, Mapping[str, Any]] = spec.parameters["properties"]
    rows = [
        (f"`{name}`", takes(schema), "must be given" if name in required else "", about(schema))
        for name, schema in arguments.items()
    ]
    return f"### {spec.name}\n\n{prose(spec.description + origin)}\n\n" + table(
        ("argument", "takes", "", ""), rows
    )
