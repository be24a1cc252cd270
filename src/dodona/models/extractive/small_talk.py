"""Answers greetings and questions about the assistant itself, without a search."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from dodona.core.messages import ContextText, Message, ToolResult, UserText

MAX_TITLES: Final = 5

CAPABILITIES: Final = """\
I answer questions about this project from its notes, code and threads. I do not write text of my \
own: I quote the passage that answers best, with its source. Ask, for example:

- How does … work?
- Where is NAME defined?
- Who uses NAME?
- What is in FILE.md?"""
INTRODUCTION: Final = "This is Dodona, which runs agents that answer questions about a project."
GREETING: Final = "Hello."
THANKS: Final = "You are welcome."

_GREETING: Final = re.compile(
    r"(?:hi|hey|hello|good (?:morning|afternoon|evening|day)|greetings|hallo|moin|servus|salut"
    r"|guten (?:morgen|tag|abend)|hola|bonjour)(?: there| dodona| oracle)?"
)
_THANKS: Final = re.compile(
    r"(?:ok )?(?:thanks|thank you|thx|danke|vielen dank|merci)"
    r"(?: a lot| (?:so|very) much| again| dodona)?"
)
_HELP: Final = re.compile(
    r"help|hilfe|(?:what|how) can (?:you|i) (?:do|ask)(?: (?:here|you|for me))?|what do you do"
    r"|how does this work|(?:can|could) you help(?: me)?|was kannst du(?: alles)?|wer bist du"
    r"|who are you|what are you|was machst du"
)
_WHAT_IS_THIS: Final = re.compile(
    r"what(?: is|'s|s) this(?: (?:thing|tool|program|place))?|was ist (?:das|dies)|where am i"
    r"|what(?: is|'s|s) (?:this|the) (?:project|repository|repo|vault)(?: about)?|wo bin ich"
)

_LISTED_NOTE: Final = re.compile(r"([^`]+?\.md) ", re.IGNORECASE)  # then its title


def answer_small_talk(messages: Sequence[Message]) -> str:
    """Return the answer to a greeting or to a question about the assistant; else ""."""
    if not messages or isinstance(messages[-1], ToolResult):
        return ""
    question = next((each for each in reversed(messages) if isinstance(each, UserText)), None)
    text = " ".join(re.findall(r"[\w']+", question.text[:200].lower())) if question else ""
    if _THANKS.fullmatch(text):
        return THANKS
    if _GREETING.fullmatch(text):
        return f"{GREETING} {CAPABILITIES}"
    if _HELP.fullmatch(text):
        return CAPABILITIES
    if _WHAT_IS_THIS.fullmatch(text):
        return f"{INTRODUCTION} {CAPABILITIES}{_list_notes(messages)}"
    return ""


def _list_notes(messages: Sequence[Message]) -> str:
    """Return some notes of the project, from the list that precedes the question."""
    context = next((each for each in reversed(messages) if isinstance(each, ContextText)), None)
    found = map(_LISTED_NOTE.match, context.text.splitlines() if context else ())
    notes = [match[1] for match in found if match][:MAX_TITLES]
    listed = "\n".join(f"- `{note}`" for note in notes)
    return f"\n\nSome of its notes:\n\n{listed}" if listed else ""
