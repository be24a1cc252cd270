"""Recognize calls that a tool returned as text: the model repeats them.

A model rarely repeats a text exactly. So these differences do not count: spaces and punctuation,
which include Markdown escapes, quote markers and the syntax of the call; line numbers; escapes of
JSON and HTML; the order of the arguments.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from dodona.models.text_calls.arguments import ParsedCall

# Shorter arguments occur in results by chance: `{"path":"a.md"}`.
_MIN_COPIED_CHARS = 24

# It starts at the first backslash of several, so a long run of them is read once.
_JSON_ESCAPE = re.compile(r"""(?<!\\)\\++(?:u([0-9a-fA-F]{4})|([bfnrt"]))""")
_HUGE_CODE = re.compile(r"&#[xX]?[0-9a-fA-F]{9,}+")  # no character, and Python does not parse it
_LINE_NUMBER = re.compile(r"^[ \t>]*+\d++[\t :|.)]", re.MULTILINE)
_NO_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class CallBlock:
    """Calls, and the text they were parsed from."""

    source: str
    calls: list[ParsedCall]


class CopiedCalls:
    """The texts that tools returned. They are read only when there is a call to compare."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = tuple(texts)
        self._condensed = self._words = ""

    def contain(self, block: CallBlock) -> bool:
        """Whether a tool returned the text of a call, or the arguments of one."""
        if not self._texts:
            return False
        if not self._words:
            texts = [_unescape(text) for text in self._texts]
            self._condensed = "\0".join(map(_condense, texts))
            unnumbered = (_LINE_NUMBER.sub("", text) for text in texts)
            self._words = "\0".join(map(_join_words, (*texts, *unnumbered)))
        is_source = _join_words(_unescape(block.source)) in self._words
        return is_source or any(self._contain_call(*call) for call in block.calls)

    def _contain_call(self, name: str, arguments: str) -> bool:
        if len(_condense(arguments)) < _MIN_COPIED_CHARS:
            return False
        if _condense(_unescape(arguments)) in self._condensed:
            return True
        # Results often contain arguments of the next call, but hardly its name and all of them.
        names_and_values = (
            f"{key} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            for key, value in json.loads(arguments).items()
        )
        words = (name, *map(_unescape, names_and_values))
        return all(_join_words(each) in self._words for each in words)


def _unescape(text: str) -> str:
    """Resolve escapes of JSON, as far as they matter here, and of HTML."""

    def resolve(escape: re.Match[str]) -> str:
        if escape[1]:
            return chr(int(escape[1], 16))
        return '"' if escape[2] == '"' else " "

    return html.unescape(_HUGE_CODE.sub("", _JSON_ESCAPE.sub(resolve, text)))


def _condense(text: str) -> str:
    return "".join(text.split())


def _join_words(text: str) -> str:
    return _NO_WORD.sub("", text)
