"""robots.txt, as RFC 9309 has it: which paths of a host may be fetched, and how often.

The group that names us counts, else the one for all. The longest rule that fits decides, and
`Allow` wins a draw.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dodona.net.urls import normalize_escapes

PRODUCT_TOKEN: Final = "dodona"  # what a site calls us in its robots.txt
MAX_BYTES: Final = 500 * 1024  # of the file that must be read
MAX_RULES: Final = 5_000
MAX_RULE_CHARS: Final = 2_000

_PRODUCT = re.compile(r"\*|[A-Za-z_-]+")


@dataclass(frozen=True, slots=True)
class RobotsRule:
    """A path that is allowed or not; `*` stands for any characters, a last `$` for the end."""

    allows: bool
    pattern: str

    def matches(self, target: str) -> bool:
        """Each piece is found once, from left to right: no pattern takes long."""
        is_whole = self.pattern.endswith("$")
        first, *pieces = self.pattern.removesuffix("$").split("*")
        if not target.startswith(first):
            return False
        at = len(first)
        last = pieces.pop() if pieces and is_whole else None
        for piece in pieces:
            found = target.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        if last is not None:
            return target.endswith(last) and len(target) - len(last) >= at
        return not is_whole or at == len(target)


@dataclass(frozen=True, slots=True)
class RobotsTxt:
    """What a host asks of us. `delay` is the least time between two requests, in seconds."""

    rules: tuple[RobotsRule, ...] = ()
    delay: float = 0.0

    def allows(self, target: str) -> bool:
        """May this path with its query, in its normal form, be fetched?"""
        fitting = (rule for rule in self.rules if rule.matches(target))
        best = max(fitting, key=lambda rule: (len(rule.pattern), rule.allows), default=None)
        return best is None or best.allows


def parse_robots(text: str) -> RobotsTxt:
    """The file, as far as it concerns us. Lines that make no sense are passed over."""
    ours: list[tuple[str, str]] = []
    everyone: list[tuple[str, str]] = []
    named: set[str] = set()
    is_naming = False
    for key, value in _parse_lines(text):
        if key == "user-agent":
            product = _PRODUCT.match(value)
            named = named if is_naming else set()
            named.add(product[0].lower() if product else "")
            is_naming = True
            continue
        is_naming = False
        if PRODUCT_TOKEN in named:
            ours.append((key, value))
        if "*" in named:
            everyone.append((key, value))
    group = ours if _has_own_group(text) else everyone
    rules = [_parse_rule(key, value) for key, value in group if key in {"allow", "disallow"}]
    delays = (_parse_delay(value) for key, value in group if key == "crawl-delay")
    return RobotsTxt(tuple(filter(None, rules))[:MAX_RULES], max(delays, default=0.0))


def _has_own_group(text: str) -> bool:
    """Also a group without a rule is ours: it lets us do anything."""
    agents = (value for key, value in _parse_lines(text) if key == "user-agent")
    return any((found := _PRODUCT.match(v)) and found[0].lower() == PRODUCT_TOKEN for v in agents)


def _parse_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.removeprefix("\ufeff").splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        if colon and key.strip().lower() in {"user-agent", "allow", "disallow", "crawl-delay"}:
            yield key.strip().lower(), value.strip()[:MAX_RULE_CHARS]


def _parse_rule(key: str, value: str) -> RobotsRule | None:
    """None for an empty path: it names nothing."""
    if not value:
        return None
    pattern = normalize_escapes(value.encode("utf-8", "replace").decode())
    return RobotsRule(key == "allow", pattern if pattern[0] in "/*" else f"/{pattern}")


def _parse_delay(text: str) -> float:
    return float(text) if re.fullmatch(r"\d{1,6}(\.\d{0,3})?", text, re.ASCII) else 0.0
