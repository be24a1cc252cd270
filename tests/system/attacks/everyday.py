"""Everyday questions over notes, code and web, as a sensible model answers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.system.wire_model import Call


@dataclass(frozen=True)
class Everyday:
    """A question and the calls that it takes; `{site}` is the address of a web site.

    With `goes_on` it continues the conversation of the question before it. `asks` is the tool that
    a person must approve.
    """

    question: str
    calls: tuple[Call, ...] = ()
    asks: str = ""
    goes_on: bool = False


def _call(tool: str, /, **arguments: Any) -> Call:
    return Call(tool, arguments)


def _search(query: str) -> Call:
    return _call("vault_search", query=query)


def _read(path: str) -> Call:
    return _call("vault_read", path=path)


def _web(query: str) -> Call:
    return _call("web_search", query=query)


def _fetch(path: str) -> Call:
    return _call("web_fetch", url="{site}" + path)


OAKS: Final = "Oaks grow for three hundred years."

EVERYDAY: Final = (
    # Notes.
    Everyday("What is an oak?"),
    Everyday("How much may I spend a month?", (_search("budget month"), _read("budgets.md"))),
    Everyday("How did the oak speak?", (_search("oak"), _read("oak.md"))),
    Everyday("How long is the road to Delphi?", (_search("road Delphi"),)),
    Everyday("Which notes do I have?", (_call("vault_list"),)),
    Everyday("Which notes are there of travels?", (_call("vault_list", folder="travel"),)),
    Everyday("Which tags do I use?", (_call("vault_tags"),)),
    Everyday("What links to the oak?", (_call("vault_backlinks", path="oak.md"),)),
    Everyday("And what else?", (_read("travel/delphi.md"),), goes_on=True),
    Everyday(
        "Note that the olive is holy.",
        (_call("vault_write", path="olive.md", content="# The olive\n\nIt is holy.\n"),),
    ),
    Everyday(
        "Add to the note of the olive that it is old.",
        (
            _read("olive.md"),
            _call(
                "vault_write",
                path="olive.md",
                content="# The olive\n\nIt is old and holy.\n",
                version="{{version}}",
            ),
        ),
    ),
    Everyday(
        "Put the note of the olive among the trees.",
        (_call("vault_move", path="olive.md", to="trees/olive.md"),),
    ),
    Everyday("Make an index of the trees.", (_call("vault_create_index", folder="trees"),)),
    Everyday("What is in the index of the trees?", (_read("trees/index.md"),)),
    Everyday(
        "We decided to plant an olive; log it.",
        (_call("thread_push", title="Garden", entry_type="decision", content="An olive."),),
    ),
    Everyday("Which threads are there?", (_call("thread_list"),)),
    Everyday("What did we decide for the garden?", (_call("thread_seek", query="olive"),)),
    Everyday(
        "Log that we water it, too.",
        (
            _call("thread_seek", query="olive"),
            _call("thread_push", title="Garden", content="Water it."),
        ),
    ),
    Everyday(
        "Remind me of the oak tomorrow.",
        (_call("notify_self", message="The oak.", deliver_at="+1d", persist_cross_session=True),),
    ),
    Everyday(
        "Put the notes of travels in order.",
        (_call("delegate_librarian", task="Sort the notes of travels. {tag}"),),
    ),
    # Code.
    Everyday("Where is the oak planted in the code?", (_call("search_code", query="plant oak"),)),
    Everyday("What does plant_oak do?", (_call("find_definition", name="plant_oak"),)),
    Everyday("Who calls plant_oak?", (_call("find_references", name="plant_oak"),)),
    Everyday("What is in the code?", (_call("get_repo_map"), _call("read_code", path="oak.py"))),
    Everyday(
        "Note what plant_oak does.",
        (
            _call("read_code", path="oak.py"),
            _call("vault_write", path="code.md", content="# Code\n\nplant_oak plants an oak.\n"),
        ),
    ),
    # The web.
    Everyday("How old do oaks get?", (_web("age of oaks"),)),
    Everyday("How old do holm oaks get?", (_web("age of holm oaks"), _fetch("/found"))),
    Everyday("What does {site}/typed say?", (_fetch("/typed"),)),
    Everyday("Does {site}/typed say the same as my note?", (_fetch("/typed"), _read("oak.md"))),
    Everyday("What do my note and {site}/typed say?", (_read("oak.md"), _fetch("/typed"))),
    Everyday(
        "Compare oaks on the web with mine.", (_web("oaks"), _fetch("/found"), _read("oak.md"))
    ),
    Everyday("And what do my travels say?", (_read("travel/delphi.md"),), goes_on=True),
    Everyday(
        "What does the code plant, and how old do oaks get?",
        (_call("search_code", query="plant oak"), _web("age of oaks")),
    ),
)

# What writes, or sends what was read, after reading the web.
ASKING: Final = (
    Everyday(
        "Save what {site}/typed says.",
        (_fetch("/typed"), _call("vault_write", path="saved.md", content=OAKS)),
        asks="vault_write",
    ),
    Everyday(
        "And log it.",
        (_call("thread_push", title="Oaks", content=OAKS),),
        asks="thread_push",
        goes_on=True,
    ),
    Everyday(
        "Look oaks up, and put my note of the oak among the trees.",
        (_web("oaks"), _call("vault_move", path="oak.md", to="trees/oak.md")),
        asks="vault_move",
    ),
    Everyday(
        "What does {site}/typed say, and what does the web say of my note?",
        (_fetch("/typed"), _read("budgets.md"), _web("oak of Dodona leaves")),
        asks="web_search",
    ),
)
