"""Who is tested, and the table of what came of it: providers across, scenarios down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from dodona.core.ports.model import Model
from dodona.models import Timeouts, connect
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor
from tests.conformance.models.mock import KEY


@dataclass(frozen=True, slots=True)
class Subject:
    """A provider as aimock plays it.

    `base` and `endpoint` are paths: that of the base URL, and that where requests arrive.
    `thinking` is what the suffix `:thinking` adds to a request of at most 4,000 tokens.
    """

    provider: str
    model: str
    base: str
    endpoint: str
    thinking: Mapping[str, Any]

    def at(
        self,
        url: str,
        http: HttpPool,
        *,
        suffix: str = "",
        key: str = KEY,
        timeouts: Timeouts | None = None,
    ) -> Model:
        """The model, behind a URL without a path."""
        return connect(
            self.provider,
            self.model + suffix,
            http=http,
            redactor=Redactor(),
            api_key=key,
            base_url=url + self.base,
            timeouts=timeouts,
        )


SUBJECTS = (
    Subject(
        provider="openai",
        model="gpt-5",
        base="/v1",
        endpoint="/v1/chat/completions",
        thinking={"reasoning_effort": "medium"},
    ),
    Subject(
        provider="openrouter",
        model="qwen/qwen3-235b",
        base="/api/v1",
        endpoint="/api/v1/chat/completions",
        thinking={"reasoning": {"enabled": True}},
    ),
    Subject(
        provider="gemini",
        model="gemini-2.5-flash",
        base="/v1beta/openai",
        endpoint="/v1beta/openai/chat/completions",
        thinking={"extra_body": {"google": {"thinking_config": {"include_thoughts": True}}}},
    ),
    Subject(
        provider="deepseek",
        model="deepseek-reasoner",
        base="",
        endpoint="/chat/completions",
        thinking={"thinking": {"type": "enabled"}},
    ),
    Subject(
        provider="ollama",
        model="qwen3",
        base="/v1",
        endpoint="/v1/chat/completions",
        thinking={"reasoning_effort": "medium"},
    ),
    Subject(
        provider="openai-compatible",
        model="gpt-oss-20b",
        base="/any/where",
        endpoint="/any/where/chat/completions",
        thinking={"reasoning_effort": "medium"},
    ),
    Subject(
        provider="anthropic",
        model="claude-sonnet-4-5",
        base="",
        endpoint="/v1/messages",
        thinking={"thinking": {"type": "enabled", "budget_tokens": 2000}},
    ),
)


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """A scenario: a test that takes a `subject`, where it stands and how it is called."""

    file: str
    number: int
    title: str

    @classmethod
    def of(cls, item: pytest.Function) -> Row:
        title = item.originalname.removeprefix("test_").replace("_", " ")
        number = item.function.__code__.co_firstlineno
        return cls(item.path.name, number, title + (" *" if "line" in item.fixturenames else ""))


@dataclass(slots=True)
class Matrix:
    """What came of every row for every provider."""

    signs: dict[tuple[Row, str], str] = field(default_factory=dict[tuple[Row, str], str])

    def note(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """A failure stays, whatever else passes; so does a skip."""
        if not isinstance(item, pytest.Function) or "subject" not in item.fixturenames:
            return
        subject: Subject = item.callspec.params["subject"]
        cell = (Row.of(item), subject.provider)
        sign = {"passed": "✓", "failed": "✗", "skipped": "–"}[report.outcome]
        if self.signs.get(cell, "✓") == "✓":
            self.signs[cell] = sign

    def render(self) -> list[str]:
        """The lines of the table, rows in the order of the tests."""
        rows = sorted({row for row, _ in self.signs})
        width = max(len(row.title) for row in rows)
        providers = [subject.provider for subject in SUBJECTS]
        lines = ["  ".join(["".ljust(width), *providers])]
        for row in rows:
            signs = (self.signs.get((row, name), "·").center(len(name)) for name in providers)
            lines.append("  ".join([row.title.ljust(width), *signs]).rstrip())
        lines += ["", "✓ passed   ✗ failed   – skipped   · not run"]
        lines += ["* by a line between us and aimock, which tells what was sent and who hung up"]
        return lines
