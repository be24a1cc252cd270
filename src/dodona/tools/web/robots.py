"""robots.txt by RFC 9309: which paths of a host may be fetched, and how often.

The group that names us applies, else the group for all. The longest matching rule decides; in a tie
`Allow` wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dodona.net.urls import normalize_escapes

PRODUCT_TOKEN: Final = "dodona"  # our user agent name in robots.txt
MAX_BYTES: Final = 500 * 1024  # the part of the file that RFC 9309 requires us to read
MAX_RULES: Final = 5_000
MAX_RULE_CHARS: Final = 2_000

_PRODUCT = re.compile(r"\*|[A-Za-z_-]+")


@dataclass(frozen=True, slots=True)
class RobotsRule:
    """Allows or disallows a path; `*` matches any characters, a final `$` the end."""

    allows: bool
    pattern: str

    def matches(self, target: str) -> bool:
        """Whether the rule matches. Each piece is searched once, so no pattern is slow."""
        is_whole = self.pattern.endswith("$")
        first, *pieces = self.pattern.removesuffix("$").split("*")
        if not target.startswith(first):
            return False
        at = len(first)
        last = pieces.pop() if pieces and is_whole else None
        for piece in pieces:
            start = target.find(piece, at)
            if start < 0:
                return False
            at = start + len(piece)
        if last is not None:
            return target.endswith(last) and len(target) - len(last) >= at
        return not is_whole or at == len(target)


@dataclass(frozen=True, slots=True)
class RobotsTxt:
    """The rules of a host. `delay` is the minimum number of seconds between requests."""

    rules: tuple[RobotsRule, ...] = ()
    delay: float = 0.0

    def allows(self, target: str) -> bool:
        """Whether this path with its query, in normal form, may be fetched."""
        matching = (rule for rule in self.rules if rule.matches(target))
        best = max(matching, key=lambda rule: (len(rule.pattern), rule.allows), default=None)
        return best is None or best.allows


def parse_robots(text: str) -> RobotsTxt:
    """Parse the parts of robots.txt that apply to us; invalid lines are ignored."""
    ours: list[tuple[str, str]] = []
    everyone: list[tuple[str, str]] = []
    agents: set[str] = set()
    in_agent_lines = False
    for key, value in _parse_lines(text):
        if key == "user-agent":
            product = _PRODUCT.match(value)
            agents = agents if in_agent_lines else set()
            agents.add(product[0].lower() if product else "")
            in_agent_lines = True
            continue
        in_agent_lines = False
        if PRODUCT_TOKEN in agents:
            ours.append((key, value))
        if "*" in agents:
            everyone.append((key, value))
    group = ours if _has_own_group(text) else everyone
    rules = [_parse_rule(key, value) for key, value in group if key in {"allow", "disallow"}]
    delays = (_parse_delay(value) for key, value in group if key == "crawl-delay")
    return RobotsTxt(tuple(filter(None, rules))[:MAX_RULES], max(delays, default=0.0))


def _has_own_group(text: str) -> bool:
    """Whether a group names us. Such a group without rules allows everything."""
    agents = (value for key, value in _parse_lines(text) if key == "user-agent")
    return any(
        (product := _PRODUCT.match(v)) and product[0].lower() == PRODUCT_TOKEN for v in agents
    )


def _parse_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.removeprefix("\ufeff").splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        if colon and key.strip().lower() in {"user-agent", "allow", "disallow", "crawl-delay"}:
            yield key.strip().lower(), value.strip()[:MAX_RULE_CHARS]


def _parse_rule(key: str, value: str) -> RobotsRule | None:
    """Parse a rule; None for an empty path, which matches nothing."""
    if not value:
        return None
    pattern = normalize_escapes(value.encode("utf-8", "replace").decode())
    return RobotsRule(key == "allow", pattern if pattern[0] in "/*" else f"/{pattern}")


def _parse_delay(text: str) -> float:
    return float(text) if re.fullmatch(r"\d{1,6}(\.\d{0,3})?", text, re.ASCII) else 0.0
