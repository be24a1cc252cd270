"""`dodona onboard`: who answers, and the key for it."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from getpass import getpass
from typing import Annotated

from cyclopts import Parameter

from dodona.app.models.credentials import MAX_KEY_LENGTH
from dodona.app.models.onboarding import (
    PROVIDER_CHOICES,
    Onboarding,
    OnboardingRequest,
    OnboardingResult,
    check_provider,
)
from dodona.cli.arguments import AsJson
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.terminal.output import format_columns, print_json, print_note, print_text
from dodona.core.errors import BadRequest
from dodona.models.providers import PROVIDERS

_DESCRIPTIONS = {
    "ollama": "models on this machine, no key",
    "openai-compatible": "a server of your own",
    "extractive": "no language model: quotes what tools find",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OnboardFlags:
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
    flags: Annotated[OnboardFlags | None, Parameter(name="*")] = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Choose who answers, and give the key; without options, it asks.

    The key is never shown, goes to a file that only you may read, and is sent to nobody now. The
    config file keeps its comments and all else that it says.
    """
    before = Onboarding(os.environ, config, redactor)
    done = before.set_up(_build_request(flags or OnboardFlags(), before))
    if json:
        print_json(redactor.scrub_all(asdict(done)))
    else:
        _print_result(done)


def _build_request(flags: OnboardFlags, onboarding: Onboarding) -> OnboardingRequest:
    """What the flags say, and a person where they say nothing."""
    if flags.key_stdin and flags.key_from:
        raise BadRequest("--key-stdin and --key-from exclude each other.", hint="Choose one.")
    has_person = sys.stdin.isatty() and not flags.key_stdin
    if flags.provider is None and not has_person:
        raise BadRequest("nobody is there to be asked.", hint="Name it: --provider NAME")
    name = (
        _prompt_provider(onboarding.provider)
        if flags.provider is None
        else check_provider(flags.provider)
    )
    base_url, key, model = flags.base_url, None, flags.model
    if flags.provider is None and name == "openai-compatible" and base_url is None:
        base_url = _prompt("Its address, like http://127.0.0.1:8000/v1: ") or None
    if flags.key_stdin:
        key = sys.stdin.read(5 * MAX_KEY_LENGTH)
    elif has_person and flags.key_from is None:
        key = _prompt_key(name, onboarding.key_location(name))
    if flags.provider is None and model is None and name in PROVIDERS:
        model = _prompt_model(name)
    return OnboardingRequest(
        provider=name, model=model, base_url=base_url, key=key, key_source=flags.key_from
    )


def _print_result(result: OnboardingResult) -> None:
    rows = [
        ("provider", result.provider),
        ("model", result.model or "-"),
        ("key", result.key or "-"),
    ]
    print_text(format_columns([*rows, ("config", str(result.config))]))
    for line in result.notes:
        print_note(line)
    print_text('Try: dodona ask "…"')


# -- what a person is asked --------------------------------------------------------------------


def _prompt_provider(default: str | None) -> str:
    default = default if default in PROVIDER_CHOICES else PROVIDER_CHOICES[0]
    print_text("Who answers?")
    rows = [
        (f"  {place}", name, _describe(name))
        for place, name in enumerate(PROVIDER_CHOICES, start=1)
    ]
    print_text(format_columns(rows))
    answer = _prompt(f"Number or name [{default}]: ") or default
    is_place = answer.isdecimal() and 0 < int(answer) <= len(PROVIDER_CHOICES)
    return PROVIDER_CHOICES[int(answer) - 1] if is_place else check_provider(answer)


def _describe(provider: str) -> str:
    return _DESCRIPTIONS.get(provider) or PROVIDERS[provider].default_model


def _prompt_key(provider: str, existing: str) -> str | None:
    """What is typed is not shown. None where there is a key already, or none is needed."""
    row = PROVIDERS.get(provider)
    if row is None or (not row.needs_key and provider == "ollama"):
        return None
    keeps = f", or Enter for the one in {existing}" if existing else ""
    keeps = keeps or ("" if row.needs_key else ", or Enter for none")
    try:
        typed = getpass(f"Key of {provider} (it is not shown{keeps}): ")
    except EOFError:
        raise _no_answer_error() from None
    return None if keeps and not typed.strip() else typed


def _prompt_model(provider: str) -> str | None:
    usual = PROVIDERS[provider].default_model
    return _prompt(f"Model [{usual or 'the first that it has'}]: ") or None


def _prompt(question: str) -> str:
    print_text(question, end="")
    line = sys.stdin.readline()
    if not line:
        raise _no_answer_error()
    return line.strip()


def _no_answer_error() -> BadRequest:
    return BadRequest("there was no answer.", hint="Nothing was changed.")
