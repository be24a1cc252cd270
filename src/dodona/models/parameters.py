"""Optional request parameters that a model rejects.

A rejected request is sent again without the parameter that the error names. If that succeeds, later
requests to the model leave it out too, until the process ends.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from dodona.models.errors import ErrorDetails
from dodona.models.provider import ModelEndpoint

# Not among them: `messages`, `tools` and what a client of `/v1` relies on, such as `stop`.
_MEMBERS: Final = {
    "thinking": ("reasoning_effort", "reasoning", "thinking", "extra_body"),
    "temperature": ("temperature",),
    "stream_options": ("stream_options",),
    "parallel_tool_calls": ("parallel_tool_calls",),
    "prompt_cache_key": ("prompt_cache_key",),
}
_PARAMETERS: Final = {member: name for name, members in _MEMBERS.items() for member in members}
# How errors name the parameters. An output limit is not left out: `swap_max_tokens` renames it.
_MENTION: Final = re.compile(
    r"(?P<thinking>reasoning|think|extra_body)|(?P<temperature>temperature)"
    r"|(?P<stream_options>stream_options)|(?P<parallel_tool_calls>parallel_tool_calls)"
    r"|(?P<prompt_cache_key>prompt_cache_key)|(?P<max_tokens>max_(?:completion_)?tokens)",
    re.IGNORECASE,
)
_REFUSAL: Final = re.compile(
    r"not? support|n't support|unsupported|not (permitted|allowed|enabled|available|compatible)"
    r"|forbidden|incompatible|deprecated|unknown|unrecogni[sz]ed|unexpected|extra (input|field)"
    r"|invalid (argument|parameter|field)|supported values|\bonly\b",
    re.IGNORECASE,
)
_OTHER_MEMBER: Final = re.compile(r"(messages|tools)\b[^ ]*(:|\.|\[|$)")

_MAX_TOKENS_MEMBERS: Final = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
_MAX_MODELS: Final = 512  # clients choose the names of models

_log = logging.getLogger(__name__)


class RejectedParameters:
    """The names of the parameters that one model rejects."""

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self.names: frozenset[str] = frozenset()

    def find(self, error: ErrorDetails) -> str:
        """Return the optional parameter that an error rejects, or an empty string."""
        text = error.message.replace(self._model, "")  # such as `qwen-thinking`
        named = error.parameter or text
        mention = _MENTION.search(named)
        if mention is None or _OTHER_MEMBER.match(named):
            return ""
        return (mention.lastgroup or "") if _REFUSAL.search(text) else ""

    def remember(self, names: frozenset[str]) -> None:
        """Leave these parameters out of later requests."""
        new, self.names = names - self.names, self.names | names
        if new:
            _log.warning(
                "%s/%s rejects %s; requests are sent without it",
                *(self._provider, self._model, " and ".join(sorted(new))),
            )


def rejected_parameters(endpoint: ModelEndpoint) -> RejectedParameters:
    """Return the parameters that a model rejects: one object for all agents that use the model."""
    return _rejected_parameters(endpoint.provider.name, endpoint.base_url, endpoint.model)


@lru_cache(maxsize=_MAX_MODELS)
def _rejected_parameters(provider: str, base_url: str, model: str) -> RejectedParameters:
    del base_url  # only a part of the key
    return RejectedParameters(provider, model)


def without_rejected(members: Iterable[bytes], rejected: frozenset[str]) -> Iterator[bytes]:
    """Yield the members of a request, each `"name":value`, without the rejected parameters."""
    for member in members:
        name = member[1 : member.index(b'"', 1)].decode()
        if _PARAMETERS.get(name) not in rejected:
            yield member


def swap_max_tokens(member: str, rejected: frozenset[str]) -> str:
    """Return the member for the output limit: the other one if the model rejects this one."""
    return _MAX_TOKENS_MEMBERS[member] if "max_tokens" in rejected else member
