"""`dodona ask`: ask one question and stream the answer."""

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
from dodona.cli.arguments import flag
from dodona.cli.client.ask import fetch_answer, show_answer
from dodona.cli.client.connect import connect
from dodona.cli.options import DEFAULTS, Options, ProjectName
from dodona.cli.project_file import project_of
from dodona.cli.terminal.output import REDACTOR, print_json
from dodona.cli.terminal.screen import Screen
from dodona.core.errors import BadRequest
from dodona.core.json_document import parse_document

_OPTION = re.compile(r"--?[A-Za-z][\w-]*(=.*)?")


@dataclass(frozen=True, slots=True)
class AskOptions:
    """Options of a question."""

    project: ProjectName = None
    model: Annotated[str | None, Parameter(help="Model. Defaults to the configured model.")] = None
    context: Annotated[
        str | None, Parameter(help="Continue from this context_id of an earlier answer.")
    ] = None
    max_tokens: Annotated[
        int | None, Parameter(help="Maximum length of the answer, in tokens.")
    ] = None
    sources: Annotated[
        str | None, Parameter(help="Kinds of tools to allow, such as: vault,web")
    ] = None
    thinking: Annotated[bool | None, Parameter(help="Enable or disable thinking, and show it.")] = (
        None
    )

    def question(self, text: str, *, new: bool = False) -> Question:
        """Build and validate a question. Raises one error with all problems."""
        kinds = self.sources
        values: dict[str, Any] = {
            "question": text,
            "project_id": project_of(Path.cwd()) if self.project is None else self.project,
            "context_id": self.context,
            "model": self.model,
            "max_tokens": self.max_tokens,
            "sources": None if kinds is None else [kind.strip() for kind in kinds.split(",")],
            "thinking": self.thinking,
            "new": new,
        }
        return parse_document(Question, values)


def ask(
    question: Annotated[
        str,
        Parameter(
            help="The question. Use - to read it from standard input.", allow_leading_hyphen=True
        ),
    ],
    /,
    *,
    new: Annotated[bool, flag("Start a new conversation.")] = False,
    ask_options: Annotated[AskOptions | None, Parameter(name="*")] = None,
    options: Options = DEFAULTS,
) -> None:
    """Ask a question and print the answer as it arrives."""
    request = (ask_options or AskOptions()).question(_read_question(question), new=new)
    asyncio.run(_ask(options.load_config(), request, as_json=options.json))


async def _ask(config: Config, question: Question, *, as_json: bool) -> None:
    async with connect(config, REDACTOR) as client:
        if as_json:
            print_json(REDACTOR.scrub_all(dict(await fetch_answer(client, question))))
        else:
            await show_answer(client, question, Screen(shows_thinking=bool(question.thinking)))


def _read_question(question: str) -> str:
    if _OPTION.fullmatch(question):
        raise BadRequest(f"unknown option {question}.", hint="See: dodona ask --help")
    if question != "-":
        return question
    try:
        return sys.stdin.buffer.read().decode().strip()
    except UnicodeDecodeError as error:
        raise BadRequest("the question is not valid UTF-8.") from error
