"""Restrictions after a run has read untrusted text, which may contain injected instructions.

From then on, irreversible calls need an approval, and pages are fetched only from URLs that the
user typed or a search returned: a URL from an untrusted page could exfiltrate secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.records import ToolResultRecord
from dodona.core.messages import Origin, UserText
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import SourceKind, SourceReference, Tool

_URL_CHAR: Final = r"[^\s<>\"'`\]\[(){}|\\^]"
# Balanced parentheses are part of a URL: /wiki/Oak_(tree).
_URL = re.compile(rf"https?://(?:{_URL_CHAR}|\({_URL_CHAR}*+\))++", re.IGNORECASE)
_TRAILING_PUNCTUATION: Final = ".,;:!?"


def approval_reason(context: RunContext, tool: Tool) -> str:
    """Return why a tool call needs an approval; "" if it needs none."""
    if tool.effect is not Effect.ONCE or not _is_tainted(context):
        return ""
    origins = " and ".join(sorted(origin.value for origin in context.untrusted_origins))
    return (
        f"this conversation contains untrusted text ({origins}), and {tool.spec.name} cannot be "
        "undone."
    )


def allowed_urls(context: RunContext) -> frozenset[str] | None:
    """Return the URLs that may be fetched; None allows all."""
    if not _is_tainted(context):
        return None
    return context.history.provenance.urls.union(
        urls_in(_user_texts(context)), web_urls(context.sources)
    )


def _user_texts(context: RunContext) -> Iterator[str]:
    """Texts of the user. With peers in the conversation, earlier messages may not be the user's."""
    if Origin(context.inputs.origin) is Origin.USER:
        yield context.inputs.question.content
    if Origin.PEER not in context.untrusted_origins:
        yield from (m.text for m in context.history.messages if isinstance(m, UserText))


def web_urls(sources: Iterable[SourceReference]) -> Iterator[str]:
    """Return the URLs of web sources."""
    return (source.path for source in sources if source.kind is SourceKind.WEB)


def urls_in(texts: Iterable[str]) -> Iterator[str]:
    """Find the URLs in texts, without trailing punctuation."""
    return (
        match.group().rstrip(_TRAILING_PUNCTUATION)
        for text in texts
        for match in _URL.finditer(text)
    )


def record_origins(context: RunContext, results: Iterable[ToolResultRecord]) -> None:
    """Add the untrusted origins of tool results to the run context."""
    for result in results:
        context.untrusted_origins.update(result.untrusted_origins)


def _is_tainted(context: RunContext) -> bool:
    return context.deps.policy.require_approval_after_untrusted and bool(context.untrusted_origins)
