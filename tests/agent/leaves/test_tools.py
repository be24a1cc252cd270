"""Tool calls of a turn: their events."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dodona.core.events import (
    TOOL_CALL_FAILURE,
    TOOL_CALL_SUCCESS,
    TOOL_CALL_TIMEOUT,
    Severity,
)
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import Tools, calls, opened


def with_slow_tool() -> Tools:
    """Tools with one that never ends by itself."""
    tools = Tools()

    async def slow(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        del arguments, context
        await tools.gate.wait()
        return ToolOutput("Never.")

    spec = ToolSpec("slow", "Slow.", {"type": "object", "properties": {}})
    options: Any = {"category": ToolCategory.META, "effect": Effect.NONE, "timeout_seconds": 0.01}
    tools.registry.tool(spec, **options)(slow)
    return tools


async def test_a_failed_call_is_an_error(file: Path) -> None:
    """Also one that timed out; a call that succeeded is information."""
    model = ScriptedModel([calls(("fail", ""), ("slow", ""), ("echo", "")), "Done."])
    async with opened(file, model, tools=with_slow_tool()) as here:
        await here.answered()

        severities = {
            kind: [event.severity for event in here.told(kind)]
            for kind in (TOOL_CALL_FAILURE, TOOL_CALL_TIMEOUT, TOOL_CALL_SUCCESS)
        }
        assert severities == {
            TOOL_CALL_FAILURE: [Severity.ERROR],
            TOOL_CALL_TIMEOUT: [Severity.ERROR],
            TOOL_CALL_SUCCESS: [Severity.INFO],
        }
