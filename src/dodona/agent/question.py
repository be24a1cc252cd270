"""Question and answer: the request and response of `/api/oracle` and `dodona ask`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self, cast

import msgspec

from dodona.core.domain.conversations.conversation import RunOptions, RunRequest
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest, DodonaError, NotFound, did_you_mean
from dodona.core.ports.tools import ToolCategory

MAX_QUESTION_CHARS: Final = 10_000  # characters
MAX_OUTPUT_TOKENS: Final = 1_000_000
SOURCES: Final = tuple(each.value for each in ToolCategory if each is not ToolCategory.META)

_CONTEXT_ID_PATTERN = re.compile(r"node-([1-9][0-9]{0,17})")


def context_id(run_id: int) -> str:
    """Return the opaque ID of a run's node in its conversation."""
    return f"node-{run_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request to the Oracle.

    `sources` limits the categories of tools; None allows all. `new` starts another conversation.
    `context_id` continues from that node instead of from the head.
    """

    question: str
    project_id: str = DEFAULT_PROJECT
    context_id: str | None = None
    model: str | None = None
    max_tokens: int | None = None
    sources: tuple[str, ...] | None = None
    thinking: bool | None = None
    new: bool = False

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        """Read a request body; raise one `BadRequest` with all problems."""
        names = [each.name for each in fields(cls)]
        problems: list[DodonaError] = [
            BadRequest(f"there is no field {name!r:.80}.", hint=did_you_mean(name, names))
            for name in body
            if name not in names
        ]
        values: dict[str, Any] = {
            name: value
            for name, value in body.items()
            if name in names and (value is not None or name == "question")
        }
        problems += [
            BadRequest(problem)
            for name in ("question", *(n for n in values if n != "question"))
            if (problem := _field_problem(name, values.get(name)))
        ]
        if problems:
            raise BadRequest.combine(problems)
        if "sources" in values:
            values["sources"] = tuple(values["sources"])
        return cls(**values)

    def to_request(self, user_id: str) -> RunRequest:
        """Return the request that `Oracle.submit` accepts."""
        return RunRequest(
            user_id=user_id,
            project_id=self.project_id,
            question=self.question,
            options=RunOptions(
                model=self.model,
                max_tokens=self.max_tokens,
                sources=self.sources,
                thinking=self.thinking,
            ),
            parent_id=self._parent_id(),
            new_conversation=self.new,
        )

    def _parent_id(self) -> int | None:
        """Return the run that the question continues from; None for the head."""
        if self.context_id is None:
            return None
        match = _CONTEXT_ID_PATTERN.fullmatch(self.context_id)
        if match is None:
            raise NotFound(
                f"there is no context {self.context_id!r:.80}.",
                hint="Use the context_id of an earlier answer, or omit it.",
            )
        return int(match[1])


def _field_problem(name: str, value: Any) -> str:
    match name:
        case "question":
            if isinstance(value, str) and value.strip() and len(value) <= MAX_QUESTION_CHARS:
                return ""
            size = f" (got {len(value):,})" if isinstance(value, str) else ""
            return f"question must be a string of 1 to {MAX_QUESTION_CHARS:,} characters{size}."
        case "max_tokens":
            if type(value) is int and 1 <= value <= MAX_OUTPUT_TOKENS:
                return ""
            bounds = f"from 1 to {MAX_OUTPUT_TOKENS:,}"
            return f"max_tokens must be a whole number {bounds} (got {value!r:.80})."
        case "sources":
            return _sources_problem(value)
        case "thinking" | "new":
            return "" if type(value) is bool else f"{name} must be true or false."
        case _:
            if isinstance(value, str) and 0 < len(value) <= 200:
                return ""
            return f"{name} must be a string of 1 to 200 characters."


def _sources_problem(value: Any) -> str:
    items = cast("list[object]", value) if isinstance(value, list | tuple) else None
    if items is not None and all(each in SOURCES for each in items):
        return ""
    return f"sources must be a list with any of {', '.join(SOURCES)}."


class OracleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a run, with its sources, tool calls and token counts."""

    answer: str
    sources: tuple[Mapping[str, Any], ...]
    citations: tuple[Mapping[str, Any], ...]
    tool_calls: tuple[Mapping[str, Any], ...]
    tokens_used: int
    model_used: str
    context_id: str
    run_id: int
    context_tokens_remaining: int

    def as_json(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)
