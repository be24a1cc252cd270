"""robots.txt, by the rules and examples of RFC 9309."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.tools.web.politeness import RobotsRule, RobotsTxt, parse_robots

FITS = [
    ("/fish", "/fish"),
    ("/fish", "/fish.html"),
    ("/*.php", "/a/index.php?x"),
    ("/*.php$", "/index.php"),
    ("/*.php$", "/a.php/b.php"),
    ("/fish*.php", "/fishheads/x.php"),
    ("/a$", "/a"),
    ("/a*b$", "/ab"),
    ("*", "/"),
    ("/*", "/x"),
    ("/*a*b*c", "/xaxbxc"),
    ("/$", "/"),
]

FITS_NOT = [
    ("/fish", "/Fish"),
    ("/fish/", "/fish"),
    ("/*.php$", "/index.php?x"),
    ("/a$", "/ab"),
    ("/ab*b$", "/ab"),
    ("/*a*b*c", "/cba"),
]


@pytest.mark.parametrize(("pattern", "target"), FITS)
def test_a_rule_fits_from_the_beginning(pattern: str, target: str) -> None:
    """`*` is anything, `$` the end."""
    assert RobotsRule(False, pattern).matches(target)


@pytest.mark.parametrize(("pattern", "target"), FITS_NOT)
def test_a_rule_fits_nothing_else(pattern: str, target: str) -> None:
    """Case counts, and each piece needs its own place."""
    assert not RobotsRule(False, pattern).matches(target)


FILES = {
    "nothing": ("", "/x", "yes"),
    "everyone": ("User-agent: *\nDisallow: /x", "/x/y", "no"),
    "everyone, elsewhere": ("User-agent: *\nDisallow: /x", "/y", "yes"),
    "empty": ("User-agent: *\nDisallow:", "/x", "yes"),
    "ours before everyone's": (
        "User-agent: *\nDisallow: /\n\nUser-agent: Dodona\nAllow: /",
        "/",
        "yes",
    ),
    "ours alone": (
        "User-agent: *\nDisallow: /a\nUser-agent: dodona/2.0\nDisallow: /b",
        "/a",
        "yes",
    ),
    "ours, twice": (
        "User-agent: dodona\nDisallow: /a\nUser-agent: dodona\nDisallow: /b",
        "/a",
        "no",
    ),
    "ours, without a rule": ("User-agent: *\nDisallow: /\nUser-agent: dodona", "/x", "yes"),
    "several agents": ("User-agent: a\nUser-agent: DODONA\nDisallow: /x", "/x", "no"),
    "another's": ("User-agent: dodonabot\nDisallow: /", "/x", "yes"),
    "longest": ("User-agent: *\nDisallow: /a\nAllow: /a/b", "/a/b", "yes"),
    "longest, turned": ("User-agent: *\nAllow: /a\nDisallow: /a/b", "/a/b", "no"),
    "a draw": ("User-agent: *\nDisallow: /a\nAllow: /a", "/a", "yes"),
    "comments and case": ("# x\nUSER-AGENT:* # all\ndisallow:/x # no", "/x", "no"),
    "other lines between": ("User-agent: *\nSitemap: /s\nDisallow: /x", "/x", "no"),
    "escapes": ("User-agent: *\nDisallow: /%7Ea/ä", "/~a/%C3%A4", "no"),
    "no slash": ("User-agent: *\nDisallow: x", "/x", "no"),
    "a mark": ("\ufeffUser-agent: *\nDisallow: /x", "/x", "no"),
    "rules of nobody": ("Disallow: /", "/x", "yes"),
}


@pytest.mark.parametrize(("text", "target", "expected"), FILES.values(), ids=FILES.keys())
def test_a_file_is_read(text: str, target: str, expected: str) -> None:
    """Our group, else everyone's; the longest rule, else the friendly one."""
    assert parse_robots(text).allows(target) == (expected == "yes")


def test_a_delay_is_read() -> None:
    """In seconds; what is no number is none."""
    assert parse_robots("User-agent: *\nCrawl-delay: 2.5").delay == 2.5
    for odd in ("-1", "nan", "inf", "1e9", "x", ""):
        assert parse_robots(f"User-agent: *\nCrawl-delay: {odd}").delay == 0.0


@pytest.mark.timeout(30)
def test_no_file_takes_long() -> None:
    """Half a megabyte of stars is matched in time."""
    stars = "User-agent: *\n" + ("Disallow: /" + "*a" * 900 + "$\n") * 250
    assert parse_robots(stars).allows("/" + "a" * 3_900 + "b")


@given(st.text())
def test_any_text_is_a_file(text: str) -> None:
    """A host can answer anything."""
    assert isinstance(parse_robots(f"User-agent: *\n{text}"), RobotsTxt)
