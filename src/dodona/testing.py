"""Helpers for tests of tools, agents and programs that embed Dodona.

    async def test_it_books_a_room():
        answers = [call("book_room", room="Oak"), "Booked."]
        async with open_test_app(answers=answers, tools=[book_room]) as app:
            answer = await app.ask("Book the room Oak.")
        assert_called(answer, "book_room", room="Oak")

The model is scripted, for every agent: `app.ask(…, agent="NAME")` tests the one in
`[agents.NAME]` of `config`. No test framework is needed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final

from dodona.core.json_document import to_builtins
from dodona.core.messages import AssistantText, ToolCall
from dodona.extend.app import Answer, AnswerCall, App
from dodona.extend.options import AnyPath, AppOptions
from dodona.gateway.http.responses import encode_json
from dodona.models.scripted.answers import BrokenAnswer
from dodona.models.scripted.model import Script, ScriptedModel
from dodona.trees.tooling.virtual_time import VirtualTimeLoop

__all__ = [
    "AssistantText",
    "BrokenAnswer",
    "ScriptedModel",
    "ToolCall",
    "VirtualTimeLoop",
    "assert_called",
    "assert_not_called",
    "call",
    "open_test_app",
]

_call_numbers: Final = count(1)  # the ids of calls are unique


def call(name: str, /, **arguments: Any) -> AssistantText:
    """Return an answer of a model that calls a tool.

    For several at once: `AssistantText(calls=(*call("a").calls, *call("b").calls))`.
    """
    text = encode_json(arguments).decode()
    return AssistantText(calls=(ToolCall(f"call_{next(_call_numbers)}", name, text),))


@asynccontextmanager
async def open_test_app(
    answers: Script = (),
    *,
    model: ScriptedModel | None = None,
    tools: Sequence[object] = (),
    vault: Mapping[str, str] | AnyPath | None = None,
    code: AnyPath | Sequence[AnyPath] = (),
    config: AnyPath | None = None,
    settings: Mapping[str, Any] | None = None,
) -> AsyncGenerator[App]:
    """Open an app with a scripted model, which gives these answers, or is `model`.

    Its home and its database are in a temporary folder, deleted at the end; so is the vault, if
    its notes are given by name. Neither DODONA_ variables nor the store of `config` are used.
    """
    folder = await asyncio.to_thread(_make_folder, vault if isinstance(vault, Mapping) else {})
    options = AppOptions(
        config=config,
        home=folder / "home",
        vault=folder / "vault" if vault is None or isinstance(vault, Mapping) else vault,
        code=code,
        model=model or ScriptedModel(answers),
        tools=tools,
        settings={"store": None, **(settings or {})},
        environment={k: v for k, v in os.environ.items() if not k.startswith("DODONA_")},
        every_agent=True,
    )
    try:
        async with App(options) as app:
            yield app
    finally:
        await asyncio.to_thread(partial(rmtree, folder, ignore_errors=True))


def assert_called(answer: Answer, name: str, /, **arguments: Any) -> None:
    """Fail unless the answer called a tool, with at least these arguments."""
    if not any(map(partial(_matches, name, arguments), answer.tool_calls)):
        raise AssertionError(
            f"{_describe(name, arguments)} was not called.\n{_describe_calls(answer.tool_calls)}"
        )


def assert_not_called(answer: Answer, name: str, /, **arguments: Any) -> None:
    """Fail if the answer called a tool, with at least these arguments."""
    if any(map(partial(_matches, name, arguments), answer.tool_calls)):
        raise AssertionError(
            f"{_describe(name, arguments)} was called.\n{_describe_calls(answer.tool_calls)}"
        )


def _make_folder(notes: Mapping[str, str]) -> Path:
    folder = Path(mkdtemp(prefix="dodona-test-"))
    (folder / "vault").mkdir()
    for name, text in notes.items():
        note = folder / "vault" / name
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(text, encoding="utf-8")
    return folder


def _matches(name: str, arguments: Mapping[str, Any], each: AnswerCall) -> bool:
    wanted = to_builtins(dict(arguments))
    return each.name == name and {**each.arguments, **wanted} == each.arguments


def _describe_calls(calls: Iterable[AnswerCall]) -> str:
    lines = [
        f"  {_describe(each.name, each.arguments)} -> "
        f"{'failed: ' if each.failed else ''}{each.result[:200]!r}"
        for each in calls
    ]
    return "\n".join(["The calls were:", *lines]) if lines else "No tool was called."


def _describe(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
