"""What is code in Markdown that still arrives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.models.text_calls.markdown_code import MarkdownCode

# Where `|` stands, is it code?
CODE = [
    "```\n|",
    "```python\n|",
    "``` |",
    "````\n```\n|",
    "```\n~~~\n|",
    "~~~\n```\n|",
    "~~~ ~~~\n|",
    "~~~~\n~~~\n|",
    "```\n``` x\n|",
    "```\n```|",
    "```\n``` ```\n|",
    "```\n    ```\n|",
    "```\n> ```\n|",
    "```\n- ```\n|",
    "   ```\n|",
    "> ```\n> |",
    "> ```\n> x\n>\n> |",
    "- ```\n\n  |",
    "1.  ```\n    |",
    "text\n```\n|",
    "`|",
    "`x\n|",
    "x `` ` |",
    "`x\n```\n|",
    "x ```y |",
    "``` x ` |",
    "\r\n```\r\n|",
]
TEXT = [
    "|",
    "`x`|",
    "``x`y``|",
    "```\nx\n```\n|",
    "```\nx\n````  \n|",
    "```\n   ```\n|",
    "    ```\n    ```\n|",
    "> ```\n> x\n> ```\n> |",
    "- ```\n  x\n  ```\n|",
    "1.  ```\n    x\n    ```\n|",
    "~~~\nx\n~~~\n|",
    "~~\n|",
    "x ~~~\n|",
    "```x``` |",
    "```x```\n|",
    "x ```\ny\n```\n|",
    "`x\n\n|",
    "`x\n```\ny\n```\n|",
    "`x\n \t\n|",
    "```\r\nx\r\n```\r\n|",
]


def is_code(text: str) -> bool:
    code = MarkdownCode()
    code.feed(text)
    return code.is_inside()


@pytest.mark.parametrize("text", CODE)
def test_this_is_code(text: str) -> None:
    """In doubt too: a fence that is not closed, a backtick that nobody answers."""
    assert is_code(text.partition("|")[0])


@pytest.mark.parametrize("text", TEXT)
def test_this_is_text(text: str) -> None:
    """Closed as CommonMark says, or by the end of the paragraph."""
    assert not is_code(text.partition("|")[0])


@settings(deadline=None)  # the machine may be busy
@given(text=st.text("`~ \n\t>-1.x\r", max_size=60), at=st.integers(0, 60))
def test_it_does_not_matter_how_the_text_is_cut(text: str, at: int) -> None:
    """Runs of backticks are counted across the cut."""
    code = MarkdownCode()
    code.feed(text[:at])
    code.feed(text[at:])
    assert code.is_inside() == is_code(text)
