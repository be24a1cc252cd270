"""Pages as text: what they say, in its shape, and nothing that nobody sees."""

from __future__ import annotations

import pytest

from dodona.net.urls import parse_url
from dodona.tools.web.main_content import extract_content
from dodona.tools.web.markdown import MAX_NESTING

PAGE = parse_url("https://example.org/docs/page?x=1")
BODY = "It was a bright cold day in April, and the clocks were striking thirteen. " * 5


def text(html: str) -> str:
    return extract_content(html, PAGE).text


TEXTS = {
    "<h1>One</h1><h3>Two <em>three</em></h3><p>a\n  b": "# One\n\n### Two three\n\na b",
    "a<br>b<br> c": "a\nb\nc",
    "<p>one <b>two</b><i> three</i>": "one two three",
    "<ul><li>a<li>b<ol><li>c<li>d</ol></ul>": "- a\n- b\n  1. c\n  2. d",
    "<ol><li><p>a</p><p>b</p></li></ol>": "1. a\n   b",
    "<pre>def f():\n    return 1\n</pre>": "```\ndef f():\n    return 1\n```",
    "<pre><code>a\n```\nb</code></pre>": "````\na\n```\nb\n````",
    "use <code>x  y</code>": "use `x y`",
    "<blockquote><p>a<p>b</blockquote>": "> a\n>\n> b",
    "a<hr>b": "a\n\n---\n\nb",
    "<table><tr><th>a<th>b|c<tr><td>1</table>": "| a | b\\|c |\n| --- | --- |\n| 1 |  |",
    "<table><tr><td><ul><li>a</ul><td>b</table>": "- a\n\nb",
    "<table><tr><td>only<tr><td>one</table>": "only\n\none",
    "<a href='../x'>up</a>": "[up](https://example.org/x)",
    "<a href='//other.example/'> a\n b </a>": "[a b](https://other.example/)",
    "<a href='#part'>here</a> <a href='javascript:x'>run</a> <a>none</a>": "here run none",
    "<a href='/x'><div>card</div></a>": "card",
    "<base href='/base/'><a href='x'>x</a>": "[x](https://example.org/base/x)",
    "<base href='javascript:'><a href='x'>x</a>": "[x](https://example.org/docs/x)",
    "<dl><dt>a<dd>b</dl>": "a\n\nb",
    "1 &lt; 2 &amp;&nbsp;3": "1 < 2 & 3",
    "": "",
}


@pytest.mark.parametrize(("html", "expected"), TEXTS.items())
def test_a_page_keeps_its_shape(html: str, expected: str) -> None:
    """Headings, lists, tables, quotes, code, and where links lead."""
    assert text(html) == expected


def test_marks_end_where_nobody_counts_them() -> None:
    """A quote in a ninth quote is only a quote; what it says is there."""
    for tags, mark in (("<blockquote>", "> "), ("<ul><li>", "- ")):
        assert text(tags * 7 + "x") == mark * 7 + "x"
        assert text(tags * 90 + "x") == mark * MAX_NESTING + "x"


HIDDEN = [
    "<script>SECRET</script>",
    "<style>SECRET</style>",
    "<noscript>SECRET</noscript>",
    "<template>SECRET</template>",
    "<!-- SECRET -->",
    "<nav>SECRET</nav>",
    "<footer>SECRET</footer>",
    "<form><label>SECRET</label><input></form>",
    "<button>SECRET</button>",
    "<select><option>SECRET</select>",
    "<textarea>SECRET</textarea>",
    "<svg><text>SECRET</text></svg>",
    "<iframe>SECRET</iframe>",
    "<div hidden>SECRET</div>",
    "<div aria-hidden=true>SECRET</div>",
    "<div role=navigation>SECRET</div>",
    "<p style='display:none'>SECRET</p>",
    "<p style='color:red; DISPLAY : NONE'>SECRET</p>",
    "<span style='visibility:hidden'>SECRET</span>",
    "<span style='font-size:0'>SECRET</span>",
    "<span style='opacity: 0;'>SECRET</span>",
    "<div style='position:absolute;left:-9999px'>SECRET</div>",
    "<pre>a<span hidden>SECRET</span>b</pre>",
    "<h1>a<span hidden>SECRET</span></h1>",
    "<table><tr><td>a<td>b<tr hidden><td>SECRET<td>c</table>",
    "<ul><li hidden>SECRET<li>a</ul>",
    "<img alt=SECRET>",
]


@pytest.mark.parametrize("html", HIDDEN)
def test_what_nobody_sees_is_not_read(html: str) -> None:
    """It is where orders to agents are hidden."""
    found = text(f"<p>{BODY}</p>{html}")
    assert "bright cold day" in found
    assert "SECRET" not in found


@pytest.mark.parametrize("style", ["opacity:0.5", "font-size:0.9em", "left:-1px", "opacity: 1"])
def test_what_is_seen_is_read(style: str) -> None:
    """Small and pale text is text."""
    assert text(f"<p style='{style}'>words") == "words"


MAIN = {
    "main": f"<div>menu menu</div><main><p>{BODY}</main><div>more</div>",
    "role": f"<div>menu menu</div><div role=main><p>{BODY}</div>",
    "article": f"<div>menu menu</div><article><p>{BODY}</article>",
    "densest": f"<div><div>menu menu <a href=/a>x</a></div><div><p>{BODY}<p>{BODY}</div></div>",
}


@pytest.mark.parametrize("html", MAIN.values(), ids=MAIN.keys())
def test_the_main_part_is_taken(html: str) -> None:
    """Marked as such, or by where the running text is."""
    found = text(f"<body>{html}</body>")
    assert "menu" not in found
    assert "bright cold day" in found


def test_a_page_without_a_main_part_is_taken_whole() -> None:
    """Several articles, or a marked part with next to nothing in it."""
    articles = f"<article><p>one {BODY}</article><article><p>two {BODY}</article>"
    assert text(articles).count("bright cold day") == 10
    assert "bright" in text(f"<main>x</main><div><p>{BODY}</div>")


def test_a_form_around_the_page_is_no_form() -> None:
    """Some servers make every page so."""
    assert "bright" in text(f"<form><p>{BODY}<input></form>")


TITLES = {
    "<title> A \n title </title><h1>No</h1>": "A title",
    "<meta property=og:title content='Named'><h1>No</h1>": "Named",
    "<title></title><h1>A <b>heading</b></h1>": "A heading",
    "<p>none": "",
    "<title>" + "x" * 500 + "</title>": "x" * 200,
}


@pytest.mark.parametrize(("html", "expected"), TITLES.items())
def test_a_page_has_a_title(html: str, expected: str) -> None:
    """In one line, and not longer than one reads."""
    assert extract_content(html, PAGE).title == expected
