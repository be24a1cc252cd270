"""Restrictions after a run has read untrusted text, which may contain injected instructions.

From then on, a call that writes needs an approval. So does a call that sends, if the run has also
read private text, unless it sends only what the user typed or a search returned: any other argument
could carry private text out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, cast

from dodona.agent.conversation.exchange import parse_arguments
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.records import ToolResultRecord
from dodona.core.domain.trust import describe_some_marks
from dodona.core.messages import Origin, ToolCall, UserText
from dodona.core.ports.tools import Tool
from dodona.net.urls import normalize_url, normalize_urls

MAX_RANGE: Final = 100_000  # of a number that is sent unseen: less than 17 bits

_URL_CHAR: Final = r"[^\s<>\"'`\]\[(){}|\\^]"
# Balanced parentheses are part of a URL: /wiki/Oak_(tree).
_URL = re.compile(rf"https?://(?:{_URL_CHAR}|\({_URL_CHAR}*+\))++", re.IGNORECASE)
_TRAILING_PUNCTUATION: Final = ".,;:!?"
_WORD = re.compile(r"\w+")
# Words and nothing else: other characters can encode a text, and a URL is no list of words.
_WORDS = re.compile(r"\w+(?: \w+)*\??")


def approval_reason(context: RunContext, tool: Tool, call: ToolCall) -> str:
    """Return why a call needs a person's approval; "" if it needs none."""
    policy = context.deps.policy
    if not (policy.hold_calls and context.marks):
        return ""
    if tool.writes and not (policy.allow_versioned_writes and tool.keeps_versions):
        consequence = f"{call.name} makes changes"
    elif tool.sends and context.has_read_private and not _is_public(context, tool, call):
        consequence = f"{call.name} could send private text"
    else:
        return ""
    marks = describe_some_marks(context.marks)
    return f"this conversation contains untrusted text ({marks}), and {consequence}."


def call_hash(call: ToolCall) -> str:
    """Return a hash of a tool and its exact arguments."""
    text = f"{call.name}\0{call.arguments}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def allowed_urls(
    context: RunContext, call: ToolCall, *, is_approved: bool
) -> frozenset[str] | None:
    """Return the URLs that a call may fetch; None allows all.

    The call itself has passed the gate: this restricts where redirects may lead.
    """
    if not (context.deps.policy.hold_calls and context.marks and context.has_read_private):
        return None
    approved = _strings(parse_arguments(call.arguments)) if is_approved else ()
    return _known_urls(context).union(approved)


def _is_public(context: RunContext, tool: Tool, call: ToolCall) -> bool:
    """Whether every argument is a URL that the user typed or a search returned, or their words.

    What plugins and servers of tools get is never public: they choose their own parameters.
    """
    if tool.origin in (Origin.PLUGIN, Origin.MCP):
        return False
    arguments = parse_arguments(call.arguments)
    properties = cast("Mapping[str, Any]", tool.spec.parameters.get("properties") or {})
    urls = frozenset(normalize_urls(_known_urls(context)))
    texts = [_WORD.findall(text) for text in _user_texts(context)]

    def is_public(name: str, value: object) -> bool:
        if name not in properties:
            return False  # the name itself may be a text
        if isinstance(value, str):
            return _is_known_url(value, urls, tool) or any(
                _is_part_of(value, words) for words in texts
            )
        return value is None or _is_bounded(properties.get(name), value)

    return all(is_public(name, value) for name, value in arguments.items())


def _is_known_url(text: str, urls: frozenset[str], tool: Tool) -> bool:
    """Whether a text is one of these URLs. Our own tools request the normal form of a URL."""
    return (normalize_url(text) if tool.origin is Origin.WEB else text) in urls


def _is_part_of(text: str, words: Sequence[str]) -> bool:
    """Whether a text consists of some of these words, in this order: another could encode a text.

    All words are written like the user's, or all in lower case: so could mixed case.
    """
    if _WORDS.fullmatch(text) is None:
        return False
    used = _WORD.findall(text)
    return _is_subsequence(used, words) or _is_subsequence(used, [each.lower() for each in words])


def _is_subsequence(items: Sequence[str], of: Sequence[str]) -> bool:
    rest = iter(of)
    return all(item in rest for item in items)


def _is_bounded(schema: object, value: object) -> bool:
    """Whether a value is a number that the tool bounds, such as a limit: too small for a text."""
    if not isinstance(value, int) or not isinstance(schema, Mapping):
        return False
    if isinstance(value, bool):
        return True
    bounds = cast("Mapping[str, Any]", schema)
    low, high = bounds.get("minimum"), bounds.get("maximum")
    return isinstance(low, int) and isinstance(high, int) and high - low <= MAX_RANGE


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in cast("dict[str, object]", value).values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _strings(each)


def _known_urls(context: RunContext) -> frozenset[str]:
    return context.history.provenance.urls.union(urls_in(_user_texts(context)), context.found_urls)


def _user_texts(context: RunContext) -> Iterator[str]:
    """Texts of the user. With peers in the conversation, earlier messages may not be the user's."""
    if Origin(context.inputs.origin) is Origin.USER:
        yield context.inputs.question.content
    if all(mark.origin is not Origin.PEER for mark in context.history.provenance.marks):
        yield from (m.text for m in context.history.messages if isinstance(m, UserText))


def urls_in(texts: Iterable[str]) -> Iterator[str]:
    """Find the URLs in texts, without trailing punctuation."""
    return (
        match.group().rstrip(_TRAILING_PUNCTUATION)
        for text in texts
        for match in _URL.finditer(text)
    )


def record_reading(context: RunContext, results: Iterable[ToolResultRecord]) -> None:
    """Add what tool results contain to what the run has read."""
    for result in results:
        context.record_reading(result.marks, is_private=result.is_private)
