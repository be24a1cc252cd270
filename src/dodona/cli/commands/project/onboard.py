"""`dodona onboard`: choose a model provider, save its API key and check both with a request."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import asdict, dataclass
from decimal import Decimal
from getpass import getpass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dodona.app.config.config import load_config
from dodona.app.models.credentials import MAX_KEY_LENGTH, Credentials
from dodona.app.models.factory import price_list
from dodona.app.models.onboarding import (
    PROVIDER_CHOICES,
    Onboarding,
    OnboardingRequest,
    OnboardingResult,
    check_provider,
)
from dodona.app.models.probe import default_targets
from dodona.app.models.selection import ModelSelector
from dodona.app.models.trial import Trial, try_model
from dodona.cli.arguments import flag
from dodona.cli.options import DEFAULTS, Options
from dodona.cli.terminal.output import REDACTOR, format_columns, print_json, print_note, print_text
from dodona.core.errors import BadRequest, ProviderError
from dodona.models.providers import PROVIDERS
from dodona.net.http import HttpPool

_SAVED_HINT = "The settings are saved. To change them, run dodona onboard again."
_DESCRIPTIONS = {
    "ollama": "models on this machine, no key",
    "openai-compatible": "your own server",
    "extractive": "no language model; quotes search results",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OnboardFlags:
    """Answers given as options instead of at the prompt."""

    provider: Annotated[str | None, Parameter(help="Model provider.")] = None
    model: Annotated[
        str | None,
        Parameter(help="Model name. Defaults to the provider's default model."),
    ] = None
    base_url: Annotated[
        str | None,
        Parameter(help="Base URL of the provider's API. Defaults to the provider's URL."),
    ] = None
    key_stdin: Annotated[bool, flag("Read the key from standard input.")] = False
    key_from: Annotated[
        str | None, Parameter(help="Reference to the key, env:NAME or file:PATH. It is not copied.")
    ] = None
    no_check: Annotated[bool, flag("Do not send a request to the model.")] = False


def onboard(
    *,
    flags: Annotated[OnboardFlags | None, Parameter(name="*")] = None,
    options: Options = DEFAULTS,
) -> None:
    """Choose a model provider and save its API key. Sends one small request to check them."""
    flags = flags or OnboardFlags()
    onboarding = Onboarding(os.environ, options.config, REDACTOR)
    result = onboarding.set_up(_build_request(flags, onboarding))
    if not options.json:
        _print_result(result)
    trial = None if flags.no_check else asyncio.run(_try_model(result.config))
    if options.json:
        trial_json = trial and {"tokens": trial.tokens, "cost_usd": _as_float(trial.cost_usd)}
        print_json(REDACTOR.scrub_all({**asdict(result), "request": trial_json}))
        return
    if trial is not None:
        print_text(f"The model answered one request ({trial}).")
    print_text('Try: dodona ask "…"')


async def _try_model(file: Path) -> Trial | None:
    """Send a request to the model that the config now selects; None if it needs no server."""
    config = await asyncio.to_thread(load_config, os.environ, file)
    credentials = Credentials(config, os.environ, REDACTOR)
    async with HttpPool() as http:
        selector = ModelSelector(
            config, credentials, http=http, targets=default_targets(os.environ)
        )
        choice = await selector.choose()
        if choice.provider not in PROVIDERS:
            return None
        try:
            return await try_model(
                choice,
                temperature=config.settings.agent.temperature,
                prices=price_list(config.settings),
                http=http,
                redactor=REDACTOR,
            )
        except ProviderError as error:
            error.hint = f"{error.hint} {_SAVED_HINT}".strip()
            raise


def _as_float(cost: Decimal | None) -> float | None:
    return None if cost is None else float(cost)


def _build_request(flags: OnboardFlags, onboarding: Onboarding) -> OnboardingRequest:
    """Combine the flags with prompts for missing values."""
    if flags.key_stdin and flags.key_from:
        raise BadRequest("--key-stdin and --key-from cannot be combined.", hint="Use one of them.")
    is_interactive = sys.stdin.isatty() and not flags.key_stdin
    if flags.provider is None and not is_interactive:
        raise BadRequest("cannot prompt without a terminal.", hint="Use --provider NAME.")
    name = (
        _prompt_provider(onboarding.provider)
        if flags.provider is None
        else check_provider(flags.provider)
    )
    base_url, key, model = flags.base_url, None, flags.model
    if flags.provider is None and name == "openai-compatible" and base_url is None:
        base_url = _prompt("Base URL, for example http://127.0.0.1:8000/v1: ") or None
    if flags.key_stdin:
        key = sys.stdin.read(5 * MAX_KEY_LENGTH)
    elif is_interactive and flags.key_from is None:
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


# -- prompts -----------------------------------------------------------------------------------


def _prompt_provider(default: str | None) -> str:
    default = default if default in PROVIDER_CHOICES else PROVIDER_CHOICES[0]
    print_text("Choose a model provider:")
    rows = [
        (f"  {number}", name, _describe(name))
        for number, name in enumerate(PROVIDER_CHOICES, start=1)
    ]
    print_text(format_columns(rows))
    answer = _prompt(f"Number or name [{default}]: ") or default
    is_number = answer.isdecimal() and 0 < int(answer) <= len(PROVIDER_CHOICES)
    return PROVIDER_CHOICES[int(answer) - 1] if is_number else check_provider(answer)


def _describe(provider: str) -> str:
    return _DESCRIPTIONS.get(provider) or PROVIDERS[provider].default_model


def _prompt_key(provider: str, existing: str) -> str | None:
    """Prompt for a key without echo. None if there is a key already or none is needed."""
    row = PROVIDERS.get(provider)
    if row is None or (not row.needs_key and provider == "ollama"):
        return None
    default = f"; Enter keeps the key in {existing}" if existing else ""
    default = default or ("" if row.needs_key else "; Enter for none")
    try:
        typed = getpass(f"API key for {provider} (hidden{default}): ")
    except EOFError:
        raise _no_answer_error() from None
    return None if default and not typed.strip() else typed


def _prompt_model(provider: str) -> str | None:
    default = PROVIDERS[provider].default_model
    return _prompt(f"Model [{default or 'first available'}]: ") or None


def _prompt(question: str) -> str:
    print_text(question, end="")
    line = sys.stdin.readline()
    if not line:
        raise _no_answer_error()
    return line.strip()


def _no_answer_error() -> BadRequest:
    return BadRequest("no input.", hint="Nothing was changed.")
