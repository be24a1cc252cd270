"""`dodona onboard`: who answers, and the key for it."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from getpass import getpass
from typing import Annotated

from cyclopts import Parameter

from dodona.app.models.credentials import LONGEST
from dodona.app.models.onboarding import (
    CHOICES,
    Onboarding,
    OnboardingRequest,
    OnboardingResult,
    known,
)
from dodona.cli.arguments import AsJson
from dodona.cli.commands.project.config import ConfigFile, Hidden
from dodona.cli.terminal.output import columns, document, note, say
from dodona.core.errors import BadRequest
from dodona.models.providers import PROVIDERS

_ABOUT = {
    "ollama": "models on this machine, no key",
    "openai-compatible": "a server of your own",
    "extractive": "no language model: quotes what tools find",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What need not be asked."""

    provider: Annotated[str | None, Parameter(help="Who serves the model.")] = None
    model: Annotated[
        str | None,
        Parameter(help="The provider's name of the model; its default is the provider's."),
    ] = None
    base_url: Annotated[
        str | None, Parameter(help="Where the provider is, if not at its usual place.")
    ] = None
    key_stdin: Annotated[
        bool, Parameter(negative="", show_default=False, help="Read the key from standard input.")
    ] = False
    key_from: Annotated[
        str | None, Parameter(help="Where the key is: env:NAME or file:PATH. It stays there.")
    ] = None


def onboard(
    *,
    flags: Annotated[Flags | None, Parameter(name="*")] = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: Hidden,
) -> None:
    """Choose who answers, and give the key; without options, it asks.

    The key is never shown, goes to a file that only you may read, and is sent to nobody now. The
    config file keeps its comments and all else that it says.
    """
    before = Onboarding(os.environ, config, redactor)
    done = before.set_up(_wish(flags or Flags(), before))
    if json:
        document(redactor.scrub_all(asdict(done)))
    else:
        _tell(done)


def _wish(flags: Flags, before: Onboarding) -> OnboardingRequest:
    """What the flags say, and a person where they say nothing."""
    if flags.key_stdin and flags.key_from:
        raise BadRequest("--key-stdin and --key-from exclude each other.", hint="Choose one.")
    has_person = sys.stdin.isatty() and not flags.key_stdin
    if flags.provider is None and not has_person:
        raise BadRequest("nobody is there to be asked.", hint="Name it: --provider NAME")
    name = _provider(before.provider) if flags.provider is None else known(flags.provider)
    base_url, key, model = flags.base_url, None, flags.model
    if flags.provider is None and name == "openai-compatible" and base_url is None:
        base_url = _answer("Its address, like http://127.0.0.1:8000/v1: ") or None
    if flags.key_stdin:
        key = sys.stdin.read(5 * LONGEST)
    elif has_person and flags.key_from is None:
        key = _key(name, before.has_key(name))
    if flags.provider is None and model is None and name in PROVIDERS:
        model = _model(name)
    return OnboardingRequest(
        provider=name, model=model, base_url=base_url, key=key, source=flags.key_from
    )


def _tell(done: OnboardingResult) -> None:
    rows = [("provider", done.provider), ("model", done.model or "-"), ("key", done.key or "-")]
    say(columns([*rows, ("config", str(done.config))]))
    for line in done.notes:
        note(line)
    say('Try: dodona ask "…"')


# -- what a person is asked --------------------------------------------------------------------


def _provider(usual: str | None) -> str:
    usual = usual if usual in CHOICES else CHOICES[0]
    say("Who answers?")
    rows = [(f"  {place}", name, _about(name)) for place, name in enumerate(CHOICES, start=1)]
    say(columns(rows))
    answer = _answer(f"Number or name [{usual}]: ") or usual
    is_place = answer.isdecimal() and 0 < int(answer) <= len(CHOICES)
    return CHOICES[int(answer) - 1] if is_place else known(answer)


def _about(provider: str) -> str:
    return _ABOUT.get(provider) or PROVIDERS[provider].default_model


def _key(provider: str, before: str) -> str | None:
    """What is typed is not shown. None where there is a key already, or none is needed."""
    row = PROVIDERS.get(provider)
    if row is None or (not row.needs_key and provider == "ollama"):
        return None
    keeps = f", or Enter for the one in {before}" if before else ""
    keeps = keeps or ("" if row.needs_key else ", or Enter for none")
    try:
        typed = getpass(f"Key of {provider} (it is not shown{keeps}): ")
    except EOFError:
        raise _nothing() from None
    return None if keeps and not typed.strip() else typed


def _model(provider: str) -> str | None:
    usual = PROVIDERS[provider].default_model
    return _answer(f"Model [{usual or 'the first that it has'}]: ") or None


def _answer(question: str) -> str:
    say(question, end="")
    line = sys.stdin.readline()
    if not line:
        raise _nothing()
    return line.strip()


def _nothing() -> BadRequest:
    return BadRequest("there was no answer.", hint="Nothing was changed.")
