"""HTML that anybody may have written becomes a tree, in time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.net.urls import parse_url
from dodona.tools.web.main_content import extract_content
from dodona.tools.web.markup import MAX_DEPTH, Element, read_html


def shape(element: Element | str) -> str:
    """A tree as text: tag(children)."""
    if isinstance(element, str):
        return element
    inner = "".join(map(shape, element.children))
    return f"{element.tag}({inner})" if element.tag else inner


SHAPES = {
    "<p>a<b>b</b>c</p>": "p(ab(b)c)",
    "<p>a<p>b": "p(a)p(b)",
    "<ul><li>a<li>b<ul><li>c</ul></ul>d": "ul(li(a)li(bul(li(c))))d",
    "<dl><dt>a<dd>b<dt>c</dl>": "dl(dt(a)dd(b)dt(c))",
    "<table><tr><td>a<td>b<tr><td>c</table>d": "table(tr(td(a)td(b))tr(td(c)))d",
    "<table><tr><td><table><tr><td>x</table>y</table>": "table(tr(td(table(tr(td(x)))y)))",
    "<div><table><tr><td>a</div>b</table>c</div>": "div(table(tr(td(ab)))c)",
    "a<br>b<br/>c<img src=x>d": "abr()bbr()cimg()d",
    "<b>a<!-- <i> -->b</b>": "b(ab)",
    "a<!-->b": "ab",
    "<!DOCTYPE html><?xml?>a": "a",
    "a</ä>b</>c": "abc",
    "1 < 2 <3 <- x": "1 < 2 <3 <- x",
    "<script>if (a<b) '</b>'</script>c": "script(if (a<b) '</b>')c",
    "<SCRIPT>x</Script >c": "script(x)c",
    "<script>x</scripting>": "script(x</scripting>)",
    "<title>a &amp; <b></title>c": "title(a & <b>)c",
    "<textarea><p></textarea>x": "textarea(<p>)x",
    "&lt;b&gt; &eacute; &#x41; &bogus;": "<b> é A &bogus;",
    "<p title='it>s'>a": "p(a)",
    "<p title=it's>a</p>b": "p(a)b",
    "<p class=a/b / id>x": "p(x)",
    "</p></div>a": "a",
    "<a <b>c": "a(c)",
    "a<b": "a",
    "a<b c='d": "a",
    "a<!-- b": "a",
    "": "",
}


@pytest.mark.parametrize(("html", "expected"), SHAPES.items())
def test_a_page_is_a_tree(html: str, expected: str) -> None:
    """As a browser would have it, near enough to read it."""
    assert shape(read_html(html)) == expected


def test_attributes_are_read() -> None:
    """Quoted or not, escaped or not; the first of a name counts."""
    html = """<a HREF="/x?a=1&amp;b" title='"q"' data-x=y/z hidden href=no =odd = >"""
    (element,) = read_html(html).children
    assert isinstance(element, Element)
    assert element.attributes == {
        "href": "/x?a=1&b",
        "title": '"q"',
        "data-x": "y/z",
        "hidden": "",
        "=odd": "",
    }


# Each would take a parser that compares tags with open ones, or begins anew, minutes or more.
HOSTILE = {
    "deep": "<div>" * 20_000,
    "deep inline": "<b>" * 20_000 + "x",
    "deep lists": "<ul><li>" * 15_000,
    "deep tables": "<table><tr><td>" * 15_000,
    "deep quotes": "<blockquote>" * 20_000 + "x",
    "many deep quotes": "<blockquote>x" * 100_000,
    "many deep lists": "<ul><li>x" * 100_000,
    "inline around a block": "<b>" * 90 + "<i>x</i>" * 20_000 + "<div>y</div>",
    "deep links": "<a href=/x>" * 90 + "x " * 20_000,
    "never closed": "<a " * 20_000,
    "quotes never closed": "<a b='" * 20_000 + '"' * 50_000,
    "comments never closed": "<!--" * 20_000,
    "declarations": "<!" * 200_000,
    "scripts": "<script>" * 20_000,
    "attributes": "<p " + " ".join(f"a{n}" for n in range(20_000)) + ">",
    "equals": "<p " + "=" * 200_000 + ">",
    "spaces": "<p" + " " * 300_000,
    "entities": "&" * 300_000,
    "numbers": "&#" + "9" * 300_000,
    "ends": "<div>" * 90 + "</b>" * 20_000,
    "formatting": "<p>" + "<b><i><u>" * 15_000 + "</b></i></u>" * 15_000,
    "foster": "<table>" + "<b>x<tr>" * 20_000,
    "signs": "< " * 200_000,
    "styles": f"<p style='{'opacity:0' * 20_000}'>x",
    "dots": f"<p style='opacity:{'0' * 200_000}'>x",
}


@pytest.mark.parametrize("html", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.timeout(30)
@pytest.mark.slow
def test_no_page_takes_long(html: str) -> None:
    """A stranger's page must not hold the process up: what is quadratic would not end in time."""
    page = extract_content(html, parse_url("https://example.org/"))
    assert len(page.text) < 10 * len(html) + 100  # nor fill the memory


def test_a_tree_is_not_deep() -> None:
    """What is deeper stands side by side, so that a tree can be gone down into."""
    element, depth = read_html("<div>" * 1_000 + "x"), 0
    while element.children and isinstance(element.children[-1], Element):
        element, depth = element.children[-1], depth + 1
    assert depth == MAX_DEPTH


PIECES = """
< > </ /> <!-- --> = ' " & ; # <p <table> <tr> <td> <li> <ul> </table> <pre> <script> <a␣href=
http://[ x ä ␣ | ` <title> <base␣href= <form> <main>
"""
pieces = st.sampled_from(PIECES.split()).map(lambda piece: piece.replace("␣", " "))


@given(st.lists(pieces, max_size=40).map("".join) | st.text())
def test_any_text_is_a_page(text: str) -> None:
    """Nothing is raised."""
    extract_content(text, parse_url("https://example.org/"))
