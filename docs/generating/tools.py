"""Generates tools.md from the tool registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dodona.agent.run_context.registry import LIBRARIAN, Subagent
from dodona.core.messages import ToolSpec
from dodona.core.ports.tools import Tool, ToolCategory
from dodona.net.egress_guard import FetchLimits, GuardedHttp
from dodona.tools import notify_self
from dodona.tools.code import add_code_tools
from dodona.tools.passages import add_passage_tool
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads import add_thread_tools
from dodona.tools.vault import add_vault_tools
from dodona.tools.web import add_web_tools
from generating.schemas import about, takes
from generating.writing import page, prose, table

ABOUT: Final[Mapping[ToolCategory, str]] = {
    ToolCategory.VAULT: "The project's notes. See [how to](../how-to/work-with-a-vault.md).",
    ToolCategory.THREAD: "Logs of thoughts and decisions. See [how to](../how-to/keep-threads.md).",
    ToolCategory.CODE: "The project's source code. See [how to](../how-to/read-code.md).",
    ToolCategory.WEB: "Web search and web pages. See [how to](../how-to/read-the-web.md).",
    ToolCategory.META: "Notes of the agent to itself, delegation to a subagent, which can use the "
    "tools that list it under agents, and the search that only the embedded default has.",
}

# The tools need their stores only when they are called, and none is called here.
_NO_STORE: Final[Any] = None
_UNTRUSTED_TEXT: Final = "[untrusted text](../explanation/security.md#untrusted-text)"


SUBAGENTS: Final = {LIBRARIAN.name: LIBRARIAN}


def tools_page() -> str:
    """Return the text of tools.md."""
    tools = sorted(registered(), key=lambda tool: tool.spec.name)
    return page(
        "# Tools",
        prose("""The tools of agents, by category. `sources` of a question, and `--sources` of
            `dodona ask`, select categories. The model sees names, descriptions and arguments as
            shown here. Arguments are validated before the call; validation errors go back to the
            model."""),
        prose(f"""The effect says how to resume a call that a crash interrupted: `none` and `keyed`
            calls run again; a `once` call does not, because it may already have taken effect. After
            a run has read {_UNTRUSTED_TEXT}, `once` calls require approval."""),
        table(
            ("tool", "category", "agents", "effect", "timeout"),
            [*map(_row, tools), *(_delegation_row(each) for each in SUBAGENTS.values())],
        ),
        *(_section(category, tools) for category in ToolCategory),
    )


def registered() -> Iterator[Tool]:
    """Yield the built-in tools."""
    registry = ToolRegistry()
    add_vault_tools(registry, _NO_STORE)
    add_thread_tools(registry, _NO_STORE)
    add_code_tools(registry, _NO_STORE)
    add_passage_tool(registry, _NO_STORE, _NO_STORE, _NO_STORE)
    notify_self.add(registry, _NO_STORE)
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
        "of each call",
        "[`librarian_timeout`](settings.md)",
    )


def _section(category: ToolCategory, tools: list[Tool]) -> str:
    parts = [f"## {category.value}", ABOUT[category]]
    members = [tool for tool in tools if tool.category is category]
    parts += [_describe(tool.spec, is_untrusted=tool.origin.is_untrusted) for tool in members]
    if category is ToolCategory.META:
        parts += [
            _describe(each.delegation_tool, is_untrusted=False) for each in SUBAGENTS.values()
        ]
    return "\n\n".join(parts)


def _describe(spec: ToolSpec, *, is_untrusted: bool) -> str:
    origin = f" Returns {_UNTRUSTED_TEXT}." if is_untrusted else ""
    required = spec.parameters.get("required", ())
    arguments: Mapping[str, Mapping[str, Any]] = spec.parameters["properties"]
    rows = [
        (f"`{name}`", takes(schema), "required" if name in required else "", about(schema))
        for name, schema in arguments.items()
    ]
    return f"### {spec.name}\n\n{prose(spec.description + origin)}\n\n" + table(
        ("argument", "type", "", ""), rows
    )
