"""Text from outside: once it has entered a run, a stranger may be speaking through the model.

From then on, calls that cannot be taken back are held, and pages are fetched only from addresses
that the user typed or a search returned: an address that a page made up could carry secrets away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from dodona.agent.run_context.context import RunContext
from dodona.core.messages import Origin, UserText
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import SourceKind, SourceReference, Tool

_URL_CHAR: Final = r"[^\s<>\"'`\]\[(){}|\\^]"
# Brackets belong to an address when they are closed in it: /wiki/Oak_(tree).
_URL = re.compile(rf"https?://(?:{_URL_CHAR}|\({_URL_CHAR}*+\))++", re.IGNORECASE)
_TRAILING_PUNCTUATION: Final = ".,;:!?"


def approval_reason(host: RunContext, tool: Tool) -> str:
    """Why a person must allow a call; "" when nobody need."""
    if tool.effect is not Effect.ONCE or not _is_tainted(host):
        return ""
    whom = " and ".join(sorted(origin.value for origin in host.untrusted_origins))
    return (
        f"text from outside ({whom}) has entered this conversation, and what {tool.spec.name} does "
        "cannot be taken back."
    )


def allowed_urls(host: RunContext) -> frozenset[str] | None:
    """The addresses that may be fetched; None is any."""
    if not _is_tainted(host):
        return None
    return host.history.provenance.urls.union(urls_in(_user_texts(host)), web_urls(host.sources))


def _user_texts(host: RunContext) -> Iterator[str]:
    """What the user has said. Where peers speak too, nobody knows which of it was before."""
    if Origin(host.inputs.origin) is Origin.USER:
        yield host.inputs.question.content
    if Origin.PEER not in host.untrusted_origins:
        yield from (m.text for m in host.history.messages if isinstance(m, UserText))


def web_urls(sources: Iterable[SourceReference]) -> Iterator[str]:
    return (source.path for source in sources if source.kind is SourceKind.WEB)


def urls_in(texts: Iterable[str]) -> Iterator[str]:
    """The web addresses in texts, without the punctuation after them."""
    return (
        found.group().rstrip(_TRAILING_PUNCTUATION)
        for text in texts
        for found in _URL.finditer(text)
    )


def record_origins(host: RunContext, results: Iterable[Mapping[str, Any]]) -> None:
    """Remember whose texts the model reads from now on."""
    for kept in results:
        host.untrusted_origins.update(Origin(value) for value in kept.get("outside", ()))


def _is_tainted(host: RunContext) -> bool:
    return host.deps.policy.require_approval_after_untrusted and bool(host.untrusted_origins)
