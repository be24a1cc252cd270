"""The forms in which models write calls as text, each known by the marker that opens it.

<tool_call>{"name": "x", "arguments": {…}}</tool_call>                  Hermes, Qwen
<tool_call><function=x><parameter=p>v</parameter></function></tool_call>     Qwen coder
<function=x><parameter=p>v</parameter></function>    <function=x>{…}</function>     Llama
<function_calls><invoke name="x"><parameter name="p">v</parameter></invoke></function_calls>
    also with a prefix on every tag: antml: or ｜DSML｜
<|tool_call_begin|>functions.x:0<|tool_call_argument_begin|>{…}<|tool_call_end|>     Kimi
<｜tool▁call▁begin｜>function<｜tool▁sep｜>x ```json {…} ```<｜tool▁call▁end｜>     DeepSeek
<｜tool▁call▁begin｜>x<｜tool▁sep｜>{…}<｜tool▁call▁end｜>
    these three alone or between the markers of a section
[TOOL_CALLS][{"name": "x", "arguments": {…}}]    [TOOL_CALLS]x[ARGS]{…}     Mistral
{"name": "x", "arguments": {…}}    [{…}, {…}]     the whole answer, without a marker
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from dodona.models.text_calls.arguments import Called, Offered
from dodona.models.text_calls.cursor import Cursor, Mismatch, Parsing

Form: TypeAlias = Callable[[Cursor, Offered], Parsing[list[Called]]]

_PREFIXES = ("", "antml:", "｜DSML｜")
# What a call without a marker may begin with: JSON that begins otherwise is shown at once.
_FIRST_KEYS = ("name", "arguments", "parameters", "type", "id")


def _tool_call(cursor: Cursor, offered: Offered) -> Parsing[list[Called]]:
    yield from cursor.blank()
    if (yield from cursor.take("<function=")):
        calls = yield from _function(cursor, offered)
    else:
        calls = offered.from_json((yield from cursor.json()), arguments_optional=True)
    yield from cursor.blank()
    yield from cursor.expect("</tool_call>")
    return calls


def _function(cursor: Cursor, offered: Offered) -> Parsing[list[Called]]:
    name = offered.check((yield from cursor.word()))
    yield from cursor.expect(">")
    yield from cursor.blank()
    if cursor.rest.startswith("{"):
        call = offered.from_object(name, (yield from cursor.json()))
    else:
        values: dict[str, str] = {}
        while (yield from cursor.take("<parameter=")):
            key = yield from cursor.word()
            yield from cursor.expect(">")
            value = yield from cursor.until("</parameter>")
            # These models put each value on lines of its own.
            values[key] = value.removeprefix("\n").removesuffix("\n")
            yield from cursor.blank()
        call = offered.from_texts(name, values)
    yield from cursor.blank()
    yield from cursor.expect("</function>")
    return [call]


def _invokes(prefix: str, cursor: Cursor, offered: Offered) -> Parsing[list[Called]]:
    calls: list[Called] = []
    yield from cursor.blank()
    while (yield from cursor.take(f'<{prefix}invoke name="')):
        name = offered.check((yield from cursor.word()))
        yield from cursor.expect('">')
        yield from cursor.blank()
        values: dict[str, str] = {}
        while (yield from cursor.take(f'<{prefix}parameter name="')):
            key = yield from cursor.word()
            yield from cursor.expect('"')
            yield from cursor.until(">")  # further attributes: the schema knows better
            values[key] = yield from cursor.until(f"</{prefix}parameter>")
            yield from cursor.blank()
        yield from cursor.expect(f"</{prefix}invoke>")
        yield from cursor.blank()
        calls.append(offered.from_texts(name, values))
    yield from cursor.expect(f"</{prefix}function_calls>")
    if not calls:
        raise Mismatch
    return calls


def _kimi(cursor: Cursor, offered: Offered) -> Parsing[list[Called]]:
    yield from cursor.blank()
    word = yield from cursor.word()  # functions.NAME:0
    name = offered.check(word.removeprefix("functions.").rpartition(":")[0])
    yield from cursor.blank()
    yield from cursor.expect("<|tool_call_argument_begin|>")
    yield from cursor.blank()
    call = offered.from_object(name, (yield from cursor.json()))
    yield from cursor.blank()
    yield from cursor.expect("<|tool_call_end|>")
    return [call]


def _deepseek(cursor: Cursor, offered: Offered) -> Parsing[list[Called]]:
    yield from cursor.blank()
    name = yield from cursor.word()
    yield from cursor.expect("<｜tool▁sep｜>")
    is_fenced = name == "function"  # the older form: the kind, then the name, then fenced JSON
    if is_fenced:
        yield from cursor.blank()
        name = yield from cursor.word()
        yield from cursor.blank()
        yield from cursor.expect("```json")
    offered.check(name)
    yield from cursor.blank()
    call = offered.from_object(name, (yield from cursor.json()))
    yield from cursor.blank()
    if is_fenced:
        yield from cursor.expect("```")
        yield from cursor.blank()
    yield from cursor.expect("<｜tool▁call▁end｜>")
    return [call]


def _section(
    form: Form, opening: str, closing: str, cursor: Cursor, offered: Offered
) -> Parsing[list[Called]]:
    """Calls in a row; the answer's end may stand for the end of the section."""
    calls: list[Called] = []
    yield from cursor.blank()
    while (yield from cursor.take(opening)):
        calls += yield from form(cursor, offered)
        if not (yield from cursor.blank()):
            return calls
    yield from cursor.expect(closing)
    if not calls:
        raise Mismatch
    return calls


def _mistral(cursor: Cursor, offered: Offered) -> Parsing[list[Called]]:
    yield from cursor.blank()
    if cursor.rest.startswith(("[", "{")):
        return offered.from_json((yield from cursor.json()), arguments_optional=False)
    name = offered.check((yield from cursor.word()))
    yield from cursor.take("[ARGS]")
    return [offered.from_object(name, (yield from cursor.json()))]


def whole_json(cursor: Cursor, offered: Offered) -> Parsing[list[Called]]:
    """A call, or a list of calls, after which nothing follows."""
    read = "{"
    if (yield from cursor.take("[")):
        yield from cursor.blank()
        read = "[{"
    yield from cursor.expect("{")
    yield from cursor.blank()
    yield from cursor.expect('"')
    key = yield from cursor.word()
    if key not in _FIRST_KEYS:
        raise Mismatch
    read += f'"{key}'
    if key == "name":
        read += yield from _offered_name(cursor, offered)
    text = yield from cursor.json(read)
    calls = offered.from_json(text, arguments_optional=False)
    if (yield from cursor.blank()):
        raise Mismatch
    return calls


def _offered_name(cursor: Cursor, offered: Offered) -> Parsing[str]:
    """An answer about somebody's name must not wait for its last bracket."""
    yield from cursor.expect('"')
    yield from cursor.blank()
    yield from cursor.expect(":")
    yield from cursor.blank()
    yield from cursor.expect('"')
    return '":"' + offered.check((yield from cursor.word()))


FORMS: Mapping[str, Form] = {
    "<tool_call>": _tool_call,
    "<function=": _function,
    **{f"<{prefix}function_calls>": partial(_invokes, prefix) for prefix in _PREFIXES},
    "<|tool_call_begin|>": _kimi,
    "<|tool_calls_section_begin|>": partial(
        _section, _kimi, "<|tool_call_begin|>", "<|tool_calls_section_end|>"
    ),
    "<｜tool▁call▁begin｜>": _deepseek,
    "<｜tool▁calls▁begin｜>": partial(
        _section, _deepseek, "<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>"
    ),
    "[TOOL_CALLS]": _mistral,
}
