"""The syntaxes in which models write calls as text, each identified by its opening marker.

<tool_call>{"name": "x", "arguments": {…}}</tool_call>                  Hermes, Qwen
<tool_call><function=x><parameter=p>v</parameter></function></tool_call>     Qwen coder
<function=x><parameter=p>v</parameter></function>    <function=x>{…}</function>     Llama
<function_calls><invoke name="x"><parameter name="p">v</parameter></invoke></function_calls>
    also with a prefix on every tag: antml: or ｜DSML｜
<|tool_call_begin|>functions.x:0<|tool_call_argument_begin|>{…}<|tool_call_end|>     Kimi
<｜tool▁call▁begin｜>function<｜tool▁sep｜>x ```json {…} ```<｜tool▁call▁end｜>     DeepSeek
<｜tool▁call▁begin｜>x<｜tool▁sep｜>{…}<｜tool▁call▁end｜>
    these three alone, or inside section markers
[TOOL_CALLS][{"name": "x", "arguments": {…}}]    [TOOL_CALLS]x[ARGS]{…}     Mistral
{"name": "x", "arguments": {…}}    [{…}, {…}]     the whole answer, without a marker
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from dodona.models.text_calls.arguments import OfferedTools, ParsedCall
from dodona.models.text_calls.cursor import Cursor, IncrementalParser, Mismatch

CallParser: TypeAlias = Callable[[Cursor, OfferedTools], IncrementalParser[list[ParsedCall]]]

_TAG_PREFIXES = ("", "antml:", "｜DSML｜")
# First keys of a call without a marker. JSON that starts with another key is shown at once.
_FIRST_KEYS = ("name", "arguments", "parameters", "type", "id")


def _parse_tool_call(cursor: Cursor, offered: OfferedTools) -> IncrementalParser[list[ParsedCall]]:
    yield from cursor.skip_blanks()
    if (yield from cursor.accept("<function=")):
        calls = yield from _parse_function(cursor, offered)
    else:
        calls = offered.parse_calls((yield from cursor.read_json()), arguments_optional=True)
    yield from cursor.skip_blanks()
    yield from cursor.expect("</tool_call>")
    return calls


def _parse_function(cursor: Cursor, offered: OfferedTools) -> IncrementalParser[list[ParsedCall]]:
    name = offered.check_name((yield from cursor.read_word()))
    yield from cursor.expect(">")
    yield from cursor.skip_blanks()
    if cursor.rest.startswith("{"):
        call = offered.parse_json_arguments(name, (yield from cursor.read_json()))
    else:
        values: dict[str, str] = {}
        while (yield from cursor.accept("<parameter=")):
            key = yield from cursor.read_word()
            yield from cursor.expect(">")
            value = yield from cursor.read_until("</parameter>")
            # These models put line breaks around each value.
            values[key] = value.removeprefix("\n").removesuffix("\n")
            yield from cursor.skip_blanks()
        call = offered.parse_text_arguments(name, values)
    yield from cursor.skip_blanks()
    yield from cursor.expect("</function>")
    return [call]


def _parse_invokes(
    prefix: str, cursor: Cursor, offered: OfferedTools
) -> IncrementalParser[list[ParsedCall]]:
    calls: list[ParsedCall] = []
    yield from cursor.skip_blanks()
    while (yield from cursor.accept(f'<{prefix}invoke name="')):
        name = offered.check_name((yield from cursor.read_word()))
        yield from cursor.expect('">')
        yield from cursor.skip_blanks()
        values: dict[str, str] = {}
        while (yield from cursor.accept(f'<{prefix}parameter name="')):
            key = yield from cursor.read_word()
            yield from cursor.expect('"')
            yield from cursor.read_until(">")  # ignore other attributes: the schema has the types
            values[key] = yield from cursor.read_until(f"</{prefix}parameter>")
            yield from cursor.skip_blanks()
        yield from cursor.expect(f"</{prefix}invoke>")
        yield from cursor.skip_blanks()
        calls.append(offered.parse_text_arguments(name, values))
    yield from cursor.expect(f"</{prefix}function_calls>")
    if not calls:
        raise Mismatch
    return calls


def _parse_kimi(cursor: Cursor, offered: OfferedTools) -> IncrementalParser[list[ParsedCall]]:
    yield from cursor.skip_blanks()
    word = yield from cursor.read_word()  # functions.NAME:0
    name = offered.check_name(word.removeprefix("functions.").rpartition(":")[0])
    yield from cursor.skip_blanks()
    yield from cursor.expect("<|tool_call_argument_begin|>")
    yield from cursor.skip_blanks()
    call = offered.parse_json_arguments(name, (yield from cursor.read_json()))
    yield from cursor.skip_blanks()
    yield from cursor.expect("<|tool_call_end|>")
    return [call]


def _parse_deepseek(cursor: Cursor, offered: OfferedTools) -> IncrementalParser[list[ParsedCall]]:
    yield from cursor.skip_blanks()
    name = yield from cursor.read_word()
    yield from cursor.expect("<｜tool▁sep｜>")
    is_fenced = name == "function"  # the older syntax: type, name, fenced JSON
    if is_fenced:
        yield from cursor.skip_blanks()
        name = yield from cursor.read_word()
        yield from cursor.skip_blanks()
        yield from cursor.expect("```json")
    offered.check_name(name)
    yield from cursor.skip_blanks()
    call = offered.parse_json_arguments(name, (yield from cursor.read_json()))
    yield from cursor.skip_blanks()
    if is_fenced:
        yield from cursor.expect("```")
        yield from cursor.skip_blanks()
    yield from cursor.expect("<｜tool▁call▁end｜>")
    return [call]


def _parse_section(
    parser: CallParser, opening: str, closing: str, cursor: Cursor, offered: OfferedTools
) -> IncrementalParser[list[ParsedCall]]:
    """Parse a section of calls. The end of the answer may replace the closing marker."""
    calls: list[ParsedCall] = []
    yield from cursor.skip_blanks()
    while (yield from cursor.accept(opening)):
        calls += yield from parser(cursor, offered)
        if not (yield from cursor.skip_blanks()):
            return calls
    yield from cursor.expect(closing)
    if not calls:
        raise Mismatch
    return calls


def _parse_mistral(cursor: Cursor, offered: OfferedTools) -> IncrementalParser[list[ParsedCall]]:
    yield from cursor.skip_blanks()
    if cursor.rest.startswith(("[", "{")):
        return offered.parse_calls((yield from cursor.read_json()), arguments_optional=False)
    name = offered.check_name((yield from cursor.read_word()))
    yield from cursor.accept("[ARGS]")
    return [offered.parse_json_arguments(name, (yield from cursor.read_json()))]


def parse_whole_json(cursor: Cursor, offered: OfferedTools) -> IncrementalParser[list[ParsedCall]]:
    """Parse an answer that consists only of a call or a list of calls in JSON."""
    prefix = "{"
    if (yield from cursor.accept("[")):
        yield from cursor.skip_blanks()
        prefix = "[{"
    yield from cursor.expect("{")
    yield from cursor.skip_blanks()
    yield from cursor.expect('"')
    key = yield from cursor.read_word()
    if key not in _FIRST_KEYS:
        raise Mismatch
    prefix += f'"{key}'
    if key == "name":
        prefix += yield from _parse_offered_name(cursor, offered)
    text = yield from cursor.read_json(prefix)
    calls = offered.parse_calls(text, arguments_optional=False)
    if (yield from cursor.skip_blanks()):
        raise Mismatch
    return calls


def _parse_offered_name(cursor: Cursor, offered: OfferedTools) -> IncrementalParser[str]:
    """Check the name early, so that JSON with another `name` is not held until its end."""
    yield from cursor.expect('"')
    yield from cursor.skip_blanks()
    yield from cursor.expect(":")
    yield from cursor.skip_blanks()
    yield from cursor.expect('"')
    return '":"' + offered.check_name((yield from cursor.read_word()))


PARSERS_BY_MARKER: Mapping[str, CallParser] = {
    "<tool_call>": _parse_tool_call,
    "<function=": _parse_function,
    **{f"<{prefix}function_calls>": partial(_parse_invokes, prefix) for prefix in _TAG_PREFIXES},
    "<|tool_call_begin|>": _parse_kimi,
    "<|tool_calls_section_begin|>": partial(
        _parse_section, _parse_kimi, "<|tool_call_begin|>", "<|tool_calls_section_end|>"
    ),
    "<｜tool▁call▁begin｜>": _parse_deepseek,
    "<｜tool▁calls▁begin｜>": partial(
        _parse_section, _parse_deepseek, "<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>"
    ),
    "[TOOL_CALLS]": _parse_mistral,
}
