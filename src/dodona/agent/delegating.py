"""What an agent may hand on to another, as its model sees it."""

from __future__ import annotations

from typing import Final

from dodona.core.messages import ToolSpec

DELEGATE: Final = "delegate_librarian"

DELEGATION: Final = ToolSpec(
    name=DELEGATE,
    description=(
        "Hand a task of reading or writing to the Librarian: to summarise, to compare or to "
        "organise a long text. It sees nothing but the task, so put all that it needs into it."
    ),
    parameters={
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "What to do, with the text to do it with."}
        },
        "required": ["task"],
        "additionalProperties": False,
    },
)
