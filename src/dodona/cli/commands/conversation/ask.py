"""`dodona ask`: one question, answered as it comes."""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dodona.agent.question import Question
from dodona.app.config.config import Config
from dodona.cli.arguments import AsJson
from dodona.cli.client.ask import fetch_answer, show_answer
from dodona.cli.client.connect import connect, load_config_quietly
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.project_file import project_of
from dodona.cli.terminal.output import print_json
from dodona.cli.terminal.screen import Screen
from dodona.core.errors import BadRequest
from dodona.net.redactor import Redactor

_OPTION = re.compile(r"--?[A-Za-z][\w-]*(=.*)?")

ProjectName = Annotated[
    str | None, Parameter(help="The project; by default the one that this folder belongs to.")
]


@dataclass(frozen=True, slots=True)
class AskOptions:
    """How a question is to be answered."""

    project: ProjectName = None
    model: Annotated[str | None, Parameter(help="The model, if not the usual one.")] = None
    context: Annotated[
        str | None, Parameter(help="Go on from this context_id of an earlier answer.")
    ] = None
    max_tokens: Annotated[int | None, Parameter(help="The longest answer, in tokens.")] = None
    sources: Annotated[
        str | None, Parameter(help="The kinds of tools that may be used, as in: vault,web")
    ] = None
    thinking: Annotated[
        bool | None, Parameter(help="Let the model think, or not, and show it.")
    ] = None

    def question(self, text: str, *, new: bool = False) -> Question:
        """The question, checked; all that is wrong with it is told at once."""
        kinds = self.sources
        given: dict[str, Any] = {
            "question": text,
            "project_id": project_of(Path.cwd()) if self.project is None else self.project,
            "context_id": self.context,
            "model": self.model,
            "max_tokens": self.max_tokens,
            "sources": None if kinds is None else [kind.strip() for kind in kinds.split(",")],
            "thinking": self.thinking,
            "new": new,
        }
        return Question.read(given)


def ask(
    question: Annotated[
        str,
        Parameter(help="What to ask; - reads it from standard input.", allow_leading_hyphen=True),
    ],
    /,
    *,
    new: Annotated[
        bool, Parameter(negative="", show_default=False, help="Begin a new conversation.")
    ] = False,
    options: Annotated[AskOptions | None, Parameter(name="*")] = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Ask the Oracle and show the answer as it comes. Ctrl-C cancels, and what came is saved."""
    asked = (options or AskOptions()).question(_read_question(question), new=new)
    loaded = load_config_quietly(config, redactor)
    asyncio.run(_ask(loaded, asked, redactor, as_json=json))


async def _ask(config: Config, question: Question, redactor: Redactor, *, as_json: bool) -> None:
    async with connect(config, redactor) as client:
        if as_json:
            print_json(redactor.scrub_all(dict(await fetch_answer(client, question))))
        else:
            await show_answer(client, question, Screen(shows_thinking=bool(question.thinking)))


def _read_question(question: str) -> str:
    if _OPTION.fullmatch(question):
        raise BadRequest(f"there is no option {question}.", hint="See: dodona ask --help")
    if question != "-":
        return question
    try:
        return sys.stdin.buffer.read().decode().strip()
    except UnicodeDecodeError as error:
        raise BadRequest("the question is no text in UTF-8.") from error
