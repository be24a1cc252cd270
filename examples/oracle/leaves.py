"""Leaves for the two Oracle programs in this folder, with a scripted model.

The "model" requests two notes in its first turn and answers from them in its second. All other
leaves are minimal.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dodona import Blackboard, Step, decorator, leaf

NOTES = {
    "budgets.md": "Every model call reserves its price first, so that no ceiling is exceeded.",
    "trees.md": "A behaviour tree says what an agent does, in which order and with which limits.",
}


@leaf(
    "oracle.reset_state",
    writes=("turn", "tool_calls", "accumulated_content", "model", "max_tokens"),
)
def reset_state(bb: Blackboard) -> None:
    bb["model"] = bb.get("model") or "scripted"
    bb["max_tokens"] = bb.get("max_tokens") or 1_000
    bb["turn"] = 0
    bb["tool_calls"] = []
    bb["accumulated_content"] = ""


@leaf("oracle.emit_query_start", reads=("query",), step=True, effect="none")
def emit_query_start(bb: Blackboard, step: Step) -> None:
    step.emit(f"? {bb['query'] or 'How do budgets work?'}")


@leaf("has-context-id?", reads=("context_id",))
def has_context_id(bb: Blackboard) -> bool:
    return bb["context_id"] is not None


@leaf("oracle.load_tree_node", reads=("context_id",), writes=("messages",))
def load_tree_node(bb: Blackboard) -> None:
    bb["messages"] = [{"role": "system", "content": f"continuing {bb['context_id']}"}]


@leaf("oracle.get_or_create_tree", writes=("messages",))
def get_or_create_tree(bb: Blackboard) -> None:
    bb["messages"] = []


@leaf("oracle.load_legacy_context")
def load_legacy_context(bb: Blackboard) -> None:
    """Do nothing: this example has no older context to load."""


@leaf("oracle.load_cross_session")
def load_cross_session(bb: Blackboard) -> None:
    """Do nothing: this example has no notices from other sessions."""


@leaf("oracle.build_system_prompt", reads=("messages",), writes=("messages",))
def build_system_prompt(bb: Blackboard) -> None:
    bb["messages"] = [{"role": "system", "content": "You answer from notes."}, *bb["messages"]]


@leaf("oracle.add_tree_history")
def add_tree_history(bb: Blackboard) -> None:
    """Do nothing: the conversation has no history."""


@leaf("oracle.inject_notifications")
def inject_notifications(bb: Blackboard) -> None:
    """Do nothing: there are no notices."""


@leaf("oracle.add_user_question", reads=("messages", "query"), writes=("messages",))
def add_user_question(bb: Blackboard) -> None:
    question = bb["query"] or "How do budgets work?"
    bb["messages"] = [*bb["messages"], {"role": "user", "content": question}]


@leaf("oracle.get_tool_schemas", writes=("tools",))
def get_tool_schemas(bb: Blackboard) -> None:
    bb["tools"] = [{"name": "vault_read", "arguments": ["path"]}]


@decorator("budget-check")
def budget_check(bb: Blackboard) -> bool:
    """Allow a turn if the budget covers it; this example has a budget of thirty turns."""
    return bb["turn"] < 30


@leaf("not-cancelled?", reads=("cancelled",))
def not_cancelled(bb: Blackboard) -> bool:
    return not bb["cancelled"]


@leaf("oracle.check_iteration_budget", reads=("turn",), writes=("turn",))
def check_iteration_budget(bb: Blackboard) -> None:
    bb["turn"] = bb["turn"] + 1


@leaf("oracle.drain_turn_start")
def drain_turn_start(bb: Blackboard) -> None:
    """Do nothing: there are no notices."""


@leaf(
    "llm-call",
    reads=("messages", "tools"),
    writes=("tool_calls", "accumulated_content"),
    effect="none",
)
async def llm_call(bb: Blackboard, step: Step, messages: list[Any], **settings: Any) -> None:
    """Request each note once, then answer from the results."""
    await asyncio.sleep(0.02)
    results = bb.get("tool_results") or []
    if not results:
        bb["tool_calls"] = [{"name": "vault_read", "path": path} for path in NOTES]
        return
    bb["tool_calls"] = []
    answer = " ".join(result["text"] for result in results)
    for word in answer.split():
        step.progress()
        bb["accumulated_content"] = f"{bb['accumulated_content']} {word}".strip()
    step.emit(f"= {answer}")


@leaf("has-tool-calls?", reads=("tool_calls",))
def has_tool_calls(bb: Blackboard) -> bool:
    return bool(bb["tool_calls"])


@leaf("oracle.detect_loop")
def detect_loop(bb: Blackboard) -> None:
    """Do nothing: two turns are not a loop."""


@leaf("tools.execute", writes=("tool_results",), effect="none")
async def execute(bb: Blackboard, step: Step) -> bool:
    """Read one note."""
    call = bb["_item"]
    step.emit(f"· {call['name']} {call['path']}")
    await asyncio.sleep(0.01)
    bb["tool_results"] = {"path": call["path"], "text": NOTES.get(call["path"], "no such note")}
    return call["path"] in NOTES


@leaf("oracle.drain_after_tool")
def drain_after_tool(bb: Blackboard) -> None:
    """Do nothing: there are no notices."""


@leaf("oracle.extract_xml_tools", writes=("xml_tool_calls",))
def extract_xml_tools(bb: Blackboard) -> None:
    bb["xml_tool_calls"] = []


@leaf("has-xml-tools?", reads=("xml_tool_calls",))
def has_xml_tools(bb: Blackboard) -> bool:
    return bool(bb["xml_tool_calls"])


@leaf("oracle.save_exchange", reads=("accumulated_content",), writes=("saved",))
def save_exchange(bb: Blackboard) -> None:
    bb["saved"] = True


@leaf("oracle.yield_sources", writes=("collected_sources",), step=True, effect="none")
def yield_sources(bb: Blackboard, step: Step) -> None:
    results = bb.get("tool_results") or []
    paths = [result["path"] for result in results if isinstance(result, dict)]
    bb["collected_sources"] = paths
    step.emit(f"  from {', '.join(paths)}")


@leaf("oracle.emit_done")
def emit_done(bb: Blackboard) -> None:
    """Do nothing: a real host would close the stream."""


@leaf("oracle.emit_iteration_exceeded", step=True, effect="none")
def emit_iteration_exceeded(bb: Blackboard, step: Step) -> None:
    step.emit("! maximum number of turns reached")


@leaf("oracle.drain_immediate")
def drain_immediate(bb: Blackboard) -> None:
    """Do nothing: there are no notices."""


@leaf("oracle.save_partial", writes=("saved",))
def save_partial(bb: Blackboard) -> None:
    bb["saved"] = True


@leaf("oracle.emit_done_warning")
def emit_done_warning(bb: Blackboard) -> None:
    """Do nothing: a real host would close the stream with a warning."""


@leaf("oracle.save_partial_cleanup", writes=("saved",))
def save_partial_cleanup(bb: Blackboard) -> None:
    bb["saved"] = True


@leaf("oracle.emit_session_end")
def emit_session_end(bb: Blackboard) -> None:
    """Do nothing: a real host would notify its subscribers."""
